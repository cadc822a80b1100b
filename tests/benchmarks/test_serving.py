"""The load test of a served model: a small share of it, and that it notices what is lost and what is wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="serving needs its extra: pip install 'gptree[studio]'")

import uvicorn

from benchmarks.core.trials import Row, Trial
from benchmarks.experiments import serving
from benchmarks.experiments.serving import Asked, Shelf, Version, judged, load_logistic, regressions, under_load
from gptree.serve import ModelWatch, Service
from gptree.serve import app as module
from gptree.studio.server import bind

RNG = np.random.default_rng(0)
ROWS = [RNG.normal(size=(4, 3)) + 4 * RNG.normal(size=3) for _ in range(6)]


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The server, in a thread."""
    bound = bind("127.0.0.1", 0)
    service = Service(ModelWatch(folder, load_logistic), serving.TOKEN)
    server = uvicorn.Server(uvicorn.Config(service.app(), log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield f"127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def test_ten_models_replace_each_other_and_nothing_is_lost_or_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.01)
    questions = np.concatenate(ROWS)[::4]
    shelf = Shelf(tmp_path / "model", regressions(ROWS, 2, 4), questions)
    shelf.replace()
    with served(tmp_path / "model") as address:
        phases = [under_load(address, shelf, bodies, 2, 3) for bodies in (questions[:, None], questions[None])]
    assert serving.totals(phases) == {
        "requests": sum(p["requests"] for p in phases),
        "lost": 0,
        "wrong": 0,
        "replaced": 4,
    }
    assert min(phase["requests"] for phase in phases) >= 3
    assert all(0 < phase["p50"] <= phase["p99"] for phase in phases)
    assert len(shelf.versions) == 5


def answered(model: str, label: str, probability: float, **others: float) -> Asked:
    content = json.dumps({"model": model, "answers": [{"label": label, "probability": probability}]}).encode()
    return Asked(**{"client": 0, "question": 1, "began": 2.0, "ended": 3.0, "status": 200, "content": content} | others)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ([answered("new", "b", 0.7)], (0, 0)),
        ([answered("old", "a", 0.6)], (0, 0)),
        ([answered("new", "b", 0.7, status=503)], (1, 0)),
        ([answered("new", "b", 0.7, status=0)], (1, 0)),
        ([answered("other", "b", 0.7)], (0, 1)),  # never saved
        ([answered("new", "b", 0.7, ended=1.5)], (0, 1)),  # not yet saved
        ([answered("new", "b", 0.7), answered("old", "a", 0.6, began=4.0, ended=5.0)], (0, 1)),  # back to the old one
        ([answered("new", "b", 0.6)], (0, 1)),  # the old one's number
        ([answered("new", "a", 0.3)], (0, 1)),  # not the most probable
        ([answered("new", "z", 0.7)], (0, 1)),
        ([answered("new", "b", 0.1, question=0)], (0, 1)),  # the answer to another question
    ],
)
def test_what_is_lost_and_what_is_wrong(asked: list[Asked], found: tuple[int, int]) -> None:
    classes = np.array(["a", "b"])
    versions = {
        "old": Version(0.0, 0, classes, np.array([[0.5, 0.5], [0.6, 0.4]])),
        "new": Version(2.0, 1, classes, np.array([[0.9, 0.1], [0.3, 0.7]])),
    }
    assert judged(asked, versions, 1) == {"lost": found[0], "wrong": found[1]}


def test_tables() -> None:
    trial, other = serving.trials(1)
    assert (trial.method, other.method) == (serving.FOREST, serving.LOGISTIC)
    phase = {"rate": 10.0, "p50": 1.0, "p99": 2.0, "cpu": 0.5}
    metrics = {"one": phase, "hundred": phase, "requests": 20, "lost": 0, "wrong": 0, "replaced": 20, "load": 0.1}
    row = Row(Trial(**trial.as_json()), metrics, {"wall": 1.0, "cpu": 1.0}, None, {}, {})
    speed, counts = serving.tables([row])
    assert speed.lines[0][:4] == ["gptree forest", "10", "1.0", "2.0"]
    assert counts.lines[0][1:5] == ["20", "0", "0", "20"]
