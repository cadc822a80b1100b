"""ONNX files give the answers of the model, or are not written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from command_runs import run_command
from gptree import GPForestClassifier, GPTreeClassifier
from gptree.estimators import onnx_export
from gptree.estimators.onnx_export import export_onnx, known_rows, largest_difference

pytest.importorskip("onnxscript", reason="needs the extra onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
onnx: Any = pytest.importorskip("onnx", reason="needs the extra onnx")

RNG = np.random.default_rng(0)
Y = np.repeat(["ant", "bée", "cat", "dog", "eel"], 5)
MEANS = RNG.normal(size=(5, 4))
X = np.abs(np.repeat(MEANS, 5, 0) + 0.3 * RNG.normal(size=(25, 4)))


@pytest.fixture(scope="module")
def model() -> GPForestClassifier:
    return GPForestClassifier(n_estimators=2, random_state=0).fit(X, Y)


def test_a_model_by_the_command(model: GPForestClassifier, tmp_path: Path) -> None:
    """Grown models and quadrature are other modules of the same kind (`test_frozen.py`), but take longer."""
    model.save(tmp_path / "model")
    file = tmp_path / "model.onnx"
    told = json.loads(run_command("export", tmp_path / "model", file, "--json").stdout)
    assert told["difference"] < 1e-5
    assert told["bytes"] == file.stat().st_size
    session = onnxruntime.InferenceSession(file.read_bytes(), providers=["CPUExecutionProvider"])
    labels = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    assert labels == model.classes_.tolist()
    for count in (1, 7, 25):
        (found,) = session.run(None, {"X": X[:count].astype(np.float32)})
        np.testing.assert_allclose(found, model.predict_proba(X[:count]), rtol=0, atol=1e-5)


def test_rows_that_the_model_knows(model: GPForestClassifier) -> None:
    """The feature map takes them to what the model keeps."""
    state = model.state_
    np.testing.assert_allclose(state.features(known_rows(state)).numpy(), state.X.numpy(), atol=1e-9)
    plain = GPTreeClassifier(feature_map="unit", random_state=0).fit(X - 1, Y).state_
    np.testing.assert_allclose(plain.features(known_rows(plain)).numpy(), plain.X.numpy(), atol=1e-12)


def test_where_single_precision_does_not_hold_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single precision is tried first; the double graph is written, and takes and gives single numbers all the same."""
    model = GPTreeClassifier(prior_mean=None, feature_map=None, random_state=0).fit(X[:10], Y[:10])
    real, tried = onnx_export.onnx_graph, []

    def graph(frozen: Any, rows: np.ndarray, dtype: torch.dtype, **metadata: Any) -> bytes:
        tried.append(dtype)
        return b"" if dtype == torch.float32 else real(frozen, rows, dtype, **metadata)

    def difference(graph: bytes, X: np.ndarray, expected: np.ndarray) -> float:
        if not graph:
            raise onnx_export.DiffersError
        return largest_difference(graph, X, expected)

    monkeypatch.setattr(onnx_export, "onnx_graph", graph)
    monkeypatch.setattr(onnx_export, "largest_difference", difference)
    found = export_onnx(model, tmp_path / "model.onnx")
    assert tried == [torch.float32, torch.float64]
    assert found.precision == "double"
    assert found.difference < 1e-7
    session = onnxruntime.InferenceSession((tmp_path / "model.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    assert [each.type for each in (*session.get_inputs(), *session.get_outputs())] == ["tensor(float)"] * 2


class Session:
    """Gives what it was told to."""

    answers = np.zeros((0, 0))

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def run(self, _: Any, given: dict[str, np.ndarray]) -> list[np.ndarray]:
        return [self.answers[given["X"][:, 0].astype(int)]]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([[0.5, 0.5], [0.2, 0.8]], None),
        ([[0.5, 0.5], [0.2 + 2e-4, 0.8 - 2e-4]], "differs from the model by 0.0002"),
        ([[np.nan, 0.5], [0.2, 0.8]], "differs from the model by nan"),
    ],
)
def test_other_answers_are_refused(found: Any, said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.setattr(Session, "answers", np.array(found))
    rows, expected = np.array([[0.0], [1.0]], dtype=np.float32), np.array([[0.5 + 1e-6, 0.5 - 1e-6], [0.2, 0.8]])
    if said is None:
        assert largest_difference(b"", rows, expected) == pytest.approx(1e-6)
        monkeypatch.setattr(Session, "answers", np.array([[0.5, 0.5], [0.6, 0.4]]))
        monkeypatch.setattr(onnx_export, "TOLERANCE", 0.5)
        assert largest_difference(b"", rows, np.array([[0.5, 0.5], [0.3, 0.7]])) == pytest.approx(0.3)
        monkeypatch.setattr(onnx_export, "TOLERANCE", 0.35)
        with pytest.raises(ValueError, match="another label"):
            largest_difference(b"", rows, np.array([[0.5, 0.5], [0.3, 0.7]]))
        return
    with pytest.raises(ValueError, match=said):
        largest_difference(b"", rows, expected)


def test_nothing_is_written_where_it_cannot_be(
    model: GPForestClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "model")
    file = tmp_path / "model.onnx"
    assert "name such a file" in run_command("export", tmp_path / "model", tmp_path / "model.pt", code=2).stderr
    with pytest.raises(TypeError, match="FittedSklearn cannot be frozen"):
        export_onnx(GPTreeClassifier(prior_mean=LogisticRegression(), random_state=0).fit(X, Y), file)

    def refuse(*_: Any) -> float:
        raise ValueError("the exported graph differs")

    monkeypatch.setattr(onnx_export, "onnx_graph", lambda *_, **__: b"graph")
    monkeypatch.setattr(onnx_export, "largest_difference", refuse)
    assert "differs" in run_command("export", tmp_path / "model", file, code=2).stderr
    monkeypatch.setattr(onnx_export, "NEEDED", ("a_package_that_is_not_there",))
    said = run_command("export", tmp_path / "model", file, code=2).stderr
    assert "exporting needs a_package_that_is_not_there: pip install 'gptree[onnx]'" in said
    assert not file.exists()
