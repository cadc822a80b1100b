"""Digits in sessions, a tiny convolutional network, and every registered method in a small form."""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits

from gptree.deep import Backbone, RandomCrop, Training, convnet
from gptree.rivals import NETWORK_RIVALS, BaseNetwork, NetworkRival, NetworkRivalSettings

N_BASE, SHOTS = 6, 5
TRAINING = Training(
    epochs=20, cross_entropy_epochs=20, batch_size=30, learning_rate=0.05, validation=None, calibrate=False
)
#: Of a preset, smaller than it is; digits are no mirror images of digits.
SMALL: dict[str, Any] = {"session__steps": 4, "mirror": False}
#: Further small values of single settings, where a method has them.
SMALLER: dict[str, Any] = {
    "memory__total": 21,
    "balanced_steps": 3,
    "base_epochs": 1,
    "base_classes": 4,
    "fine_tuning__steps": 3,
    "proxies": 2,
}
CASES = [f"{name} {preset}" for name in NETWORK_RIVALS for preset in ("tuned", "tao")]


class Digits(NamedTuple):
    base: tuple[np.ndarray, np.ndarray]
    sessions: list[tuple[np.ndarray, np.ndarray]]
    X: np.ndarray
    y: np.ndarray


@functools.cache
def digits() -> Digits:
    """Thirty pictures of each base digit, two sessions of two digits with five each, and 300 others to test on."""
    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    X, y = (15 * found.images[order]).astype(np.uint8), found.target[order]
    base = rows_of(y, range(N_BASE), 30)
    sessions = [rows_of(y, classes, SHOTS) for classes in ((6, 7), (8, 9))]
    test = np.setdiff1d(np.arange(len(y)), rows_of(y, range(10), 30))[:300]
    return Digits((X[base], y[base]), [(X[rows], y[rows]) for rows in sessions], X[test], y[test])


def rows_of(y: np.ndarray, classes: Any, count: int) -> np.ndarray:
    return np.concatenate([np.flatnonzero(y == c)[:count] for c in classes])


def network(**others: Any) -> Backbone:
    """Two stages, batch normalisation, twelve features of both signs."""
    return convnet(**{"channels": 1, "width": 12, "depth": 2, "embedding": 12, **others})


def settings_of(case: str, **changes: Any) -> NetworkRivalSettings:
    """Settings of a case, "icarl tuned" or "icarl tao", with fewer steps."""
    name, preset = case.split()
    kind = NETWORK_RIVALS[name].settings_type
    settings = kind.tuned() if preset == "tuned" else kind.tao("cub")
    known = settings.get_params()
    changes = SMALL | {key: value for key, value in SMALLER.items() if key in known} | changes
    if not known.get("balanced_steps", 1):
        changes.pop("balanced_steps", None)  # a phase that a preset leaves out
    return settings.with_params(**changes)


def rival_of(case: str, *, seed: int = 0, folder: Any = None, **changes: Any) -> NetworkRival[Any]:
    settings = settings_of(case, **changes)
    return NETWORK_RIVALS[case.split()[0]](
        network(), settings, training=TRAINING, augment=(RandomCrop(1),), random_state=seed, device="cpu", folder=folder
    )


@functools.cache
def base_network(objective: Any) -> BaseNetwork:
    """One network for all methods of an objective."""
    case = next(case for case in CASES if settings_of(case).objective == objective)
    return rival_of(case).train_base(*digits().base)


def fitted(case: str, **others: Any) -> NetworkRival[Any]:
    """After the base session."""
    return copy.copy(_fitted(case, **others))  # states are values: what is done to a copy does not show


@functools.cache
def _fitted(case: str, **others: Any) -> NetworkRival[Any]:
    return rival_of(case, **others).fit(*digits().base, base=base_network(settings_of(case).objective))


def taught(case: str, sessions: int = 2, **others: Any) -> NetworkRival[Any]:
    """After so many sessions, learned anew."""
    rival = fitted(case, **others)
    for X, y in digits().sessions[:sessions]:
        assert rival.add_classes(X, y) is rival
    return rival


def known(case: str, sessions: int = 2) -> NetworkRival[Any]:
    """After so many sessions, learned once for all tests."""
    return copy.copy(_known(case, sessions))


_known = functools.cache(taught)
