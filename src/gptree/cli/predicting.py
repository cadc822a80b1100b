"""`gptree predict`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree import DeepGPTreeClassifier
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, say, visible
from gptree.cli.models import Classifier, ability, class_numbers, open_model, read_for, score, score_cells
from gptree.estimators.open_set import open_labels
from gptree.estimators.top_k import check_top, searches, top_k
from gptree.storage import write_atomically

UNKNOWN = "none of these"  # the answer of --open about rows of no class
GROUPS = ("set", "coarse")  # several classes a row
TOP = ("top", "top_probabilities")
COLUMNS = (
    *("id", "prediction", "confidence", "runner_up", "novelty", "set", "coarse", "coarse_confidence"),
    *(*TOP, "outside"),
)
NUMBERS = ("confidence", "novelty", "coarse_confidence", "outside")


@clear_errors
def predict(
    model: options.Model,
    data: options.Data,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write to this .csv or .npz file.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Give the probability of every class.")] = False,
    with_score: Annotated[
        bool, typer.Option("--score", help="Report accuracy and calibration against the labels in DATA.")
    ] = False,
    open_set: Annotated[
        bool, typer.Option("--open", help=f"Answer “{UNKNOWN}” where a row is like nothing that the model knows.")
    ] = False,
    reject: Annotated[
        float | None,
        typer.Option(help="--open: the share of rows of known classes to refuse; 0.05 if not given.", min=0.0, max=1.0),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option("--set", help="Add the classes among which the right one is for this share of rows, such as 0.9."),
    ] = None,
    by_class: Annotated[
        bool, typer.Option("--by-class", help="--set: for this share of the rows of each class.")
    ] = False,
    confidence: Annotated[
        float | None,
        typer.Option(
            "--coarse", help="Add the smallest group of the class tree that is as sure as this, such as 0.95."
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", help="Add so many classes, the most probable first, and what is left for all others."),
    ] = None,
    shard: options.Shard = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    weights: options.Weights = None,
    as_json: options.Json = False,
) -> None:
    """Predict the labels of DATA, each with its probability.

    Prints comma-separated lines, one a row of DATA: its id (the row number if it has no name), the label and its
    probability, the label that comes second, and how strange the row is, from 0 to 1; with --proba also the probability
    of every class. An .npz file gets arrays of these names, `classes` and, with --proba, `probabilities`. Where lines
    are printed, control characters in labels are written out, such as \\x1b; in files labels stay as they are.

    With --open, probability and second label beside a refusal are those of the class that comes first.

    --set and --coarse add columns of labels, as JSON lists, and --coarse the probability of its group; in an .npz file
    `set` and `coarse` tell for every row and class whether it belongs to them. --top adds labels and their
    probabilities, as JSON lists, and the probability of all other classes together. With more than 5,000 classes it
    searches with a beam, if no other option needs all probabilities: the last column is then a bound, there is no
    novelty, and a second label from --top 2 on.
    """
    if out is not None and out.suffix.lower() not in (".csv", ".npz"):
        raise ValueError(f"{out}: predictions are written as .csv or .npz; name such a file with --out.")
    if out is not None:
        check_parent(out)
    if reject is not None and not open_set:
        raise ValueError("--reject belongs to --open.")
    if by_class and coverage is None:
        raise ValueError("--by-class belongs to --set.")
    part = None if shard is None else options.part(shard)
    classifier = open_model(model)
    rows = read_for(classifier, data, features, labels, ids=ids, weights=weights, need_labels=with_score, part=part)
    y = class_numbers(rows, classifier.classes_) if with_score else None
    if top is not None:
        check_top(top, len(classifier.classes_))
    needs_all = proba or with_score or open_set or coverage is not None or confidence is not None
    if top is not None and not needs_all and searches(classifier, top):
        probabilities, answers = None, _searched(classifier, rows.X, top)
    else:
        probabilities, answers = _ranked(classifier, rows.X, top)
    result: dict[str, Any] = {"id": np.array(rows.ids), **answers}
    if proba:
        result["probabilities"] = probabilities
    if open_set:
        share = {} if reject is None else {"reject": reject}
        refused = result.get("novelty") > ability(classifier, "novelty_threshold")(**share)
        result["runner_up"][refused] = result["prediction"][refused]
        result["prediction"] = open_labels(result["prediction"], refused, UNKNOWN)
    if coverage is not None:
        result["set"] = ability(classifier, "predict_set")(rows.X, coverage, by_class)
    if confidence is not None:
        coarse = ability(classifier, "predict_coarse")(rows.X, confidence)
        result |= {"coarse": coarse.members, "coarse_confidence": coarse.probability}
    if out is not None:
        _write(out, result)
        say(f"{len(rows.X):,} predictions written to {out}")
    scores = {} if y is None or probabilities is None else {"score": score(probabilities, y)}
    if as_json:
        named = {name: _named(result, name) for name in GROUPS if name in result}
        print_json({**result, **named, **scores})
    elif out is None:
        typer.echo(_csv(result, visible), nl=False)
    if scores and not as_json:
        say("  ".join(f"{name} {cell}" for name, cell in score_cells(scores["score"]).items()))


def _ranked(classifier: Classifier, X: np.ndarray, top: int | None) -> tuple[np.ndarray, dict[str, Any]]:
    """Probabilities (n, C), and columns; no novelty of a network without a classifier that says so."""
    inner = classifier.classifier_ if isinstance(classifier, DeepGPTreeClassifier) else classifier
    if hasattr(inner, "predict_with_novelty"):
        probabilities, novelty = classifier.predict_with_novelty(X)
    else:
        probabilities, novelty = classifier.predict_proba(X), None
    labels = classifier.classes_
    ranked = np.argsort(-probabilities, axis=1, kind="stable")
    found = () if top is None else top_k(labels, probabilities, top)
    return probabilities, {
        "prediction": labels[ranked[:, 0]],
        "confidence": probabilities.max(1),
        "runner_up": labels[ranked[:, min(1, len(labels) - 1)]],
        **({} if novelty is None else {"novelty": novelty}),
        "classes": labels,
        **dict(zip((*TOP, "outside"), found, strict=False)),
    }


def _searched(classifier: Classifier, X: np.ndarray, top: int) -> dict[str, Any]:
    """The columns that the most probable classes alone give."""
    found = classifier.predict_top_k(X, top)
    return {
        "prediction": found.classes[:, 0],
        "confidence": found.probabilities[:, 0],
        **({"runner_up": found.classes[:, 1]} if top > 1 else {}),
        "classes": classifier.classes_,
        **dict(zip((*TOP, "outside"), found, strict=True)),
    }


def _write(out: Path, result: dict[str, Any]) -> None:
    if out.suffix.lower() == ".csv":
        write_atomically(out, _csv(result, str))
        return
    file = io.BytesIO()
    # Labels that are Python objects become text: nothing here writes pickles.
    np.savez(file, **{name: a.astype(str) if a.dtype.hasobject else a for name, a in result.items()})
    write_atomically(out, file.getvalue())


def _csv(result: dict[str, Any], written: Callable[[Any], str]) -> str:
    """Comma-separated lines, in which labels are as `written` gives them."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    all_classes = result.get("probabilities", np.empty((len(result["prediction"]), 0)))
    named = [f"p({written(label)})" for label in result["classes"]] if all_classes.size else []
    columns = [name for name in COLUMNS if name in result]
    lists = {
        name: [json.dumps(labels, ensure_ascii=False) for labels in _named(result, name)]
        for name in GROUPS
        if name in result
    }
    if "top" in result:
        lists["top"] = [json.dumps(row, ensure_ascii=False) for row in result["top"].tolist()]
        lists["top_probabilities"] = [
            json.dumps([float(f"{p:.6g}") for p in row]) for row in result["top_probabilities"]
        ]
    writer.writerow([*columns, *named])
    shown_values = {**result, **lists}
    for *cells, row in zip(*(shown_values[name] for name in columns), all_classes, strict=True):
        named_cells = zip(columns, cells, strict=True)  # a label that is a number is written as it is
        shown = [f"{cell:.6g}" if name in NUMBERS else written(cell) for name, cell in named_cells]
        writer.writerow([*shown, *(f"{p:.6g}" for p in row)])
    return file.getvalue()


def _named(result: dict[str, Any], name: str) -> list[list[Any]]:
    """The labels of each row's set or group."""
    return [result["classes"][row].tolist() for row in result[name]]
