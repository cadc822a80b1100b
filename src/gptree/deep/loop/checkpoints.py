"""Checkpoints of a training: tensors and JSON, never half written.

The folder of a training holds `last/`, from which it goes on, `best/`, the best state so far, `log.jsonl` and, when it
is done, `curves.png`. A checkpoint knows the data and the settings it belongs to; others are refused. While a training
runs it holds the lock of its folder, and a second one is refused.
"""

from __future__ import annotations

import errno
import hashlib
import inspect
import json
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gptree.deep.data.base import Batch, spread
from gptree.deep.loop.log import CURVES, plot_curves, read_log, write_log
from gptree.deep.loop.processes import Processes
from gptree.deep.loop.state import Best, State
from gptree.deep.loop.task import Rows, Task
from gptree.storage import (
    COUNT,
    DOCUMENT,
    Number,
    StorageError,
    below,
    check_precision,
    clear_left_overs,
    ensure,
    locked,
    read_folder,
    reading,
    write_figure,
    write_folder,
)
from gptree.tree import ClassTree

KIND = "training"
#: Of an identity, what may differ, as it does for a network that is drawn anew in every run.
FIRST_WEIGHTS = "first weights"
#: Rows whose inputs tell one data set from another.
ROWS_LOOKED_AT = 64
#: Settings that change nothing in the result.
_FREE = ("checkpoint_epochs", "checkpoint_steps")
#: No number of a training is larger.
LARGEST = 1e12
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


