"""The commands on a deep model: pictures and vectors in .npz files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from gptree import DeepGPTreeClassifier
from gptree.deep import Training, VariationalTree, convnet, mlp

Run = Callable[..., Any]

NAMES = np.array(["zero", "one", "two"])
DIGITS = load_digits()
ROWS = np.flatnonzero(DIGITS.target < 3)[:120]
Y = NAMES[DIGITS.target[ROWS]]
PICTURES = (DIGITS.images[ROWS] * 15).astype(np.uint8)
VECTORS = (DIGITS.data[ROWS] / 16).astype(np.float32)


@pytest.fixture(scope="module", params=["pictures", "vectors"])
def fitted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Any]:
    """The folder of a model, a file with its data, and the model."""
    folder = tmp_path_factory.mktemp(request.param)
    X = PICTURES if request.param == "pictures" else VECTORS
    network = convnet(1, width=8, depth=2, embedding=6) if request.param == "pictures" else mlp(64, (16,), embedding=6)
    training = Training(epochs=4, cross_entropy_epochs=2, batch_size=32, learning_rate=0.1)
    settings = {"training": training, "variational": VariationalTree(inducing=3), "random_state": 0, "device": "cpu"}
    model = DeepGPTreeClassifier(network, **settings).fit(X, Y)
    model.save(folder / "model")
    np.savez(folder / "data.npz", X=X, y=Y)
    return folder / "model", folder / "data.npz", model


def test_predict_and_score(run: Run, fitted: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, data, model = fitted
    result = run("predict", folder, data, "--proba", "--score", "--out", tmp_path / "p.npz")
    assert "accuracy" in result.stderr
    with np.load(tmp_path / "p.npz", allow_pickle=False) as arrays, np.load(data) as given:
        np.testing.assert_allclose(arrays["probabilities"], model.predict_proba(given["X"]), atol=1e-12)
        np.testing.assert_array_equal(arrays["prediction"], model.predict(given["X"]))
        assert np.mean(arrays["prediction"] == given["y"]) > 0.8


def test_the_tree(run: Run, fitted: tuple[Path, Path, Any]) -> None:
    assert set(NAMES) <= set(run("tree", fitted[0]).stdout.split())


def test_commands_that_need_another_classifier_end_in_one_line(run: Run, fitted: tuple[Path, Path, Any]) -> None:
    folder, data, _ = fitted
    commands = (("history", folder), ("undo", folder), ("explain", folder, data), ("predict", folder, data, "--open"))
    for command in commands:
        result = run(*command, code=2)
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert "classifier=GPForestClassifier(growth=Growth())" in line


def test_pictures_of_another_shape_are_refused(run: Run, fitted: tuple[Path, Path, Any], tmp_path: Path) -> None:
    with np.load(fitted[1]) as given:
        np.savez(tmp_path / "narrow.npz", X=given["X"][..., :5])
    (line,) = run("predict", fitted[0], tmp_path / "narrow.npz", code=2).stderr.splitlines()
    assert line.startswith("error: ")
