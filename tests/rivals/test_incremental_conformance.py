"""Conformance of every registered rival that learns further classes, whatever its method."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from gptree import SphereMap
from gptree.rivals import INCREMENTAL

every_rival = pytest.mark.parametrize("name", INCREMENTAL)

ARRIVAL = (4, 1, 7, 0, 9, 2, 8, 3, 6, 5)  # the digits in the order in which they come
N_BASE, SHOTS = 6, 5


class Digits(NamedTuple):
    base: tuple[np.ndarray, np.ndarray]
    sessions: list[tuple[np.ndarray, np.ndarray]]
    X: np.ndarray
    y: np.ndarray


@functools.cache
def digits(shots: int = SHOTS, way: int = 2) -> Digits:
    """Forty of each base digit, then sessions of `way` digits with `shots` each, and 600 others to test on."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    base = rows_of(y, ARRIVAL[:N_BASE], 40)
    sessions = [rows_of(y, ARRIVAL[at : at + way], shots) for at in range(N_BASE, 10, way)]
    test = np.setdiff1d(np.arange(len(y)), rows_of(y, ARRIVAL, 40))[:600]
    x = SphereMap().fit(x[base]).transform(x)
    return Digits((x[base], y[base]), [(x[rows], y[rows]) for rows in sessions], x[test], y[test])


def rows_of(y: np.ndarray, classes: tuple[int, ...], count: int) -> np.ndarray:
    return np.concatenate([np.flatnonzero(y == c)[:count] for c in classes])


def small(name: str):
    rival = INCREMENTAL[name]()
    few = {key: 200 for key in ("features", "random_features") if rival.get_params().get(key)}
    return rival.set_params(**few)


def taught(name: str, data: Digits, names: np.ndarray | None = None):
    names = np.arange(10) if names is None else names
    rival = small(name).fit(data.base[0], names[data.base[1]])
    for x, y in data.sessions:
        assert rival.add_classes(x, names[y]) is rival
    return rival


@functools.cache
def learned(name: str):
    """After all sessions; to be looked at only."""
    return taught(name, digits())


@every_rival
def test_columns_stand_in_order_of_arrival(name):
    data = digits()
    rival = learned(name)
    np.testing.assert_array_equal(rival.classes_, [0, 1, 2, 4, 7, 9, 3, 8, 5, 6])
    p = rival.predict_proba(data.X)
    assert p.shape == (600, 10)
    assert np.all(p >= 0)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(rival.predict(data.X), rival.classes_[p.argmax(axis=1)])


@every_rival
def test_old_and_new_classes_are_told_apart(name):
    data = digits()
    rival = learned(name)
    novel = np.isin(data.y, ARRIVAL[N_BASE:])
    right = rival.predict(data.X) == data.y
    assert right[~novel].mean() > 0.75
    assert right[novel].mean() > (0.2 if name == "ranpac" else 0.5)  # forty examples against five are a bias
    own = rival.predict_proba(data.X)[np.arange(600), np.argsort(rival.classes_)[data.y]]
    assert -np.log(own).mean() < (1.5 if name == "ranpac" else 1)  # log 10 is 2.3


@every_rival
@pytest.mark.parametrize(("shots", "way"), [(5, 1), (1, 1), (40, 4)])
def test_shots_and_ways(name, shots, way):
    data = digits(shots, way)
    rival = taught(name, data)
    assert len(rival.classes_) == 10
    p = rival.predict_proba(data.X)
    assert np.isfinite(p).all()
    assert np.mean(rival.predict(data.X) == data.y) > 0.5


@every_rival
def test_names_do_not_matter(name):
    """Text longer than any of the base, in the order of the numbers."""
    data = digits()
    names = np.array([f"{c} " + "very " * (c in ARRIVAL[N_BASE:]) + "long" for c in range(10)])
    by_name, by_number = taught(name, data, names), learned(name)
    np.testing.assert_array_equal(by_name.classes_, names[by_number.classes_])
    np.testing.assert_array_equal(by_name.predict_proba(data.X), by_number.predict_proba(data.X))


@every_rival
def test_deterministic_and_fit_starts_afresh(name):
    data = digits()
    rival = copy.deepcopy(learned(name))
    p = rival.predict_proba(data.X)
    again = clone(rival).fit(*data.base)
    base = again.predict_proba(data.X)
    for session in data.sessions:
        again.add_classes(*session)
    np.testing.assert_array_equal(again.predict_proba(data.X), p)
    rival.fit(*data.base)
    np.testing.assert_array_equal(rival.classes_, np.sort(ARRIVAL[:N_BASE]))
    np.testing.assert_array_equal(rival.predict_proba(data.X), base)


@every_rival
def test_a_failed_session_changes_nothing(name):
    data = digits()
    rival = small(name).fit(*data.base).add_classes(*data.sessions[0])
    before = pickle.dumps(rival)
    x, y = data.sessions[1]
    failures = {
        "never seen before.* 1 are known": (x, np.where(y == 5, 4, y)),  # one of the base
        "never seen before.* 2 are known": data.sessions[0],
        "are text and the known ones numbers": (x, y.astype(str)),
        "features": (x[:, 1:], y),
        "NaN": (np.full_like(x, np.nan), y),
        "inconsistent": (x[1:], y),
        "0 sample": (x[:0], y[:0]),
        "Unknown label type": (x, y + 0.5),
    }
    for message, session in failures.items():
        with pytest.raises(ValueError, match=message):
            rival.add_classes(*session)
        assert pickle.dumps(rival) == before
    rival.add_classes(x, y)


@every_rival
def test_adding_before_fitting(name):
    data = digits()
    with pytest.raises(NotFittedError):
        small(name).add_classes(*data.base)
    assert not hasattr(small(name), "memory_bytes_")


@every_rival
def test_memory_grows_with_the_classes_not_with_the_base(name):
    data = digits()
    x, y = data.base
    rival = small(name).fit(x, y)
    twice = small(name).fit(np.concatenate([x, x + 1e-3]), np.concatenate([y, y]))
    assert rival.memory_bytes_ == twice.memory_bytes_
    assert 0 < rival.memory_bytes_ < rival.add_classes(*data.sessions[0]).memory_bytes_


@every_rival
def test_single_precision_gives_nearly_the_same(name):
    data = digits()
    low = Digits(
        (data.base[0].astype(np.float32), data.base[1]),
        [(x.astype(np.float32), y) for x, y in data.sessions],
        data.X.astype(np.float32),
        data.y,
    )
    difference = learned(name).predict_proba(data.X) - taught(name, low).predict_proba(low.X)
    assert np.abs(difference).mean() < 0.01


@every_rival
@pytest.mark.parametrize("shots", [1, 2])
def test_a_base_of_few_shots(name, shots):
    data = digits(shots)
    rows = rows_of(data.base[1], ARRIVAL[:N_BASE], shots)
    rival = small(name).fit(data.base[0][rows], data.base[1][rows]).add_classes(*data.sessions[0])
    assert np.isfinite(rival.predict_proba(data.X)).all()
    there = np.isin(data.y, rival.classes_)
    assert np.mean(rival.predict(data.X[there]) == data.y[there]) > 0.4  # chance is 0.125


@every_rival
def test_two_base_classes(name):
    data = digits()
    rows = np.isin(data.base[1], [0, 1])
    rival = small(name).fit(data.base[0][rows], data.base[1][rows]).add_classes(*data.sessions[0])
    there = np.isin(data.y, rival.classes_)
    assert np.mean(rival.predict(data.X[there]) == data.y[there]) > 0.6  # chance is 0.25
