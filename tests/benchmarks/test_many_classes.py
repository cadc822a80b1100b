"""The experiments `many-classes` and `latency` with few classes, and the peers in them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_peers
import numpy as np
import pytest

from benchmarks import earlier
from benchmarks.core import classifying, peers
from benchmarks.core.classifying import Shortlist, Task, judge, measure, metrics
from benchmarks.core.trials import Row
from benchmarks.experiments import latency, many_classes
from gptree import GPTreeClassifier
from gptree.metrics import accuracy, ece, nll


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_peers.install(monkeypatch)
    for name, value in {"DIMENSIONS": 16, "QUERIES": 60}.items():
        monkeypatch.setattr(many_classes, name, value)


def test_many_classes_at_twelve_and_twenty() -> None:
    X, y, X_new, y_new = many_classes.make_data(12, seed=0)
    assert X.shape == (60, 16)
    assert np.bincount(y).tolist() == [5] * 12
    assert len(X_new) == len(y_new) == 60
    means = np.stack([X[y == c].mean(0) for c in range(12)])
    nearest = np.square(X_new[:, None] - means).sum(2).argmin(1)
    assert np.mean(nearest == y_new) > 0.2  # rows and labels belong together
    few = [trial for trial in many_classes.trials(1) if trial.settings["classes"] == 100]
    few = [trial for trial in few if not many_classes.needs_gpu(trial)]
    assert [trial.method for trial in few] == list(many_classes.METHODS)
    rows = []
    for trial in (replace(trial, settings={"classes": C}) for C in (12, 20) for trial in few):
        row = Row(trial, many_classes.run(trial, Path()), {}, 10**12, {}, {})
        assert 0.2 < row.metrics["accuracy"] <= row.metrics["top5"]
        assert row.metrics["nll"] < np.log(20) or trial.method == "logistic regression"
        assert ("file_bytes" in row.metrics) == (row.trial.method != "experts alone")
        rows.append(row)
    exponents = many_classes.exponents(rows)
    assert [line[:2] for line in exponents.lines] == [[method, "12 → 20"] for method in many_classes.METHODS]
    assert [bool(line[5]) for line in exponents.lines] == [method != "experts alone" for method in many_classes.METHODS]


def made_up_row(method: str, data: str, classes: int, **found: Any) -> Row:
    trials = [trial for trial in many_classes.trials(1) if (trial.method, trial.data) == (method, data)]
    trial = next(trial for trial in trials if trial.settings["classes"] == classes)
    return Row(trial, {"fit": 1.0, "predict": 1.0, "accuracy": 0.5, "nll": 1.0} | found, {}, 3 * 10**9, {}, {})


def test_tables_and_figure(tmp_path: Path) -> None:
    rows = [
        made_up_row("gptree, tree", "made-up", 100, fit=2.0, held_bytes=2 * 10**9),
        made_up_row("gptree, tree", "made-up", 1_000, fit=200.0, file_bytes=5e6, held_bytes=29 * 10**8),
        made_up_row("gptree, tree", "omniglot", 1_623),
        made_up_row("gptree, tree, f78fcca", "omniglot", 1_623),
        made_up_row("gptree, tree, GPU", "made-up", 100, fit_wall=7.0),
    ]
    omniglot, hundred, thousand, gpu, exponents = many_classes.tables(rows)
    assert [hundred.title, thousand.title] == ["100 classes", "1,000 classes"]
    assert [line[0] for line in omniglot.lines] == ["gptree, tree", "gptree, tree, f78fcca"]
    assert [line[0] for line in hundred.lines] == ["gptree, tree"]
    assert [line[:4] for line in gpu.lines] == [["gptree, tree, GPU", "made-up", "100", "7.0"]]
    assert exponents.lines == [["gptree, tree", "100 → 1,000", "2.00", "0.00", "-1.00", ""]]
    many_classes.figure(rows, tmp_path / "many.png")
    assert (tmp_path / "many.png").read_bytes().startswith(b"\x89PNG")


def test_the_largest_sizes_are_for_methods_that_can_do_them() -> None:
    largest = [trial.method for trial in many_classes.trials(1) if trial.settings["classes"] == 100_000]
    assert "logistic regression" not in largest
    assert largest[:3] == ["gptree, tree", "gptree, forest", "experts alone"]


# ------------------------------------------------------------------------------------------------------------ measures


def test_measures_are_those_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifying, "BATCH", 40)
    random = np.random.default_rng(0)
    p, y = random.dirichlet(np.full(9, 0.3), 100), random.integers(0, 9, 100)

    class Known:
        def fit(self, X: np.ndarray, y: np.ndarray) -> None: ...

        def predict_proba(self, X: np.ndarray) -> np.ndarray:
            return p[X[:, 0].astype(int)]

    found = measure(Known(), Task(p, y, np.arange(100.0)[:, None], y))
    five = np.mean([y[i] in np.argsort(p[i])[-5:] for i in range(100)])
    expected = {"accuracy": accuracy(p, y), "nll": nll(p, y), "ece": ece(p, y), "top5": five}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    order = np.argsort(-p, axis=1)  # a list of all classes says the same, and a short one all but the NLL
    whole = Shortlist(order, np.take_along_axis(p, order, 1), np.zeros(100))
    assert metrics([judge(whole, y)]) == pytest.approx(expected)
    short = Shortlist(whole.classes[:, :5], whole.p[:, :5], (1 - whole.p[:, :5].sum(1)) / 4)
    some = metrics([judge(short, y)])
    assert {name: some[name] for name in ("accuracy", "ece", "top5")} == pytest.approx(
        {name: expected[name] for name in ("accuracy", "ece", "top5")}
    )
    outside = [i for i in range(100) if y[i] not in order[i, :5]]
    slow = [short.outside[i] if i in outside else p[i, y[i]] for i in range(100)]
    assert outside
    assert some["nll"] == pytest.approx(-np.mean(np.log(slow)))


# --------------------------------------------------------------------------------------------------------------- peers


@pytest.mark.parametrize("means", [True, False])
def test_votes_are_those_of_a_loop(means: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "LONGEST", 7)
    task = many_classes.make_data(12, seed=0)
    model = peers.Faiss(means).fit(task.X, task.y)
    answer = model.predict_proba(task.X_new[:5])
    centre = task.X.mean(0)
    for row, x in enumerate(task.X_new[:5] - centre):
        points, labels = task.X - centre, task.y
        if means:
            points, labels = np.stack([points[task.y == c].mean(0) for c in range(12)]), np.arange(12)
        cosines = [point @ x / math.sqrt(point @ point) / math.sqrt(x @ x) for point in points]
        nearest = sorted(range(len(points)), key=lambda i: -cosines[i])[:7]
        weights = {i: math.exp(model.sharpness * cosines[i]) for i in nearest}
        votes = np.zeros(12)
        for i in nearest:
            votes[labels[i]] += weights[i] / sum(weights.values())
        p = (1 - model.floor) * votes + model.floor / 12
        given = answer.classes[row] >= 0
        classes = answer.classes[row][given]
        assert sorted(classes) == sorted(set(labels[nearest]))
        np.testing.assert_allclose(answer.p[row][given], p[classes], rtol=1e-4)  # faiss is in single precision
        assert answer.outside[row] == pytest.approx(model.floor / 12)
        assert p[classes].sum() + (12 - len(classes)) * answer.outside[row] == pytest.approx(1)


def test_probabilities_of_a_label_tree_sum_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    task = many_classes.make_data(12, seed=0)
    for longest in (5, 100):
        monkeypatch.setattr(peers, "LONGEST", longest)
        answer = peers.Napkin("PLT", 10.0, 0).fit(task.X, task.y).predict_proba(task.X_new)
        k = answer.classes.shape[1]
        assert k == min(longest, 12)
        np.testing.assert_allclose(answer.p.sum(1) + (12 - k) * answer.outside, 1)


def test_a_missing_peer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ImportError, match="pip install no-such-thing"):
        peers.package("no_such_module", "no-such-thing")


# ------------------------------------------------------------------------------------------------------ earlier commits


def test_the_package_of_a_checkout_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "src" / "gptree"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import numpy as np\n"
        "class GPTreeClassifier:\n"
        "    def __init__(self, random_state, device):\n"
        "        pass\n"
        "    def fit(self, X, y):\n"
        "        self.n_classes = max(y) + 1\n"
        "    def predict_proba(self, X):\n"
        "        return np.full((len(X), self.n_classes), 1 / self.n_classes)\n"
    )
    task = many_classes.make_data(12, seed=0)
    found = earlier.measure_there(tmp_path, "GPTreeClassifier", 0, task)
    assert found["metrics"]["nll"] == pytest.approx(np.log(12))
    assert found["seconds"]["cpu"] >= found["metrics"]["fit"]
    other = SimpleNamespace(stdout='{"package": "/elsewhere/gptree/__init__.py"}')
    monkeypatch.setattr(earlier.subprocess, "run", lambda *command, **settings: other)
    with pytest.raises(RuntimeError, match="not that of"):
        earlier.measure_there(tmp_path, "GPTreeClassifier", 0, task)
    monkeypatch.setenv("GPTREE_COMMIT", "0123456")
    with pytest.raises(SystemExit):
        earlier.main([str(tmp_path), "--data", str(tmp_path)])
    (of_then,) = [trial for trial in many_classes.trials(1) if trial.method == "gptree, tree, f78fcca"][:1]
    with pytest.raises(ValueError, match="of another commit"):
        many_classes.run(of_then, tmp_path)


# ------------------------------------------------------------------------------------------------------------- latency


def test_first_predict_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"OPEN_CLASSES": 6, "ADDED": 2, "OPEN_ROWS": 5, "REPEATS": 1}.items():
        monkeypatch.setattr(latency, name, value)
    (trial,) = (t for t in latency.trials(1) if (t.data, t.method) == (latency.OPEN_SET, "gptree, tree"))
    found = latency.run(trial, Path())
    assert set(found) == {
        f"{name}_open_cpu" for name in ("first", "unasked", "added", "taught", "removed", "undone", "loaded")
    }
    assert all(value > 0 for value in found.values())


def test_latencies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CALLS": 3, "WARM_UP": 1, "REPEATS": 1}.items():
        monkeypatch.setattr(latency, name, value)
    sizes = []
    found = latency.latencies(lambda rows: sizes.append(rows.shape), np.zeros((30, 4)))
    assert sizes == [(1, 4)] * 4 + [(30, 4)]
    assert all(value >= 0 for value in found.values())
    assert 0.0 < latency.start_seconds("pass") < latency.start_seconds("sum(range(10**7))")
    task = many_classes.make_data(12, seed=0)
    frozen = latency.MODELS["gptree, tree, frozen"](task.X, task.y)(task.X_new)
    model = GPTreeClassifier(random_state=0, device="cpu").fit(task.X, task.y)
    np.testing.assert_allclose(frozen, model.predict_proba(task.X_new), atol=1e-12)
    rows = [Row(trial, found | {"cpu": 1.0}, {}, None, {}, {}) for trial in latency.trials(1)]
    answers, first, starts = latency.tables(rows)
    assert len(answers.lines) == 2 * len(latency.MODELS)
    assert [line[0] for line in first.lines] == list(latency.OPEN_MODELS)
    assert [line[0] for line in starts.lines] == list(latency.STARTS)
