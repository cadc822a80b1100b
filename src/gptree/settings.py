"""Settings as values: frozen dataclasses that check themselves, register themselves and are searchable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any, ClassVar, Self


class Settings:
    """Base of every frozen dataclass of settings: inference, tree builders, experts, growth, training.

    A subclass is known by its name from the moment it is defined: files name it, and nothing else has to be edited.
    scikit-learn reads its fields by `get_params`, so that ``GridSearchCV(model, {"inference__chains": [1, 8]})`` works.
    A value never changes: `with_params` returns another one.

    Examples
    --------
    >>> from gptree import Gibbs
    >>> Gibbs(chains=4).with_params(steps=2)
    Gibbs(chains=4, steps=2, keep=1)
    """

    _kinds: ClassVar[dict[str, type[Settings]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        known = Settings._kinds.get(cls.__name__)
        if known is not None and known.__module__ != cls.__module__:
            raise TypeError(
                f"settings are stored by the name of their class, and {known.__module__} has a {cls.__name__}: choose "
                "another name."
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
                if isinstance(value, Settings):
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


class SettingsParameters:
    """Mixin for estimators, before `BaseEstimator`: `set_params` stores a changed copy of a settings value.

    A value that two estimators share stays as it was for the other one.
    """

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
        own: Any = super()
        now = own.get_params(deep=False)
        changes = nested(params)
        settings = {
            name: change
            for name, change in changes.items()
            if isinstance(change, dict) and isinstance(change.get("", now.get(name)), Settings)
        }
        values = changed(now, settings)
        others = {name: value for name, value in params.items() if name.partition("__")[0] not in settings}
        own.set_params(**others, **{name: values[name] for name in settings})
        return self


def nested(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters by their first name: ``{"a": 1, "b__c": 2}`` is ``{"a": 1, "b": {"c": 2}}``; "" is b itself."""
    inner: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, value in params.items():
        first, _, rest = name.partition("__")
        inner[first][rest] = value
    return {name: values[""] if list(values) == [""] else values for name, values in inner.items()}


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with the changes that `nested` gives; what is changed inside must be settings."""
    result = dict(values)
    for name, change in changes.items():
        if isinstance(change, dict):
            change = dict(change)
            value = change.pop("", values[name])
            if not isinstance(value, Settings):
                raise ValueError(f"{name} is {value!r}, which has no settings {sorted(change)}.")
            change = value.with_params(**change)
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
