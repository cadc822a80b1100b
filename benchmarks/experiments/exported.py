"""One row of an exported model.

How long does one row take, in the library and as an ONNX file?

At 100 classes of 20 examples and 384 features, a forest answers one row in {mean wall | method=forest, ONNX} ms in
onnxruntime with one thread ({mean cpu | method=forest, ONNX} ms of the processor), against
{mean wall | method=forest, predict_proba} ms of `predict_proba`; a tree in {mean wall | method=tree, ONNX} ms.
Logistic regression's `predict_proba` takes {mean wall | method=logistic regression} ms.

Findings
--------
- The file of the forest has {mean size | method=forest, ONNX} MB, and its probabilities differ from the model's by
  {mean difference | method=forest, ONNX} at most.
- A hundred rows at a time take {mean hundred | method=forest, ONNX} ms of the processor in onnxruntime,
  {mean hundred | method=forest, predict_proba} ms in the library.

Set-up
------
Made-up features (`structured`), one thread. Median of 200 calls with one row, after ten to warm up; processor time
is the mean of them. `freeze` is the torch module in single precision. Seconds by the clock depend on what else the
machine does; its load beforehand is a column.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data.structured import make
from gptree import GPForestClassifier, GPTreeClassifier
from gptree.estimators.onnx_export import export_onnx

GROUP, NEEDS_DATA, SEEDS, FRESH_PROCESS = "Speed and size", False, 1, True

CLASSES, SHOTS, DIMENSIONS, CALLS = 100, 20, 384, 200
KINDS = {"forest": GPForestClassifier, "tree": GPTreeClassifier}
WAYS = ("predict_proba", "freeze", "ONNX")
LOGISTIC = "logistic regression"
METHODS = [*(f"{kind}, {way}" for kind in KINDS for way in WAYS), LOGISTIC]
COLUMNS = {
    "wall": Column("one row (ms)", "metrics.one.wall", digits=2),
    "cpu": Column("one row (CPU ms)", "metrics.one.cpu", digits=2),
    "hundred": Column("a hundred rows (CPU ms)", "metrics.hundred.cpu", digits=1),
    "size": Column("file (MB)", "metrics.megabytes", digits=1),
    "difference": Column("largest difference", "metrics.difference", digits=7),
    "load": Column("load", "metrics.load", digits=1),
}


def trials(seeds: int) -> list[Trial]:
    settings = {"classes": CLASSES, "shots": SHOTS, "dimensions": DIMENSIONS}
    return [Trial("exported", method, "structured", seed, settings) for seed in range(seeds) for method in METHODS]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    load, sizes = os.getloadavg()[0], trial.settings
    data = make(sizes["classes"], sizes["dimensions"], sizes["shots"], 2, trial.seed)
    answer, facts = _way(trial.method, data.train_x.astype(float), data.train_y, trial.seed)
    X = data.test_x[:100]
    return {"one": timed(answer, X[:1]), "hundred": timed(answer, X), **facts, "load": load}


def timed(answer: Callable[[np.ndarray], Any], X: np.ndarray, calls: int = CALLS) -> dict[str, float]:
    """Milliseconds of a call: median by the clock, mean of the processor."""
    for _ in range(10):
        answer(X)
    walls, used = [], time.process_time()
    for _ in range(calls):
        began = time.perf_counter()
        answer(X)
        walls.append(time.perf_counter() - began)
    return {"wall": 1000 * float(np.median(walls)), "cpu": 1000 * (time.process_time() - used) / calls}


def _way(method: str, X: np.ndarray, y: np.ndarray, seed: int) -> tuple[Callable[[np.ndarray], Any], dict[str, Any]]:
    """What answers rows in single precision, and what is known of it."""
    if method == LOGISTIC:
        return LogisticRegression(max_iter=200).fit(X, y).predict_proba, {}
    kind, way = method.split(", ")
    model = KINDS[kind](random_state=seed).fit(X, y)
    if way == "predict_proba":
        return model.predict_proba, {}
    if way == "freeze":
        frozen = model.freeze("float32")
        return lambda rows: frozen(torch.from_numpy(rows)), {}
    import onnxruntime

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        found = export_onnx(model, file)
        graph = file.read_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda rows: session.run(None, {"X": rows}), {"megabytes": len(graph) / 1e6, **found._asdict()}


def tables(rows: list[Row]) -> list[Table]:
    return [listing("Times", rows, ["method"], list(COLUMNS.values()))]
