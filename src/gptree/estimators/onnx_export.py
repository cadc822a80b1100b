"""Models as ONNX files: the prediction alone, for programs that have neither torch nor gptree."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from gptree.deep import TreeHead
from gptree.estimators.deep_frozen import without_network
from gptree.estimators.deep_inputs import Inputs
from gptree.estimators.deep_state import DeepState
from gptree.estimators.feature_map import SphereMap
from gptree.estimators.frozen import FrozenClassifier
from gptree.estimators.state import FittedState
from gptree.storage import write_atomically

#: Largest difference of a probability that is let pass.
TOLERANCE = 1e-4
#: Random rows that the exported graph is tried on, beside rows that the model knows.
RANDOM_ROWS = 64
#: Rows that the model knows.
KNOWN_ROWS = 512
NEEDED = ("onnx", "onnxscript", "onnxruntime")


class Exported(NamedTuple):
    """What is known of an exported file."""

    difference: float
    """The largest difference of a probability that was seen."""
    precision: str
    """That the graph computes in: "single", or "double" where single precision does not hold the model."""


class DiffersError(ValueError):
    """A graph does not give the answers of the model."""


def export_onnx(model: Any, path: str | Path) -> Exported:
    """Write the prediction of a fitted classifier as an ONNX file.

    Input `X` (n, …), output `probabilities` (n, C) in single precision, any n. X are features (n, d) in single
    precision, or what the network of a deep model takes: floats, or pictures (n, C, H, W) in uint8, which the graph
    normalises. The metadata are JSON: `classes`, the labels; `input`, the shape of an input and how pixels are
    normalised; `encoder`, the model's encoder, if it has one. Before anything is written the graph is run on examples
    that the model keeps and on random rows, and compared with `predict_proba`. A deep model keeps no inputs: of it,
    what follows the network is run on the embeddings it keeps.

    Parameters
    ----------
    model : GPTreeClassifier, GPForestClassifier or DeepGPTreeClassifier
    path : path
        Of the file; one that is there is replaced.

    Returns
    -------
    Exported

    Raises
    ------
    NotFrozenError
        If a part of the model is code: a kernel, an expert or a feature map of your own.
    ValueError
        If the graph does not give the model's answers, or if a network cannot be exported; then nothing is written.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ImportError(f"exporting needs {', '.join(missing)}: pip install 'gptree[onnx]'.")
    try:
        graph, difference = checked_graph(model, torch.float32)
        precision = "single"
    except DiffersError:
        graph, difference = checked_graph(model, torch.float64)
        precision = "double"
    write_atomically(Path(path), graph)
    return Exported(difference, precision)


def checked_graph(model: Any, dtype: torch.dtype) -> tuple[bytes, float]:
    """The graph of a model, and by how much it differs; too much is an error.

    In double precision a network computes as it was trained, and all that follows it as the model does.
    """
    frozen, state, kept = model.freeze("float32" if dtype == torch.float32 else None).cpu(), model.state_, 0.0
    if isinstance(state, DeepState):
        rows, described = random_inputs(state.inputs), input_of(state.inputs)
        embeddings = known_embeddings(state).astype(np.float32)
        as_computed = torch.as_tensor(embeddings, dtype=getattr(torch, state.inputs.dtype))
        answers = state.answers(as_computed, model.predict_at)
        kept = largest_difference(onnx_graph(without_network(frozen), embeddings, dtype), embeddings, np.exp(answers))
    else:
        rows = known_rows(state)
        random = np.random.default_rng(0).normal(size=(RANDOM_ROWS, rows.shape[1]))
        rows = np.concatenate([rows, rows.mean(0) + rows.std(0) * random]).astype(np.float32)
        described = {"shape": [rows.shape[1]], "dtype": "float32"}
    metadata = {"classes": frozen.classes.tolist(), "input": described}
    if getattr(model, "encoder_", None) is not None:
        metadata["encoder"] = model.encoder_
    graph = onnx_graph(frozen, rows, dtype, **metadata)
    # floats as numbers in double precision that happen to be single ones: the model's own arithmetic stays as it is
    asked = rows if rows.dtype == np.uint8 else rows.astype(np.float64)
    return graph, max(kept, largest_difference(graph, rows, model.predict_proba(asked)))


