"""The progress bar of a fit, and of changes after it: its steps, one after the other, each up to its end."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import joblib
import numpy as np
import pytest

from gptree import GPForestClassifier, GPTreeClassifier, Growth, Logarithmic, SharedRoot
from gptree.estimators import forest, incremental
from gptree.estimators.progress import progress_bar
from gptree.progress import Advance, Progress, silent, within
from small_sizes import small_random_features

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(12), 12)
X = RNG.normal(size=(12, 5))[Y] + 0.4 * RNG.normal(size=(len(Y), 5))
SCALE = ("building trees", "fitting experts", "scoring rows", "fitting nodes")
STEPS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "default": ({}, (*SCALE[:3], *(f"output scale: {step}" for step in SCALE), SCALE[3])),
    "own kernel": ({"kernel": "linear"}, SCALE),
    "without experts": ({"prior_mean": None}, (SCALE[0], SCALE[3])),
    "growth": (
        {"growth": Growth(exemplars=2)},
        (
            "building trees",
            "choosing exemplars",
            "fitting experts",
            "scoring rows",
            "rehearsing novel classes",
            "fitting nodes",
            "looking for strangers",
        ),
    ),
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None, list[int]]]:
    """The steps of fits: name, total, and by how much each of them advanced."""
    seen: list[tuple[str, int | None, list[int]]] = []

    @contextmanager
    def record(shown: bool) -> Iterator[Progress]:
        def begin(step: str, total: int | None) -> Advance:
            counts: list[int] = []
            seen.append((step, total, counts))
            return counts.append

        yield begin if shown else silent

    for module in (forest, incremental):
        monkeypatch.setattr(module, "progress_bar", record)
    return seen


@pytest.mark.parametrize("case", STEPS)
def test_every_step_is_told_and_reaches_its_end(case: str, steps: list[tuple[str, int | None, list[int]]]) -> None:
    parameters, expected = STEPS[case]
    with small_random_features():
        GPForestClassifier(random_state=0, n_estimators=2, verbose=True, **parameters).fit(X, Y)
    assert tuple(step for step, *_ in steps) == expected
    totals = {step: total for step, total, _ in steps}
    assert totals["building trees"] == 2
    assert totals.get("scoring rows", len(X)) == len(X)
    assert all(sum(counts) == total for _, total, counts in steps if total is not None)


@pytest.mark.parametrize("case", STEPS)
def test_a_fit_that_is_interrupted_in_any_step_changes_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters, steps = STEPS[case]
    model = GPForestClassifier(random_state=0, n_estimators=2, prior_mean="lda").fit(X, Y)
    p, state = model.predict_proba(X), model.state_
    model.set_params(**{"verbose": True, "prior_mean": "experts", **parameters})
    for reached in range(len(steps)):
        told: list[str] = []

        @contextmanager
        def until(shown: bool, told: list[str] = told, reached: int = reached) -> Iterator[Progress]:
            def begin(step: str, total: int | None) -> Advance:
                told.append(step)
                if len(told) > reached:
                    raise KeyboardInterrupt
                return lambda count: None

            yield begin

        monkeypatch.setattr(forest, "progress_bar", until)
        with small_random_features(), pytest.raises(KeyboardInterrupt):
            model.fit(X, Y)
        assert told[-1] == steps[reached]
        assert model.state_ is state
    np.testing.assert_array_equal(model.predict_proba(X), p)


CHANGES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "shared-root": (SharedRoot(), ("building trees", "scoring rows", "fitting nodes")),
    "logarithmic": (Logarithmic(), ("fitting sessions",)),
}


@pytest.mark.parametrize("case", CHANGES)
def test_changes_tell_their_steps(case: str, steps: list[tuple[str, int | None, list[int]]]) -> None:
    strategy, expected = CHANGES[case]
    base, first, second = Y < 8, (Y >= 8) & (Y < 10), Y >= 10
    settings: dict[str, Any] = {"random_state": 0, "n_estimators": 2, "growth": Growth(exemplars=2, strategy=strategy)}
    with small_random_features():
        model = GPForestClassifier(**settings).fit(X[base], Y[base])
        quiet = copy.deepcopy(model).add_classes(X[first], Y[first]).add_classes(X[second], Y[second])
        assert not steps
        model.set_params(verbose=True)
        for session, rows in enumerate((first, second)):
            steps.clear()
            model.add_classes(X[rows], Y[rows])
            assert tuple(step for step, *_ in steps) == expected
            assert all(sum(counts) == total for _, total, counts in steps if total is not None)
            if case == "logarithmic":
                assert steps[0][1] == 1, session  # the second session takes the first one in
    np.testing.assert_array_equal(model.predict_proba(X), quiet.predict_proba(X))


def test_examples_and_a_plain_model_tell_their_steps(steps: list[tuple[str, int | None, list[int]]]) -> None:
    base = Y < 8
    with small_random_features():
        model = GPForestClassifier(random_state=0, n_estimators=2, verbose=True).fit(X[base], Y[base])
        steps.clear()
        model.add_classes(X[~base], Y[~base])
        assert steps[0][0] == "rehearsing novel classes"
        steps.clear()
        model.add_examples(X[base][:3], Y[base][:3])
    assert [step for step, *_ in steps] == ["fitting nodes", "building trees", "scoring rows", "fitting nodes"]


def test_nodes_that_trees_share_are_counted_once(steps: list[tuple[str, int | None, list[int]]]) -> None:
    model = GPForestClassifier(random_state=0, n_estimators=4, prior_mean=None, verbose=True).fit(X, Y)
    assert steps[-1][1] == len(model.diagnostics_["sweeps"]) < 4 * 11


def test_a_quiet_fit_tells_nothing(
    steps: list[tuple[str, int | None, list[int]]], capsys: pytest.CaptureFixture[str]
) -> None:
    GPTreeClassifier(random_state=0).fit(X, Y)
    assert not steps
    assert capsys.readouterr() == ("", "")


def test_the_bar_finishes_a_step_where_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich import progress as rich

    bars: list[rich.Progress] = []
    begin = rich.Progress.__init__

    def init(self: rich.Progress, *columns: Any, **about: Any) -> None:
        bars.append(self)
        begin(self, *columns, **about)

    monkeypatch.setattr(rich.Progress, "__init__", init)
    with progress_bar(True) as progress:
        progress("fitting experts", None)
        within(progress, "output scale")("scoring rows", 10)(4)
        last = progress("fitting nodes", 0)
        assert [task.description for task in bars[0].tasks] == [
            "fitting experts",
            "output scale: scoring rows",
            "fitting nodes",
        ]
        assert [task.percentage for task in bars[0].tasks] == [100, 100, 0]
        last(0)


def test_the_bar_ends_with_an_error() -> None:
    def interrupted() -> None:
        with progress_bar(True) as progress:
            progress("fitting nodes", 10)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with progress_bar(True) as progress:  # no bar is left that would forbid another
        progress("fitting nodes", 10)


def test_a_fit_with_a_bar_gives_the_numbers_of_one_without(capsys: pytest.CaptureFixture[str]) -> None:
    p = GPTreeClassifier(random_state=0).fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(GPTreeClassifier(random_state=0, verbose=True).fit(X, Y).predict_proba(X), p)
    with joblib.parallel_config(backend="threading"):
        q = GPTreeClassifier(random_state=0, verbose=True, n_jobs=2).fit(X, Y).predict_proba(X)
    np.testing.assert_allclose(q, p, rtol=0, atol=1e-12)
