"""Models as ONNX files: the prediction alone, for programs that have neither torch nor gptree."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gptree.estimators.feature_map import SphereMap
from gptree.estimators.frozen import FrozenClassifier
from gptree.estimators.state import FittedState
from gptree.storage import write_atomically

#: Largest difference of a probability that is let pass.
TOLERANCE = 1e-4
#: Rows of random numbers that the exported graph is tried on, beside rows that the model knows.
RANDOM_ROWS = 64
#: Rows that the model knows.
KNOWN_ROWS = 512
NEEDED = ("onnx", "onnxscript", "onnxruntime")


def export_onnx(model: Any, path: str | Path) -> float:
    """Write the prediction of a fitted classifier of features as an ONNX file, in single precision.

    Input `X` (n, d), output `probabilities` (n, C), any n; the labels are in the metadata, as a JSON list under
    `classes`. Before anything is written the graph is run on examples that the model keeps and on random rows, and
    compared with `predict_proba`.

    Parameters
    ----------
    model : GPTreeClassifier or GPForestClassifier
    path : path
        Of the file; one that is there is replaced.

    Returns
    -------
    float
        The largest difference of a probability that was seen.

    Raises
    ------
    NotFrozenError
        If a part of the model is code: a kernel, an expert or a feature map of your own.
    ValueError
        If the graph does not give the model's answers; then nothing is written.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"exporting needs {', '.join(missing)}: pip install 'gptree[onnx]'.")
    graph = onnx_graph(model.freeze("float32"), int(model.n_features_in_))
    rows = known_rows(model.state_)
    random = np.random.default_rng(0).normal(size=(RANDOM_ROWS, rows.shape[1]))
    asked = np.concatenate([rows, rows.mean(0) + rows.std(0) * random]).astype(np.float32)
    # as numbers in double precision that happen to be single ones: the model's own arithmetic stays as it is
    difference = largest_difference(graph, asked, model.predict_proba(asked.astype(np.float64)))
    write_atomically(Path(path), graph)
    return difference


def onnx_graph(frozen: FrozenClassifier, width: int) -> bytes:
    """A frozen classifier in single precision as the bytes of an ONNX model."""
    example = torch.zeros(2, width)
    example[:, 0] = 1.0
    with warnings.catch_warnings(), _quiet():
        warnings.simplefilter("ignore")  # of exporter and torch, about themselves
        program: Any = torch.onnx.export(
            frozen,
            (example,),
            input_names=["X"],
            output_names=["probabilities"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            dynamo=True,
            verbose=False,
        )
    proto = program.model_proto
    labels = proto.metadata_props.add()
    labels.key, labels.value = "classes", json.dumps(frozen.classes.tolist(), ensure_ascii=False)
    return proto.SerializeToString()


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def largest_difference(graph: bytes, X: np.ndarray, expected: np.ndarray) -> float:
    """Between the probabilities of a graph and those expected; too large a one, or another label, is an error."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    found = np.concatenate([np.asarray(session.run(None, {"X": part})[0]) for part in (X[:1], X[1:])])
    difference = float(np.abs(found - expected).max(initial=0.0))
    if not difference <= TOLERANCE:
        raise ValueError(
            f"the exported graph differs from the model by {difference:.2g} in a probability, more than {TOLERANCE:g}: "
            "nothing was written. Single precision does not hold this model."
        )
    second, first = np.sort(expected, axis=1)[:, [-2, -1]].T if expected.shape[1] > 1 else (0.0, expected[:, 0])
    other = (found.argmax(1) != expected.argmax(1)) & (first - second > TOLERANCE)
    if other.any():
        raise ValueError("the exported graph gives another label than the model: nothing was written.")
    return difference


def known_rows(state: FittedState) -> np.ndarray:
    """Raw features (n, d), n at most `KNOWN_ROWS`, that the feature map takes to rows that the model keeps."""
    step = -(-len(state.X) // KNOWN_ROWS)
    rows = state.X[:: max(step, 1)].double().cpu().numpy()
    if not isinstance(state.feature_map, SphereMap):
        return rows
    mean = state.feature_map.mean_.astype(float)
    along = rows @ mean
    # f is the direction of u − m, ‖u‖ = 1: u = m + t f with t > 0
    t = -along + np.sqrt(np.clip(along**2 + 1 - mean @ mean, 0.0, None))
    first = mean + t[:, None] * rows
    return np.clip(first, 0.0, None) ** 2 if state.feature_map.non_negative_ else first
