"""Writers that are killed, or whose disk is full, at every call: the folder holds what it held, or what was to come.

An operation is tried on a copy of a folder with every k, until the k-th call is never reached. Afterwards the folder
must hold the state before or the state after, the operation must work when it is repeated, and nothing of the failure
may be left.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import shutil
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import typer
from faults import DONE, KINDS, REFUSED, Fault, in_child, under
from matplotlib.figure import Figure
from parts import Part

from gptree import DeepGPTreeClassifier, GPTreeClassifier, Growth, load_model
from gptree.cli.growing import add
from gptree.cli.sessions import fscil
from gptree.deep import Arrays, Training, VariationalTree, mlp, read_log, train
from gptree.storage import StorageError, read_folder

ERRORS = (errno.ENOSPC, errno.EFBIG, errno.EROFS)
WIDTH, ROWS = 4, 5
ALWAYS: dict[str, Any] = {"random_state": 0, "device": "cpu"}


# -------------------------------------------------------------------------------------------------- what is written


def examples(*classes: int) -> tuple[np.ndarray, np.ndarray]:
    """A few rows of each class."""
    y = np.repeat(classes, ROWS)
    noise = np.concatenate([np.random.default_rng(c).standard_normal((ROWS, WIDTH)) for c in classes])
    return 6.0 * np.random.default_rng(99).standard_normal((50, WIDTH))[y] + noise, y


@cache
def base() -> GPTreeClassifier:
    return GPTreeClassifier(growth=Growth(exemplars=2), **ALWAYS).fit(*examples(0, 1, 2))


@cache
def other() -> GPTreeClassifier:
    return GPTreeClassifier(growth=Growth(exemplars=3), **ALWAYS).fit(*examples(3, 4))


@cache
def deep(seed: int) -> DeepGPTreeClassifier:
    """A network with a classifier of its own, in a folder within."""
    settings = Training(epochs=1, cross_entropy_epochs=1, batch_size=8, validation=None)
    torch.manual_seed(seed)
    network = mlp(WIDTH, hidden=(3,), embedding=2)
    model = DeepGPTreeClassifier(network, training=settings, classifier=GPTreeClassifier(**ALWAYS), **ALWAYS)
    X, y = examples(0, 1, 2)
    return model.fit(X.astype(np.float32), y)


def _draw_quickly() -> None:
    """In a child, whose pictures nobody looks at."""
    Figure.savefig = lambda figure, file, **how: file.write(b"a picture" * 2000)


def in_silence(command: Callable[[], Any]) -> None:
    """A command; one that refuses is an OSError with the sentence it said."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            command()
        except typer.Exit as leaving:
            if leaving.exit_code != 2:
                raise
            raise OSError(said.getvalue().strip()) from None


