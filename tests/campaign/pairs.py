"""Two writers of one folder at once, and readers beside them: no lesson is lost, and nobody sees half a model."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from crashes import base, examples, in_silence
from faults import DONE, ended, in_child, start
from parts import Part

from gptree import load_model
from gptree.cli.growing import add, remove, undo
from gptree.protocols import RunFolder, SessionMethod, run_stream, stream_from_arrays
from gptree.storage import locked

FIRST, SECOND = 6, 7  # the classes that the two writers teach
COMMAND = [sys.executable, "-c", "from gptree.cli.main import app; app()"]


def check_pair(seed: int, folder: Path) -> int:
    """Two `add` in forked children and a reader: both classes are learnt, in one order or the other."""
    model = _prepared(folder)
    told = f"check_pair({seed}, folder): "
    delay = float(np.random.default_rng(seed).uniform(-0.05, 0.05))
    children = [
        start(lambda c=c, d=d: (time.sleep(d), _add(model, c)))
        for c, d in ((FIRST, max(delay, 0.0)), (SECOND, max(-delay, 0.0)))
    ]
    reader = start(lambda: _read_until(model, lambda: {FIRST, SECOND} <= set(load_model(model).classes_.tolist())))
    codes = [ended(child) for child in children]
    if codes != [DONE, DONE]:
        os.kill(reader, signal.SIGKILL)
    seen = ended(reader)
    assert codes == [DONE, DONE], f"{told}the writers ended with {codes}"
    assert seen == DONE, f"{told}the reader ended with {seen}"
    _check_both(model, told)
    return 1


def check_changes(seed: int, folder: Path) -> int:
    """Writers that add, remove and undo, each again and again, while others read: the journal holds every lesson."""
    model = _prepared(folder)
    told = f"check_changes({seed}, folder): "
    times = 1 + seed % 2

    def add_and_remove() -> None:
        for _ in range(times):
            _add(model, FIRST)
            in_silence(lambda: remove(model, [str(FIRST)]))

    def add_and_undo() -> None:
        for _ in range(times):
            with locked(model):  # what `undo` takes back is this lesson, and nobody else's
                _add(model, SECOND)
                in_silence(lambda: undo(model))
        _add(model, SECOND)

    children = [start(add_and_remove), start(add_and_undo)]
    readers = [start(lambda: _read_until(model, lambda: os.path.exists(folder / "done"))) for _ in range(2)]
    codes = [ended(child) for child in children]
    (folder / "done").touch()
    codes += [ended(child) for child in readers]
    assert codes == [DONE] * 4, f"{told}the children ended with {codes}"
    found = load_model(model)
    assert set(found.classes_.tolist()) == {0, 1, 2, SECOND}, f"{told}{found.classes_.tolist()}"
    _check_same(model, [SECOND], told)
    return 1


def check_runs(seed: int, folder: Path) -> int:
    """Two methods that add their runs to one folder: all rows are kept."""
    told = f"check_runs({seed}, folder): "
    X, y = examples(*range(4))
    stream = stream_from_arrays(X, y, X, y, base=2, way=1, shot=2, seed=seed, name="made up")

    def measure(method: str) -> None:
        for run_seed in range(2):
            model = SessionMethod(name=method).make(run_seed)
            run = RunFolder.open(folder / "run")
            run.add(run_stream(model, stream, seed=run_seed, method=method))

    methods = ("class-mean", "slda")
    codes = [ended(child) for child in [start(lambda m=method: measure(m)) for method in methods]]
    assert codes == [DONE, DONE], f"{told}the writers ended with {codes}"
    run = RunFolder.open(folder / "run")
    wanted = {(method, run_seed) for method in methods for run_seed in range(2)}
    assert set(run.rows) == set(run.details) == wanted, f"{told}{sorted(run.rows)}"
    assert sorted(path.name for path in (folder / "run").iterdir()) == ["details.jsonl", "rows.jsonl"], told
    return 1


def check_commands(seed: int, folder: Path) -> int:
    """Two real `gptree add`, one of which is killed after a while in two of three tries."""
    model = _prepared(folder)
    told = f"check_commands({seed}, folder): "
    random = np.random.default_rng([seed, 5])
    writers = [_command("add", str(model), str(_data(model, c))) for c in (FIRST, SECOND)]
    killed = seed % 3 != 0
    if killed:
        time.sleep(float(random.uniform(1.0, 8.0)))
        writers[0].kill()
    (first, said), (second, said_too) = ((writer.wait(), _said(writer)) for writer in writers)
    assert second == 0, f"{told}exit code {second}: {said_too}"
    assert first in ((0, -signal.SIGKILL) if killed else (0,)), f"{told}exit code {first}: {said}"
    if first != 0 and FIRST not in load_model(model).classes_:
        assert in_child(lambda: _add(model, FIRST)) == DONE, f"{told}the killed command cannot be given again"
    _check_both(model, told)
    return 1


# ----------------------------------------------------------------------------------------------------------- helpers


def _prepared(folder: Path) -> Path:
    base().save(folder / "model")
    for c in (FIRST, SECOND):
        _data(folder / "model", c)
    return folder / "model"


def _data(model: Path, c: int) -> Path:
    path = model.with_name(f"{c}.npz")
    if not path.exists():
        X, y = examples(c)
        np.savez(path, X=X, y=y)
    return path


def _add(model: Path, c: int) -> None:
    in_silence(lambda: add(model, _data(model, c)))


def _command(*arguments: str) -> subprocess.Popen[str]:
    one_thread = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}
    environment = os.environ | one_thread | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def _said(command: subprocess.Popen[str]) -> str:
    return command.communicate()[0].strip()


def _read_until(model: Path, is_over: Callable[[], bool]) -> None:
    """Load and predict again and again; what is loaded is whole, or this raises."""
    while not is_over():
        found = load_model(model)
        assert {0, 1, 2} <= set(found.classes_.tolist())
        probabilities = found.predict_proba(examples(0, FIRST)[0])
        assert np.isfinite(probabilities).all()
        assert np.allclose(probabilities.sum(1), 1)


def _check_both(model: Path, told: str) -> None:
    found = [entry.labels for entry in load_model(model).journal_[1:]]
    assert sorted(found) == [(FIRST,), (SECOND,)], f"{told}the journal holds {found}"
    _check_same(model, [labels[0] for labels in found], told)


def _check_same(model: Path, order: list[int], told: str) -> None:
    """The model is the one that was taught these classes by one writer alone; nothing else is in its folder."""
    alone: Any = load_model(model)
    while len(alone.journal_) > 1:
        alone.undo()
    for c in order:
        alone.add_classes(*examples(c))
    rows = examples(0, 1, 2, FIRST, SECOND)[0]
    assert np.array_equal(load_model(model).predict_proba(rows), alone.predict_proba(rows)), f"{told}another model"
    assert len(list(model.iterdir())) == 2, f"{told}{sorted(path.name for path in model.iterdir())}"


PARTS = (
    Part("pairs", "Two writers and a reader of one model, forked from one process", 600, check_pair, share=()),
    Part("changes", "Writers that add, remove and undo while others read", 200, check_changes, share=()),
    Part("runs", "Two methods that write into one run folder", 100, check_runs, share=()),
    Part(
        "commands",
        "Two real `gptree add` of one model, one of them killed in two tries of three",
        120,
        check_commands,
        seconds=300.0,
        share=(),
    ),
)
