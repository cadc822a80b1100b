"""What every expert is: settings that fit to examples, and a fitted value that scores classes and can be stored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from torch import Tensor

from gptree.experts.examples import Examples

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and a dictionary that JSON can hold."""

ScoreCache = dict[Any, Any]
"""What experts that score the same rows have computed so far: those who share a projection share its product."""

T = TypeVar("T")


def cached(cache: ScoreCache | None, key: Any, compute: Callable[[], T]) -> T:
    """What the memo holds under a key; computed if it is not there yet, or there is no memo."""
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
class Serializable:
    """A frozen record of tensors, plain values and other records that can be taken apart and put together again."""

    _kinds: ClassVar[dict[str, type[Serializable]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Serializable._kinds[cls.__name__] = cls

    def __post_init__(self) -> None:
        # as a file would give them back: another memory layout could change the last bits of a product
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                object.__setattr__(self, item.name, value.contiguous())

    def single(self) -> Self:
        """The same in single precision, throughout."""

        def less(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.float() if value.is_floating_point() else value
            if isinstance(value, tuple):
                return tuple(map(less, value))
            return value.single() if isinstance(value, Serializable) else value

        return replace(self, **{item.name: less(getattr(self, item.name)) for item in fields(self)})

    def state(self) -> State:
        """Everything `restore` needs to build it again."""
        tensors: dict[str, Tensor] = {}
        settings: dict[str, Any] = {"kind": type(self).__name__}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Tensor):
                tensors[item.name] = value
            elif isinstance(value, Serializable):
                settings[item.name] = _nest(item.name, value, tensors)
            elif isinstance(value, tuple):
                settings[item.name] = [_nest(f"{item.name}.{k}", part, tensors) for k, part in enumerate(value)]
            else:
                settings[item.name] = value
        return tensors, settings


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


def _nest(name: str, part: Serializable, tensors: dict[str, Tensor]) -> dict[str, Any]:
    inner, settings = part.state()
    tensors.update({f"{name}.{key}": value for key, value in inner.items()})
    return settings


def restore(tensors: dict[str, Tensor], settings: dict[str, Any]) -> Any:
    """The record whose `state()` this is."""
    kind = Serializable._kinds.get(settings.get("kind", ""))
    if kind is None:
        known = ", ".join(sorted(Serializable._kinds))
        raise ValueError(f"unknown kind of expert {settings.get('kind')!r}; this version knows {known}.")
    values: dict[str, Any] = {key: value for key, value in tensors.items() if "." not in key}
    for key, value in settings.items():
        if isinstance(value, dict):
            values[key] = restore(_below(key, tensors), value)
        elif isinstance(value, list):
            values[key] = tuple(restore(_below(f"{key}.{k}", tensors), part) for k, part in enumerate(value))
        elif key != "kind":
            values[key] = value
    return kind(**values)


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    start = prefix + "."
    return {key.removeprefix(start): value for key, value in tensors.items() if key.startswith(start)}
