"""Conformance of every registered rival, whatever its method, and the registries."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from gptree.rivals import GIBBS_RIVALS, INCREMENTAL, RIVALS, RivalClassifier

# A rival that learns further classes must do what the others do before it learns them.
EVERY = RIVALS | {f"incremental {name}": make for name, make in INCREMENTAL.items()} | GIBBS_RIVALS
# They fit neither kernel nor scale, and the paper's are too smooth and too small for handwriting.
GIBBS_SETTINGS = {"kernel": "rbf", "output_scale": 30.0, "length_scale": 0.5, "steps": 5, "predict_at": "mean"}

every_rival = pytest.mark.parametrize("name", EVERY)
#: Variants of a class share its code: what does not depend on settings is asked once of each class.
every_class = pytest.mark.parametrize("name", {type(make()): name for name, make in reversed(EVERY.items())}.values())


@functools.cache
def digits(shots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`shots` digits of each class to train on, and 500 others."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order], y[order]
    train = np.concatenate([np.flatnonzero(y == c)[:shots] for c in range(10)])
    test = np.setdiff1d(np.arange(len(y)), train)[:500]
    return x[train], y[train], x[test], y[test]


def small(name: str):
    rival = EVERY[name]()
    if name in GIBBS_RIVALS:
        return rival.set_params(**GIBBS_SETTINGS)
    few = {key: 150 for key in ("features", "random_features") if rival.get_params().get(key)}
    return rival.set_params(**few)


@functools.cache
def learned(name: str) -> RivalClassifier:
    """A rival after five digits of each class."""
    x, y, _, _ = digits(5)
    return small(name).fit(x, y)


@every_rival
def test_probabilities(name):
    new = digits(5)[2]
    p = learned(name).predict_proba(new)
    assert p.shape == (len(new), 10)
    assert np.all(p >= 0)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)


@every_rival
def test_accuracy_and_calibration_on_digits(name):
    x, y, new, true = digits(20)
    model = small(name).fit(x, y)
    p = model.predict_proba(new)
    assert np.mean(model.predict(new) == true) > 0.85
    assert -np.mean(np.log(p[np.arange(len(true)), true])) < 0.5


@every_rival
def test_prediction_is_the_likeliest_class_by_its_name(name):
    x, y, new, _ = digits(5)
    names = np.array([f"digit {9 - c}" for c in range(10)])  # the order of the names is not that of the numbers
    model = small(name).fit(x, names[y])
    np.testing.assert_array_equal(model.classes_, np.sort(names))
    np.testing.assert_array_equal(model.predict(new), model.classes_[model.predict_proba(new).argmax(axis=1)])
    if name not in GIBBS_RIVALS:  # in another order of the classes they take other draws
        np.testing.assert_array_equal(model.predict(new), names[learned(name).predict(new)])


@every_rival
def test_two_fits_and_a_clone_agree(name):
    x, y, new, _ = digits(5)
    first = learned(name)
    np.testing.assert_array_equal(first.predict_proba(new), clone(first).fit(x, y).predict_proba(new))


@every_rival
def test_float32_gives_nearly_the_same(name):
    x, y, new, _ = digits(10)
    x, new = x / 16, new / 16
    p = small(name).fit(x, y).predict_proba(new)
    q = small(name).fit(x.astype(np.float32), y).predict_proba(new.astype(np.float32))
    assert np.mean(np.abs(p - q)) < 0.01


@every_rival
@pytest.mark.parametrize("shots", [[1] * 10, [1] * 5 + [6] * 5, [2] + [1] * 9])
def test_classes_with_one_example(name, shots):
    x, y, new, true = digits(6)
    rows = np.concatenate([np.flatnonzero(y == c)[:n] for c, n in enumerate(shots)])
    model = small(name).fit(x[rows], y[rows])
    p = model.predict_proba(new)
    assert np.isfinite(p).all()
    assert len(model.classes_) == 10
    assert np.mean(model.predict(new) == true) > 0.4  # chance is 0.1


@every_rival
@pytest.mark.filterwarnings("error")
def test_one_example_of_each_is_no_reason_to_warn(name):
    x, y, _, _ = digits(1)
    small(name).fit(x, y)


@every_rival
def test_two_classes(name):
    x, y, new, true = digits(10)
    among, there = y < 2, true < 2
    model = small(name).fit(x[among], y[among])
    assert model.predict_proba(new[there]).shape == (there.sum(), 2)
    assert np.mean(model.predict(new[there]) == true[there]) > 0.97


@every_rival
def test_hard_features(name):
    """Equal rows in two classes, a constant column, all rows equal: probabilities, not NaN."""
    x, y, _, _ = digits(3)
    x = x.copy()
    x[y == 1] = x[y == 0]
    for features in (x, np.hstack([x, np.ones((len(x), 1))]), np.ones_like(x)):
        p = small(name).fit(features, y).predict_proba(features)
        assert np.isfinite(p).all()
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)


@every_rival
def test_more_dimensions_than_points(name):
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((4, 300))
    y = np.repeat(np.arange(4), 5)
    x = centres[y] + 0.5 * rng.standard_normal((20, 300))
    assert small(name).fit(x, y).score(centres, np.arange(4)) == 1


@every_class
def test_in_a_pipeline(name):
    x, y, new, true = digits(10)
    assert make_pipeline(StandardScaler(), small(name)).fit(x, y).score(new, true) > 0.75


@every_class
def test_errors(name):
    x, y, new, _ = digits(2)
    with pytest.raises(NotFittedError):
        small(name).predict(new)
    with pytest.raises(ValueError, match="at least two classes"):
        small(name).fit(x[:3], ["a"] * 3)
    with pytest.raises(ValueError, match="NaN"):
        small(name).fit(np.where(x == 0, np.nan, x), y)
    with pytest.raises(ValueError, match="features"):
        small(name).fit(x, y).predict(new[:, 1:])


@every_class
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_checks(name):
    """With one value of every grid, and few draws: the checks are of manners, and fit each rival a hundred times."""
    rival = small(name)
    grids = {key: value for key, value in rival.get_params().items() if isinstance(value, tuple)}
    rival.set_params(**{key: value[len(value) // 2 :][:1] for key, value in grids.items()})
    check_estimator(rival.set_params(chains=3, steps=2) if name in GIBBS_RIVALS else rival)


# --------------------------------------------------------------------------------------------------------- registries


def test_a_rival_is_registered_by_its_definition(monkeypatch):
    registry = dict(RIVALS)
    monkeypatch.setattr(RivalClassifier, "registry", registry)

    class Uniform(RivalClassifier):
        name = "evenly"
        variants = {"evenly-twice": {"times": 2}}  # noqa: RUF012

        def __init__(self, times=1):
            self.times = times

        def _fit(self, x, y):
            self.n_classes_ = self.times * (y.max() + 1)

        def _logits(self, x):
            return np.zeros((len(x), self.n_classes_))

    class Unnamed(Uniform):
        pass

    assert set(registry) - set(RIVALS) == {"evenly", "evenly-twice"}
    assert registry["evenly"] is Uniform
    assert registry["evenly-twice"]().fit([[0.0], [1.0]], [0, 1]).predict_proba([[0.0]]).shape == (1, 4)
    with pytest.raises(TypeError, match=r"frozen\.logistic has a rival 'logistic'"):
        type("Other", (Uniform,), {"name": "logistic"})


def test_every_file_of_a_family_is_found():
    assert {"class-mean", "logistic", "logistic-smoothed", "kernel-logistic", "knn", "ridge", "lda", "ranpac"} <= set(
        RIVALS
    )
    assert {"class-mean", "slda", "ranpac", "ranpac-balanced", "teen", "teen-0.1"} <= set(INCREMENTAL)
    assert {"lda-shrunk-means", "rf-lda-shrunk-means", "logistic-memory"} <= set(INCREMENTAL)
    assert {"sbm-gp", "lsm", "ove"} <= set(GIBBS_RIVALS)