def trained(folder: Path | None) -> None:
    """A short training with checkpoints."""
    X, y = examples(*range(4))
    settings = Training(
        epochs=2, cross_entropy_epochs=1, batch_size=10, validation=0.2, best="nll", checkpoint_steps=1, calibrate=False
    )
    torch.manual_seed(0)
    network = mlp(WIDTH, hidden=(3,), embedding=2)
    head = VariationalTree(inducing=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(
            network,
            Arrays(X.astype(np.float32)),
            y,
            range(4),
            training=settings,
            head=head,
            seed=0,
            device="cpu",
            folder=folder,
        )


# ------------------------------------------------------------------------------------------------------- operations


@dataclass(frozen=True)
class Operation:
    """Something that writes into a folder: what is there before, the writing, and what is there as a value."""

    prepare: Callable[[Path], Any]
    act: Callable[[Path], Any]
    state: Callable[[Path], Any]
    is_whole: bool = True
    """Whether there is nothing between before and after, and failing leaves what was before."""


def model_state(folder: Path) -> Any:
    """The document and the arrays of a model and of the one within; None where there is no model."""
    try:
        model = load_model(folder)
    except StorageError as error:
        if "holds no gptree model" in str(error) or "unfinished" in str(error):
            return None
        raise
    document, tensors = read_folder(folder)
    document.pop("classifier", None)  # the name of a folder, which counts on
    for entry in document.get("journal", ()):
        entry.pop("time")
    arrays = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return json.dumps(document), arrays, model.predict_proba(examples(0, 1, 2)[0]).tobytes()


def run_state(folder: Path) -> Any:
    """The measured rows of a run, without times, and the files around them when all are there."""
    if not (folder / "rows.jsonl").exists():
        return None
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    measured = [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]
    return measured, sorted(path.name for path in folder.iterdir() if path.name in ("table.md", "curves.png"))


def training_state(folder: Path) -> Any:
    """The last checkpoint without times, and the log beside it."""
    if not (folder / "last" / "model.json").exists():
        return None
    document, tensors = read_folder(folder / "last")
    log = [row["epoch"] for row in read_log(folder)] if (folder / "log.jsonl").exists() else []
    numbers = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return document["epoch"], document["step"], numbers, log, (folder / "curves.png").exists()


def _data(folder: Path, name: str, *classes: int) -> Path:
    """A file of examples beside the folder."""
    path = folder.with_name(f"{name}.npz")
    X, y = examples(*classes)
    np.savez(path, X=X, y=y)
    return path


def _run(folder: Path) -> None:
    _draw_quickly()
    command = {"base": 2, "way": 1, "shot": 2, "seeds": 2, "method": ["class-mean"], "test_share": 0.4}
    in_silence(lambda: fscil(folder.with_name("run.npz"), folder, **command))


OPERATIONS = {
    "first save": Operation(lambda folder: base(), lambda folder: base().save(folder), model_state),
    "save": Operation(lambda folder: (base().save(folder), other()), lambda folder: other().save(folder), model_state),
    "add": Operation(
        lambda folder: (base().save(folder), _data(folder, "more", 7)),
        lambda folder: in_silence(lambda: add(folder, folder.with_name("more.npz"))),
        model_state,
    ),
    "deep save": Operation(
        lambda folder: (deep(0).save(folder), deep(1)),
        lambda folder: deep(1).save(folder),
        model_state,
    ),
    "checkpoint": Operation(
        lambda folder: trained(None), lambda folder: (_draw_quickly(), trained(folder)), training_state, is_whole=False
    ),
    "run": Operation(
        lambda folder: _data(folder, "run", *range(4)),
        _run,
        run_state,
        is_whole=False,
    ),
}


# ------------------------------------------------------------------------------------------------------------ checks

UNITS = [(name, kind) for name in OPERATIONS for kind in KINDS]


def check_kills(unit: int, folder: Path) -> int:
    """All kills of one operation at one kind of call; how many there were."""
    name, kind = UNITS[unit % len(UNITS)]
    return _every_k(name, folder, lambda k: Fault(kind, k))


def check_full_disk(unit: int, folder: Path) -> int:
    """One operation with calls of one kind that fail, at every place, once or from there on; how many there were."""
    name, kind = UNITS[unit % len(UNITS)]
    faults = [(error, always) for error in ERRORS for always in (False, True)]
    return sum(_every_k(name, folder, lambda k, f=fault: Fault(kind, k, *f)) for fault in faults)


def _every_k(name: str, folder: Path, fault: Callable[[int], Fault]) -> int:
    k = 1
    while check_fault(name, fault(k), folder):
        k += 1
    return k


def check_fault(name: str, fault: Fault, folder: Path) -> bool:
    """One fault in one operation; whether it struck."""
    operation, place = OPERATIONS[name], folder / "place" / "folder"
    before, after = _ends(name, folder)
    _copy(folder)
    told = f"check_fault({name!r}, {fault!r}, folder): "
    code, struck = under(fault, place, lambda: operation.act(place))
    allowed = (DONE, REFUSED) if fault.errno is not None else (-signal.SIGKILL,) if struck else (DONE,)
    assert code in allowed, f"{told}exit code {code}"
    found = operation.state(place)
    if code == DONE:
        assert found == after, f"{told}done, but not what it should be"
    if operation.is_whole:
        assert found in ((before,) if code == REFUSED else (before, after)), f"{told}neither before nor after"
    if name != "add" or found != after:  # a class is not added twice
        assert in_child(lambda: operation.act(place)) == DONE, f"{told}cannot be done again"
    assert operation.state(place) == after, f"{told}done again, it is not what it should be"
    left = [path.name for path in place.rglob(".*")]
    assert not left or (name == "add" and found == after), f"{told}left {left}"
    return struck


def _copy(folder: Path) -> None:
    shutil.rmtree(folder / "place", ignore_errors=True)
    shutil.copytree(folder / "before", folder / "place")


def _ends(name: str, folder: Path) -> tuple[Any, Any]:
    """The states before and after an operation; a folder tries one operation."""
    operation, place = OPERATIONS[name], folder / "place" / "folder"
    if (folder / "before").exists():
        return _known[folder]
    (folder / "before").mkdir()
    operation.prepare(folder / "before" / "folder")
    _copy(folder)
    before = operation.state(place)
    assert in_child(lambda: operation.act(place)) == DONE, f"{name} does not work"
    _known[folder] = before, operation.state(place)
    return _known[folder]


_known: dict[Path, tuple[Any, Any]] = {}

PARTS = (
    Part(
        "kills",
        "kill -9 at every open, write, fsync, rename and unlink of a save, a change, a checkpoint, a run",
        len(UNITS),
        check_kills,
        seconds=1800.0,
        share=(),
    ),
    Part(
        "faults",
        "A full disk, a file too large and a read-only disk at every one of these calls",
        len(UNITS),
        check_full_disk,
        seconds=3600.0,
        share=(),
    ),
)
