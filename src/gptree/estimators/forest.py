"""Classifiers of one class tree, and of several: fitting, saving and loading."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from gptree.estimators.answers import AnswersMixin
from gptree.estimators.base import EXPERT_SWEEPS, TreeEstimator, change
from gptree.estimators.evidence import (
    DEFAULT_SCALE,
    ScaleEvidence,
    choose,
    default_scale,
    left_out_losses,
)
from gptree.estimators.explain import ExplainMixin
from gptree.estimators.feature_map import make_feature_map
from gptree.estimators.forgetting import ForgetMixin
from gptree.estimators.left_out import LeftOutMixin
from gptree.estimators.open_set import OpenSetMixin
from gptree.estimators.posterior import PosteriorMixin
from gptree.estimators.prior import Rows, fit_prior
from gptree.estimators.progress import progress_bar
from gptree.estimators.row_order import direction, distinct, shuffled
from gptree.estimators.state import FittedState, map_features, on_sphere, with_ids, with_prior
from gptree.estimators.storage import load_estimator, save_estimator
from gptree.estimators.validation import (
    as_expert,
    check_held_out,
    check_ids,
    check_memory,
    check_predict_at,
    check_targets,
    check_weights,
    class_log_prior,
    to_numpy,
)
from gptree.experts import MANY_CLASSES, Expert, few_rows, fit_weighted
from gptree.experts.wrong_labels import likelihood_weights
from gptree.incremental import Entry, base_experts, fit_base
from gptree.inference import FixedInducingPoints, Gibbs, Inference, LargeNodes, class_inducing
from gptree.maths.kernels import as_kernel, check_kernel, make_kernel
from gptree.model import ExpertPrior, ForestModel, TrainingData, fit_forest
from gptree.progress import Progress, within
from gptree.tree import ClassTree, build_tree, label_hashes

C = TypeVar("C")

#: A fitted tree whose inference did not settle at this share of its nodes warns.
UNSETTLED_SHARE = 0.05


@dataclass(eq=False, repr=False)
class _TreeClassifier(ForgetMixin, OpenSetMixin, AnswersMixin, ExplainMixin, LeftOutMixin, PosteriorMixin):
    """Behaviour that a single tree and a forest share."""

    @change
    def fit(self, X: Any, y: Any, held_out: Any = None, ids: Any = None, sample_weight: Any = None) -> Self:
        """Fit to features and labels. A failed fit leaves the estimator as it was.

        Parameters
        ----------
        X : array-like (n, d)
            Features: embeddings, or anything else in a table.
        y : array-like (n,)
            Labels.
        held_out : array-like of bool (n,), optional
            Rows that the network behind the features was not trained on, two of every class or more. A network knows
            its training rows by heart, so that a classifier of their features is too sure of others. Experts learn from
            all rows; how sure they are, the nodes, and the exemplars come from held-out rows alone. None is all rows.
        ids : sequence of str (n,), optional
            What the rows are called, such as file names: explanations name them.
        sample_weight : array-like (n,), optional
            How many times each row counts: 0 as if it were not there, 2 as if it came twice, fractions in between.
            Everything that is learnt counts rows so. Equal rows of a class are one row anyway, with the sum of their
            weights.

        Returns
        -------
        self
        """
        fitted = copy.copy(self)  # what validation writes down goes there
        fitted.state_ = fitted._fit(X, y, held_out, ids, sample_weight)
        self.__dict__ = fitted.__dict__
        return self

    def _fit(self, X: Any, y: Any, held_out: Any, ids: Any, sample_weight: Any) -> FittedState:
        X, y = validate_data(self, to_numpy(X), to_numpy(y), dtype=[np.float64, np.float32], order="C")
        check_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) == 1:
            warnings.warn(
                f"there is one class only, {classes.tolist()[0]!r}: every prediction will be it until add_classes "
                "brings another.",
                UserWarning,
                stacklevel=4,
            )
        mask = None if held_out is None else check_held_out(held_out, codes, classes)
        names = None if ids is None else check_ids(ids, len(X))
        weights = check_weights(sample_weight, codes, classes)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        # everything that can be wrong with the parameters shows before any work is done
        check_predict_at(self.predict_at)
        kernel, expert, inference = self._kernel(), as_expert(self.prior_mean), self._inference()
        if self.growth is not None and self.prior_mean == "experts":
            expert = base_experts(len(classes))
        large_nodes = self._large_nodes(inference)
        itemsize = max(X.itemsize, self._placement()[0].itemsize)
        again = self.kernel is None and self.growth is None
        size = X.shape, len(classes), itemsize
        memory_budget = check_memory(self.memory_budget, self._memory_bytes(), *size, expert, again)
        log_prior = class_log_prior(self.class_prior, codes, len(classes), weights)
        self._check_growth()
        feature_map = make_feature_map(self.feature_map)

        order, weights, mask = distinct(X, codes, weights, mask)
        given, X, y, codes = X, X[order], y[order], codes[order]
        if feature_map is not None:
            fit_weighted(feature_map, X, y, weights)
        features = map_features(feature_map, X, *self._placement())
        del X  # a copy
        check_kernel(kernel, features)
        counted = None if weights is None else torch.as_tensor(weights).to(features)
        along = direction(features, torch.as_tensor(codes, device=features.device), classes.tolist(), counted)
        places = shuffled(features, codes, along, classes.tolist(), seed)
        at = torch.as_tensor(places, device=features.device)
        features, order = features[at], order[places]
        counted = None if counted is None else counted[at]
        mask = None if mask is None else mask[places]
        entry = Entry("fit", tuple(classes.tolist()), tuple(np.bincount(codes).tolist()))
        origins = np.stack([np.zeros_like(order), order], 1)
        fitted: dict[str, Any] = {
            "classes": classes,
            "seed": seed,
            "feature_map": feature_map,
            "journal": (entry,),
            "class_log_prior": log_prior,
        }
        with progress_bar(self.verbose) as progress:
            shared = {"memory_budget": memory_budget, "n_jobs": self.n_jobs, "seed": seed, "progress": progress}
            seeds = self._tree_seeds(seed)
            trees = self._build_trees(features, codes, classes.tolist(), seeds, counted, progress)
            if self.growth is not None:
                base, rows, fitted["log_frequencies"] = fit_base(
                    features,
                    codes,
                    classes.tolist(),
                    trees,
                    partial(self._base_kernel, len(codes), len(classes)),
                    inference,
                    self.growth,
                    expert=expert,
                    predict_at=self.predict_at,
                    on_sphere=lambda features: on_sphere(feature_map, features),
                    held_out=mask,
                    weights=counted,
                    **shared,
                )
                fitted |= {"base": base, "model": base.model, "experts": base.expert, "left_out": base.left_out}
                fitted |= {"weights": base.weights, "beliefs": base.beliefs}
                codes, origins = codes[rows], origins[rows]
            else:
                rows = Rows(features, on_sphere(feature_map, features), given, codes, mask, counted, order)
                prior = fit_prior(expert, rows, len(classes), trees, progress=progress)
                if self.kernel is None and inference.learn is None and prior.informed:
                    about = (rows, classes.tolist(), expert, prior, log_prior)
                    evidence = self._scale_evidence(*about, large_nodes, shared)
                    kernel = as_kernel(make_kernel("rbf", evidence.scale), *self._placement())
                    fitted["evidence"] = evidence
                data = _training_data(rows, classes.tolist(), prior, log_prior)
                if inference.inducing is not None:
                    large_nodes, inducing = _inducing(inference, data.X, data.y, classes.tolist(), seed)
                    data = replace(data, inducing=inducing)
                left_out, beliefs, codes = prior.left_out, prior.beliefs, data.y
                if mask is not None:
                    origins, seen = origins[mask], torch.as_tensor(mask, device=features.device)
                    known = left_out, counted, beliefs
                    left_out, counted, beliefs = (None if each is None else each[seen] for each in known)
                model = fit_forest(trees, data, kernel, inference, large_nodes=large_nodes, **shared)
                fitted |= {"model": model, "experts": prior.experts, "left_out": left_out}
                fitted |= {"weights": counted, "beliefs": beliefs}
                fitted["log_frequencies"] = prior.log_frequencies
        _report_convergence(fitted["model"])
        state = FittedState(**fitted, y=codes, origins=origins)
        return state if names is None else with_ids(state, names)

    def _base_kernel(self, n_rows: int, n_classes: int, spread: float) -> Kernel:
        """Of a base session: where classes have few rows, as without evidence, unless nothing is known left out."""
        known = few_rows(n_rows, n_classes) and spread < math.inf
        if self.kernel is None and self._inference().learn is None and known:
            return as_kernel(make_kernel("rbf", default_scale(n_rows, n_classes, spread)), *self._placement())
        return self._kernel()

    def _scale_evidence(
        self,
        rows: Rows,
        labels: list[Any],
        expert: Expert | None,
        prior: ExpertPrior,
        log_prior: np.ndarray | None,
        large_nodes: LargeNodes | None,
        shared: dict[str, Any],
    ) -> ScaleEvidence:
        """What left-out rows say about the output scale; see `gptree.estimators.evidence`.

        Of many classes some are asked, so that the choice takes no longer for more.
        """
        assert expert is not None
        assert prior.experts is not None
        if len(labels) > MANY_CLASSES:
            rows, labels, log_prior = _some_classes(rows, labels, log_prior, MANY_CLASSES)
        settled, seed = expert.settled(prior.experts), shared["seed"]
        progress = within(shared["progress"], "output scale")
        shared = {**shared, "progress": progress}
        few = few_rows(len(rows.codes), len(labels))  # of all rows, as the other settings
        kernel = as_kernel(make_kernel("rbf", DEFAULT_SCALE), *self._placement())

        def fit(kept: Rows) -> tuple[ForestModel, Callable[[Rows], Tensor]]:
            trees = self._build_trees(kept.features, kept.codes, labels, [seed], kept.counted, progress)
            prior = fit_prior(settled, kept, len(labels), trees, few, progress)
            data = _training_data(kept, labels, prior, log_prior)
            model = fit_forest(trees, data, kernel, EXPERT_SWEEPS, large_nodes=large_nodes, **shared)
            assert prior.experts is not None
            experts = prior.experts

            def scores(asked: Rows) -> Tensor:
                found = with_prior(experts.log_probabilities(asked.sphere, asked.raw), log_prior, asked.features)
                assert found is not None
                return found

            return model, scores

        default = default_scale(len(rows.codes), len(labels), prior.spread)
        return choose(*left_out_losses(rows, len(labels), fit, prior.noise), default=default)

    def _build_trees(
        self,
        features: Tensor,
        codes: np.ndarray,
        labels: list[Any],
        seeds: list[int],
        counted: Tensor | None,
        progress: Progress,
    ) -> list[ClassTree]:
        """A tree for each seed, over the class means of the mapped features."""
        numbers = torch.as_tensor(codes, device=features.device)
        rows = features if counted is None else features * counted[:, None]
        sums = features.new_zeros(len(labels), features.shape[1]).index_add_(0, numbers, rows)
        counts = np.bincount(codes, None if counted is None else counted.cpu().numpy())
        means = sums.double().cpu().numpy() / counts[:, None]
        trees, advance = [], progress("building trees", len(seeds))
        for seed in seeds:
            trees.append(build_tree(self.tree, means, labels, seed))
            advance(1)
        return trees

    # -------------------------------------------------------------------------------------------- save and load

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder: JSON and safetensors, no code. Safe against interruption.

        Parameters
        ----------
        folder : path
            New, empty, or one that holds a model already, which is replaced as a whole.
        """
        self._state()
        save_estimator(self, folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        kernel: Kernel | None = None,
        settings: Sequence[type] = (),
        device: str | None = None,
    ) -> Self:
        """Read an estimator of this class; see `gptree.load_model`, which reads any."""
        return load_estimator(folder, {cls.__name__: cls}, kernel, settings, device)


