"""Fitted models for the commands: opening a folder, reading data for a model, scoring it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gptree import DeepGPTreeClassifier, GPForestClassifier, GPTreeClassifier, load_model
from gptree.cli.data import Data, read_data
from gptree.cli.encoding import Encoding
from gptree.embed.encoders import describes
from gptree.metrics import accuracy, brier, columns, ece, nll

Classifier = GPTreeClassifier | GPForestClassifier | DeepGPTreeClassifier


def open_model(folder: Path) -> Classifier:
    """The estimator in a folder."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: make a model with gptree fit DATA --out {folder}.")
    return load_model(folder)


def ability(model: Classifier, name: str) -> Any:
    """An attribute of the model. A deep model has some only if its `classifier` has them."""
    if isinstance(model, DeepGPTreeClassifier) and not hasattr(model.classifier_, name):
        raise ValueError(
            f"{name} needs a deep model with a classifier that has it: fit it with "
            "classifier=GPForestClassifier(growth=Growth())."
        )
    return getattr(model, name)


def read_for(
    model: Classifier,
    path: Path,
    features: str | None,
    labels: str | None,
    *,
    ids: str | None = None,
    row_weights: str | None = None,
    weights: Path | None = None,
    need_labels: bool = False,
    part: tuple[int, int] | None = None,
) -> Data:
    """Data that the model can predict.

    From a table, the columns that it was fitted on; pictures and texts by its encoder, whose weights may be given; for
    a network, any arrays.
    """
    names = getattr(model, "feature_names_in_", None)
    width = getattr(model, "n_features_in_", None)  # of a network for pictures there is none
    description = getattr(model, "encoder_", None)
    encoding = Encoding(weights=weights, model=True, description=description)
    kind: dict[str, Any] = {"need_labels": need_labels, "known_columns": names, "pictures": width is None}
    data = read_data(path, features, labels, ids=ids, row_weights=row_weights, encoding=encoding, part=part, **kind)
    if description is not None and data.encoder is not None and data.encoder != description:
        raise ValueError(
            f"{path} holds vectors of the encoder {describes(data.encoder)}, but the model was fitted on those of "
            f"{describes(description)}: encode the same data with that one."
        )
    if width is not None:
        check_width(data, width)
    return data


def check_width(data: Data, width: int) -> None:
    if data.X.shape[1] != width:
        raise ValueError(
            f"{data.path} has {data.X.shape[1]} features a row, but the model has {width}. Give it data of the same "
            "kind; --features names the array or the columns to use."
        )


def class_numbers(data: Data, classes: np.ndarray) -> np.ndarray:
    """The number of each label among the classes (n,). A number and the text that reads like it are one label."""
    y = np.asarray(data.y)
    if (y.dtype.kind == "U") != (classes.dtype.kind == "U"):
        y, classes = y.astype(str), classes.astype(str)
    try:
        return columns(y, classes)
    except ValueError as error:
        raise ValueError(f"{data.path} has labels that the model does not know: {error}") from None


def truth_of(rows: Data, classes: list[Any]) -> list[Any]:
    """Labels of rows as the classes are written, None where there is none.

    A number and the text that reads like it are one label.
    """
    known = {str(label): label for label in classes}
    return [label if label is None else known.get(str(label), label) for label in rows.labels]


def score(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Accuracy and calibration of class probabilities (n, C) against class numbers (n,)."""
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
