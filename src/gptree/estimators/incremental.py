"""Fitted classifiers that learn new classes, forget them, and take back what was wrong."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gptree.estimators.prior_mean import as_expert
from gptree.experts import FittedExpert, FittedSingle
from gptree.incremental import (
    BaseState,
    ClassRegistry,
    Entry,
    GrownState,
    Growth,
    GrowthConfig,
    base_of,
    grow,
    now,
    replay,
    with_novel_experts,
)
from gptree.incremental.journal import Kind
from gptree.inference import Grams, Inference, LargeNodes, NodePredictor
from gptree.model import ForestModel
from gptree.tree import ClassTree


def to_numpy(values: Any) -> Any:
    """Torch tensors from any device as arrays; everything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


@dataclass(frozen=True)
class Memory:
    """What a model keeps of the examples it has seen."""

    counts: dict[Any, int]
    """Examples kept of each class."""
    example_bytes: int
    """Their embeddings."""
    nbytes: int
    """Everything the model keeps: embeddings, statistics, node posteriors and the journal."""

    def __len__(self) -> int:
        return sum(self.counts.values())


class IncrementalMixin:
    """Operations on a fitted classifier whose classes change. All of them change it in place and return it.

    A failed operation leaves the estimator as it was. `classes_`, and with it the columns of `predict_proba`, keep the
    order of arrival: the base classes sorted, then those of each session sorted.
    """

    # of the classifier
    growth: Growth | None
    kernel: Any
    inference: Inference | None
    prior_mean: Any
    class_prior: Any
    tree: Any
    n_jobs: int | None
    classes_: np.ndarray
    model_: ForestModel
    experts_: FittedExpert | None
    y_: np.ndarray
    origins_: np.ndarray
    left_out_: Tensor | None
    seed_: int
    _inference: Callable[[], Inference]
    _large_nodes: Callable[[Inference], LargeNodes | None]
    _tree_seeds: Callable[[], list[int]]
    _budget: Callable[[], int]
    _features: Callable[[np.ndarray], Tensor]
    _on_sphere: Callable[[Tensor], Tensor]

    base_: BaseState | None
    """What the base session left behind; None until a model that was fitted without growth changes."""
    grown_: GrownState | None
    """What `model_` and `experts_` are part of; None until the first operation."""
    journal_: tuple[Entry, ...]
    """What happened since the model was fitted, `fit` first."""

    def add_classes(self, X: Any, y: Any) -> Self:
        """Learn classes never seen from a few examples each: features X (n, d), labels y (n,)."""
        return self._do("add_classes", **self._examples(X, y))

    def add_examples(self, X: Any, y: Any) -> Self:
        """Learn from more examples of known classes.

        Of the base trees, only nodes on the paths of these classes are fitted again, to what is kept of the base and
        the new examples. Nodes of novel classes are fitted again with the experts that give their prior means.
        """
        return self._do("add_examples", **self._examples(X, y))

    def remove_classes(self, labels: Sequence[Any]) -> Self:
        """Forget classes. Without a class that was added, the model is what it would be had it never been added.

        A class of the base session can only be cut out of the trees: the nodes around it keep what they learnt from it,
        and a warning says so.
        """
        check_is_fitted(self)
        labels, note = self._labels(labels), ""
        base = [c.label for c in self._registry(self.journal_).base if c.label in labels]
        if base:
            note = f"cut out of the base trees: {', '.join(map(repr, base))}; the nodes around keep what they learnt"
        self._do("remove_classes", labels=labels, note=note)
        if note:
            warnings.warn(note, UserWarning, stacklevel=2)
        return self

    def rename_class(self, old: Any, new: Any) -> Self:
        """Give a class another label. Nothing is fitted."""
        check_is_fitted(self)
        return self._do("rename_class", labels=self._labels([old, new]))

    def merge_classes(self, labels: Sequence[Any], into: Any) -> Self:
        """Make one class, called `into`, of several.

        Classes that were added become one with the examples of all. One of them may be a base class, which then takes
        in the examples of the others as `add_examples` would.
        """
        check_is_fitted(self)
        return self._do("merge_classes", labels=self._labels([*self._labels(labels), into]))

    def undo(self) -> Self:
        """Take back the last operation. The model is then what it was before, to the last bit."""
        check_is_fitted(self)
        if len(self.journal_) < 2:
            raise ValueError("there is nothing to undo: the journal holds the base session only.")
        return self._become(self.journal_[:-1])

    @property
    def sessions_(self) -> list[np.ndarray]:
        """Labels of the base classes, and then of those that each session added and that are still there."""
        check_is_fitted(self)
        state = self._registry(self.journal_)
        groups = [[c.label for c in state.base]]
        groups += [[state.novel[i].label for i in places] for places in state.sessions]
        return [np.array(labels, dtype=self.classes_.dtype) for labels in groups]

    @property
    def memory_(self) -> Memory:
        """Which examples are kept, and how many bytes all that is kept takes."""
        check_is_fitted(self)
        y = self.y_[self.y_ >= 0]
        counts = np.bincount(y, minlength=len(self.classes_))
        X = self.model_.predictor.grams.X
        named = dict(zip(self.classes_.tolist(), counts.tolist(), strict=True))
        size = X.element_size() * X.shape[1]
        return Memory(named, len(y) * size, nbytes(self))

    # --------------------------------------------------------------------------------------------------- what happens

    def _do(self, kind: Kind, *, labels: tuple[Any, ...], note: str = "", **brought: Any) -> Self:
        self._check_can_grow()
        entry = Entry(kind, labels, time=now(), note=note, **brought)
        return self._become((*self.journal_, entry))

    def _become(self, journal: tuple[Entry, ...]) -> Self:
        """The model of a journal. Everything is computed before anything is changed."""
        state = self._registry(journal)
        growth = Growth() if self.growth is None else self.growth
        seed = self.seed_
        base = self.base_
        if base is None:
            expert, left_out = self.experts_, self.left_out_
            if self.prior_mean is not None and len(self.classes_) == 1:
                expert = FittedSingle()
            labels = self._base_labels()
            base = base_of(self.model_, expert, left_out, self.y_, labels, growth, seed, self._on_sphere)
        if state.novel and base.expert is not None and base.novel_experts is None:
            base = with_novel_experts(base, growth, seed, self._on_sphere)
        grown = grow(base, state, self._rules(growth), self.grown_)
        self._hold(base, journal, grown)
        return self

    def _hold(self, base: BaseState, journal: tuple[Entry, ...], grown: GrownState) -> None:
        """Show a grown model as the fitted one."""
        state = grown.registry
        self.base_, self.journal_, self.grown_ = base, journal, grown
        self.model_, self.experts_ = grown.model, grown.expert
        self.classes_ = _label_array(state.labels, self.classes_)
        self.y_, self.origins_ = _rows_held(base, state, self.origins_)

    def _registry(self, journal: tuple[Entry, ...]) -> ClassRegistry:
        X = self.model_.predictor.grams.X
        return replay(self._base_labels(), journal, X.shape[1], X)

    def _base_labels(self) -> tuple[Any, ...]:
        return self.journal_[0].labels

    def _check_growth(self) -> None:
        """Before any work of a base session: whether its settings go together."""
        if self.growth is None:
            return
        if not isinstance(self.growth, Growth):
            raise TypeError(f"growth must be None or Growth(...), not {self.growth!r}.")
        self._check_can_grow()

    def _check_can_grow(self) -> None:
        """Whether a model of these settings can change its classes."""
        if self.class_prior is not None:
            raise ValueError("a model with class_prior cannot change its classes: fit it with class_prior=None.")
        learn = self._inference().learn
        if len(getattr(self.kernel, "batch_shape", ())) > 0 or (learn is not None and learn.per_node):
            raise ValueError(
                "a model with a kernel of its own at every node cannot change its classes: a new node would have none. "
                "Fit it with LearnKernel(per_node=False) or a fixed kernel."
            )
        expert = as_expert(self.prior_mean)
        if expert is not None and expert.cannot_grow is not None:
            raise ValueError(f"a model with this prior_mean cannot change its classes: {expert.cannot_grow}.")

    def _examples(self, X: Any, y: Any) -> dict[str, Any]:
        """Validated examples as an entry of the journal brings them: sorted by label."""
        check_is_fitted(self)
        X, y = validate_data(self, to_numpy(X), to_numpy(y), dtype=[np.float64, np.float32], reset=False)
        found, codes = np.unique(y, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        return {
            "labels": self._labels(found),
            "counts": tuple(np.bincount(codes).tolist()),
            "features": self._features(X[order]),
            "rows": tuple(order.tolist()),
        }

    def _labels(self, labels: Any) -> tuple[Any, ...]:
        """Labels as Python values, of the kind that the classes have."""
        if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
            raise ValueError(f"labels must be a list of labels, not the single value {labels!r}.")
        values = [label.item() if isinstance(label, np.generic) else label for label in to_numpy(labels)]
        kinds = {_kind(label) for label in self.classes_.tolist()}
        for label in values:
            if _kind(label) not in kinds:
                raise ValueError(
                    f"the label {label!r} is a {type(label).__name__}, but the classes are "
                    f"{' or '.join(sorted(kinds))}: labels of one kind only."
                )
        return tuple(values)

    def _rules(self, growth: Growth) -> GrowthConfig:
        inference = self._inference()
        if inference.learn is not None:
            inference = inference.with_params(learn=None)  # the kernel was learnt in the base session
        return GrowthConfig(
            strategy=growth.strategy,
            inference=inference,
            large_nodes=self._large_nodes(inference),
            tree=None if isinstance(self.tree, ClassTree | list | tuple) else self.tree,  # those hold base classes only
            tree_seeds=self._tree_seeds(),
            seed=self.seed_,
            memory_budget=self._budget(),
            n_jobs=self.n_jobs,
            on_sphere=self._on_sphere,
        )


def _kind(label: Any) -> str:
    for kind, name in ((bool, "booleans"), (int, "whole numbers"), (float, "numbers"), (str, "strings")):
        if isinstance(label, kind):
            return name
    return f"of type {type(label).__name__}"


def _label_array(labels: list[Any], like: np.ndarray) -> np.ndarray:
    """Labels as an array of the kind of `like`, wide enough for all of them."""
    if like.dtype.kind in "OUS":
        return np.array(labels, dtype=object if like.dtype.kind == "O" else None)
    array = np.array(labels)
    same = array.astype(like.dtype)
    return same if np.array_equal(same, array) else array


def _rows_held(base: BaseState, state: ClassRegistry, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every row of a grown model's features: its class number (−1: of a class that is gone), and its origin."""
    place = state.base_places(base.n_classes)
    classes = (*state.base, *state.novel)
    later = np.repeat(np.arange(len(classes)), [len(c.origins) for c in classes])
    came = [origin for c in classes for origin in c.origins]
    y = np.concatenate([place[base.y.cpu().numpy()], later])
    return y, np.concatenate([origins[: len(base.X)], np.array(came, dtype=np.int64).reshape(-1, 2)])


def nbytes(model: Any) -> int:
    """Bytes of all arrays that a fitted model holds on to, each counted once."""
    found: dict[int, int] = {}
    waiting, seen = (
        [vars(model)[name] for name in ("model_", "experts_", "base_", "grown_", "journal_", "left_out_")],
        set(),
    )
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, tuple | list):
            waiting.extend(value)
        elif (is_dataclass(value) or isinstance(value, NodePredictor | Grams)) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(item for name, item in vars(value).items() if not name.startswith("_"))  # those are caches
    return sum(found.values())
