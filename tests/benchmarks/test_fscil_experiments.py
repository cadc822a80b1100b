"""Experiments on sessions: trials on small made-up data, and tables, figures and findings of made-up rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from session_cases import BASE, SESSIONS, WAY, made_up_pictures

from benchmarks import fscil_features
from benchmarks.experiments import fscil, fscil_findings, fscil_lines, fscil_shown, gaps
from benchmarks.experiments.fscil_lines import FROZEN, KERNELS, METHODS, PAPER, REPRESENTATIVES, TREES, Line
from benchmarks.experiments.gaps import in_words, minus, verdict
from benchmarks.fscil_networks import (
    HELD_BACK,
    read,
    write,
)
from benchmarks.rows import Row, Rows, Trial, run_trials
from benchmarks.tables import Summary
from gptree import GPForestClassifier

EXPERIMENTS = {experiment.name: experiment for experiment in fscil.EXPERIMENTS}


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


@pytest.mark.parametrize("line", all_lines(), ids=lambda line: f"{line.method}, {line.exemplars}, {line.kernel}")
def test_every_line_runs(folder, line):
    metrics = fscil.run(line.trial(FROZEN, seed=1), folder)
    assert [session["classes"] for session in metrics["sessions"]] == [5, 7, 9]
    assert metrics["sessions"][0]["accuracy"] > 0.6
    assert 0 <= metrics["sessions"][-1]["ece"] <= 1


def test_settings_reach_the_method():
    chosen = Line("", "paper, graft", exemplars=2, kernel="linear")
    method = fscil_features.make_method(chosen.method, 3, **chosen.settings)
    assert method.growth.exemplars == 2
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
    for name in ("fscil-trees", "fscil-kernels", "fscil-exemplars"):
        assert usual < keys(name)
    assert len({experiment.results for experiment in fscil.EXPERIMENTS}) == 1


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_trials_are_distinct_and_runs_travel(experiment):
    trials = experiment.trials(2)
    assert len({trial.key for trial in trials}) == len(trials)
    assert {trial.seed for trial in trials} == {0, 1}
    assert pickle.loads(pickle.dumps(experiment.run)) is fscil.run


def test_streams_of_embeddings(folder, monkeypatch):
    monkeypatch.setattr(fscil, "CIFAR_SESSIONS", {"base": BASE, "way": WAY, "shot": 5, "seed": 0})
    for data, base_rows in (("mini-margin", 40), ("cifar-plain", 40)):
        stream, held_out = fscil.make_stream(data, folder)
        assert held_out is not None
        assert not held_out.any()  # their networks have seen all
        assert [session.labels.tolist() for session in stream.sessions] == [[0, 1, 2, 3, 4], [5, 6], [7, 8]]
        assert [len(session.y) for session in stream.sessions] == [base_rows, 10, 10]
        assert [len(session.y_test) for session in stream.sessions] == [20, 8, 8]


@pytest.mark.parametrize("base_rows", ["held out", "told"])
def test_rows_held_back_from_the_network(folder, base_rows, monkeypatch):
    """The base session is made of them, or the method is told of them; only where the network held rows back."""
    (usual, held_out), given = fscil.make_stream("mini-rotations", folder), []
    found = read("mini-rotations", folder / "networks")
    of_base = found.x[(found.split == HELD_BACK) & (found.y < BASE)]
    assert sorted(map(tuple, usual.sessions[0].X[held_out])) == sorted(map(tuple, of_base))
    line = next(line for line in METHODS if line.base_rows == base_rows)
    assert line.fits("mini-rotations")
    assert not any(line.fits(data) for data in (FROZEN, "mini-margin", "cifar-plain"))

    real = GPForestClassifier.fit
    monkeypatch.setattr(GPForestClassifier, "fit", lambda *a, **told: given.append((a, told)) or real(*a, **told))
    assert len(fscil.run(line.trial("mini-rotations", 0), folder)["sessions"]) == SESSIONS + 1
    (((_, X, y), told),) = given
    assert np.array_equal(X, usual.sessions[0].X[held_out] if base_rows == "held out" else usual.sessions[0].X)
    assert len(y) == len(X)
    assert base_rows == "held out" or np.array_equal(told["held_out"], held_out)


@pytest.mark.parametrize("data", ["cub", "mini-margin", "cifar-plain"])
def test_missing_embeddings_say_what_makes_them(tmp_path, data):
    trial = PAPER.trial(data, 0)
    with pytest.raises(FileNotFoundError, match=f"python -m benchmarks.fscil_networks {data} .*networks"):
        fscil.run(trial, tmp_path)


def test_what_is_measured_for_one_experiment_serves_another(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.experiments.fscil.RESULTS", tmp_path)
    line = METHODS[4]
    rows = Rows(EXPERIMENTS["fscil-cub"].results)
    run_trials([line.trial(FROZEN, 0)], lambda trial: fscil.run(trial, folder), rows)
    (row,) = EXPERIMENTS["fscil-forgetting"].rows()
    assert row.trial.method == line.method


def test_forgetting_against_the_papers_formula(folder):
    """g_j^k = max over l < k of a_j^l, less a_j^k; its mean over j < k. Before it arrives, a class has accuracy 0."""
    sessions = fscil.run(METHODS[4].trial(FROZEN, 0), folder)["sessions"]
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
    (sessions,) = EXPERIMENTS["fscil-forgetting"].tables(rows)  # and not the scores that other experiments show
    assert list(sessions.head) == ["method", "2", "3"]
    assert sessions.lines == [[METHODS[0].name, "**1.0**", "2.0"], [METHODS[1].name, "**1.0**", "**0.5**"]]


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_every_experiment_shows_its_rows(experiment, tmp_path):
    rows = all_rows(tuple(fscil_lines.DATA))
    own = {trial.key for trial in experiment.trials(2)}
    rows = [found for found in rows if found.trial.key in own]
    assert len(rows) == len(own)
    data = {trial.data for trial in experiment.trials(1)}
    assert len(experiment.tables(rows)) == (1 if experiment.name == "fscil-forgetting" else 2) * len(data)
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


def test_what_is_forgotten_is_printed_with_a_true_minus_sign_and_no_negative_zero():
    rows = [row(METHODS[0], 0, 0.8, forgetting=-0.0002), row(METHODS[1], 0, 0.8, forgetting=-0.012)]
    (forgotten,) = EXPERIMENTS["fscil-forgetting"].tables(rows)
    assert [line[-1] for line in forgotten.lines] == ["0.0", "**−1.2**"]
    assert forgotten.lines[0][0] == "GP-Tree, the paper's settings"
    _, last = EXPERIMENTS["fscil-cub"].tables(rows)
    assert [line[6] for line in last.lines] == ["0.0", "**−1.2**"]


def test_networks_are_told_of_where_their_rows_are_shown():
    mini = EXPERIMENTS["fscil-mini-imagenet"]
    notes = " ".join(table.note for table in mini.tables(all_rows(("mini-margin",))))
    assert "72 epochs with a cosine margin" in notes
    assert "100 epochs" not in notes + mini.differs
    both = " ".join(table.note for table in mini.tables(all_rows(fscil_lines.MINI)))
    assert "100 epochs by cross-entropy. 20 pictures of each base class were held out" in both
    assert fscil_lines.EMBEDDED.keys() == fscil_lines.DATA.keys()


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_texts_say_how_the_papers_tree_samples(experiment):
    sampler = fscil_features.make_method(PAPER.method, 0).inference
    assert (sampler.chains, sampler.steps) == (10, 1)
    assert "10 chains of one step" in experiment.differs
    rivals = any(trial.method.startswith("rival: ") for trial in experiment.trials(1))
    assert ("flattered on CUB" in experiment.differs) == rivals


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_trials_are_called_as_their_lines(experiment):
    trials = experiment.trials(1)
    names = {(trial.data, experiment.called(trial)) for trial in trials}
    assert len(names) == len(trials)
    shown = {line[0] for table in experiment.tables(all_rows(tuple(fscil_lines.DATA))) for line in table.lines}
    assert {name for _, name in names} == shown
    assert {experiment.data_called(trial.data) for trial in trials} <= set(fscil_lines.DATA.values())


# ---------------------------------------------------------------------------------------------------------- findings


def seeds(line: Line, first: float, spread: float = 0.0, **others: Any) -> list[Row]:
    """Rows of three seeds; accuracy goes up and down by `spread`."""
    return [row(line, seed, first + (seed - 1) * spread, **others) for seed in range(3)]


def test_gaps_are_over_the_seeds_that_both_have():
    """A mean of three seeds less one of a single seed would be 10 points."""
    found = fscil_findings.Found([*seeds(PAPER, 0.7, 0.05), row(METHODS[1], 0, 0.6)], FROZEN)
    one = found.gap(PAPER, METHODS[1])
    assert (one.count, verdict(one)) == (1, "")
    assert one.mean == pytest.approx(5.0)
    found = fscil_findings.Found([*found.rows, row(METHODS[1], 2, 0.74)], FROZEN)
    two = found.gap(PAPER, METHODS[1])
    assert (two.count, verdict(two)) == (2, "no difference seen")  # 5 points and 1, standard error 2
    assert (two.mean, two.error) == pytest.approx((3.0, 2.0))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((1.0, 1.2, 1.1), "ahead"),
        ((-1.0, -1.2, -1.1), "behind"),
        ((2.0, -1.0, 0.5), "no difference seen"),
        ((1.0, 1.0), "ahead"),
        ((0.0, 0.0), "no difference seen"),
        ((9.0,), "one seed, no verdict"),
        ((1.0, np.inf), "not finite, no verdict"),
    ],
)
def test_verdicts(values, said):
    assert in_words(Summary.over(values)) == said


def test_numbers():
    assert [gaps.number(x, 1, "+") for x in (-0.04, 0.04, -1.25, 1.0)] == ["+0.0", "+0.0", "−1.2", "+1.0"]
    assert gaps.number(-0.0004, 3) == "0.000"
    assert minus({0: 0.3, 1: 1.0}, {0: 0.1 + 0.2, 2: 1.0}) == {0: 0.0}  # rounding errors are no difference


def test_findings_about_sessions():
    forest, (first, *rest) = fscil_lines.FOREST, fscil_lines.RIVALS
    rows = [*seeds(PAPER, 0.6), *seeds(forest, 0.8, ece=0.01), *seeds(first, 0.5), *(row(m, 0, 0.7) for m in rest)]
    said = fscil_findings.sessions(rows, data=(FROZEN,))
    assert "from 60.0 % in the base session to 40.0 %" in said
    assert "Points on base classes less those on novel ones: +30.0 ± 0.0 (ahead, as in the paper)" in said
    tree, ours = said.split("The default forest ends at 60.0 %. In points: ")
    assert f"heads: ahead of {first.name} (+10.0 ± 0.0); one seed, no verdict for {rest[0].name} (−10.0), " in tree
    assert ours.startswith(f"ahead of {PAPER.name} (+20.0 ± 0.0), {first.name} (+30.0 ± 0.0); one seed")
    assert f"ECE (%), lowest first: {forest.name} 1.0; " in ours


def test_findings_about_forests_that_know_what_was_held_back():
    forest, told, rival = fscil_lines.FOREST, fscil_lines.TOLD, fscil_lines.RIVALS[0]
    every = ((PAPER, 0.6, 0.2), (forest, 0.8, 0.1), (told, 0.9, 0.02), (rival, 0.5, 0.3))
    rows = [one for line, score, ece in every for one in seeds(line, score, data="mini-rotations", ece=ece)]
    said = fscil_findings.sessions(rows, data=("mini-rotations",))
    *_, ours = said.split("Fitted to all rows and told which were held out it ends at 70.0 %. In points: ")
    assert ours.startswith(f"ahead of {PAPER.name} (+30.0 ± 0.0), {rival.name} (+40.0 ± 0.0).")
    assert f"lowest first: {told.name} 2.0; {forest.name} 10.0; {PAPER.name} 20.0; {rival.name} 30.0." in ours
    assert "rows held out alone" not in said  # it has no rows


@pytest.mark.parametrize(
    ("accuracies", "first", "second"),
    [
        ((0.8, 0.7, 0.6), "+10.0 ± 0.0 (+1.15 in the paper; ahead, as", "+10.0 ± 0.0 (+0.13 in the paper; ahead, as"),
        ((0.7, 0.8, 0.8), "−10.0 ± 0.0 (+1.15 in the paper; behind, unlike", "+0.0 ± 0.0 (+0.13 in the paper; no dif"),
    ],
)
def test_findings_about_trees(accuracies, first, second):
    rows = [found for line, value in zip(TREES[:3], accuracies, strict=True) for found in seeds(line, value)]
    said = fscil_findings.trees(rows, data=(FROZEN,))
    assert f"shared root (GP-Tree) less session tree {first}" in said
    assert f"session tree less rebuild tree {second}" in said
    assert "Graft" not in said
    more = fscil_findings.trees([*rows, *seeds(TREES[3], 0.1)], data=(FROZEN,))
    assert "on novel classes. In points: behind shared root" in more


def test_findings_about_representatives():
    """Every number kept is judged against five: three cost nothing, two gain, one costs, and four has a seed only."""
    five, four, three, two, one = REPRESENTATIVES
    rows = [*seeds(five, 0.8), row(four, 0, 0.7), *seeds(three, 0.8), *seeds(two, 0.85)]
    said = fscil_findings.exemplars([*rows, *seeds(one, 0.78, accuracy=0.5)], data=(FROZEN,))
    now, later = said.split("The same, less what it was after the second session: ")
    assert (
        "In points from 5 kept: accuracy gained, unlike in the paper, with 2 kept (+5.0 ± 0.0); accuracy lost, as in "
        "the paper, with 1 kept (−10.0 ± 0.0); no difference seen for 3 kept (+0.0 ± 0.0); one seed, no verdict for "
        "4 kept (−10.0)."
    ) in now
    assert later == (
        "more lost later, as in the paper, with 1 kept (−8.0 ± 0.0); no difference seen for 3 kept (+0.0 ± 0.0), "
        "2 kept (+0.0 ± 0.0); one seed, no verdict for 4 kept (+0.0)."
    )


@pytest.mark.parametrize(
    ("linear_novel", "verdict"),
    [
        (0.5, "behind, unlike in the paper, with RBF (−30.0 ± 0.0), Matérn 5/2 (−35.0 ± 0.0)."),
        (0.1, "ahead, as in the paper, with RBF (+10.0 ± 0.0), Matérn 5/2 (+5.0 ± 0.0)."),
    ],
)
def test_findings_about_kernels(linear_novel, verdict):
    rows = [found for line, value in zip(KERNELS[:2], (0.8, 0.9), strict=True) for found in seeds(line, value)]
    rows += seeds(KERNELS[2], 0.6, novel_accuracy=linear_novel)
    said = fscil_findings.kernels(rows, data=(FROZEN,))
    assert "linear kernel: ahead, as in the paper, with RBF (+20.0 ± 0.0), Matérn 5/2 (+30.0 ± 0.0)." in said
    assert said.endswith(f"less that on base classes: {verdict}")


def test_findings_about_forgetting():
    first, second, *_ = fscil_lines.RIVALS
    rows = [
        *seeds(PAPER, 0.8, forgetting=0.02),
        *seeds(first, 0.8, forgetting=0.01),
        *seeds(second, 0.8, forgetting=0.05),
    ]
    said = fscil_findings.forgetting([*rows, row(fscil_lines.FOREST, 0, 0.8, forgetting=0.02)], data=(FROZEN,))
    assert f"lowest first: {first.name} 1.0; {PAPER.name} 2.0; gptree forest 2.0; {second.name} 5.0." in said
    assert "has place 2 of 4; in the paper it forgets less than SDC and PODNet" in said
    assert (
        f"In points: forgets more than {first.name} (+1.0 ± 0.0); forgets less than {second.name} (−3.0 ± 0.0); one "
        "seed, no verdict for gptree forest (+0.0)."
    ) in said


@pytest.mark.parametrize("experiment", fscil.EXPERIMENTS, ids=lambda experiment: experiment.name)
def test_one_seed_is_no_verdict_on_the_paper(experiment):
    every = [*METHODS, *TREES, *REPRESENTATIVES, *KERNELS]
    rows = [row(line, 0, 0.5 + k / 100, data) for k, line in enumerate(every) for data in fscil_lines.DATA]
    said = experiment.findings(list({found.trial.key: found for found in rows}.values()))
    assert "one seed, no verdict" in said
    for words in ("as in the paper", "unlike in the paper", "no difference", "ahead of", "behind"):
        assert words not in said.replace("far ahead of the linear one", "")


def test_rows_of_other_settings_are_left_out():
    other = Trial("fscil-sessions", PAPER.method, FROZEN, 0, {"exemplars": 5, "kernel": "matern52"})
    rows = [row(PAPER, 0, 0.8), Row(other, {"sessions": []}, {}, 1, {}, {})]
    assert fscil_shown.groups(rows, METHODS, FROZEN) == {PAPER: rows[:1]}