class Checkpoints:
    """The checkpoints of one training; without a folder there are none. The main process writes them, all read."""

    def __init__(self, folder: str | Path | None, task: Task, network: nn.Module, group: Processes) -> None:
        self.folder = None if folder is None else Path(folder)
        self._task, self._group = task, group
        self._identity = {} if folder is None else identity(task, network)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the folder's lock, in the main process; the others wait for that."""
        with ExitStack() as stack:
            if self.folder is not None and self._group.is_main:
                try:
                    stack.enter_context(locked(self.folder))
                    for place in (self.folder, self.folder / "last", self.folder / "best"):
                        if place.is_dir():
                            with locked(place):
                                clear_left_overs(place)
                except OSError as error:
                    # A training that is done is only read, wherever it is.
                    if error.errno not in _READ_ONLY or not (self.folder / "last" / DOCUMENT).exists():
                        raise
            self._group.wait_for_all()
            yield

    def restore(self, state: State) -> None:
        """Bring the state to where the last checkpoint was taken, if there is one."""
        if self.folder is None or not (self.folder / "last" / DOCUMENT).exists():
            return
        document, tensors = self._read("last")
        if document["identity"].get(FIRST_WEIGHTS) != self._identity[FIRST_WEIGHTS]:
            warnings.warn(
                f"the training in {self.folder} began with other weights of the network than those given, and goes on "
                "with its own. If those given are to be trained, choose another folder.",
                RuntimeWarning,
                stacklevel=2,
            )
        with reading(self.folder / "last"):
            if document["tree"] is not None:
                head = self._task.head.stored_head(document["tree"], below("layer", tensors), self._task.problem)
                state.join(head.to(self._group.device))
            state.load_model(tensors)
            state.load_momentum(tensors)
            state.total.copy_(tensors["total"])
            state.epoch, state.step, state.log = document["epoch"], document["step"], document["log"]
            state.started = time.perf_counter() - document["seconds"]
            if document["scaler"]:
                self._group.scaler.load_state_dict(document["scaler"])
        final = state.head is not None or not self._task.training.trains_head
        if final and (self.folder / "best" / DOCUMENT).exists():
            document, tensors = self._read("best")
            state.best = Best(document["epoch"], document["value"], tensors)
        with reading(self.folder):
            if not self._has_log(state):  # the training was interrupted between checkpoint and log
                self.save_log(state)

    def save(self, state: State) -> None:
        """Write `last/`; the state must be finite."""
        if self.folder is None or not self._group.is_main:
            return
        head, scaler = state.head, self._group.scaler
        document = {
            "epoch": state.epoch,
            "step": state.step,
            "seconds": time.perf_counter() - state.started,
            "log": state.log,
            "tree": None if head is None else head.structure(),  # which is the tree of the head that has one
            "scaler": None if scaler is None else scaler.state_dict(),
        }
        tensors = {**state.model_tensors(), **state.momentum(), "total": state.total}
        self._write("last", document, tensors)

    def save_best(self, best: Best) -> None:
        if self.folder is not None and self._group.is_main:
            self._write("best", {"epoch": best.epoch, "value": best.value}, best.tensors)

    def save_log(self, state: State) -> None:
        """Write the log; after the last epoch its picture too."""
        if self.folder is not None and self._group.is_main:
            write_log(self.folder, state.log)
            if state.epoch == state.training.epochs:
                write_figure(self.folder / CURVES, plot_curves(state.log))

    def _has_log(self, state: State) -> bool:
        assert self.folder is not None
        drawn = state.epoch < state.training.epochs or (self.folder / CURVES).exists()
        try:
            return drawn and read_log(self.folder) == state.log
        except ValueError:
            return not state.log  # no epoch is done yet

    @property
    def last(self) -> str:
        """The last checkpoint, for a message."""
        if self.folder is None:
            return "there is no checkpoint (give a folder=…)"
        if not (self.folder / "last" / DOCUMENT).exists():
            return f"there is no checkpoint yet in {self.folder}"
        document, _ = self._read("last")
        return f"the last good checkpoint is {self.folder / 'last'}, epoch {document['epoch']}, step {document['step']}"

    def _write(self, name: str, document: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        assert self.folder is not None
        write_folder(self.folder / name, {"kind": KIND, "identity": self._identity, **document}, tensors)

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
        assert self.folder is not None
        document, tensors = read_folder(self.folder / name)
        if document.get("kind") != KIND:
            raise StorageError(f"{self.folder / name} holds no checkpoint of a training.")
        stored = document.get("identity")
        ensure(isinstance(stored, dict), f"{self.folder / name} does not say which training it is of.")
        assert isinstance(stored, dict)
        for key in sorted(self._identity | stored):
            if key != FIRST_WEIGHTS and stored.get(key) != self._identity.get(key):
                raise ValueError(
                    f"{self.folder} holds a training with {key} {stored.get(key)}, not {self._identity.get(key)}: "
                    "go on with the same data and settings, or choose another folder."
                )
        with reading(self.folder / name):
            self._check(document, tensors, name)
        return document, tensors

    def _check(self, document: dict[str, Any], tensors: dict[str, Tensor], name: str) -> None:
        """Complain of numbers that no training has; what is missing, or does not fit, shows as it is used."""
        Number(least=0, most=self._task.training.epochs, whole=True).check("epoch", document.get("epoch"))
        if name == "best":
            Number().check("value", document.get("value"))
        else:
            COUNT.check("step", document.get("step"))
            Number(least=0).check("seconds", document.get("seconds"))
            log = document.get("log")
            rows = isinstance(log, list) and all(isinstance(row, dict) for row in log)
            ensure(rows, "the log of a training has a table for each epoch.")
        for key, value in tensors.items():
            bound = "_constraint." in key  # of a hyper-parameter: may be infinite
            usual = bound or not value.is_floating_point() or bool((value.abs() <= LARGEST).all())
            ensure(usual, f"{self.folder} holds numbers in {key} that are not finite, or huge.")
            ensure(not key.endswith("running_var") or bool((value >= 0).all()), f"{key} holds negative variances.")
            if key.rpartition(".")[2].startswith("precision_"):
                check_precision(key, value)


def identity(task: Task, network: nn.Module) -> dict[str, str]:
    """The data and settings that a training must share with a checkpoint to go on from it."""
    settings = {
        f"training.{name}": stable_repr(value)
        for name, value in task.training.get_params(deep=False).items()
        if name not in _FREE
    }
    settings |= {f"head.{name}": stable_repr(value) for name, value in task.head.get_params(deep=False).items()}
    tree = json.dumps(task.tree.to_json()) if isinstance(task.tree, ClassTree) else stable_repr(task.tree)
    weights = network.state_dict()
    shapes = [(name, tuple(value.shape), str(value.dtype)) for name, value in weights.items()]
    return settings | {
        "kernel": _kernel_identity(task.kernel),
        "tree": tree if len(tree) < 100 else _digest(tree.encode()),
        "seed": str(task.seed),
        "augmentation": stable_repr(getattr(task.learned.source, "augment", ())),
        "labels": _digest(repr(task.labels).encode()),
        "network": _digest(repr(shapes).encode()),
        FIRST_WEIGHTS: _digest(
            *(value.cpu().contiguous().flatten().view(torch.uint8).numpy() for value in weights.values())
        ),
        "training rows": _rows_identity(task.learned),
        "validation rows": "none" if task.held_out is None else _rows_identity(task.held_out),
    }


def stable_repr(value: Any) -> str:
    """A setting in words that are the same in every process: its repr, unless that is an address in memory."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(stable_repr, value))})"
    if inspect.isroutine(value) or isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if type(value).__repr__ is object.__repr__:
        return f"{type(value).__qualname__}({', '.join(f'{name}={stable_repr(v)}' for name, v in vars(value).items())})"
    return repr(value)


def _kernel_identity(kernel: Kernel) -> str:
    """Of all it is made of: types, plain attributes such as ν, and hyper-parameters."""
    plain = (
        (type(part).__name__, {name: v for name, v in vars(part).items() if isinstance(v, bool | int | float | str)})
        for part in kernel.modules()
    )
    hyper = {name: value.tolist() for name, value in kernel.state_dict().items()}
    return f"{type(kernel).__name__} {hyper}, {_digest(repr(list(plain)).encode())}"


def _rows_identity(rows: Rows) -> str:
    """By their classes, and by inputs from the first to the last."""
    chosen = rows.rows[spread(len(rows.rows), ROWS_LOOKED_AT)]
    (x,) = rows.source.batches([Batch(chosen)], torch.device("cpu"))
    return f"{len(rows.rows)} × {tuple(rows.source.shape)}, {_digest(rows.y.tobytes(), x.contiguous().numpy())}"


def _digest(*contents: Any) -> str:
    """Of bytes, or of arrays in memory."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    return digest.hexdigest()[:16]
