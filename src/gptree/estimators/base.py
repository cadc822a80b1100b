"""Parameters of trees and forests, what they stand for, and predictions from a fitted state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from gptree.estimators.frozen import FrozenClassifier, freeze
from gptree.estimators.state import FittedState, Query, fitted_value, left_out_diagnostics
from gptree.estimators.top_k import TopK, beam_top_k, beam_width, check_top, top_k
from gptree.estimators.validation import check_encoder, check_predict_at, memory_bytes, placement, to_numpy
from gptree.experts import Expert
from gptree.incremental import Growth
from gptree.inference import CoordinateAscent, Inference, LargeNodes, PredictAt, as_large_nodes
from gptree.maths.kernels import as_kernel, make_kernel
from gptree.settings import SettingsParameters
from gptree.tree import ClassTree, TreeBuilder

#: Of the default kernel, where no evidence chooses it. Three sweeps around experts do as well as many, and cost less.
OUTPUT_SCALE = 10.0
EXPERT_SWEEPS = CoordinateAscent(sweeps=3, tolerance=0.0)

P = ParamSpec("P")
E = TypeVar("E")
R = TypeVar("R")

#: The estimators that are changing now, by their identity, and who may look.
_changing: set[int] = set()
_looking = threading.Lock()


def change(method: Callable[Concatenate[E, P], R]) -> Callable[Concatenate[E, P], R]:
    """A method that changes what an estimator has learnt: one at a time, while anybody may predict."""

    @wraps(method)
    def alone(self: E, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with _looking:
            if id(self) in _changing:
                raise RuntimeError(
                    f"{method.__name__} while another thread changes this {type(self).__name__}: nothing was done. "
                    "Changes go one after the other; wait for the first, or give each thread a copy."
                )
            _changing.add(id(self))
        try:
            return method(self, *args, **kwargs)
        finally:
            with _looking:
                _changing.discard(id(self))

    return alone


@dataclass(eq=False, repr=False)
class TreeEstimator(SettingsParameters, ClassifierMixin, BaseEstimator):
    """Parameters and fitted values that a single tree and a forest share.

    Parameters
    ----------
    kernel : None, "linear", "rbf", "matern52" or a GPyTorch kernel
        None is an RBF kernel with length-scale 1, whose output scale `fit` chooses by left-out evidence, from 0.05 (the
        experts decide) to 10; with zero prior means, with one row of every class, and with `growth` it is 10. `kernel_`
        is the fitted kernel.
    inference : None, Gibbs(...), CoordinateAscent(...), SparseVariational(...), one of your own, or a name
        None is three sweeps of coordinate ascent around experts, and `CoordinateAscent()` with zero prior means.
    prior_mean : "experts", None, an expert or its name, a classifier or a function
        Where the prior means of the nodes come from: the default pool of closed-form experts; nowhere (zero means, as
        in the paper); an expert of `gptree.experts`; any scikit-learn classifier with `predict_proba`, which is
        cross-validated; or a function from raw features to class scores in the order of `classes_` that never saw the
        labels, such as a zero-shot model.
    tree : None, a builder, its name, a ClassTree or nested lists of labels
        None is 2-means on the class means, the paper's tree.
    predict_at : "mean" or "quadrature"
        Node probabilities at the latent mean, or integrated over the latent posterior. Around experts the mean predicts
        better; the paper and the deep classifier, which have none, integrate.
    feature_map : None, "sphere", "unit" or a transformer
        "sphere" centres the features and scales them to unit length, see `SphereMap`; "unit" scales only, as in the
        paper.
    class_prior : None, "empirical" or array-like (C,)
        How frequent classes will be, in the order of `classes_`; it is in the prior means of the nodes at new rows.
        None is all alike, whatever their numbers of training rows, and "empirical" as frequent as among these.
    node_limit : "auto", None, int, SubsetOfData(...) or InducingPoints(...)
        What nodes with many points do. "auto" is `InducingPoints(256)` for coordinate ascent and `SubsetOfData(1024)`
        for Gibbs sampling; a number is `SubsetOfData` of so many points; None is no limit. With growth, the nodes of
        the base session see their points through the exemplars of their classes.
    growth : None or Growth(...)
        A `Growth` makes `fit` the base session of a model whose classes keep arriving: only a few exemplars of each
        class are kept. Without it `fit` keeps all rows, and the first `add_classes` learns what it needs from them.
    dtype : "float64" or "float32"
    device : "auto", "cpu", "cuda", …
    memory_budget : int, optional
        Bytes that a fit or a prediction may take beside the given features, roughly: copies of the features, experts,
        Gram matrices, factors and working memory together. Too small a number is an error that names the smallest. None
        is 2 GiB, a quarter of the memory of a GPU, or the smallest if that is more.
    n_jobs : int, optional
        Workers for the nodes, through joblib; any joblib backend.
    random_state : int, RandomState or None
    verbose : bool
        Show a progress bar while fitting, and while classes change, with a line for each step.

    Attributes
    ----------
    classes_ : ndarray (C,)
        Labels in the order of the columns of `predict_proba`: sorted, then those that arrived later.
    tree_ : ClassTree
        The class tree; of a forest, the first one.
    kernel_ : Kernel
        The fitted kernel.
    diagnostics_ : dict of ndarray
        How inference went at each node, and what left-out rows said.
    journal_ : tuple of Entry
        What happened since the model was fitted.
    sessions_ : list of ndarray
        Labels that each session brought.
    memory_ : Memory
        The examples that are kept, and the bytes that all takes.
    encoder_ : dict or None
        Which encoder gave the features, if that was said.
    model_ : ForestModel
        Trees and node posteriors, for researchers.
    state_ : FittedState
        Everything that was learnt, as one frozen value.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if X had string column names.
    """

    families: ClassVar[Mapping[str, Any]] = {"inference": Inference, "prior_mean": Expert, "tree": TreeBuilder}

    _: KW_ONLY
    kernel: str | Kernel | None = None
    inference: Inference | None = None
    prior_mean: Any = "experts"
    tree: Any = None
    predict_at: PredictAt = "mean"
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
    state_: FittedState = field(init=False)

    # ------------------------------------------------------------------------------------- what parameters stand for

    def _placement(self) -> tuple[torch.dtype, torch.device]:
        return placement(self.dtype, self.device)

    def _memory_bytes(self) -> int:
        return memory_bytes(self.memory_budget, self._placement()[1])

    def _kernel(self) -> Kernel:
        kernel = make_kernel("rbf", OUTPUT_SCALE) if self.kernel is None else self.kernel
        return as_kernel(kernel, *self._placement())

    def _inference(self) -> Inference:
        default = CoordinateAscent() if self.prior_mean is None else EXPERT_SWEEPS
        return default if self.inference is None else Inference.of(self.inference)

    def _large_nodes(self, inference: Inference) -> LargeNodes | None:
        if inference.inducing is not None and self.node_limit not in ("auto", None):
            raise ValueError(
                f"{type(inference).__name__} has its own inducing points: leave "
                f'node_limit="auto" (got {self.node_limit!r}).'
            )
        return as_large_nodes(self.node_limit, inference.sparse)

    def _n_trees(self) -> int:
        return 1

    def _tree_seeds(self, seed: int) -> list[int]:
        """A seed for each tree; the first is that of the model."""
        return [seed, *map(int, np.random.SeedSequence(seed).generate_state(self._n_trees() - 1))]

    # --------------------------------------------------------------------------------------------------- prediction

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Class log-probabilities.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        ndarray (n, C)
            Columns as in `classes_`.
        """
        return self._query(X).log_p

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        ndarray (n, C)
            Columns as in `classes_`; rows sum to one.
        """
        log_p = self.predict_log_proba(X)
        return np.exp(log_p, out=log_p)

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each row.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        ndarray (n,)
        """
        query = self._query(X)
        return query.state.classes[query.log_p.argmax(1)]

    def predict_top_k(self, X: Any, k: int, beam: int | None = None) -> TopK:
        """The k most probable labels of each row, the most probable first, and what is left for all others.

        With many classes by beam search: from the root down, the Gaussian processes are asked at the `beam` most
        probable nodes of a level only. Sub-trees outside keep their probability, which is exact, and divide it among
        their classes as the experts do.

        Parameters
        ----------
        X : array-like (n, d)
        k : int
            At most the number of classes.
        beam : int or None
            None is no beam up to 5,000 classes, where a search saves little time, with
            ``predict_at="quadrature"`` and for models whose kernel or posterior has no beam search; otherwise 16, or k
            if that is more.

        Returns
        -------
        TopK
            Named tuple of `classes` (n, k), `probabilities` (n, k) and `outside` (n,). `outside` is the probability
            that `predict_proba` gives all other classes together. With a beam it is a bound on it, up to rounding
            (1e-5 with more than 2,000 classes, in single precision; more around experts where `feature_map` is None or
            "unit" and features lie more than ten times their spread from the origin): a sub-tree that was not entered
            counts in full unless all its classes are among the k. Then it may be more than one minus the sum of
            `probabilities`.

        Examples
        --------
        >>> from gptree import GPTreeClassifier
        >>> model = GPTreeClassifier(random_state=0).fit([[0.0, 1], [0.1, 1], [1.0, 0], [1.0, 0.1]], list("aabb"))
        >>> model.predict_top_k([[0.9, 0.1]], 1).classes
        array([['b']], dtype='<U1')
        """
        state = self._state()
        check_top(k, len(state.classes))
        check_predict_at(self.predict_at)
        width = beam_width(beam, k, state, self.predict_at)
        if width is None:
            query = self._query(X)
            return top_k(query.state.classes, np.exp(query.log_p), k)
        X = np.asarray(validate_data(self, to_numpy(X), dtype=[np.float64, np.float32], reset=False))
        return beam_top_k(state, X, k, width)

    def freeze(self, dtype: str | None = None) -> FrozenClassifier:
        """The prediction alone, as a torch module: raw features (n, d) in, class probabilities (n, C) out.

        It is what `predict_proba` computes now, and learns nothing later. All state is in buffers; `state_dict`,
        `torch.export` and a move to another device work. `classes` holds the labels of the columns.

        Parameters
        ----------
        dtype : "float64", "float32" or None
            What it computes in; None is as the model does. In double precision it equals `predict_proba` to 1e-12, in
            single to about 1e-5.

        Returns
        -------
        FrozenClassifier

        Raises
        ------
        NotFrozenError
            A TypeError that names the part that is code: a kernel, an expert or a feature map of your own.

        Examples
        --------
        >>> import torch
        >>> from gptree import GPForestClassifier
        >>> model = GPForestClassifier(random_state=0).fit([[0.0, 1], [0.1, 1], [1.0, 0], [1.0, 0.1]], list("aabb"))
        >>> model.freeze("float32")(torch.tensor([[0.9, 0.1]])).argmax(1)
        tensor([1])
        """
        state = self._state()
        check_predict_at(self.predict_at)
        return freeze(state, self.predict_at, dtype)

    def _query(self, X: Any) -> Query:
        """Validated rows with their features and class log-probabilities, all of one state."""
        state = self._state()
        check_predict_at(self.predict_at)
        X = np.asarray(validate_data(self, to_numpy(X), dtype=[np.float64, np.float32], reset=False))
        return state.query(X, self.predict_at)

    # ------------------------------------------------------------------------------------------------ fitted values

    def _state(self) -> FittedState:
        check_is_fitted(self)
        return self.state_

    classes_ = fitted_value("classes", "Labels (C,) in the order of the columns of `predict_proba`.")
    model_ = fitted_value("model", "Trees and node posteriors, a `gptree.model.ForestModel`.")
    feature_map_ = fitted_value("feature_map", "The fitted feature map, or None.")

    @property
    def encoder_(self) -> Mapping[str, Any] | None:
        """The description of the encoder that gave the features, which is saved with the model; None if not known.

        Set it after `fit`: ``model.encoder_ = encoder.describe()``.
        """
        return self._state().encoder

    @encoder_.setter
    def encoder_(self, description: Mapping[str, Any] | None) -> None:
        width: int = self.n_features_in_  # pyright: ignore[reportAttributeAccessIssue]
        checked = None if description is None else check_encoder(description, width)
        self.state_ = replace(self._state(), encoder=checked)

    @property
    def tree_(self) -> ClassTree:
        """The class tree (of a forest: the first one); node and class numbers refer to `classes_`."""
        return self._state().model.trees[0]

    @property
    def kernel_(self) -> Kernel:
        """The kernel that was fitted."""
        return self._state().model.predictor.grams.kernel

    @property
    def diagnostics_(self) -> dict[str, np.ndarray]:
        """How inference went at each node, and what left-out rows said.

        Of each node: sweeps, bound, change, converged, jitter and r_hat where they apply, and the kind of posterior.
        Where `fit` chose the output scale: `scales`, the left-out NLL at each (`scale_nll`), the standard error of its
        difference from the lowest (`scale_error`) and the number of left-out rows (`scale_rows`).

        `doubtful`, the numbers of the rows of `fit` whose labels may be wrong: by the left-out predictions of the
        experts another label is ten times as probable, and a label at random would be likelier. Classes that come
        later change nothing about it. Once classes have changed, `doubtful_later` (k, 2) are such rows that came
        later: the number of the entry in `journal_`, and that of the row in what it was given.
        """
        state = self._state()
        model = state.model
        values = {
            name: value.numpy()
            for name, value in vars(model.diagnostics).items()
            if value is not None and name != "nodes"
        }
        kind = np.empty(model.predictor.n_nodes, dtype=object)
        for posterior in model.predictor.posteriors:
            kind[posterior.nodes.cpu().numpy()] = posterior.kind
        return {**values, "posterior": kind.astype(str), **left_out_diagnostics(state)}
