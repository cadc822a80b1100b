"""Experiments on sessions: trials on small made-up data, and tables, figures and findings of made-up rows."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from benchmarks import fscil_features, fscil_networks
from benchmarks.experiments import fscil, fscil_findings, fscil_lines, fscil_shown
from benchmarks.experiments.fscil_lines import FROZEN, KERNELS, METHODS, PAPER, REPRESENTATIVES, TREES, Line
from benchmarks.fscil_networks import (
    HELD_BACK,
    NETWORKS,
    TEST,
    Network,
    make_backbone,
    nearest_mean_accuracy,
    read,
    write,
)
from benchmarks.pictures import Pictures
from benchmarks.rows import Row, Rows, Trial, run_trials
from gptree.deep import CrossEntropy

EXPERIMENTS = {experiment.name: experiment for experiment in fscil.EXPERIMENTS}
BASE, SESSIONS, WAY = 5, 2, 2
CLASSES = BASE + SESSIONS * WAY


def made_up_pictures(per_class: int = 12) -> tuple[np.ndarray, Pictures]:
    """Embeddings of classes that can be told apart, in eight dimensions, and what is known of the pictures."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(CLASSES), per_class)
    x = random.normal(size=(CLASSES, 8))[y] + 0.3 * random.normal(size=(len(y), 8))
    place = np.tile(np.arange(per_class), CLASSES)
    path = np.array([f"c{c}/{i}.jpg" for c, i in zip(y, place, strict=True)])
    names = tuple(f"c{c}" for c in range(CLASSES))
    return x, Pictures(np.zeros((len(y), 1, 1, 3), np.uint8), y, names, (place >= 8).astype(np.int8), path)


@pytest.fixture
def folder(tmp_path):
    """A data folder with the frozen features of CUB, the embeddings of mini-ImageNet and CIFAR-100, and the lists."""
    x, pictures = made_up_pictures()
    for name in ("mini-margin", "cifar-plain", "mini-rotations"):
        if name == "mini-rotations":
            pictures.split[(np.arange(len(pictures.y)) % 12 < 3) & (pictures.y < BASE)] = HELD_BACK
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
    lines = [line for line in (*METHODS, *TREES, *REPRESENTATIVES, *KERNELS) if line.fits(data)]
    return list({line.trial(data, 0).key: line for line in lines}.values())


@pytest.mark.parametrize("line", all_lines(), ids=lambda line: f"{line.method}, {line.representatives}, {line.kernel}")
def test_every_line_runs(folder, line):
    metrics = fscil.run(line.trial(FROZEN, seed=1), folder)
    assert [session["classes"] for session in metrics["sessions"]] == [5, 7, 9]
    assert metrics["sessions"][0]["accuracy"] > 0.6
    assert 0 <= metrics["sessions"][-1]["ece"] <= 1


def test_settings_reach_the_method():
    chosen = Line("", "paper, graft", representatives=2, kernel="linear")
    method = fscil_features.make_method(chosen.method, 3, **chosen.settings)
    assert method.growth.representatives == 2
    assert method.growth.strategy == fscil_features.STRATEGIES["graft"]
    assert type(method.kernel.base_kernel).__name__ == "LinearKernel"
    assert method.random_state == 3


def test_older_rows_are_still_those_of_their_trials():
    rows = Rows(fscil_features.RESULTS)
    assert len(rows) == 240
    assert all(rows.done(trial) for trial in fscil_features.trials())


def test_trials_are_in_common():
    def keys(name: str) -> set[str]:
        return {trial.key for trial in EXPERIMENTS[name].trials(1)}

    assert keys("fscil-forgetting") == {
        trial.key
        for name in ("fscil-cub", "fscil-mini-imagenet")
        for trial in EXPERIMENTS[name].trials(1)
        if trial.data in fscil.STUDIED
    }
    usual = {PAPER.trial(data, 0).key for data in (FROZEN, "mini-margin")}
    for name in ("fscil-trees", "fscil-kernels", "fscil-representatives"):
        assert usual < keys(name)
    assert len({experiment.results for experiment in fscil.EXPERIMENTS}) == 1


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_trials_are_distinct_and_runs_travel(experiment):
    trials = experiment.trials(2)
    assert len({trial.key for trial in trials}) == len(trials)
    assert {trial.seed for trial in trials} == {0, 1}
    assert pickle.loads(pickle.dumps(experiment.run)) is fscil.run


