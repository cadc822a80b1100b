"""Frozen deep classifiers give the probabilities of the model: network and tree, or network and classifier."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deep_cases import NAMES, pictures, small, vector_network
from gpytorch.kernels import RQKernel, ScaleKernel
from sklearn.linear_model import LogisticRegression

from command_runs import run_command
from gptree import GPForestClassifier, GPTreeClassifier, Growth
from gptree.deep import VariationalTree
from gptree.estimators import onnx_export
from gptree.maths.frozen import NotFrozenError

X, Y = pictures(4, 90)
VECTORS = X.reshape(len(X), -1) / 255.0
BASE = np.isin(Y, NAMES[:3])
NEW = np.flatnonzero(~BASE)[:4]
PAPER = GPTreeClassifier.paper("rbf", 8.0, growth=Growth(), device="cpu")


def vectors(**others: Any) -> Any:
    """In double precision."""
    variational = VariationalTree(inducing=3, dtype="float64")
    return small(vector_network().double(), **{"variational": variational, **others})


CASES: dict[str, Any] = {
    "tree": vectors(),
    "tree and softmax": vectors(how={"objective_weight": 0.5, "validation": 0.3}),
    "softmax alone": vectors(how={"cross_entropy_epochs": 4}),
    "linear": vectors(kernel="linear"),
    "a kernel a node": vectors(variational=VariationalTree(inducing=3, learn_kernel="per-node", dtype="float64")),
    # a row near the mean of all has a direction that single precision does not hold: not the default map
    "forest": vectors(classifier=GPForestClassifier(growth=Growth(3), feature_map="unit")),
    "trained tree that grows": vectors(classifier=PAPER, classifier_rows="inducing", how={"calibrate": False}),
}


def probabilities(model: Any, dtype: str | None = None, inputs: np.ndarray = VECTORS) -> np.ndarray:
    return model.freeze(dtype)(torch.as_tensor(inputs)).numpy()


@pytest.mark.parametrize("name", CASES)
def test_a_frozen_model_gives_the_probabilities_of_the_model(name: str) -> None:
    model = copy.deepcopy(CASES[name]).fit(VECTORS[BASE], Y[BASE])
    for predict_at in ("mean", "quadrature"):
        (model if model.classifier_ is None else model.classifier_).set_params(predict_at=predict_at)
        if model.classifier_ is not None:
            model.add_classes(VECTORS[NEW], Y[NEW])
        expected = model.predict_proba(VECTORS)
        np.testing.assert_allclose(probabilities(model), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(probabilities(model, "float32"), expected, rtol=0, atol=1e-5)
        assert np.array_equal(model.freeze().classes, model.classes_)
        if model.classifier_ is not None:
            model.undo()


@pytest.fixture(scope="module")
def of_pictures() -> Any:
    return small(predict_at="mean").fit(X[BASE], Y[BASE])


def test_pictures_are_normalised_within(of_pictures: Any) -> None:
    expected = of_pictures.predict_proba(X)
    frozen = of_pictures.freeze()
    np.testing.assert_allclose(frozen(torch.tensor(X[:, None])).numpy(), expected, rtol=0, atol=1e-5)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    for tensor in frozen.state_dict().values():
        tensor.zero_()
    assert np.array_equal(of_pictures.predict_proba(X), expected)  # nothing of it is the model's


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"kernel": ScaleKernel(RQKernel())}, "the kernel ScaleKernel cannot be frozen: only"),
        ({"classifier": LogisticRegression()}, "the classifier LogisticRegression cannot be frozen: it is code"),
        ({"classifier": GPTreeClassifier(prior_mean=LogisticRegression())}, "the expert FittedSklearn cannot be"),
    ],
)
def test_what_is_code_is_refused_and_still_predicts(others: dict[str, Any], said: str) -> None:
    model = vectors(**others).fit(VECTORS[BASE], Y[BASE])
    with pytest.raises(NotFrozenError, match=said):
        model.freeze()
    np.testing.assert_allclose(model.predict_proba(VECTORS).sum(1), 1.0)


# --------------------------------------------------------------------------------------------------------------- ONNX


def test_a_network_and_its_tree_by_the_command(of_pictures: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    runtime: Any = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    of_pictures.save(tmp_path / "model")
    file = tmp_path / "model.onnx"
    told = json.loads(run_command("export", tmp_path / "model", file, "--json").stdout)
    assert told["difference"] < 1e-5
    assert told["precision"] == "single"
    session = runtime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata["classes"]) == of_pictures.classes_.tolist()
    told = json.loads(metadata["input"])
    assert (told["shape"], told["dtype"], told["normalised"]["formula"]) == (
        [1, 8, 8],
        "uint8",
        "(x / 255 - mean) / std",
    )
    assert tuple(told["normalised"]["mean"]) == of_pictures.state_.inputs.mean
    for count in (1, 5):
        (found,) = session.run(None, {"X": X[:count, None]})
        np.testing.assert_allclose(found, of_pictures.predict_proba(X[:count]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["tree", "softmax alone", "trained tree that grows"])
def test_a_graph_is_tried_on_what_the_model_keeps(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two graphs: that of all, and that of what follows the network, on rows whose embeddings are known."""
    model, seen = copy.deepcopy(CASES[name]).fit(VECTORS[BASE], Y[BASE]), []

    def graph(frozen: Any, rows: np.ndarray, dtype: torch.dtype, **metadata: Any) -> bytes:
        seen.append((frozen(torch.as_tensor(rows)), metadata))
        return b"graph"

    def difference(_: bytes, rows: np.ndarray, expected: np.ndarray) -> float:
        np.testing.assert_allclose(seen[-1][0].numpy(), expected, rtol=0, atol=1e-5)
        return 10.0 ** -len(rows)

    monkeypatch.setattr(onnx_export, "onnx_graph", graph)
    monkeypatch.setattr(onnx_export, "largest_difference", difference)
    kept = len(onnx_export.known_embeddings(model.state_))
    assert kept == {"tree": 9, "softmax alone": 3, "trained tree that grows": 9}[name]
    assert onnx_export.export_onnx(model, tmp_path / "model.onnx") == (10.0**-kept, "single")
    assert [metadata.get("input") for _, metadata in seen] == [None, {"shape": [64], "dtype": "float32"}]


def test_a_network_that_cannot_be_exported(of_pictures: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxscript", reason="needs the extra onnx")

    def refuse(*_: Any, **__: Any) -> Any:
        raise torch.onnx.OnnxExporterError("a branch on data\nand much more")

    monkeypatch.setattr(torch.onnx, "export", refuse)
    with pytest.raises(ValueError, match=r"the network cannot be exported: .* \(a branch on data\)"):
        onnx_export.export_onnx(of_pictures, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