def _some_classes(
    rows: Rows, labels: list[Any], log_prior: np.ndarray | None, count: int
) -> tuple[Rows, list[Any], np.ndarray | None]:
    """The rows of so many classes, which their labels choose, numbered anew."""
    chosen = np.sort(np.argsort(label_hashes(labels))[:count])
    some = rows.some(np.isin(rows.codes, chosen))
    some = replace(some, codes=np.searchsorted(chosen, some.codes))
    return some, [labels[c] for c in chosen], None if log_prior is None else log_prior[chosen]


def _training_data(rows: Rows, labels: list[Any], prior: ExpertPrior, log_prior: np.ndarray | None) -> TrainingData:
    """What the nodes see of rows: the held-out ones alone, if there are any."""
    odds, beliefs = prior.odds, prior.weights
    if rows.held_out is not None:
        seen = torch.as_tensor(rows.held_out, device=rows.features.device)
        odds, beliefs = None if odds is None else odds.some(seen), None if beliefs is None else beliefs[seen]
        rows = rows.some(rows.held_out)
    scores = odds if odds is not None else with_prior(None, log_prior, rows.features)
    return TrainingData(rows.features, rows.codes, labels, scores, likelihood_weights(rows.counted, beliefs))


def _inducing(
    inference: Inference, features: Tensor, codes: np.ndarray, labels: list[Any], seed: int
) -> tuple[LargeNodes, np.ndarray]:
    """All nodes see all their rows, through the inducing points of their classes; and which rows those are."""
    assert inference.inducing is not None
    rows = class_inducing(features.cpu().numpy(), codes, inference.inducing, label_hashes(labels), seed)
    return FixedInducingPoints(inducing=inference.cap, points=len(features)), rows


