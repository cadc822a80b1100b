"""The scikit-learn face of the library: validate → tensors → model → numpy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gptree.estimators.explain import ExplainMixin
from gptree.estimators.feature_map import SphereMap, UnitLength, all_finite, make_feature_map
from gptree.estimators.incremental import IncrementalMixin, to_numpy
from gptree.estimators.open_set import OpenSetMixin
from gptree.estimators.prior_mean import as_expert
from gptree.estimators.storage import load_estimator, save_estimator
from gptree.experts import Examples, Expert, FittedExpert
from gptree.incremental import Entry, Growth, fit_base, now
from gptree.inference import (
    CoordinateAscent,
    FixedInducingPoints,
    Gibbs,
    Inference,
    LargeNodes,
    SparseVariational,
    as_large_nodes,
    class_inducing,
)
from gptree.maths.kernels import as_kernel, make_kernel
from gptree.maths.sphere import unit_length
from gptree.model import TrainingData, fit_forest
from gptree.tree import ClassTree, build_tree, label_hashes

#: Of the default kernel. Between 5 and 10 little changes; below, the GP corrects less. Three sweeps around experts do
#: as well as many, and cost less.
OUTPUT_SCALE = 10.0
EXPERT_SWEEPS = CoordinateAscent(sweeps=3, tolerance=0.0)
#: Likelihood weight of every point where all classes have one example: the experts decide, and the variances keep their
#: order for `novelty_score`.
ONE_SHOT_WEIGHT = 1e-3
#: A fitted tree whose inference did not settle at this share of its nodes warns.
UNSETTLED_SHARE = 0.05


@dataclass(eq=False, repr=False)
class _TreeClassifier(IncrementalMixin, OpenSetMixin, ExplainMixin, ClassifierMixin, BaseEstimator):
    """Parameters and behaviour that a single tree and a forest share; the fields are the parameters.

    kernel : None, "linear", "rbf", "matern52" or a GPyTorch kernel
        None is an RBF kernel with length-scale 1 and output scale 10. `kernel_` is what was fitted.
    inference : None, Gibbs(...), CoordinateAscent(...) or SparseVariational(...)
        None is three sweeps of coordinate ascent around experts, and `CoordinateAscent()` with zero prior means.
    prior_mean : "experts", None, an expert, a classifier or a function
        Where the prior means of the nodes come from: the default pool of closed-form experts; nowhere (zero means, as
        in the paper); an expert of `gptree.experts`; any scikit-learn classifier with `predict_proba`, which is
        cross-validated; or a function from raw features to class scores in the order of `classes_` that never saw the
        labels, such as a zero-shot model.
    tree : None, a builder, its name, a ClassTree or nested lists of labels
        None is 2-means on the class means, the paper's tree.
    predict_at : "mean" or "quadrature"
        Node probabilities at the latent mean, or integrated over the latent posterior.
    feature_map : None, "sphere", "unit" or a transformer
    class_prior : None, "empirical" or an array in the order of `classes_`
        Class probabilities that the nodes' prior means express. None leaves the prior means as they are.
    node_limit : "auto", None, a number, SubsetOfData(...) or InducingPoints(...)
        What nodes with many points do. "auto" is `InducingPoints(256)` for coordinate ascent and
        `SubsetOfData(1024)` for Gibbs sampling; a number is `SubsetOfData` of so many points; None is no limit.
        With growth, the nodes of the base session see their points through the exemplars of their classes.
    growth : None or Growth(...)
        A `Growth` makes `fit` the base session of a model whose classes keep arriving: only a few examples of each
        class are kept. Without it `fit` keeps all, and the first `add_classes` learns what it needs from them.
    dtype : "float64" or "float32"
    device : "auto", "cpu", "cuda", …
    memory_budget : bytes that Gram matrices, factors and working memory may take together, roughly.
        None is 2 GiB, and a quarter of the memory of a GPU.
    n_jobs : workers for the nodes, through joblib; any joblib backend.
    random_state : int, RandomState or None
    verbose : show a progress bar while fitting.
    """

    kernel: str | Kernel | None = None
    inference: Inference | None = None
    prior_mean: Any = "experts"
    tree: Any = None
    predict_at: Literal["mean", "quadrature"] = "mean"
    feature_map: Any = "sphere"
    class_prior: Any = None
    node_limit: str | int | LargeNodes | None = "auto"
    growth: Growth | None = None
    dtype: str = "float64"
    device: str = "auto"
    memory_budget: int | None = None
    n_jobs: int | None = None
    random_state: Any = None
    verbose: bool = False

    # ------------------------------------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, held_out: Any = None) -> Self:
        """Fit to features X (n, d) and labels y (n,). A failed fit leaves the estimator as it was.

        unseen : (n,) booleans; None is all
            Rows that whatever made the features was not trained on, two of every class or more. A network knows the
            rows it was trained on by heart, so that whoever learns from their features is too sure of others. Experts
            learn from all rows; how sure they are, the nodes, and what is kept come from held-out rows alone.
        """
        before = dict(self.__dict__)
        try:
            self._fit(X, y, held_out)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, y: Any, held_out: Any) -> None:
        X, y = validate_data(self, to_numpy(X), to_numpy(y), dtype=[np.float64, np.float32])
        with warnings.catch_warnings():  # one or two examples a class are what this library is for
            warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%")
            check_classification_targets(y)
        self.classes_, self.y_ = np.unique(y, return_inverse=True)
        fresh = None if held_out is None else self._checked_held_out(held_out)
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        # everything that can be wrong with the parameters shows before any work is done
        if self.predict_at not in ("mean", "quadrature"):
            raise ValueError(f'predict_at must be "mean" or "quadrature", not {self.predict_at!r}.')
        kernel = as_kernel(make_kernel("rbf", OUTPUT_SCALE) if self.kernel is None else self.kernel, *self._place())
        expert, inference = as_expert(self.prior_mean), self._inference()
        large_nodes, memory_budget = self._large_nodes(inference), self._budget()
        self.class_log_prior_ = self._log_prior()
        self._check_growth()
        self.feature_map_ = make_feature_map(self.feature_map)

        if self.feature_map_ is not None:
            self.feature_map_.fit(X, y)
        features = self._features(X)
        trees = self._build_trees(features)
        counts = tuple(np.bincount(self.y_).tolist())
        self.journal_ = (Entry("fit", tuple(self.classes_.tolist()), counts, time=now()),)
        self.base_ = self.grown_ = None
        self.origins_ = np.stack([np.zeros(len(X), dtype=np.int64), np.arange(len(X))], 1)
        shared = {"memory_budget": memory_budget, "n_jobs": self.n_jobs, "seed": self.seed_}
        with _progress(self.verbose, sum(tree.n_nodes for tree in trees)) as advance:
            if self.growth is not None:
                self._fit_base(features, trees, kernel, inference, held_out=fresh, progress=advance, **shared)
            else:
                self.experts_, self.left_out_, weights = self._fit_experts(expert, features, X, fresh)
                if fresh is not None:
                    own = torch.as_tensor(fresh, device=features.device)
                    features, self.y_, self.origins_ = features[own], self.y_[fresh], self.origins_[fresh]
                    self.left_out_ = None if self.left_out_ is None else self.left_out_[own]
                inducing = None
                if isinstance(inference, SparseVariational):
                    large_nodes, inducing = self._inducing(inference, features)
                data = TrainingData(
                    features, self.y_, self.classes_.tolist(), self._with_prior(self.left_out_), weights, inducing
                )
                self.model_ = fit_forest(
                    trees, data, kernel, inference, large_nodes=large_nodes, progress=advance, **shared
                )
        self._report_convergence()

    def _fit_base(
        self, features: Tensor, trees: list[ClassTree], kernel: Kernel, inference: Inference, **how: Any
    ) -> None:
        """The base session of a model that grows: its exemplars are all the examples it keeps."""
        assert self.growth is not None
        self.base_, rows = fit_base(
            features,
            self.y_,
            self.classes_.tolist(),
            trees,
            kernel,
            inference,
            self.growth,
            with_experts=self.prior_mean is not None,
            predict_at=self.predict_at,
            on_sphere=self._on_sphere,
            **how,
        )
        self.model_, self.experts_, self.left_out_ = self.base_.model, self.base_.expert, self.base_.left_out
        self.y_, self.origins_ = self.y_[rows], self.origins_[rows]

    def _tree_count(self) -> int:
        return 1

    def _checked_held_out(self, held_out: Any) -> np.ndarray:
        fresh = np.asarray(to_numpy(held_out))
        if fresh.shape != self.y_.shape or fresh.dtype != bool:
            raise ValueError(
                f"held_out must hold {len(self.y_)} booleans, one per row of X, got {fresh.dtype} of shape "
                f"{fresh.shape}."
            )
        counts = np.bincount(self.y_[fresh], minlength=len(self.classes_))
        if counts.min() < 2:
            raise ValueError(
                f"class {self.classes_.tolist()[counts.argmin()]!r} has too few held-out rows, {counts.min()} of the "
                "two that every class needs: hold more rows back from what makes the features, or leave held_out=None."
            )
        return fresh

    def _fit_experts(
        self, expert: Expert | None, features: Tensor, raw: np.ndarray, held_out: np.ndarray | None
    ) -> tuple[FittedExpert | None, Tensor | None, Tensor | None]:
        """The fitted source of prior means, its left-out log-probabilities at the training points, and weights.

        Where every class has one example, left-out predictions know nothing of the class they are asked about: the
        experts' errors there teach nothing, and the GP is given almost no say.
        """
        if expert is None or len(self.classes_) == 1:
            return None, None, None
        codes = torch.as_tensor(self.y_, device=features.device)
        calibration = None if held_out is None else torch.as_tensor(held_out, device=features.device)
        fit = expert.fit(
            Examples.of(self._on_sphere(features), codes, len(self.classes_), raw=raw, calibration=calibration)
        )
        weights = None if bool(fit.usable.any()) else torch.full_like(features[:, 0], ONE_SHOT_WEIGHT)
        return fit.expert, fit.left_out, weights

    def _with_prior(self, scores: Tensor | None) -> Tensor | None:
        """Class scores (n, C) and the class prior together; (1, C) if there is only the prior, None if neither."""
        if self.class_log_prior_ is None:
            return scores
        prior = self._tensor(self.class_log_prior_[None])
        return prior if scores is None else scores + prior

    def _build_trees(self, features: Tensor) -> list[ClassTree]:
        """The trees over the class means of the mapped features; tree t of a forest has its own seed."""
        codes = torch.as_tensor(self.y_, device=features.device)
        sums = features.new_zeros(len(self.classes_), features.shape[1]).index_add_(0, codes, features)
        means = sums.double().cpu().numpy() / np.bincount(self.y_)[:, None]
        return [build_tree(self.tree, means, self.classes_.tolist(), seed) for seed in self._tree_seeds()]

    def _tree_seeds(self) -> list[int]:
        others = np.random.SeedSequence(self.seed_).generate_state(self._tree_count() - 1)
        return [self.seed_, *map(int, others)]

    def _large_nodes(self, inference: Inference) -> LargeNodes | None:
        if isinstance(inference, SparseVariational) and self.node_limit not in ("auto", None):
            raise ValueError(
                f'SparseVariational has its own inducing points: leave node_limit="auto" (got {self.node_limit!r}).'
            )
        return as_large_nodes(self.node_limit, isinstance(inference, CoordinateAscent))

    def _inducing(self, inference: SparseVariational, features: Tensor) -> tuple[LargeNodes, np.ndarray]:
        """All nodes see all their rows, through the inducing points of their classes; and which rows those are."""
        hashes = label_hashes(self.classes_.tolist())
        rows = class_inducing(features.cpu().numpy(), self.y_, inference.inducing, hashes, self.seed_)
        return FixedInducingPoints(inducing=inference.cap, points=len(features)), rows

    def _inference(self) -> Inference:
        default = CoordinateAscent() if self.prior_mean is None else EXPERT_SWEEPS
        inference = default if self.inference is None else self.inference
        if not isinstance(inference, Gibbs | CoordinateAscent):
            raise TypeError(
                f"inference must be Gibbs(...), CoordinateAscent(...) or SparseVariational(...), not {inference!r}."
            )
        return inference

    def _log_prior(self) -> np.ndarray | None:
        """log class prior (C,), or None."""
        if self.class_prior is None:
            return None
        if isinstance(self.class_prior, str):
            if self.class_prior != "empirical":
                raise ValueError(f'class_prior must be None, "empirical" or an array, not {self.class_prior!r}.')
            prior = np.bincount(self.y_).astype(float)
        else:
            prior = np.asarray(self.class_prior, dtype=float)
        if prior.shape != self.classes_.shape or not np.isfinite(prior).all() or (prior <= 0).any():
            raise ValueError(
                f"class_prior must hold {len(self.classes_)} positive numbers, one for each of classes_ in that order."
            )
        return np.log(prior / prior.sum())

    def _report_convergence(self) -> None:
        settled = self.model_.diagnostics.converged
        if settled is not None and len(settled) and float((~settled).double().mean()) > UNSETTLED_SHARE:
            warnings.warn(
                f"inference did not settle at {int((~settled).sum())} of {len(settled)} nodes: allow more sweeps "
                "(inference=CoordinateAscent(sweeps=…)), more epochs of mini-batches, or a larger tolerance. See "
                "diagnostics_.",
                ConvergenceWarning,
                stacklevel=4,
            )

    # --------------------------------------------------------------------------------------------- prediction

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Class log-probabilities (n, C), columns as in `classes_`."""
        check_is_fitted(self)
        X = self._validated(X)
        return self._log_probabilities(self._features(X), X).cpu().numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns as in `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row."""
        winners = self.predict_log_proba(X).argmax(1)
        return self.classes_[winners]

    def _log_probabilities(self, features: Tensor, raw: np.ndarray) -> Tensor:
        def scores(rows: slice) -> Tensor:
            found = self._class_scores(features[rows], raw[rows])
            assert found is not None
            return found

        has_prior = self.experts_ is not None or self.class_log_prior_ is not None
        return self.model_.log_probabilities(features, scores if has_prior else None, self.predict_at)

    def _class_scores(self, features: Tensor, raw: np.ndarray) -> Tensor | None:
        """Class log-scores (T, C), whose log-odds are the nodes' prior means; None if those are zero."""
        scores = None if self.experts_ is None else self.experts_.log_probabilities(self._on_sphere(features), raw)
        scores = self._with_prior(scores)
        return None if scores is None else scores.expand(len(features), -1)

    @property
    def tree_(self) -> ClassTree:
        """The class tree (of a forest: the first one); node and class numbers refer to `classes_`."""
        check_is_fitted(self)
        return self.model_.trees[0]

    @property
    def kernel_(self) -> Kernel:
        """The kernel that was fitted."""
        check_is_fitted(self)
        return self.model_.predictor.grams.kernel

    @property
    def diagnostics_(self) -> dict[str, np.ndarray]:
        """How inference went at each node: sweeps, bound, change, converged, jitter and r_hat where they apply, and the
        kind of posterior."""
        check_is_fitted(self)
        found = vars(self.model_.diagnostics)
        out = {name: value.numpy() for name, value in found.items() if value is not None and name != "nodes"}
        kind = np.empty(self.model_.predictor.n_nodes, dtype="U6")
        for posterior in self.model_.predictor.posteriors:
            kind[posterior.nodes.cpu().numpy()] = posterior.kind
        return {**out, "posterior": kind}

    # -------------------------------------------------------------------------------------------- save and load

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder: JSON and safetensors, no code. Safe against interruption."""
        check_is_fitted(self)
        save_estimator(self, folder)

    @classmethod
    def load(cls, folder: str | Path, *, kernel: Kernel | None = None, device: str | None = None) -> Self:
        """Read an estimator of this class; `kernel` is needed for kernels of your own, `device` moves the model."""
        return load_estimator(folder, {cls.__name__: cls}, kernel, device)

    # -------------------------------------------------------------------------------------------- arrays in, out

    def _validated(self, X: Any) -> np.ndarray:
        return np.asarray(validate_data(self, to_numpy(X), dtype=[np.float64, np.float32], reset=False))

    def _features(self, X: np.ndarray) -> Tensor:
        """Mapped features as a tensor; rows that the map cannot place are an error."""
        mapped = X if self.feature_map_ is None else np.asarray(self.feature_map_.transform(X))
        if not all_finite(mapped):
            raise ValueError("the feature map gives values that are not finite; scale the features or change the map.")
        return self._tensor(mapped)

    def _on_sphere(self, features: Tensor) -> Tensor:
        """What experts see: features of unit length, whatever the map."""
        if isinstance(self.feature_map_, SphereMap | UnitLength):
            return features
        return self._tensor(unit_length(features.cpu().numpy()))

    def _tensor(self, values: np.ndarray) -> Tensor:
        dtype, device = self._place()
        return torch.as_tensor(values, dtype=dtype, device=device)

    def _place(self) -> tuple[torch.dtype, torch.device]:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f'dtype must be "float32" or "float64", not {self.dtype!r}.')
        name = self.device
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        return getattr(torch, self.dtype), torch.device(name)

    def _budget(self) -> int:
        if self.memory_budget is None:
            place = self._place()[1]
            return torch.cuda.get_device_properties(place).total_memory // 4 if place.type == "cuda" else 2**31
        if not self.memory_budget >= 2**20:
            raise ValueError(f"memory_budget is in bytes and must be at least 2**20, got {self.memory_budget!r}.")
        return int(self.memory_budget)


@dataclass(eq=False, repr=False)
class GPTreeClassifier(_TreeClassifier):
    """One class tree with a Gaussian process at every node."""

    @classmethod
    def paper(
        cls,
        kernel: str = "linear",
        output_scale: float = 4.0,
        length_scale: float = 1.0,
        inference: Inference | None = None,
        **parameters: Any,
    ) -> GPTreeClassifier:
        """The settings of the GP-Tree paper: zero mean, inputs of unit length, a fixed kernel, quadrature."""
        return cls(**_paper(kernel, output_scale, length_scale, inference, parameters))


@dataclass(eq=False, repr=False)
class GPForestClassifier(_TreeClassifier):
    """Several class trees, built from different seeds, their probabilities averaged.

    Nodes that several trees have in common are fitted once.
    """

    n_estimators: int = 4

    def _tree_count(self) -> int:
        if not (isinstance(self.n_estimators, int | np.integer) and self.n_estimators >= 1):
            raise ValueError(f"n_estimators must be a positive number, got {self.n_estimators!r}.")
        return int(self.n_estimators)


def load_model(
    folder: str | Path, *, kernel: Kernel | None = None, device: str | None = None
) -> GPTreeClassifier | GPForestClassifier:
    """Read whichever estimator a folder holds."""
    families = {family.__name__: family for family in (GPTreeClassifier, GPForestClassifier)}
    return load_estimator(folder, families, kernel, device)


def _paper(
    kernel: str,
    output_scale: float,
    length_scale: float,
    inference: Inference | None,
    parameters: dict[str, Any],
) -> dict[str, Any]:
    settings = {
        "kernel": make_kernel(kernel, output_scale, length_scale),
        "inference": Gibbs() if inference is None else inference,
        "prior_mean": None,
        "predict_at": "quadrature",
        "feature_map": "unit",
        "node_limit": None,
    }
    return {**settings, **parameters}


@contextmanager
def _progress(shown: bool, nodes: int) -> Iterator[Callable[[int], None] | None]:
    if not shown:
        yield None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("fitting nodes", total=nodes)
        yield lambda count: bar.advance(task, count)
