"""Settings as values that scikit-learn can look into."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
from sklearn.base import BaseEstimator, clone

from gptree.inference import CoordinateAscent, Gibbs, LearnKernel
from gptree.settings import require, require_whole


class Holder(BaseEstimator):
    def __init__(self, inference=None):
        self.inference = inference


def test_settings_are_frozen_and_equal_by_value() -> None:
    with pytest.raises(FrozenInstanceError):
        Gibbs().chains = 3  # pyright: ignore[reportAttributeAccessIssue]
    assert Gibbs(chains=3) == Gibbs(chains=3) != Gibbs(chains=4)
    assert hash(Gibbs()) == hash(Gibbs())


def test_parameters_are_found_and_set_through_an_estimator() -> None:
    held = Gibbs(chains=3, steps=5)
    estimator = Holder(held)
    assert estimator.get_params()["inference__steps"] == 5
    changed = clone(estimator).set_params(inference__chains=8)
    assert changed.inference == Gibbs(chains=8, steps=5)
    assert held == Gibbs(chains=3, steps=5)  # a clone was changed, not the value that the user holds


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Gibbs has no setting 'chain'; it has \['chains', 'keep', 'steps'\]"):
        Gibbs().set_params(chain=2)
    held = Gibbs(chains=2)
    with pytest.raises(ValueError, match="at least one chain"):
        held.set_params(steps=3, chains=0)
    assert held == Gibbs(chains=2)
    for value, error in ((2.0, TypeError), (True, TypeError), (0, ValueError)):
        with pytest.raises(error, match="number"):
            require_whole("number", value, 1)
    assert CoordinateAscent(learn=LearnKernel(steps=3)).get_params()["learn"] == LearnKernel(steps=3)


def test_require() -> None:
    require(True, "never said")
    with pytest.raises(ValueError, match="said"):
        require(False, "said")
