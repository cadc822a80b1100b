"""The one error that reading and writing models raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StorageError(ValueError):
    """A folder that holds no model, a damaged one, or one of a version that cannot be read."""


def ensure(condition: bool, message: str) -> None:
    """Raise ``StorageError(message)`` unless a condition holds."""
    if not condition:
        raise StorageError(message)


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Whatever goes wrong while `what` is made from a file is a `StorageError`: the file is not as the format says."""
    try:
        yield
    except StorageError:
        raise
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".strip()
        raise StorageError(f"{what} is damaged or incomplete ({reason[:300]}).") from None