def test_embeddings_come_back(tmp_path):
    x, pictures = made_up_pictures()
    write(x, pictures, tmp_path, "cub")
    found = read("cub", tmp_path)
    np.testing.assert_allclose(found.x, x, atol=2e-3)
    np.testing.assert_array_equal(found.y, pictures.y)
    np.testing.assert_array_equal(found.path, pictures.path)


def test_streams_of_embeddings(folder, monkeypatch):
    monkeypatch.setattr(fscil, "CIFAR_SESSIONS", {"base": BASE, "way": WAY, "shot": 5, "seed": 0})
    for data, base_rows in (("mini-margin", 40), ("cifar-plain", 40)):
        stream = fscil.make_stream(data, folder)
        assert [session.labels.tolist() for session in stream.sessions] == [[0, 1, 2, 3, 4], [5, 6], [7, 8]]
        assert [len(session.y) for session in stream.sessions] == [base_rows, 10, 10]
        assert [len(session.y_test) for session in stream.sessions] == [20, 8, 8]


def test_rows_held_back_from_the_network(folder):
    """Only the base session is made of them, and only where the network held rows back."""
    usual, few = (fscil.make_stream("mini-rotations", folder, rows).sessions for rows in ("all", "held back"))
    found = read("mini-rotations", folder / "networks")
    of_base = (found.split == HELD_BACK) & (found.y < BASE)
    assert sorted(map(tuple, few[0].X)) == sorted(map(tuple, found.x[of_base]))
    assert np.array_equal(np.bincount(few[0].y), [3] * BASE)
    for one, other in zip(usual, few, strict=True):
        assert np.array_equal(one.X_test, other.X_test)
    for one, other in zip(usual[1:], few[1:], strict=True):
        assert np.array_equal(one.X, other.X)
    line = next(line for line in METHODS if line.base_rows == "held back")
    assert line.fits("mini-rotations")
    assert not any(line.fits(data) for data in (FROZEN, "mini-margin", "cifar-plain"))
    assert len(fscil.run(line.trial("mini-rotations", 0), folder)["sessions"]) == SESSIONS + 1


@pytest.mark.parametrize("data", ["cub", "mini-margin", "cifar-plain"])
def test_missing_embeddings_say_what_makes_them(tmp_path, data):
    trial = PAPER.trial(data, 0)
    with pytest.raises(FileNotFoundError, match=f"python -m benchmarks.fscil_networks {data} .*networks"):
        fscil.run(trial, tmp_path)


