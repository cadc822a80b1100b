"""Gibbs sampling on frozen features: fair draws and choices, every method runs, and tables that follow the rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.core.rendering import to_latex, to_markdown
from benchmarks.core.trials import Row, Trial
from benchmarks.data import load
from benchmarks.experiments.gibbs import chains, classes, vs_vi
from benchmarks.experiments.gibbs import trials as gibbs_trials
from benchmarks.experiments.gibbs.tables import all_tables
from benchmarks.experiments.gibbs.trials import (
    GIBBS_METHODS,
    INFERENCES,
    KERNELS,
    PLAIN_METHODS,
    SCALES,
    Task,
    chains_for,
    chosen_by_validation,
    drawn,
    halves,
    prepared,
    run_chains,
    run_classes,
    run_inference,
    settings_of,
)

CLASSES, TRAIN, TEST, WIDTH = 6, 8, 5, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clusters of points in place of birds and of queries."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(CLASSES, WIDTH))

    def points(shots: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(CLASSES), shots)
        return (centres[y] + 0.7 * rng.normal(size=(len(y), WIDTH))).astype(np.float16), y.astype(np.int16)

    (x, y), (x_new, y_new) = points(TRAIN), points(TEST)
    both = np.concatenate([y, y_new])
    np.savez(
        folder / "cub_efficientnet_lite2.npz",
        x=np.concatenate([x, x_new]),
        y=both,
        train=np.arange(len(both)) < len(y),
        path=np.array([f"bird {c}/1.jpg" for c in both]),
    )
    names = np.array([f"intent {c}" for c in range(CLASSES)])
    parts = {"train_x": x, "train_y": y, "test_x": x_new, "test_y": y_new}
    np.savez(folder / "clinc150_minilm.npz", allow_pickle=False, names=names, oos_test_x=x_new[:3], **parts)
    return folder


def trial(method: str, data: str = "cub200", seed: int = 0, **settings: Any) -> Trial:
    """As the experiments have it, but for the settings named."""
    return Trial("made up", method, data, seed, {**settings_of(method, data, settings.get("classes", 4)), **settings})


# ------------------------------------------------------------------------------------------------------------ the data


def test_the_halves_are_fixed_disjoint_and_halve_every_class(folder: Path) -> None:
    dataset = load("cub200", folder)
    validation, test = halves(dataset)
    assert np.array_equal(np.sort(np.concatenate([validation, test])), np.arange(CLASSES * TEST))
    for again, first in zip(halves(dataset), (validation, test), strict=True):
        np.testing.assert_array_equal(again, first)
    counts = np.stack([np.bincount(dataset.test_y[half]) for half in (validation, test)])
    assert np.all(np.abs(counts[0] - counts[1]) == 1)


def test_a_draw_keeps_to_the_halves_whatever_its_seed_and_size(folder: Path) -> None:
    dataset = load("cub200", folder)
    for seed in range(5):
        for count in (2, 4, CLASSES):
            task = drawn(dataset, count, seed)
            for part, half in zip((task.validation, task.test), halves(dataset), strict=True):
                assert len(part.y) > 0
                assert rows_of(part.x) <= rows_of(dataset.test_x[half])
            assert rows_of(task.train.x) <= rows_of(dataset.train_x)
            assert len(task.train.y) == count * TRAIN
            assert set(task.train.y) == set(task.validation.y) == set(task.test.y) == set(range(count))


def test_classes_are_coded_in_a_random_order_and_labels_stay_with_their_points(folder: Path) -> None:
    dataset = load("cub200", folder)
    label = {x.tobytes(): y for x, y in zip(dataset.train_x, dataset.train_y, strict=True)}
    label |= {x.tobytes(): y for x, y in zip(dataset.test_x, dataset.test_y, strict=True)}
    orders = set()
    for seed in range(10):
        task = drawn(dataset, 4, seed)
        pairs = {(label[x.tobytes()], y) for part in vars(task).values() for x, y in zip(part.x, part.y, strict=True)}
        assert len(pairs) == 4  # one code a label
        orders.add(tuple(int(name) for name, _ in sorted(pairs, key=lambda pair: pair[1])))
    assert len(orders) > 5
    assert any(list(order) != sorted(order) for order in orders)


def test_a_trial_trains_on_as_many_rows_a_class_as_its_settings_say(folder: Path) -> None:
    assert np.bincount(prepared(trial("GP-Tree", "clinc150", shots=3), folder).train.y).tolist() == [3] * 4
    assert np.bincount(prepared(trial("GP-Tree", "cub200"), folder).train.y).tolist() == [TRAIN] * 4


def rows_of(x: np.ndarray) -> set[bytes]:
    return {row.tobytes() for row in x}


# ---------------------------------------------------------------------------------------------------------- the choice


class Spy:
    """A classifier that is right about a share of the rows, surer of it the larger the scale, and notes what it saw."""

    def __init__(self, task: Task, share: float, sureness: float, seen: set[bytes]):
        self.task, self.share, self.sureness, self.seen = task, share, sureness, seen

    def set_params(self, **_: Any) -> Spy:
        return self

    def fit(self, x: np.ndarray, y: np.ndarray) -> Spy:
        self.seen |= rows_of(x)
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        self.seen |= rows_of(x)
        y, classes = self.task.validation.y, int(self.task.train.y.max()) + 1
        assert len(x) == len(y)
        answer = np.where(np.arange(len(y)) < self.share * len(y), y, (y + 1) % classes)
        p = np.full((len(y), classes), (1 - self.sureness) / (classes - 1))
        p[np.arange(len(y)), answer] = self.sureness
        return p


def choose(task: Task, share: Mapping[tuple[str, float], float], sureness: Mapping[float, float]) -> tuple[Any, set]:
    seen: set[bytes] = set()

    def make(kernel: str, scale: float) -> Spy:
        return Spy(task, share.get((kernel, scale), 0.5), sureness[scale], seen)

    return chosen_by_validation(make, task, {"kernels": KERNELS, "scales": SCALES})[1], seen


SURENESS = {1.0: 0.5, 4.0: 0.6, 9.0: 0.7, 18.0: 0.8}


def test_the_choice_never_looks_at_the_test_half(folder: Path) -> None:
    task = drawn(load("cub200", folder), 4, 0)
    _, seen = choose(task, {}, SURENESS)
    assert seen == rows_of(task.train.x) | rows_of(task.validation.x)
    assert not seen & rows_of(task.test.x)


def test_the_choice_is_the_most_accurate_one_and_of_those_the_one_of_least_nll(folder: Path) -> None:
    task = drawn(load("cub200", folder), 4, 0)
    found, _ = choose(task, {("rbf", 4.0): 0.8}, SURENESS)
    assert found["chosen"] == {"kernel": "rbf", "scale": 4.0}
    assert len(found["validation"]) == 8
    found, _ = choose(task, {("rbf", 1.0): 1.0, ("linear", 9.0): 1.0}, SURENESS)
    assert found["chosen"] == {"kernel": "linear", "scale": 9.0}  # surer, and right


def test_other_test_labels_change_the_report_but_not_the_choice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_classes(trial("GP-Tree"), folder)

    def shuffled(trial: Trial, folder: Path) -> Task:
        task = prepared(trial, folder)
        return replace(task, test=replace(task.test, y=np.roll(task.test.y, 1)))

    monkeypatch.setattr(gibbs_trials, "prepared", shuffled)
    second = run_classes(trial("GP-Tree"), folder)
    assert first["chosen"] == second["chosen"]
    assert first["validation"] == second["validation"]
    assert first["mean"]["accuracy"] != second["mean"]["accuracy"]


# -------------------------------------------------------------------------------------------------------- every method


@pytest.mark.parametrize(("method", "data"), list(zip(GIBBS_METHODS, itertools.cycle(["cub200", "clinc150"]))))
def test_a_trial_of_every_sampled_method(method: str, data: str, folder: Path) -> None:
    found = run_classes(trial(method, data), folder)
    assert len(found["validation"]) == 8
    for predict_at in ("mean", "quadrature"):
        assert found[predict_at]["accuracy"] > 0.5  # of four classes
        assert np.isfinite([found[predict_at][name] for name in ("nll", "ece")]).all()
    assert found["mean"]["nll"] != found["quadrature"]["nll"]
    again = run_classes(trial(method, data), folder)
    assert (again["validation"], again["mean"]["nll"]) == (found["validation"], found["mean"]["nll"])


@pytest.mark.parametrize("method", PLAIN_METHODS)
def test_a_trial_of_every_other_method(method: str, folder: Path) -> None:
    found = run_classes(trial(method), folder)
    assert found["mean"]["accuracy"] > 0.5
    assert "quadrature" not in found
    assert "validation" not in found


@pytest.mark.parametrize("method", INFERENCES)
def test_a_trial_of_every_inference(method: str, folder: Path) -> None:
    found = run_inference(trial(method), folder)
    assert found["mean"]["accuracy"] > 0.5
    assert found["unsettled_nodes"] >= 0
    assert found["fit_seconds"] > 0


def test_settings_are_what_a_method_depends_on_and_no_more() -> None:
    searched = {"kernels": KERNELS, "scales": SCALES}
    assert settings_of("OVE", "cub200", 30) == {"classes": 30, "chains": 10, **searched}
    assert settings_of("OVE", "clinc150", 60) == {"classes": 60, "shots": 30, "chains": 1, **searched}
    assert settings_of("gptree forest", "clinc150", 60) == {"classes": 60, "shots": 30}
    assert settings_of("logistic regression", "cub200", 60) == {"classes": 60}
    assert settings_of("Gibbs", "cub200", 4) == {"classes": 4, "chains": 20, **searched}
    assert settings_of("VI, all points", "cub200", 4) == {"classes": 4, "sweeps": 200, **searched}
    sparse = {"classes": 4, "sweeps": 200, "inducing": 5, **searched}
    assert settings_of("VI, 5 inducing points a class", "cub200", 4) == sparse
    for name, module in (("gibbs-classes", classes), ("gibbs-vs-vi", vs_vi)):
        for each in module.trials(1):
            settings = settings_of(each.method, each.data, each.settings["classes"])
            assert each == Trial(name, each.method, each.data, 0, settings)
    assert {"chains", "steps", "kernels", "scales"} < set(chains.trials(1)[0].settings)


def test_a_trial_is_run_as_its_settings_say(folder: Path) -> None:
    few: dict[str, Any] = {"kernels": ["rbf"], "scales": [1.0, 4.0]}
    for method, run, setting, values in (
        ("GP-Tree", run_classes, "chains", (1, 2)),
        ("Gibbs", run_inference, "chains", (1, 2)),
        ("VI, all points", run_inference, "sweeps", (1, 50)),
        ("VI, 5 inducing points a class", run_inference, "inducing", (1, 3)),
    ):
        one, other = (
            run(replace(trial(method), settings={**trial(method).settings, **few, setting: value}), folder)[
                "validation"
            ]
            for value in values
        )
        assert [(found["kernel"], found["scale"]) for found in one] == [("rbf", 1.0), ("rbf", 4.0)]
        assert one != other, method


def test_ten_sweeps_are_not_one(folder: Path) -> None:
    one, ten = (run_classes(trial(name, kernels=["rbf"], scales=[4.0]), folder) for name in ("LSM", "LSM, ten sweeps"))
    assert one["validation"] != ten["validation"]


def test_a_trial_of_chains_and_steps(folder: Path) -> None:
    one, more = (run_chains(trial("GP-Tree", chains=2, steps=steps), folder) for steps in (1, 3))
    assert one["validation"] != more["validation"]
    assert more["mean"]["accuracy"] > 0.5


def test_a_method_without_the_memory_says_what_it_would_need(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gibbs_trials, "BUDGET", 2**16)
    found = run_classes(trial("OVE"), folder)
    assert "OneVsEachGP would need" in found["stopped"]
    assert "mean" not in found


# ------------------------------------------------------------------------------------------------------------- trials


def test_the_trials_are_those_of_the_paper() -> None:
    for module in (classes, vs_vi, chains):
        trials = module.trials(module.SEEDS)
        assert {each.settings["classes"] for each in trials} == {4, 6, 8, 10, 20, 30, 40, 50, 60}
        assert {each.data for each in trials} == {"cub200", "clinc150"}
        assert [each.seed for each in trials] == sorted(each.seed for each in trials)  # one seed after the other
    of_the_paper = [each for each in classes.trials(10) if each.method in classes.METHODS]
    assert len(of_the_paper) == 7 * 2 * 9 * 10
    assert [chains_for(n) for n in (4, 20, 30, 40, 60)] == [20, 20, 10, 1, 1]


def test_further_trials_of_more_sweeps_and_of_the_published_average() -> None:
    further = [each for each in classes.trials(10) if each.method not in classes.METHODS]
    averaged = [each for each in further if each.method == gibbs_trials.SCORES_AVERAGED]
    assert {each.settings["classes"] for each in averaged} == {4, 6, 8, 10, 20, 30}  # one chain has nothing to average
    swept = [each for each in further if each.method.endswith("ten sweeps")]
    assert {each.settings["steps"] for each in swept} == {10}
    assert len(averaged) + len(swept) == len(further) == 6 * 2 * 10 + 3 * 2 * 2 * 5


def test_quoted_figures() -> None:
    (table,) = classes.QUOTED
    assert {line[0]: line[-1] for line in table.lines}["GP-Tree"] == "69.92 ± 0.6"
    assert all(len(line) == len(table.columns) for line in table.lines)


# -------------------------------------------------------------------------------------------------------- what is shown

ACCURACY = {"GP-Tree": 0.8, "GP-Tree Rnd": 0.7, "SBM-GP": 0.71, "LSM": 0.75, "OVE": 0.76, "gptree forest": 0.9}


def made_row(trial: Trial, accuracy: float, peak: int = 10**9, cpu: str = "usual", **metrics: Any) -> Row:
    scores = {"accuracy": accuracy, "nll": 1 - accuracy, "ece": 0.1, "predict_seconds": 0.1}
    at = {"mean": scores, "quadrature": {**scores, "accuracy": accuracy - 0.05}} if "stopped" not in metrics else {}
    if trial.method in PLAIN_METHODS:
        del at["quadrature"]
    measured = {"fit_seconds": 1.0, "chosen": {"kernel": "rbf", "scale": 4.0}, **at, **metrics}
    return Row(trial, measured, {"wall": 1.0, "cpu": 1.0}, peak, {}, {"cpu": cpu})


def made_rows(
    accuracy: Mapping[str, float],
    classes: Iterable[int] = (10, 60),
    peak: int = 10**9,
    noise: Mapping[str, tuple[float, float, float]] | None = None,
) -> list[Row]:
    """Three seeds; `noise` is what a method has more in each."""
    noise = noise or {"GP-Tree Rnd": (0.0, -0.001, -0.002)}
    return [
        made_row(trial(method, seed=seed, classes=n), right + 0.01 * seed + noise.get(method, (0, 0, 0))[seed], peak)
        for seed in range(3)
        for n in classes
        for method, right in accuracy.items()
    ]


def test_tables_of_numbers_of_classes() -> None:
    rows = made_rows(ACCURACY)
    rows += [made_row(trial("OVE", seed=0, classes=30), 0.0, stopped="OneVsEachGP would need 9 GiB.")]
    rows[0] = replace(rows[0], metrics={**rows[0].metrics, "fit_seconds": 50.0})
    accuracy, nll, ece, seconds, memory = all_tables(rows)
    assert accuracy.title == "CUB: accuracy %, mean ± standard error over seeds (3)"
    assert accuracy.columns == ["classes", "10", "30", "60"]
    lines = {line[0]: line[1:] for line in accuracy.lines}
    assert lines["GP-Tree"] == ["81.0 ± 0.6", "–", "81.0 ± 0.6"]
    assert lines["GP-Tree, quadrature"] == ["76.0 ± 0.6", "–", "76.0 ± 0.6"]
    assert lines["gptree forest"] == ["**91.0 ± 0.6**", "–", "**91.0 ± 0.6**"]
    assert "gptree forest, quadrature" not in lines
    assert [table.title.split(",")[0] for table in (nll, ece)] == ["CUB: NLL", "CUB: ECE %"]
    assert {line[0]: line[1:] for line in nll.lines}["gptree forest"][0].startswith("**0.090")
    assert {line[0]: line[1:] for line in memory.lines} == {"LSM": ["0.93", "–", "0.93"], "OVE": ["0.93", "–", "0.93"]}
    assert "upper bound" in memory.note
    assert {line[0]: line[1] for line in seconds.lines}[rows[0].trial.method] == "1.00"  # a median: 50, 1, 1
    assert "Rows by processor: usual 37." in seconds.note
    for table in (accuracy, memory):
        assert table.title in to_markdown(table)
        assert "tabular" in to_latex(table, "tab:made-up")


def test_data_sets_have_tables_of_their_own() -> None:
    rows = made_rows({"GP-Tree": 0.8})
    rows += [replace(row, trial=replace(row.trial, data="clinc150")) for row in rows]
    assert [table.title.split(":")[0] for table in all_tables(rows)] == ["CUB"] * 4 + ["CLINC150"] * 4


def test_rows_of_other_processors_are_counted_under_their_seconds() -> None:
    rows = [
        made_row(trial(method, seed=seed, classes=10), 0.8, cpu="fast" if method == "OVE" and seed else "usual")
        for seed in range(3)
        for method in ("OVE", "LSM", "GP-Tree")
    ]
    note = all_tables(rows)[3].note
    assert "usual 7, fast 2; seconds of different processors are not to be compared." in note


def test_a_result_that_is_not_finite_is_shown_and_never_the_best() -> None:
    rows = made_rows({"GP-Tree": 0.8, "LSM": 0.7, "gptree forest": 0.7}, classes=(60,))
    at = next(i for i, row in enumerate(rows) if row.trial.method == "GP-Tree")
    rows[at] = replace(rows[at], metrics={**rows[at].metrics, "mean": {**rows[at].metrics["mean"], "nll": math.inf}})
    lines = {line[0]: line[1] for line in all_tables(rows)[1].lines}
    assert lines["GP-Tree"] == "∞"
    assert "**" in lines["GP-Tree, quadrature"]


def test_gaps_are_shown_with_their_verdicts() -> None:
    *_, gaps = classes.tables(made_rows({**ACCURACY, "OVE": 0.82}))
    assert gaps.title == "Gaps at 60 classes"
    points = {line[0]: line[1] for line in gaps.lines}
    assert points["CUB: GP-Tree less LSM"] == "+5.0 ± 0.0, ahead"
    assert points["CUB: GP-Tree less OVE"] == "−2.0 ± 0.0, behind"
    assert points["CUB: GP-Tree Rnd less SBM-GP"] == "−1.1 ± 0.1, behind"
    further = {"SBM-GP, ten sweeps": 0.72, gibbs_trials.SCORES_AVERAGED: 0.77}
    *_, sweeps, averages = classes.tables(made_rows({**ACCURACY, **further}))
    assert {line[0]: line[1] for line in sweeps.lines} == {
        "CUB, 10 classes: SBM-GP, ten sweeps less SBM-GP": "+1.0 ± 0.0, ahead",
        "CUB, 60 classes: SBM-GP, ten sweeps less SBM-GP": "+1.0 ± 0.0, ahead",
    }
    assert averages.lines[0][:2] == ["CUB, 10 classes: OVE, scores averaged less OVE", "+1.0 ± 0.0, ahead"]
    *_, one_seed = classes.tables([row for row in made_rows(ACCURACY) if row.trial.seed == 0])
    assert {line[0]: line[1] for line in one_seed.lines}["CUB: GP-Tree less LSM"] == "+5.0, one seed, no verdict"


def inference_rows(few: float, many: float) -> list[Row]:
    gaps = {"Gibbs": {10: few, 60: many}}
    return [
        made_row(trial(name, seed=seed, classes=n), 0.7 + gaps.get(name, {}).get(n, 0.0) + 0.01 * seed)
        for seed in range(3)
        for n in (10, 60)
        for name in INFERENCES
    ]


def test_tables_of_inferences() -> None:
    *tables, few, many = vs_vi.tables(inference_rows(0.0, 0.1))
    assert len(tables) == 4
    assert "seconds" in tables[-1].title
    assert (few.title, many.title) == ("Gaps at 4 classes", "Gaps at 60 classes")
    assert many.lines[0][:2] == ["CUB: Gibbs less VI, all points", "+10.0 ± 0.0, ahead"]


def chains_rows(gain: float, further: float, steps: float) -> list[Row]:
    right = {(1, 1): 0.7, (4, 1): 0.7 + gain, (16, 1): 0.7 + gain + further, (4, 10): 0.7 + gain + steps}
    return [
        made_row(trial("GP-Tree", seed=seed, classes=n, chains=chains, steps=steps), share + 0.01 * seed)
        for seed in range(3)
        for n in (10, 60)
        for (chains, steps), share in right.items()
    ]


def test_chains_and_steps() -> None:
    rows = chains_rows(0.03, 0.005, 0.002)
    first, *_, gaps, _ = chains.tables(rows)
    assert [line[0] for line in first.lines] == [
        "1 chain, 1 step",
        "4 chains, 1 step",
        "16 chains, 1 step",
        "4 chains, 10 steps",
    ]
    assert gaps.lines[0][:2] == ["CUB: 4 chains, 1 step less 1 chain, 1 step", "+3.0 ± 0.0, ahead"]
    assert gaps.lines[1][1] == "–, no seed in common"  # 32 chains have no row here


def test_steps_are_compared_at_equal_settings() -> None:
    """Ten steps are better at every setting but the last; which one was chosen does not matter."""
    rows = []
    for row in chains_rows(0.03, 0.005, 0.002):
        steps, place = row.trial.settings["steps"], row.trial.settings["classes"] / 100
        nlls = [1.0 + place - 0.2 * (steps == 10)] * 7 + [1.0 + 0.1 * (steps == 10)]
        validation = [{"accuracy": 0.9, "nll": nll} for nll in nlls]
        rows.append(replace(row, metrics={**row.metrics, "validation": validation}))
    *_, table = chains.tables(rows)
    assert table.lines[0] == ["CUB", "linear", "1", "−0.200", "2 of 2"]
    assert table.lines[7] == ["CUB", "rbf", "18", "+0.100", "0 of 2"]
    assert table.lines[8][3:] == ["–", "0 of 0"]  # no rows of CLINC150


def test_chains_are_closed_at_two_draws_of_birds_and_one_of_queries() -> None:
    draws = {(each.data, each.seed) for each in chains.trials(chains.SEEDS)}
    assert draws == {("cub200", 0), ("cub200", 1), ("clinc150", 0)}


def test_figures_are_drawn(tmp_path: Path) -> None:
    rows = [made_rows(ACCURACY), inference_rows(0.0, 0.1), chains_rows(0.03, 0.005, 0.002)]
    for module, few in zip((classes, vs_vi, chains), rows, strict=True):
        module.figure(few, tmp_path / "made-up.png")
        assert (tmp_path / "made-up.png").read_bytes().startswith(b"\x89PNG")
        assert all_tables([]) == []