def _report_convergence(model: ForestModel) -> None:
    settled = model.diagnostics.converged
    if settled is not None and len(settled) and float((~settled).double().mean()) > UNSETTLED_SHARE:
        warnings.warn(
            f"inference did not settle at {int((~settled).sum())} of {len(settled)} nodes: allow more sweeps "
            "(inference=CoordinateAscent(sweeps=…)), more epochs of mini-batches, or a larger tolerance. See "
            "diagnostics_.",
            ConvergenceWarning,
            stacklevel=5,
        )


def _documented(parameters: str = "") -> Callable[[type[C]], type[C]]:
    """Put the parameters and attributes that all share, and a class's own parameters, before its examples."""

    def decorate(cls: type[C]) -> type[C]:
        if "    Examples\n" not in (cls.__doc__ or ""):  # python -OO
            return cls
        assert cls.__doc__ is not None
        assert TreeEstimator.__doc__ is not None
        summary, examples = cls.__doc__.split("    Examples\n")
        _, shared = TreeEstimator.__doc__.split("    Parameters\n")
        shared = shared.replace("\n\n    Attributes\n", f"\n{parameters}\n\n    Attributes\n").rstrip()
        cls.__doc__ = f"{summary}    Parameters\n{shared}\n\n    Examples\n{examples}"
        return cls

    return decorate


