"""What every expert is: settings that fit to examples, and a fitted value that scores classes and can be stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from torch import Tensor

from gptree.experts.examples import Examples
from gptree.storage import Serializable

ScoreCache = dict[Any, Any]
"""What experts that score the same rows have computed so far: those who share a projection share its product."""

T = TypeVar("T")


def cached(cache: ScoreCache | None, key: Any, compute: Callable[[], T]) -> T:
    """What the cache holds under a key; computed if it is not there yet, or there is no cache."""
    if cache is None:
        return compute()
    if key not in cache:
        cache[key] = compute()
    return cache[key]


class Fit(NamedTuple):
    """What fitting an expert gives."""

    expert: FittedExpert
    left_out: Tensor
    """(n, C) class log-probabilities at the examples, each scored without the examples of its own fold."""
    usable: Tensor
    """(n,) False for the only example of a class. Nothing of the class is left without it, so the class
    gets the mean score of the others in its row: a statement of ignorance, not evidence to choose by."""


class Expert(Protocol):
    """Settings of an expert: a frozen value."""

    def fit(self, examples: Examples) -> Fit: ...


@dataclass(frozen=True, eq=False)
class FittedExpert(Serializable, ABC):
    """Scores classes at new points."""

    @abstractmethod
    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        """Class log-probabilities (T, C) at features X (T, d); `raw` as in `Examples.of`.

        A `cache` is shared by experts that are asked about the same rows, and no longer than that.
        """

    def grown(self, X: Tensor, y: Tensor, n_classes: int) -> FittedExpert:
        """The expert after more examples X (k, d) with class numbers y below `n_classes`, every setting as it was.

        Numbers from C on are new classes, which only some experts can take in; an expert that learns nothing from
        single examples of the classes it knows stays as it is.
        """
        return self

    def only(self, classes: Tensor) -> FittedExpert:
        """The expert for some of its classes, in the order given."""
        return FittedPart(self, classes)


@dataclass(frozen=True, eq=False)
class FittedPart(FittedExpert):
    """What an expert says of some of its classes when it must be one of them."""

    expert: FittedExpert
    classes: Tensor

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        return self.expert.log_probabilities(X, raw, cache)[:, self.classes].log_softmax(1)

    def only(self, classes: Tensor) -> FittedPart:
        return FittedPart(self.expert, self.classes[classes])
