"""Operations on the classes of a fitted classifier: adding, removing, renaming, merging, undoing."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import validate_data
from torch import Tensor

from gptree.estimators.base import TreeEstimator, change
from gptree.estimators.known_rows import seen_by_base
from gptree.estimators.progress import progress_bar
from gptree.estimators.row_order import by_value
from gptree.estimators.state import FittedState
from gptree.estimators.validation import as_expert, check_given, check_ids, check_remark, check_weights, to_numpy
from gptree.experts import FittedSingle
from gptree.incremental import (
    BaseState,
    ClassRegistry,
    Entry,
    Growth,
    GrowthConfig,
    base_of,
    condensed,
    grow,
    with_novel_experts,
)
from gptree.incremental.journal import Kind
from gptree.incremental.memorised import warn_if_memorised
from gptree.inference import Grams, NodePredictor
from gptree.tree import ClassTree, label_hashes


@dataclass(frozen=True)
class Memory:
    """What a model keeps of the examples it has seen.

    Attributes
    ----------
    counts : dict
        Examples kept of each class, by label.
    example_bytes : int
        Bytes of their embeddings.
    nbytes : int
        Bytes of everything the model keeps: embeddings, statistics, node posteriors and the journal.
    """

    counts: dict[Any, int]
    example_bytes: int
    nbytes: int

    def __len__(self) -> int:
        return sum(self.counts.values())


class IncrementalMixin(TreeEstimator):
    """Operations on a fitted classifier whose classes change. All of them change it in place and return it.

    A failed operation leaves the estimator as it was. Other threads may predict, explain and save meanwhile: each call
    answers from the state it began with, before the change or after it. A second change at the same time raises a
    `RuntimeError` and does nothing. `classes_`, and with it the columns of `predict_proba`, keep the
    order of arrival: the base classes sorted, then those of each session sorted.
    """

    @change
    def add_classes(
        self, X: Any, y: Any, ids: Any = None, *, sample_weight: Any = None, note: str = "", author: str = ""
    ) -> Self:
        """Learn classes never seen before from a few examples each.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
            Labels that `classes_` does not hold.
        ids : sequence of str (n,), optional
            What the examples are called.
        sample_weight : array-like (n,), optional
            How many times each example counts, as in `fit`.
        note, author : str
            For the journal.

        Returns
        -------
        self

        Warns
        -----
        UserWarning
            Where the classes that were added say that the network behind the features knew the rows of `fit` by heart.
        """
        self._do("add_classes", note=note, author=author, **self._examples(X, y, ids, sample_weight))
        grown = self._state().grown
        assert grown is not None
        warn_if_memorised(grown.times_wider)
        return self

    @change
    def add_examples(
        self, X: Any, y: Any, ids: Any = None, *, sample_weight: Any = None, note: str = "", author: str = ""
    ) -> Self:
        """Learn from more examples of known classes.

        Of the base trees, only nodes on the paths of these classes are fitted again, to what is kept of the base and
        the new examples. Nodes of novel classes are fitted again with the experts that give their prior means.

        Parameters
        ----------
        X : array-like (n, d)
        y : array-like (n,)
            Labels of `classes_`.
        ids : sequence of str (n,), optional
            What the examples are called.
        sample_weight : array-like (n,), optional
            How many times each example counts, as in `fit`.
        note, author : str
            For the journal.

        Returns
        -------
        self
        """
        return self._do("add_examples", note=note, author=author, **self._examples(X, y, ids, sample_weight))

    @change
    def remove_classes(self, labels: Sequence[Any], *, note: str = "", author: str = "") -> Self:
        """Forget classes. Without a class that was added, the model is what it would be had it never been added.

        A class of the base session can only be cut out of the trees: the nodes around it keep what they learnt from it,
        and a warning says so.

        Parameters
        ----------
        labels : list of labels
        note, author : str
            For the journal.

        Returns
        -------
        self
        """
        state = self._state()
        labels, warning = self._labels(labels), ""
        base = [c.label for c in state.registry().base if c.label in labels]
        if base:
            warning = f"cut out of the base trees: {', '.join(map(repr, base))}; the nodes around keep what they learnt"
        self._do("remove_classes", labels=labels, note="; ".join(filter(None, (note, warning))), author=author)
        if warning:
            warnings.warn(warning, UserWarning, stacklevel=3)
        return self

    @change
    def rename_class(self, old: Any, new: Any, *, note: str = "", author: str = "") -> Self:
        """Give a class another label. Nothing is fitted.

        Parameters
        ----------
        old, new : label
        note, author : str
            For the journal.

        Returns
        -------
        self
        """
        return self._do("rename_class", labels=self._labels([old, new]), note=note, author=author)

    @change
    def merge_classes(self, labels: Sequence[Any], into: Any, *, note: str = "", author: str = "") -> Self:
        """Make one class, called `into`, of several.

        Classes that were added become one with the examples of all. One of them may be a base class, which then takes
        in the examples of the others as `add_examples` would.

        Parameters
        ----------
        labels : list of labels
        into : label
        note, author : str
            For the journal.

        Returns
        -------
        self
        """
        labels = self._labels([*self._labels(labels), into])
        return self._do("merge_classes", labels=labels, note=note, author=author)

    @change
    def undo(self) -> Self:
        """Take back the last operation. The model is then what it was before, to the last bit.

        Returns
        -------
        self
        """
        journal = self._state().journal
        if len(journal) < 2:
            raise ValueError("there is nothing to undo: the journal holds the base session only.")
        return self._become(journal[:-1])

    @property
    def journal_(self) -> tuple[Entry, ...]:
        """What happened since the model was fitted, `fit` first."""
        return self._state().journal

    @property
    def sessions_(self) -> list[np.ndarray]:
        """Labels of the base classes, and then of those that each session added and that are still there."""
        state = self._state()
        registry = state.registry()
        groups = [[c.label for c in registry.base]]
        groups += [[registry.novel[i].label for i in places] for places in registry.sessions]
        return [np.array(labels, dtype=state.classes.dtype) for labels in groups]

    @property
    def memory_(self) -> Memory:
        """Which examples are kept, and how many bytes all that is kept takes."""
        state = self._state()
        y = state.y[state.y >= 0]
        counts = np.bincount(y, minlength=len(state.classes))
        by_label = dict(zip(state.classes.tolist(), counts.tolist(), strict=True))
        return Memory(by_label, len(y) * state.X.element_size() * state.X.shape[1], nbytes(state))

    # --------------------------------------------------------------------------------------------------- one change

    def _do(self, kind: Kind, *, labels: tuple[Any, ...], note: str, author: str, **examples: Any) -> Self:
        self._check_can_grow()
        entry = Entry(kind, labels, note=check_remark("note", note), author=check_remark("author", author), **examples)
        return self._become((*self._state().journal, entry))

    def _become(self, journal: tuple[Entry, ...]) -> Self:
        state = self._state()
        growth = Growth() if self.growth is None else self.growth
        with progress_bar(self.verbose) as progress:
            config = replace(self._growth_config(state, growth), progress=progress)
            self.state_ = grown_state(state, journal, growth, config, self.prior_mean)
        return self

    def _growth_config(self, state: FittedState, growth: Growth) -> GrowthConfig:
        inference = self._inference()
        if inference.learn is not None:
            inference = inference.with_params(learn=None)  # the kernel was learnt in the base session
        return GrowthConfig(
            strategy=growth.strategy,
            inference=inference,
            large_nodes=self._large_nodes(inference),
            tree=None if isinstance(self.tree, ClassTree | list | tuple) else self.tree,  # those hold base classes only
            tree_seeds=self._tree_seeds(state.seed),
            seed=state.seed,
            memory_budget=self._memory_bytes(),
            n_jobs=self.n_jobs,
            on_sphere=state.on_sphere,
            kernel=self._kernel(),
            session_exemplars=growth.session_exemplars,
            learns_sizes=state.log_frequencies is None and len(state.base_labels) > 1,
        )

    # ------------------------------------------------------------------------------------------------------- checks

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

    def _examples(self, X: Any, y: Any, ids: Any, sample_weight: Any) -> dict[str, Any]:
        """Validated examples as a journal entry holds them: sorted by label, and then by their values.

        Equal ones stay: each may be forgotten for itself. The registry makes one of them.
        """
        state = self._state()
        X, y = validate_data(self, to_numpy(X), to_numpy(y), dtype=[np.float64, np.float32], order="C", reset=False)
        names = None if ids is None else check_ids(ids, len(X))
        check_given(y)
        labels, codes = np.unique(y, return_inverse=True)
        weights = check_weights(sample_weight, codes, labels)
        order = by_value(X, codes, weights)
        features = state.features(X[order])
        growth = Growth() if self.growth is None else self.growth
        if growth.session_exemplars is not None:
            kept, masses = condensed(
                state.on_sphere(features).cpu().numpy(),
                codes[order],
                growth.session_exemplars,
                growth.selection,
                label_hashes(self._labels(labels)),
                state.seed,
                None if weights is None else weights[order],
            )
            weights = np.zeros(len(codes))
            weights[order[kept]] = masses
            order, features = order[kept], features[torch.as_tensor(kept, device=features.device)]
            weights = None if (masses == 1).all() else weights
        return {
            "labels": self._labels(labels),
            "counts": tuple(np.bincount(codes[order]).tolist()),
            "features": features,
            "weights": None if weights is None else torch.as_tensor(weights[order]).to(features),
            "rows": tuple(order.tolist()),
            "ids": () if names is None else tuple(names[row] for row in order),
        }

    def _labels(self, labels: Any) -> tuple[Any, ...]:
        """Labels as Python values, of the kind that the classes have."""
        if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
            raise ValueError(f"labels must be a list of labels, not the single value {labels!r}.")
        values = [label.item() if isinstance(label, np.generic) else label for label in to_numpy(labels)]
        kinds = {_kind(label) for label in self._state().classes.tolist()}
        for label in values:
            if label is None:
                raise ValueError("a label is None: every class and every example needs one.")
            if _kind(label) not in kinds:
                raise ValueError(
                    f"the classes of this model are {' or '.join(sorted(kinds))}, and {label!r} is none of those: give "
                    "labels of one kind only."
                )
        return tuple(values)


def grown_state(
    state: FittedState, journal: tuple[Entry, ...], growth: Growth, config: GrowthConfig, prior_mean: Any
) -> FittedState:
    """The state of another journal; a function of base session and journal alone."""
    registry = state.registry(journal)
    base = state.base
    if base is None:
        expert = FittedSingle() if prior_mean is not None and len(state.base_labels) == 1 else state.experts
        base = base_of(
            state.model,
            expert,
            state.left_out,
            state.y,
            state.base_labels,
            growth,
            state.seed,
            state.on_sphere,
            held_out=sum(journal[0].counts) > len(state.y),
            weights=state.weights,
            beliefs=state.beliefs,
        )
        base = replace(base, _novelty=seen_by_base(state, base.exemplars), _staying=state.staying)
    if registry.novel and base.expert is not None and base.novel_experts is None:
        config.progress("rehearsing novel classes", None)
        base = with_novel_experts(base, growth, state.seed, state.on_sphere)
    grown = grow(base, registry, config, state.grown)
    y, origins = _kept_rows(base, grown.registry, state.origins)
    return replace(
        state,
        classes=_label_array(grown.registry.labels, state.classes),
        model=grown.model,
        experts=grown.expert,
        y=y,
        origins=origins,
        journal=journal,
        base=base,
        grown=grown,
        _known_rows={},
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


def _kept_rows(base: BaseState, registry: ClassRegistry, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For every row of a grown model's features: its class number (−1: of a class that is gone), and its origin."""
    place = registry.base_places(base.n_classes)
    classes = (*registry.base, *registry.novel)
    later = np.repeat(np.arange(len(classes)), [len(c.origins) for c in classes])
    later_origins = [origin for c in classes for origin in c.origins]
    y = np.concatenate([place[base.y.cpu().numpy()], later])
    return y, np.concatenate([origins[: len(base.X)], np.array(later_origins, dtype=np.int64).reshape(-1, 2)])


def nbytes(state: FittedState) -> int:
    """Bytes of all arrays that a fitted state holds on to, each counted once."""
    sizes: dict[int, int] = {}
    waiting: list[Any] = [
        state.model,
        state.experts,
        state.base,
        state.grown,
        state.journal,
        state.left_out,
        state.weights,
        state.beliefs,
    ]
    seen = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
        elif isinstance(value, tuple | list):
            waiting.extend(value)
        elif (is_dataclass(value) or isinstance(value, NodePredictor | Grams)) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(item for name, item in vars(value).items() if not name.startswith("_"))  # those are caches
    return sum(sizes.values())