@_documented()
@dataclass(eq=False, repr=False)
class GPTreeClassifier(_TreeClassifier):
    """One class tree with a Gaussian process at every node.

    The probability of a class is the product of the decisions on its path (paper (9)).

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> GPTreeClassifier(random_state=0).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], list("aabb")).classes_
    array(['a', 'b'], dtype='<U1')
    """

    @classmethod
    def paper(
        cls,
        kernel: str = "linear",
        output_scale: float = 4.0,
        length_scale: float = 1.0,
        inference: Inference | None = None,
        **parameters: Any,
    ) -> GPTreeClassifier:
        """The settings of the GP-Tree paper: zero mean, inputs of unit length, a fixed kernel, Gibbs, quadrature.

        Parameters
        ----------
        kernel : "linear", "rbf" or "matern52"
        output_scale, length_scale : float
        inference : optional
            None is `Gibbs()`.
        **parameters : dict
            Parameters of the classifier that take the place of the paper's.
        """
        settings = {
            "kernel": make_kernel(kernel, output_scale, length_scale),
            "inference": Gibbs() if inference is None else inference,
            "prior_mean": None,
            "predict_at": "quadrature",
            "feature_map": "unit",
            "node_limit": None,
        }
        # paper section C.1
        return cls(**{**settings, **parameters})


@_documented("    n_estimators : int\n        Number of trees. Their probabilities are averaged.")
@dataclass(eq=False, repr=False)
class GPForestClassifier(_TreeClassifier):
    """Several class trees, built from different seeds, their probabilities averaged.

    Nodes that several trees have in common are fitted once.

    Examples
    --------
    >>> from gptree import GPForestClassifier
    >>> model = GPForestClassifier(random_state=0).fit([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], list("aabb"))
    >>> model.predict([[0.9, 0.1]])
    array(['b'], dtype='<U1')
    """

    n_estimators: int = field(default=4, kw_only=True)

    def _n_trees(self) -> int:
        if not (isinstance(self.n_estimators, int | np.integer) and self.n_estimators >= 1):
            raise ValueError(f"n_estimators must be a positive number, got {self.n_estimators!r}.")
        return int(self.n_estimators)


TREE_CLASSIFIERS: dict[str, type[_TreeClassifier]] = {
    family.__name__: family for family in (GPTreeClassifier, GPForestClassifier)
}
"""The classifiers of trees, by the name under which files hold them."""