def test_what_is_measured_for_one_experiment_serves_another(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.experiments.fscil.RESULTS", tmp_path)
    line = METHODS[3]
    rows = Rows(EXPERIMENTS["fscil-cub"].results)
    run_trials([line.trial(FROZEN, 0)], lambda trial: fscil.run(trial, folder), rows)
    (row,) = EXPERIMENTS["fscil-forgetting"].rows()
    assert row.trial.method == line.method


def test_networks_are_there():
    for data in fscil_lines.DATA:
        assert data == FROZEN or isinstance(NETWORKS[data], Network)
    assert make_backbone(NETWORKS["cifar-plain"], None).recipe["stem"] == "cifar"
    assert make_backbone(NETWORKS["mini-margin"], None).recipe["stem"] == "small"


def test_nearest_means_against_a_loop():
    x, pictures = made_up_pictures()
    y, learned, asked = pictures.y, pictures.split == 0, (pictures.split == TEST) & (pictures.y > 2)
    learned &= y > 1  # numbers of the classes do not begin at 0
    right = 0
    for row in np.flatnonzero(asked):
        cosines = {}
        for c in set(y[learned]):
            mean = np.mean([v / np.linalg.norm(v) for v in x[learned & (y == c)]], axis=0)
            cosines[c] = x[row] @ mean / np.linalg.norm(mean)
        right += max(cosines, key=cosines.get) == y[row]
    assert nearest_mean_accuracy(x, y, learned, asked) == right / asked.sum()


def test_a_network_is_trained_and_embeds_at_the_size_that_held_back_pictures_choose(tmp_path, monkeypatch):
    """Three base classes of flat colour, two of eight pictures held back; two more classes are only embedded."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 12)
    split = (np.arange(60) % 12 >= 8).astype(np.int8)
    X = (random.integers(40, 200, (5, 1, 1, 3))[y] + random.integers(-20, 20, (60, 12, 12, 3))).astype(np.uint8)
    pictures = Pictures(X, y, tuple("abcde"), split, np.array([f"c/{i}" for i in range(60)]))
    how = fscil_networks.pretrained(
        2, CrossEntropy(), 0.05, validation=2, calibrate=False, mixed_precision="no", batch_size=9
    )
    monkeypatch.setitem(NETWORKS, "small", Network("small", 3, how, (), enlarged=(16,)))
    monkeypatch.setattr(fscil_networks, "load", lambda *_, **__: pictures)
    report = fscil_networks.run("small", tmp_path, tmp_path / "runs", tmp_path / "out", None)
    assert set(report["held back"]) == {"as they are", "16 pixels", "mean of all sizes"}
    found = read("small", tmp_path / "out")
    assert [np.sum(found.split[y == c] == HELD_BACK) for c in range(5)] == [2, 2, 2, 0, 0]
    kept = nearest_mean_accuracy(found.x, y, (found.split == 0) & (y < 3), found.split == HELD_BACK)
    assert kept == max(report["held back"].values())


def test_forgetting_against_the_papers_formula(folder):
    """g_j^k = max over l < k of a_j^l, less a_j^k; its mean over j < k. Before it arrives, a class has accuracy 0."""
    sessions = fscil.run(METHODS[3].trial(FROZEN, 0), folder)["sessions"]
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


def all_rows(data: tuple[str, ...] = (FROZEN,)) -> list[Row]:
    return [
        row(line, seed, 0.9 - 0.02 * number + 0.01 * seed, name)
        for name in data
        for number, line in enumerate(all_lines(name))
        for seed in range(2)
    ]


def test_table_by_hand():
    rows = [row(METHODS[0], 0, 0.8), row(METHODS[0], 1, 0.9), row(METHODS[1], 0, 0.7)]
    sessions, last = EXPERIMENTS["fscil-cub"].tables(rows)
    assert list(sessions.head) == ["method", "1", "2", "3"]
    assert sessions.lines == [
        [METHODS[0].name, "**85.0 ± 5.0**", "**75.0 ± 5.0**", "**65.0 ± 5.0**"],
        [METHODS[1].name, "70.0", "60.0", "50.0"],
    ]
    assert last.lines[1] == [
        METHODS[1].name,
        "1",
        "50.0",
        "70.0",
        "35.0",
        "**40.0**",
        "**2.0**",
        "**1.000**",
        "**5.0**",
    ]


def test_forgetting_begins_with_the_second_session_and_less_is_better():
    rows = [row(METHODS[0], 0, 0.8), row(METHODS[1], 0, 0.8, forgetting=0.005)]
    sessions, _ = EXPERIMENTS["fscil-forgetting"].tables(rows)
    assert list(sessions.head) == ["method", "2", "3"]
    assert sessions.lines == [[METHODS[0].name, "**1.0**", "2.0"], [METHODS[1].name, "**1.0**", "**0.5**"]]


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_experiment_shows_its_rows(experiment, tmp_path):
    rows = all_rows(tuple(fscil_lines.DATA))
    own = {trial.key for trial in experiment.trials(2)}
    rows = [found for found in rows if found.trial.key in own]
    assert len(rows) == len(own)
    data = {trial.data for trial in experiment.trials(1)}
    assert len(experiment.tables(rows)) == 2 * len(data)
    said = experiment.findings(rows)
    assert said.count("*") == 2 * len(data)
    assert "nan" not in said
    experiment.figure(rows, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_without_rows(experiment, tmp_path):
    assert experiment.tables([]) == []
    assert experiment.findings([]) == "Not measured yet."
    with pytest.raises(ValueError, match="no rows"):
        experiment.figure([], tmp_path / "figure.png")


def test_quoted_tables_are_whole():
    for name in ("fscil-cub", "fscil-trees"):
        (table,) = EXPERIMENTS[name].quoted
        assert "10 runs" in table.note
        assert {len(line) for line in table.lines} == {len(table.head)} == {12}
        assert all(19 < float(cell) < 76 for line in table.lines for cell in line[1:])
        assert all(float(line[1]) > float(line[-1]) for line in table.lines)


# ---------------------------------------------------------------------------------------------------------- findings


def seeds(line: Line, *arguments: float, **others: float) -> list[Row]:
    """Rows of two seeds: from one there is no verdict on the paper."""
    return [row(line, seed, *arguments, **others) for seed in (0, 1)]


def test_findings_about_sessions():
    forest = fscil_lines.FOREST
    rows = [*seeds(PAPER, 0.6), *seeds(forest, 0.8, ece=0.01), *(row(m, 0, 0.7) for m in fscil_lines.RIVALS)]
    said = fscil_findings.sessions(rows, data=(FROZEN,))
    assert "from 60.0 % in the base session to 40.0 %" in said
    assert "better on base classes than on novel ones, 60.0 % and 30.0 %, as in the paper" in said
    assert "ahead of 0 of 7 frozen heads" in said
    assert "ends at 60.0 %, ahead of that head (+10.0 points), with an ECE of 1.0 %" in said


@pytest.mark.parametrize(("accuracies", "verdict"), [((0.8, 0.7, 0.6), "holds"), ((0.7, 0.8, 0.6), "does not hold")])
def test_findings_about_trees(accuracies, verdict):
    rows = [found for line, value in zip(TREES[:3], accuracies, strict=True) for found in seeds(line, value)]
    said = fscil_findings.trees(rows, data=(FROZEN,))
    assert f"before rebuild, {verdict}." in said
    assert "20.0 points apart" in said
    assert "Graft" not in said


def test_findings_about_representatives():
    five, *_, one = REPRESENTATIVES
    grows = fscil_findings.representatives([*seeds(five, 0.8), *seeds(one, 0.78, accuracy=0.5)], data=(FROZEN,))
    assert "loses 2.0 points after the second session and loses 10.0 points after the last" in grows
    assert "Fewer cost accuracy, as in the paper, and more in later sessions, as in the paper" in grows
    gains = fscil_findings.representatives([*seeds(five, 0.8), *seeds(one, 0.9, accuracy=0.8)], data=(FROZEN,))
    assert "gains 10.0 points" in gains
    assert "Fewer cost no accuracy, unlike in the paper, and no more" in gains


@pytest.mark.parametrize(("linear_novel", "verdict"), [(0.3, "not so here."), (0.1, "so here too.")])
def test_findings_about_kernels(linear_novel, verdict):
    rows = [found for line, value in zip(KERNELS[:2], (0.8, 0.9), strict=True) for found in seeds(line, value)]
    rows += seeds(KERNELS[2], 0.6, novel_accuracy=linear_novel)
    said = fscil_findings.kernels(rows, data=(FROZEN,))
    assert "Matérn 5/2 is +30.0 points from the linear kernel, +30.0 on base" in said
    assert f"above all on novel classes; this is {verdict}" in said


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_one_seed_is_no_verdict_on_the_paper(experiment):
    every = [*METHODS, *TREES, *REPRESENTATIVES, *KERNELS]
    rows = [row(line, 0, 0.5 + k / 100, data) for k, line in enumerate(every) for data in fscil_lines.DATA]
    said = experiment.findings(list({found.trial.key: found for found in rows}.values()))
    assert said
    for words in ("as in the paper", "unlike in the paper", "hold", "so here"):
        assert words not in said


def test_rows_of_other_settings_are_left_out():
    other = Trial("fscil-sessions", PAPER.method, FROZEN, 0, {"representatives": 5, "kernel": "matern52"})
    rows = [row(PAPER, 0, 0.8), Row(other, {"sessions": []}, {}, 1, {}, {})]
    assert fscil_shown.groups(rows, METHODS, FROZEN) == {PAPER: rows[:1]}
