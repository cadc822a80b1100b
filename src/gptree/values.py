"""Settings as values: small frozen dataclasses that scikit-learn can look into and search over."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class Settings:
    """Mixin for frozen dataclasses: scikit-learn's ``get_params``/``set_params``.

    ``GridSearchCV(GPTreeClassifier(inference=Gibbs()), {"inference__chains": [1, 8]})`` needs the two methods.
    scikit-learn clones an estimator before it sets parameters, so the value a user holds is never changed.
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # pyright: ignore[reportArgumentType]

    def set_params(self, **params: Any) -> Settings:
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {sorted(known)}.")
            object.__setattr__(self, name, value)
        check = getattr(self, "__post_init__", None)
        if check is not None:
            check()
        return self


def require(condition: bool, message: str) -> None:
    """Raise ``ValueError(message)`` unless ``condition`` holds; used by settings to check themselves."""
    if not condition:
        raise ValueError(message)
