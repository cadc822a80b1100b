"""Experiments on sessions: trials on small made-up data, and tables and figures of made-up rows."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
from matplotlib.figure import Figure
from session_cases import BASE, SESSIONS, WAY, made_up_pictures

from benchmarks.core.runner import run_trials
from benchmarks.core.store import Rows
from benchmarks.core.tables import chosen
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments import EXPERIMENTS as ALL
from benchmarks.experiments.fscil import lines, methods, streams, tables
from benchmarks.experiments.fscil.lines import (
    DEEP,
    EXEMPLARS,
    FOREST,
    FROZEN,
    KERNELS,
    METHODS,
    PAPERS_TREE,
    STUDIED,
    TREES,
    Line,
)
from benchmarks.experiments.fscil.networks import read, write
from benchmarks.experiments.fscil.streams import HELD_OUT
from gptree import GPForestClassifier, Graft

TREE = next(line for line in METHODS if line.method == "tree, shared root")
EXPERIMENTS = {name: experiment for name, experiment in ALL.items() if experiment.store == "fscil-sessions"}


@pytest.fixture
def folder(tmp_path):
    """A data folder with the frozen features of CUB, the embeddings of mini-ImageNet and CIFAR-100, and the lists."""
    x, pictures = made_up_pictures()
    for name in ("mini-margin", "cifar-plain", "mini-rotations"):
        if name == "mini-rotations":
            pictures.split[(np.arange(len(pictures.y)) % 12 < 3) & (pictures.y < BASE)] = HELD_OUT
        write(x, pictures, tmp_path / "networks", name)
    np.savez(tmp_path / "cub_efficientnet_lite2.npz", x=x, y=pictures.y, path=pictures.path)
    for data in ("cub200", "mini_imagenet"):
        lists = tmp_path / "fscil" / data
        lists.mkdir(parents=True)
        for number in range(SESSIONS + 1):
            first = 0 if number == 0 else BASE + (number - 1) * WAY
            own = range(first, BASE if number == 0 else first + WAY)
            shots = 8 if number == 0 else 5
            for kind, items in (("session", range(shots)), ("test", range(8, 12))):
                text = "\n".join(f"images/c{c}/{i}.jpg" for c in own for i in items)
                (lists / f"{kind}_{number + 1}.txt").write_text(text)
    return tmp_path


# ------------------------------------------------------------------------------------------------------------ trials


def all_lines(data: str = FROZEN) -> list[Line]:
    """One for every trial."""
    lines = [line for line in (*METHODS, *TREES, *EXEMPLARS, *KERNELS) if line.fits(data)]
    return list({line.trial(data, 0).key: line for line in lines}.values())


RUN = ("paper, shared root", "forest, shared root", "tree, shared root", "paper, graft", "rival: class-mean")


@pytest.mark.parametrize("method", RUN)
def test_a_line_of_every_kind_runs(folder, method):
    line = next(line for line in all_lines() if line.method == method)
    metrics = methods.run(line.trial(FROZEN, seed=1), folder)
    assert [session["classes"] for session in metrics["sessions"]] == [5, 7, 9]
    assert metrics["sessions"][0]["accuracy"] > 0.6
    assert 0 <= metrics["sessions"][-1]["ece"] <= 1


@pytest.mark.parametrize("line", all_lines(), ids=lambda line: f"{line.method}, {line.exemplars}, {line.kernel}")
def test_every_line_names_a_method(line):
    method = methods.make_method(line.method, 0, line.exemplars, line.kernel)
    assert {"fit", "add_classes", "predict_proba"} <= set(dir(method))


def test_settings_reach_the_method():
    chosen = Line("", "paper, graft", exemplars=2, kernel="linear")
    method = methods.make_method(chosen.method, 3, **chosen.settings)
    assert method.growth.exemplars == 2
    assert method.growth.strategy == Graft()
    assert type(method.kernel.base_kernel).__name__ == "LinearKernel"
    assert method.random_state == 3


def test_trials_are_in_common():
    def keys(name: str) -> set[str]:
        return {trial.key for trial in EXPERIMENTS[name].trials(1)}

    assert keys("fscil-forgetting") == {
        trial.key
        for name in ("fscil-cub", "fscil-mini-imagenet")
        for trial in EXPERIMENTS[name].trials(1)
        if trial.data in (*STUDIED, *DEEP.values())
    }
    usual = {PAPERS_TREE.trial(data, 0).key for data in (FROZEN, "mini-margin")}
    for name in ("fscil-trees", "fscil-kernels", "fscil-exemplars"):
        assert usual < keys(name)
    assert len({experiment.results for experiment in EXPERIMENTS.values()}) == 1


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_trials_are_distinct_and_runs_travel(experiment):
    trials = experiment.trials(2)
    assert len({trial.key for trial in trials}) == len(trials)
    assert {trial.seed for trial in trials} == {0, 1}
    assert pickle.loads(pickle.dumps(experiment.run)) is methods.run


def test_streams_of_embeddings(folder, monkeypatch):
    monkeypatch.setattr(streams, "CIFAR_SESSIONS", {"base": BASE, "way": WAY, "shot": 5, "seed": 0})
    for data, base_rows in (("mini-margin", 40), ("cifar-plain", 40)):
        stream, held_out = methods.make_stream(data, folder)
        assert held_out is not None
        assert not held_out.any()  # their networks were trained on all
        assert [session.labels.tolist() for session in stream.sessions] == [[0, 1, 2, 3, 4], [5, 6], [7, 8]]
        assert [len(session.y) for session in stream.sessions] == [base_rows, 10, 10]
        assert [len(session.y_test) for session in stream.sessions] == [20, 8, 8]


@pytest.mark.parametrize("use", ["only", "calibrate"])
def test_rows_held_out_of_the_networks_training(folder, use, monkeypatch):
    """The base session is made of them, or they calibrate the method; only where the network was trained so."""
    (usual, held_out), given = methods.make_stream("mini-rotations", folder), []
    pictures = read("mini-rotations", folder / "networks")
    of_base = pictures.x[(pictures.split == HELD_OUT) & (pictures.y < BASE)]
    assert sorted(map(tuple, usual.sessions[0].X[held_out])) == sorted(map(tuple, of_base))
    line = next(line for line in METHODS if line.held_out == use)
    assert line.fits("mini-rotations")
    assert not any(line.fits(data) for data in (FROZEN, "mini-margin", "cifar-plain"))

    real = GPForestClassifier.fit
    monkeypatch.setattr(GPForestClassifier, "fit", lambda *a, **more: given.append((a, more)) or real(*a, **more))
    assert len(methods.run(line.trial("mini-rotations", 0), folder)["sessions"]) == SESSIONS + 1
    (((_, X, y), more),) = given
    assert np.array_equal(X, usual.sessions[0].X[held_out] if use == "only" else usual.sessions[0].X)
    assert len(y) == len(X)
    assert use == "only" or np.array_equal(more["held_out"], held_out)


@pytest.mark.parametrize("data", ["cub", "mini-margin", "cifar-plain"])
def test_missing_embeddings_say_what_makes_them(tmp_path, data):
    trial = PAPERS_TREE.trial(data, 0)
    with pytest.raises(FileNotFoundError, match=f"python -m benchmarks run fscil-networks --data .* --methods {data}"):
        methods.run(trial, tmp_path)


def test_what_is_measured_for_one_experiment_serves_another(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.core.experiment.RESULTS", tmp_path)
    line = TREE
    rows = Rows(EXPERIMENTS["fscil-cub"].results)
    run_trials([line.trial(FROZEN, 0)], lambda trial: methods.run(trial, folder), rows)
    (row,) = EXPERIMENTS["fscil-forgetting"].rows()
    assert row.trial.method == line.method


def test_forgetting_against_the_papers_formula(folder):
    """g_j^k = max over l < k of a_j^l, less a_j^k; its mean over j < k. Before it arrives, a class has accuracy 0."""
    sessions = methods.run(TREE.trial(FROZEN, 0), folder)["sessions"]
    assert sessions[0]["forgetting"] is None
    for k in range(1, len(sessions)):
        total = 0.0
        for j in range(k):
            best = 0.0
            for earlier in range(k):
                known = sessions[earlier]["session_accuracy"]
                best = max(best, known[j] if j < len(known) else 0.0)
            total += best - sessions[k]["session_accuracy"][j]
        assert sessions[k]["forgetting"] == pytest.approx(total / k)


# ----------------------------------------------------------------------------------------------------- made-up rows


def row(line: Line, seed: int, first: float, data: str = FROZEN, **last: float) -> Row:
    """Three sessions; accuracy falls by 10 points in each, base stays, and novel is half."""
    sessions = [
        {
            "session": k,
            "accuracy": first - 0.1 * k,
            "base_accuracy": first,
            "novel_accuracy": None if k == 0 else first / 2,
            "harmonic_mean": None if k == 0 else 0.4,
            "forgetting": None if k == 0 else 0.01 * k,
            "nll": 1.0,
            "ece": 0.05,
        }
        for k in range(3)
    ]
    sessions[-1].update(last)
    return Row(line.trial(data, seed), {"sessions": sessions}, {"wall": 1.0, "cpu": 1.0}, 1, {}, {})


@cache
def all_rows(data: tuple[str, ...] = (FROZEN,)) -> list[Row]:
    return [
        row(line, seed, 0.9 - 0.02 * number + 0.01 * seed, name)
        for name in data
        for number, line in enumerate(all_lines(name))
        for seed in range(2)
    ]


def test_table_by_hand():
    rows = [row(PAPERS_TREE, 0, 0.8), row(PAPERS_TREE, 1, 0.9), row(FOREST, 0, 0.7)]
    sessions, last, gaps = EXPERIMENTS["fscil-cub"].tables(rows)
    assert list(sessions.columns) == ["method", "1", "2", "3"]
    (line,) = gaps.lines
    assert line[:2] == ["gptree forest less GP-Tree on a cross-entropy network", "−10.0, one seed, no verdict"]
    assert sessions.lines == [
        [PAPERS_TREE.name, "**85.0 ± 5.0**", "**75.0 ± 5.0**", "**65.0 ± 5.0**"],
        [FOREST.name, "70.0", "60.0", "50.0"],
    ]
    assert last.lines[1] == [
        FOREST.name,
        "50.0",
        "70.0",
        "35.0",
        "**40.0**",
        "**2.0**",
        "**1.000**",
        "**5.0**",
        "1",
    ]


def test_forgetting_begins_with_the_second_session_and_less_is_better():
    rows = [row(PAPERS_TREE, 0, 0.8), row(FOREST, 0, 0.8, forgetting=0.005)]
    sessions, _ = EXPERIMENTS["fscil-forgetting"].tables(rows)  # and gaps, not the scores that other experiments show
    assert list(sessions.columns) == ["method", "2", "3"]
    assert sessions.lines == [[PAPERS_TREE.name, "**1.0**", "2.0"], [FOREST.name, "**1.0**", "**0.5**"]]


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_every_experiment_shows_its_rows(experiment, tmp_path, monkeypatch):
    """Tables, and a picture with a curve in every panel; one of the pictures is written out."""
    written, drawn = Figure.savefig, []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    rows = all_rows(tuple(lines.DATA))
    own = {trial.key for trial in experiment.trials(2)}
    rows = [found for found in rows if found.trial.key in own]
    assert len(rows) == len(own)
    data = {trial.data for trial in experiment.trials(1)}
    assert len(experiment.tables(rows)) == (2 if experiment.name == "fscil-forgetting" else 3) * len(data)
    experiment.figure(rows, tmp_path / "figure.png")
    (picture,) = drawn
    assert all(ax.lines for ax in picture.axes)
    if experiment.name == "fscil-trees":
        written(picture, tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_without_rows(experiment, tmp_path):
    assert experiment.tables([]) == []
    with pytest.raises(ValueError, match="no rows"):
        experiment.figure([], tmp_path / "figure.png")


def test_quoted_tables_are_whole():
    for name, sessions in (("fscil-cub", 11), ("fscil-trees", 11), ("fscil-mini-imagenet", 9), ("fscil-cifar100", 9)):
        for table in EXPERIMENTS[name].quoted:
            assert "10 runs" in table.note
            assert {len(line) for line in table.lines} == {len(table.columns)} == {sessions + 1}
            assert all(1 < float(cell) < 76 for line in table.lines for cell in line[1:])
            assert all(float(line[1]) > float(line[-1]) for line in table.lines)
    means = {line[0]: np.mean([float(cell) for cell in line[1:]]) for line in EXPERIMENTS["fscil-cub"].quoted[0].lines}
    wanted = {"iCaRL": 36.67, "EEIL": 36.27, "NCM": 32.49, "TOPIC": 43.92, "SDC": 51.09, "PODNet": 50.04}
    assert {name: means[name] for name in wanted} == pytest.approx(wanted, abs=0.01)


def test_what_is_forgotten_is_printed_with_a_true_minus_sign_and_no_negative_zero():
    rows = [row(PAPERS_TREE, 0, 0.8, forgetting=-0.0002), row(FOREST, 0, 0.8, forgetting=-0.012)]
    forgotten, _ = EXPERIMENTS["fscil-forgetting"].tables(rows)
    assert [line[-1] for line in forgotten.lines] == ["0.0", "**−1.2**"]
    assert forgotten.lines[0][0] == "GP-Tree on a cross-entropy network"
    _, last, _ = EXPERIMENTS["fscil-cub"].tables(rows)
    assert [line[5] for line in last.lines] == ["0.0", "**−1.2**"]


@pytest.mark.parametrize(("most", "scale"), [(0.05, "linear"), (0.6, "symlog")])
def test_one_that_forgets_all_does_not_hide_the_others(most, scale, tmp_path, monkeypatch):
    scales = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda self, *_, **__: scales.append(self.axes[0].get_yscale())
    )
    rows = [row(PAPERS_TREE, 0, 0.8), row(FOREST, 0, 0.8, forgetting=most)]
    EXPERIMENTS["fscil-forgetting"].figure(rows, tmp_path / "figure.png")
    assert scales == [scale]


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_every_line_can_be_named_in_the_document(experiment):
    """And is found by its name alone."""
    rows = all_rows(tuple(lines.DATA))
    named = set()
    for trial in experiment.trials(1):
        (name,) = (name for name, fields in experiment.choices.items() if chosen([made(trial)], **fields))
        named.add(name)
    assert {line[0] for table in experiment.tables(rows) for line in table.lines if " less " not in line[0]} == named


def made(trial: Trial) -> Row:
    return Row(trial, {}, {}, None, {}, {})


def test_the_papers_tree_samples_as_the_set_up_says():
    sampler = methods.make_method(PAPERS_TREE.method, 0).inference
    assert (sampler.chains, sampler.steps) == (10, 1)


def test_rows_of_other_settings_are_left_out():
    other = Trial("fscil-sessions", PAPERS_TREE.method, FROZEN, 0, {"exemplars": 5, "kernel": "matern52"})
    rows = [row(PAPERS_TREE, 0, 0.8), Row(other, {"sessions": []}, {}, 1, {}, {})]
    assert tables.groups(rows, METHODS, FROZEN) == {PAPERS_TREE: rows[:1]}