class InPrecision(nn.Module):
    """A classifier that computes in a precision, and answers in single."""

    def __init__(self, classifier: FrozenClassifier, dtype: torch.dtype) -> None:
        super().__init__()
        self.classifier, self.dtype = classifier, dtype

    def forward(self, X: Tensor) -> Tensor:
        return self.classifier(X.to(self.dtype)).float()


def onnx_graph(frozen: FrozenClassifier, rows: np.ndarray, dtype: torch.dtype, **metadata: Any) -> bytes:
    """A frozen classifier of inputs like these rows, as the bytes of an ONNX model; metadata become JSON."""
    try:
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")  # of exporter and torch, about themselves
            program: Any = torch.onnx.export(
                InPrecision(frozen, dtype),
                (torch.as_tensor(rows[:2]),),
                input_names=["X"],
                output_names=["probabilities"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        first = str(error).strip().partition("\n")[0]
        raise ValueError(f"the network cannot be exported: torch.export does not take its code ({first}).") from error
    proto = program.model_proto
    for key, value in metadata.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value, ensure_ascii=False)
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
        raise DiffersError(
            f"the exported graph differs from the model by {difference:.2g} in a probability, more than {TOLERANCE:g}: "
            "nothing was written."
        )
    second, first = np.sort(expected, axis=1)[:, [-2, -1]].T if expected.shape[1] > 1 else (0.0, expected[:, 0])
    other = (found.argmax(1) != expected.argmax(1)) & (first - second > TOLERANCE)
    if other.any():
        raise DiffersError("the exported graph gives another label than the model: nothing was written.")
    return difference


def some(rows: np.ndarray) -> np.ndarray:
    """Every so many-th row, at most `KNOWN_ROWS`."""
    return rows[:: max(1, -(-len(rows) // KNOWN_ROWS))]


def random_inputs(inputs: Inputs) -> np.ndarray:
    """Inputs (n, …) of a network: pictures of noise, or standard normal numbers."""
    rng = np.random.default_rng(0)
    if inputs.mean is not None:
        return rng.integers(0, 256, size=(RANDOM_ROWS, *inputs.shape), dtype=np.uint8)
    return rng.normal(size=(RANDOM_ROWS, *inputs.shape)).astype(np.float32)


def input_of(inputs: Inputs) -> dict[str, Any]:
    """What an input of a network is, in words that JSON has."""
    if inputs.mean is None or inputs.std is None:
        return {"shape": list(inputs.shape), "dtype": "float32"}
    normalised = {"formula": "(x / 255 - mean) / std", "mean": list(inputs.mean), "std": list(inputs.std)}
    return {
        "shape": list(inputs.shape),
        "dtype": "uint8",
        "axes": "channels, height, width",
        "normalised": {**normalised, "where": "in the graph: give pixels from 0 to 255"},
    }


def known_embeddings(state: DeepState) -> np.ndarray:
    """Embeddings that a deep model keeps: examples of its classifier, inducing points of its tree, or class vectors."""
    if state.ensemble is None:
        return known_rows(state.classifier.state_)
    first = state.ensemble.first
    kept = first.points if isinstance(first, TreeHead) else first.weight
    return some(kept.detach().double().cpu().numpy())


def known_rows(state: FittedState) -> np.ndarray:
    """Raw features (n, d), n at most `KNOWN_ROWS`, that the feature map takes to rows that the model keeps."""
    rows = some(state.X.double().cpu().numpy())
    if not isinstance(state.feature_map, SphereMap):
        return rows
    mean = state.feature_map.mean_.astype(float)
    along = rows @ mean
    # f is the direction of u − m, ‖u‖ = 1: u = m + t f with t > 0
    t = -along + np.sqrt(np.clip(along**2 + 1 - mean @ mean, 0.0, None))
    first = mean + t[:, None] * rows
    return np.clip(first, 0.0, None) ** 2 if state.feature_map.non_negative_ else first
