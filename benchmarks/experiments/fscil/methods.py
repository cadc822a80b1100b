"""Methods that learn sessions, the sessions of each data set, and a trial of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.trials import Trial
from benchmarks.data import cub200, read_arrays
from benchmarks.experiments.fscil import pipeline, rivals
from benchmarks.experiments.fscil.lines import DEEP
from benchmarks.experiments.fscil.networks import NETWORKS, read
from benchmarks.experiments.fscil.sets import SETS
from benchmarks.experiments.fscil.streams import HELD_OUT, row_sessions
from gptree.protocols import SessionMethod, SessionStream, run_stream, stream_from_lists

#: Strategies by their names in the tables.
STRATEGIES = {
    "shared root": "shared-root",
    "session tree": "session-tree",
    "rebuild": "rebuild-tree",
    "graft": "graft",
}
#: What makes the embeddings of a set of pictures, and those of the network of GP-Tree as published.
OF_RIVALS, OF_PIPELINE = (f"a trial of this seed of `{method}`" for method in ("network: icarl", "pipeline: published"))
#: Of a session's row, what names the run: the trial has it already.
NAMES = ("data", "method", "settings", "seed", "versions", "machine", "commit")


def make_method(name: str, seed: int, exemplars: int = 5, kernel: str = "rbf") -> Any:
    """A method by its name in the tables. The kernel is that of the paper's tree."""
    family, _, variant = name.partition(", ")
    strategy = STRATEGIES.get(variant, "shared-root")
    method = SessionMethod(name=family.removeprefix("rival: "), strategy=strategy, exemplars=exemplars, kernel=kernel)
    return method.make(seed)


class WithFitArguments:
    """A method whose `fit` is given more than examples."""

    def __init__(self, method: Any, arguments: Mapping[str, Any]) -> None:
        self.method, self.arguments = method, arguments

    def fit(self, X: Any, y: Any) -> Any:
        return self.method.fit(X, y, **self.arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)


def run_method(trial: Trial, stream: SessionStream, arguments: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Teach the trial's method the stream; of its settings, `exemplars` and `kernel` are the method's."""
    torch.set_num_threads(1)
    settings = {name: value for name, value in trial.settings.items() if name in ("exemplars", "kernel")}
    method: Any = WithFitArguments(make_method(trial.method, trial.seed, **settings), arguments or {})
    result = run_stream(method, stream, seed=trial.seed, method=trial.method)
    sessions = [{key: value for key, value in row.items() if key not in NAMES} for row in result.rows]
    return {"sessions": sessions, "reliability": result.details["reliability"]}


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """A trial on the sessions of a data set, with its held-out rows used as the settings say."""
    if trial.method.startswith("pipeline: "):
        return pipeline.run(trial, Path(folder))
    if trial.method.startswith("network: "):
        return rivals.run(trial, Path(folder))
    stream, held_out = make_stream(trial.data, Path(folder), trial.seed)
    use = trial.settings.get("held_out")
    if use == "only":
        base, *later = stream.sessions
        base = replace(base, X=base.X[held_out], y=base.y[held_out])
        stream = SessionStream(stream.name, (base, *later))
    return run_method(trial, stream, {"held_out": held_out} if use == "calibrate" else {})


def frozen_cub(folder: Path) -> SessionStream:
    """CUB's public sessions on frozen features."""
    arrays = read_arrays(folder / cub200.FILE, ("x", "y", "path"))
    x, y = arrays["x"].astype(np.float32), arrays["y"].astype(int)
    return stream_from_lists(folder / "fscil" / "cub200", x, y, paths=arrays["path"], name="cub200")


def make_stream(data: str, folder: Path, seed: int = 0) -> tuple[SessionStream, np.ndarray | None]:
    """The sessions of a data set, and which rows of the base its network has not seen.

    All seeds have the same sessions. In a set of pictures each has a network of its own, with which the rivals that go
    on training begin.
    """
    if data in SETS:
        name, pictures = SETS[data].data, read(rivals.embedding_name(data, seed), folder / "networks", OF_RIVALS)
    elif data in DEEP:
        network = pipeline.network_name(DEEP[data], "published", seed)
        name, pictures = SETS[DEEP[data]].data, read(network, folder / "networks", OF_PIPELINE)
    elif data in NETWORKS:
        name, pictures = NETWORKS[data].data, read(data, folder / "networks")
    else:
        return frozen_cub(folder), None
    stream = row_sessions(name, pictures, folder, data)
    held_out = pictures.split[stream.sessions[0].X[:, 0]] == HELD_OUT
    sessions = (replace(s, X=pictures.x[s.X[:, 0]], X_test=pictures.x[s.X_test[:, 0]]) for s in stream.sessions)
    return SessionStream(data, tuple(sessions)), held_out
