"""Settings as values: frozen dataclasses that check themselves, register themselves and are searchable."""

from __future__ import annotations

import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any, ClassVar, Self

from sklearn.base import clone

__all__ = [
    "NamedSettings",
    "Settings",
    "SettingsParameters",
    "import_modules",
    "require",
    "require_whole",
]


class Settings:
    """Base of every frozen dataclass of settings: inference, tree builders, experts, growth, training.

    A subclass is known by its name from the moment it is defined: files name it, and nothing else has to be edited.
    scikit-learn reads its fields by `get_params`, so that ``GridSearchCV(model, {"inference__chains": [1, 8]})`` works.
    A value never changes: `with_params` returns another one. Of two classes of the same name outside the library the
    one that was defined last counts, as in a notebook; names of the library cannot be taken.

    Examples
    --------
    >>> from gptree import Gibbs
    >>> Gibbs(chains=4).with_params(steps=2)
    Gibbs(chains=4, steps=2, keep=1, pooled=False)
    """

    _kinds: ClassVar[dict[str, type[Settings]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        namesake = Settings._kinds.get(cls.__name__)
        library = namesake is not None and namesake.__module__.partition(".")[0] == "gptree"
        if namesake is not None and library and namesake.__module__ != cls.__module__:
            raise TypeError(
                f"settings are stored by the name of their class, and {namesake.__module__} has a {cls.__name__}: "
                "choose another name."
            )
        Settings._kinds[cls.__name__] = cls

    @staticmethod
    def kind(name: str) -> type[Settings] | None:
        """The settings class of this name, or None."""
        return Settings._kinds.get(name)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The fields by name; with `deep` also those of fields that are settings, as ``learn__steps``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]
        if deep:
            for name, value in list(values.items()):
                if _has_params(value):
                    values |= {f"{name}__{inner}": item for inner, item in value.get_params().items()}
        return values

    def with_params(self, **params: Any) -> Self:
        """A copy with other values; ``learn__steps=5`` changes a field of a field."""
        values = self.get_params(deep=False)
        changes = nested(params)
        for name in changes:
            if name not in values:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {sorted(values)}.")
        return type(self)(**changed(values, changes))


class NamedSettings(Settings):
    """Settings of one family, such as the tree builders, that are also found by a short name.

    A family is a direct subclass with a `family` and an `example`. A member of it with a `name` is found under that
    name as soon as its class is defined, wherever that is, if it can be made without arguments.

    Attributes
    ----------
    name : str or None
        The short name of a member; None for one that is given as a value only.
    family, example : str
        What error messages call a member, and how one is written.

    Examples
    --------
    >>> from gptree.tree import TreeBuilder
    >>> TreeBuilder.of("two-means")
    TwoMeans(restarts=10)
    """

    name: ClassVar[str | None] = None
    family: ClassVar[str] = "setting"
    example: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        name = cls.__dict__.get("name")
        for other in cls._members() if name else []:
            if other.name == name and other.__name__ != cls.__name__:
                raise TypeError(f"the {cls.family} {other.__name__} has the name {name!r}: choose another one.")
        super().__init_subclass__(**kwargs)

    @classmethod
    def _members(cls) -> list[Any]:
        """Subclasses of this class's family that have a name of their own."""
        base = next(kind for kind in cls.__mro__ if NamedSettings in kind.__bases__)
        return [kind for kind in Settings._kinds.values() if issubclass(kind, base) and kind.__dict__.get("name")]

    @classmethod
    def names(cls) -> list[str]:
        """The names of the family, sorted."""
        return sorted(kind.name for kind in cls._members())

    @classmethod
    def of(cls, value: Any) -> Self:
        """The member of a name, with its default settings; a member itself is returned as it is.

        Parameters
        ----------
        value : str or a member of the family

        Returns
        -------
        A member of the family.

        Raises
        ------
        ValueError
            If no member has this name.
        TypeError
            If the value is neither a name nor a member.
        """
        if isinstance(value, str):
            for kind in cls._members():
                if kind.name == value:
                    return kind()
            raise ValueError(
                f"Unknown {cls.family} {value!r}; choose from {', '.join(cls.names())}, or import the module that "
                "defines it."
            )
        if not isinstance(value, cls):
            raise TypeError(
                f"the {cls.family} must be a value such as {cls.example}, or one of the names "
                f"{', '.join(cls.names())}; got {value!r}."
            )
        return value


def import_modules(package: str, path: Iterable[str]) -> None:
    """Import every module of a package, so that the settings which they define are known by name.

    Parameters
    ----------
    package, path : str, iterable of str
        ``__name__`` and ``__path__`` of the package.
    """
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")


class SettingsParameters:
    """Mixin for estimators, before `BaseEstimator`: `set_params` stores a changed copy of a settings value.

    A value that two estimators share stays as it was for the other one.

    Attributes
    ----------
    families : dict
        The family of each parameter that may be a name: ``tree="two-means", tree__restarts=3`` is
        ``tree=TwoMeans(restarts=3)``.
    """

    families: ClassVar[Mapping[str, type[NamedSettings]]] = {}

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator; ``inference__chains=8`` those of a value it holds.

        Parameters
        ----------
        **params : dict
            Names and values, as scikit-learn has them.

        Returns
        -------
        self
        """
        estimator: Any = super()
        now = estimator.get_params(deep=False)
        changes = nested(params)
        for name, family in self.families.items():
            change = changes.get(name)
            if isinstance(change, _Inside) and isinstance(change.get("", now[name]), str):
                change[""] = family.of(change.get("", now[name]))
        settings = {
            name: change
            for name, change in changes.items()
            if isinstance(change, _Inside) and name in now and not hasattr(change.get("", now[name]), "set_params")
        }
        values = changed(now, settings)
        others = {name: value for name, value in params.items() if name.partition("__")[0] not in settings}
        estimator.set_params(**others, **{name: values[name] for name in settings})
        return self


class _Inside(dict[str, Any]):
    """Changes inside a value, by name; under "" the value itself, if it is given too."""


def _has_params(value: Any) -> bool:
    """Whether a value has parameters to look into: settings, or an estimator that settings hold."""
    return hasattr(value, "get_params") and not isinstance(value, type)


def nested(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by their first name: ``{"a": 1, "b__c": 2}`` is ``{"a": 1, "b": {"c": 2}}``."""
    inner: dict[str, _Inside] = defaultdict(_Inside)
    for name, value in params.items():
        first, _, rest = name.partition("__")
        inner[first][rest] = value
    return {name: values[""] if list(values) == [""] else values for name, values in inner.items()}


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the changes that `nested` gives; a value that is changed inside is copied."""
    result = dict(values)
    change: Any
    for name, change in changes.items():
        if isinstance(change, _Inside):
            inside = dict(change)
            value: Any = inside.pop("", values[name])
            if not _has_params(value):
                raise ValueError(
                    f"{name} is {value!r}, which has no settings {sorted(inside)}: give {name} a value that has them."
                )
            if isinstance(value, Settings):
                change = value.with_params(**inside)
            else:
                change = clone(value)
                change.set_params(**inside)
        result[name] = change
    return result


def require_whole(name: str, value: Any, least: int) -> None:
    """Raise unless a setting is a whole number that is not less than `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is a whole number, not {value!r}.")
    require(int(value) >= least, f"{name} must be at least {least}, got {value}.")


def require(condition: bool, message: str) -> None:
    """Raise ``ValueError(message)`` unless ``condition`` holds; used by settings to check themselves."""
    if not condition:
        raise ValueError(message)
