"""The interface of experts: settings that are fitted to examples, and fitted experts that score classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from gptree.experts.examples import Examples, row_chunks
from gptree.experts.scorers import SomeScores
from gptree.maths.frozen import NotFrozenError, Parts
from gptree.settings import NamedSettings, require
from gptree.storage import Array, Part, Serializable, Sizes, ensure

MAX_DOUBLE_SIZE = 2**26  # left-out arrays beyond this size (0.5 GB) are stored in single precision
MOST_KEPT = 2**20  # those up to this size (8 MB) are computed once and kept in memory

ScoreCache = dict[Any, Any]
"""Products that experts share while they score the same rows, by what they are products of."""

T = TypeVar("T")


def cached(cache: ScoreCache | None, key: Any, compute: Callable[[], T]) -> T:
    """The value that a cache holds under a key; computed if it is not there yet, or there is no cache.

    Parameters
    ----------
    cache : dict or None
    key : hashable
    compute : function without arguments
    """
    if cache is None:
        return compute()
    if key not in cache:
        cache[key] = compute()
    return cache[key]


LeftOutAt = Callable[[Tensor], Tensor]
"""From row numbers (r,) to left-out class scores (r, C): log-probabilities, up to a constant a row."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted expert and its left-out predictions at the examples.

    Attributes
    ----------
    expert : FittedExpert
    scores : tensor (n, C), or function from row numbers (r,) to a tensor (r, C)
        Class log-probabilities at the examples, up to a constant a row, each scored without the examples of its own
        fold. With many examples of many classes a function is asked for some rows after the other, and nothing of size
        n × C is ever in memory.
    usable : bool tensor (n,)
        False for the only example of a class. Nothing of the class is left without it, so the class gets the mean score
        of the others in its row: a statement of ignorance, not evidence to choose by.
    """

    expert: FittedExpert
    scores: Tensor | LeftOutAt
    usable: Tensor

    def at(self, rows: Tensor) -> Tensor:
        """Left-out scores (r, C) at some examples (r,)."""
        return self.scores[rows] if isinstance(self.scores, Tensor) else self.scores(rows)

    def computed(self, n_classes: int) -> Fit:
        """The same with the left-out scores of all examples computed, if they are few."""
        if isinstance(self.scores, Tensor) or len(self.usable) * n_classes > MOST_KEPT:
            return self
        return replace(self, scores=self.scores(torch.arange(len(self.usable), device=self.usable.device)))

    def some(self, rows: Tensor) -> Fit:
        """The same of some of the examples (r,)."""
        return replace(self, scores=lambda asked: self.at(rows[asked]), usable=self.usable[rows])

    @cached_property
    def left_out(self) -> Tensor:
        """Left-out log-probabilities at all examples, (n, C)."""
        return dense_left_out(self.at, len(self.usable), self.usable.device)


class Expert(NamedSettings, ABC):
    """Settings of an expert: a frozen dataclass that subclasses this and has `fit`.

    Its value is what `prior_mean=` of the estimators takes; a grid search reaches its fields
    (``prior_mean__count_weight``), and files store it. With a `name` it is found by that name.

    Attributes
    ----------
    cannot_grow : str or None, default None
        Why a model around this expert cannot learn further classes; None if it can.

    Examples
    --------
    >>> from gptree.experts import Expert
    >>> Expert.of("lda").count_weight
    0.15
    """

    family: ClassVar[str] = "expert"
    example: ClassVar[str] = "LDA() or Pool((LDA(), KernelDensity()))"

    @abstractmethod
    def fit(self, examples: Examples) -> Fit:
        """Fit to examples, and score each of them without its fold.

        Parameters
        ----------
        examples : Examples

        Returns
        -------
        Fit
        """

    @property
    def cannot_grow(self) -> str | None:
        return None

    def pays(self, n_classes: int) -> bool:
        """Whether a pool asks it where there are so many classes: what it costs may outgrow what it says."""
        return True

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        """Bytes that `fit` needs at its peak beside the examples, roughly; the memory budget is checked with it.

        Parameters
        ----------
        rows, columns, classes : int
            Of the examples.
        itemsize : int
            Bytes of a number.

        Returns
        -------
        int
            0, if nobody knows.
        """
        return 0

    def settled(self, fitted: FittedExpert) -> Expert:
        """The expert with the settings that a fit chose, so that fitting it to some of the rows costs little.

        Temperatures and weights, which are cheap, are chosen again.

        Parameters
        ----------
        fitted : FittedExpert
            What `fit` of this expert returned.

        Returns
        -------
        Expert
            Itself, if there is nothing to settle.
        """
        return self

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> Expert:
        """The expert of a base session, of which only exemplars are kept.

        Parameters
        ----------
        rows : int64 tensor (m,)
            Which of the examples are the exemplars.
        weights : tensor (m,)
            How many examples of its class each of them stands for.

        Returns
        -------
        Expert
            Itself, if what it keeps does not grow with the number of examples; otherwise its form on exemplars alone.
        """
        return self


@dataclass(frozen=True, eq=False)
class FittedExpert(Serializable, ABC):
    """A fitted expert: scores classes at new points."""

    @abstractmethod
    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        """Class log-probabilities at new points.

        Parameters
        ----------
        X : tensor (T, d)
            Features.
        raw : optional
            What the features were computed from; see `Examples.of`.
        cache : optional
            Shared by experts that are asked about the same rows, and no longer than that.

        Returns
        -------
        tensor (T, C)
        """

    def grown(self, X: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> FittedExpert:
        """The expert after more examples, every setting as it was.

        An expert that learns nothing from single examples of the classes it knows stays as it is, which is the default.

        Parameters
        ----------
        X : tensor (k, d)
        y : int64 tensor (k,)
            Class numbers below `n_classes`; those from C on are new classes, which only some experts can take in.
        n_classes : int
        weights : tensor (k,), optional
            How many times each example counts; once by default.

        Returns
        -------
        FittedExpert
        """
        return self

    def frozen(self, parts: Parts) -> nn.Module:
        """The expert as a piece of a prediction: from rows (`gptree.maths.frozen.Rows`) to class scores (T, C).

        They are its log-probabilities, up to a constant a row. An expert that is code, or does not say how, cannot be
        frozen, which is the default: models around it predict, but slower, and cannot be exported.

        Parameters
        ----------
        parts : Parts
        """
        raise NotFrozenError(f"the expert {type(self).__name__} cannot be frozen: it is known by its code alone.")

    def knows_left_out(self, X: Tensor, y: Tensor) -> bool:
        """Whether `left_out_at` has the left-out scores of examples X (n, d) of classes y (n,).

        It needs those that the expert was fitted to. By default they cannot be had without fitting again, and models
        keep the scores of the fit, n × C numbers.
        """
        return False

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        """The left-out scores of the fit again, from the examples that the expert was fitted to."""
        raise NotImplementedError(f"{type(self).__name__} has no left-out scores but those of its fit.")

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt | None:
        """The left-out scores of a base session at the exemplars that it keeps, by the numbers of these.

        Each is left out for itself. None where only the fit had them, which is the default: models then keep them,
        n × C numbers. `sizes` of the exemplars are those of the classes in the base session.
        """
        return None

    def only(self, classes: Tensor) -> FittedExpert:
        """The expert for some of its classes, (k,) numbers, in the order given."""
        return FittedPart(self, classes)


@dataclass(frozen=True, eq=False)
class FittedPart(FittedExpert):
    """An expert restricted to some of its classes: its probabilities, given that it is one of them."""

    expert: Annotated[FittedExpert, Part(C="of")]
    classes: Annotated[Tensor, Array("C", least=0, whole=True, distinct=True)]

    def check(self, name: str, sizes: Sizes) -> None:
        known = sizes.get("of", len(self.classes))
        ensure(int(self.classes.max()) < known, f"{name}.classes holds more than the {known} classes of its expert.")

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        return self.expert.log_probabilities(X, raw, cache)[:, self.classes].log_softmax(1)

    def frozen(self, parts: Parts) -> SomeScores:
        return SomeScores(self.expert.frozen(parts), self.classes)

    def only(self, classes: Tensor) -> FittedPart:
        return FittedPart(self.expert, self.classes[classes])


def dense_left_out(at: LeftOutAt, n: int, device: torch.device) -> Tensor:
    """Left-out log-probabilities (n, C) at all n examples; in single precision where they are many."""
    everyone = torch.arange(n, device=device)
    first = at(everyone[:1])
    dtype = torch.float32 if first.shape[1] * n > MAX_DOUBLE_SIZE else first.dtype
    left_out = first.new_empty(n, first.shape[1], dtype=dtype)
    for rows in row_chunks(everyone, first.shape[1]):
        left_out[rows] = at(rows).log_softmax(1).to(dtype)
    return left_out


def positive_grid(settings: Expert, name: str, most: float = float("inf")) -> None:
    """Check that a field of settings is a grid of positive numbers, and make a tuple of it."""
    values = tuple(getattr(settings, name))
    limits = "be positive numbers" if most == float("inf") else f"lie in (0, {most:g}]"
    require(bool(values) and all(0 < value <= most for value in values), f"{name} must {limits}; got {values}.")
    object.__setattr__(settings, name, values)


def require_expert(value: Any, holder: str) -> None:
    """Raise a TypeError unless a value is an expert."""
    if not isinstance(value, Expert):
        raise TypeError(f"{holder} takes experts such as {Expert.example}; got {value!r}.")
