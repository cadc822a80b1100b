"""Settings as values: small frozen dataclasses that scikit-learn can look into and search over."""

from __future__ import annotations

from dataclasses import fields
from numbers import Integral
from typing import Any


class Settings:
    """Mixin for frozen dataclasses: scikit-learn's ``get_params``/``set_params``.

    ``GridSearchCV(GPTreeClassifier(inference=Gibbs()), {"inference__chains": [1, 8]})`` needs the two methods.
    A search clones the estimator before it sets parameters, and with it the value; `set_params` of an estimator itself
    changes the value that it holds, and so every estimator that shares it.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]

    def set_params(self, **params: Any) -> Settings:
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {sorted(known)}.")
        checked = type(self)(**{**known, **params})  # what is wrong shows here, before anything is changed
        vars(self).update(vars(checked))
        return self


def require_whole(name: str, value: Any, least: int) -> None:
    """Raise unless a setting is a whole number that is not less than `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} is a whole number, not {value!r}.")
    require(int(value) >= least, f"{name} must be at least {least}, got {value}.")


def require(condition: bool, message: str) -> None:
    """Raise ``ValueError(message)`` unless ``condition`` holds; used by settings to check themselves."""
    if not condition:
        raise ValueError(message)
