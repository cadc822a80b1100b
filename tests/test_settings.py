"""Settings as values that scikit-learn can look into."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import pytest
from sklearn.base import BaseEstimator, clone

from gptree.inference import CoordinateAscent, Gibbs, LearnKernel
from gptree.settings import NamedSettings, Settings, SettingsParameters, require, require_whole


class Holder(SettingsParameters, BaseEstimator):
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
    before = hash(held)
    other = Holder(held).set_params(inference__chains=8)
    assert other.inference == clone(estimator).set_params(inference__chains=8).inference == Gibbs(chains=8, steps=5)
    assert held == estimator.inference == Gibbs(chains=3, steps=5)  # a value that two estimators share stays as it was
    assert hash(held) == before
    assert other.set_params(inference=Gibbs(), inference__steps=2).inference == Gibbs(steps=2)
    other.set_params(inference=CoordinateAscent(learn=LearnKernel()), inference__learn__steps=7)
    assert other.get_params()["inference__learn__steps"] == 7
    with pytest.raises(ValueError, match="Invalid parameter 'inferences'"):
        other.set_params(inferences__steps=2)
    with pytest.raises(ValueError, match="at least one chain"):
        other.set_params(inference=Gibbs(), inference__chains=0)
    assert other.inference.learn.steps == 7  # nothing is set where one value is wrong


def test_a_name_is_taken_once() -> None:
    with pytest.raises(TypeError, match="has a Gibbs: choose another name"):
        type("Gibbs", (Settings,), {"__module__": "elsewhere"})
    assert Settings.kind("Gibbs") is Gibbs
    assert Settings.kind("Sampler of mine") is None


def test_classes_outside_the_library_may_be_defined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a notebook, or where a script is run and imported; the last definition counts."""
    monkeypatch.setattr(Settings, "_kinds", dict(Settings._kinds))
    first = type("Mine", (Settings,), {"__module__": "__main__"})
    second = type("Mine", (Settings,), {"__module__": "mine"})
    assert first is not second
    assert Settings.kind("Mine") is second


def test_members_of_a_family_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "_kinds", dict(Settings._kinds))

    class Colour(NamedSettings):
        family, example = "colour", "Red()"

    @dataclass(frozen=True)
    class Red(Colour):
        shade: int = 3
        name = "red"

    @dataclass(frozen=True)
    class DarkRed(Red):  # a subclass has no name unless it gives itself one
        pass

    @dataclass(frozen=True)
    class Blue(Colour):
        name = "blue"

    assert Colour.names() == Red.names() == ["blue", "red"]
    assert Colour.of("red") == Red(shade=3)
    assert Colour.of(DarkRed(1)) == DarkRed(1)
    assert "gibbs" not in Colour.names()
    with pytest.raises(ValueError, match="Unknown colour 'green'; choose from blue, red"):
        Colour.of("green")
    for wrong in (3, Red, Gibbs()):
        with pytest.raises(TypeError, match=r"the colour must be a value such as Red\(\), or .* blue, red"):
            Colour.of(wrong)
    with pytest.raises(TypeError, match="the colour Red has the name 'red': choose another one"):

        class Scarlet(Colour):
            name = "red"


def test_bad_settings_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"Gibbs has no setting 'chain'; it has \['chains', 'keep', 'pooled', 'steps'\]"
    ):
        Gibbs().with_params(chain=2)
    held = Gibbs(chains=2)
    with pytest.raises(ValueError, match="at least one chain"):
        held.with_params(steps=3, chains=0)
    assert held == Gibbs(chains=2)
    for value, error in ((2.0, TypeError), (True, TypeError), (0, ValueError)):
        with pytest.raises(error, match="number"):
            require_whole("number", value, 1)
    assert CoordinateAscent(learn=LearnKernel(steps=3)).get_params()["learn"] == LearnKernel(steps=3)


def test_require() -> None:
    require(True, "never said")
    with pytest.raises(ValueError, match="said"):
        require(False, "said")
