"""Fitted models as the commands see them: opening a folder, reading data for a model, scoring it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gptree.cli.data import Data, read_data

if TYPE_CHECKING:
    from gptree import GPForestClassifier, GPTreeClassifier

    Classifier = GPTreeClassifier | GPForestClassifier


def open_model(folder: Path) -> Classifier:
    """The estimator in a folder."""
    from gptree.estimators.forest import load_model

    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: make a model with gptree fit DATA --out {folder}.")
    return load_model(folder)


def read_for(
    model: Classifier, path: Path, features: str | None, labels: str | None, *, need_labels: bool = False
) -> Data:
    """Data that the model can predict: from a table, the columns that it was fitted on."""
    known = getattr(model, "feature_names_in_", None)
    data = read_data(path, features, labels, need_labels=need_labels, known_columns=known)
    check_width(data, model.n_features_in_)  # pyright: ignore[reportAttributeAccessIssue]
    return data


def check_width(data: Data, width: int) -> None:
    if data.X.shape[1] != width:
        raise ValueError(
            f"{data.path} has {data.X.shape[1]} features a row, but the model has {width}. Give it data of the same "
            "kind; --features names the array or the columns to use."
        )


def class_numbers(data: Data, classes: np.ndarray) -> np.ndarray:
    """The number of each label among the classes (n,). A number and the text that reads like it are one label."""
    from gptree.protocols import columns

    y = np.asarray(data.y)
    if (y.dtype.kind == "U") != (classes.dtype.kind == "U"):
        y, classes = y.astype(str), classes.astype(str)
    try:
        return columns(y, classes)
    except ValueError as error:
        raise ValueError(f"{data.path} has labels that the model does not know: {error}") from None


def score(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy and calibration of class probabilities (n, C) against class numbers (n,)."""
    from gptree.protocols import accuracy, brier, ece, nll

    measures = {"accuracy": accuracy, "nll": nll, "brier": brier, "ece": ece}
    return {name: measure(probabilities, y) for name, measure in measures.items()}


def score_cells(scores: dict[str, float]) -> dict[str, str]:
    """Scores as text for a table."""
    return {
        "accuracy": f"{100 * scores['accuracy']:.1f} %",
        "NLL": f"{scores['nll']:.3f}",
        "Brier": f"{scores['brier']:.3f}",
        "ECE": f"{100 * scores['ece']:.1f} %",
    }
