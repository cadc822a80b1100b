"""`gptree forget`: examples leave a model or a project, and the store, for good."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree.cli import options
from gptree.cli.console import clear_errors, print_json, say
from gptree.cli.data import Data
from gptree.cli.models import Classifier, ability, open_model, read_for
from gptree.embed import Store
from gptree.estimators.state import FittedState
from gptree.project import Project, is_project
from gptree.storage import DOCUMENT, locked

_SAME = 1e-5  # largest difference of features that are one vector, in single precision


@clear_errors
def forget(
    model: options.Model,
    ids: Annotated[list[str], typer.Argument(help="What the examples are called.", metavar="ID", show_default=False)],
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="The data that the model was fitted to and taught; needed to forget what it was fitted to. Repeat it "
            "for several.",
            metavar="DATA",
        ),
    ] = None,
    remove_class: Annotated[bool, typer.Option("--remove-class", help="Let a class go with its last example.")] = False,
    features: options.Features = None,
    labels: options.Labels = None,
    row_weights: options.RowWeights = None,
    weights: options.Weights = None,
    as_json: options.Json = False,
) -> None:
    """Make a model forget examples for good, as if it had never been shown them. No undo brings them back.

    What was taught leaves the journal, which is replayed. What the model was fitted to needs --data: the model is
    fitted again, and taught again what it was taught since. Vectors of these examples leave the store, too.

    MODEL may be a project: examples leave it and all its versions, and what it holds itself needs no --data.
    """
    parts = {"row_weights": row_weights, "weights": weights}

    def given(classifier: Any) -> list[Data]:
        return [read_for(classifier, path, features, labels, **parts, need_labels=True) for path in data or ()]

    if is_project(model):
        project = Project.open(model)
        read = given(project.model)
        keys = {each.key for name, each in project.examples.items() if name in ids}
        project.forget(ids, _joined(read) if read else None, remove_class=remove_class)
        gone = [bytes.fromhex(key) for key in keys - {each.key for each in project.examples.values()}]
        Store().drop(gone)
        classes, vectors = project.snapshot().classes, len(gone)
    elif is_project(model.parent):
        raise ValueError(f"{model} belongs to a project: say gptree forget {model.parent}, which holds its examples.")
    else:
        if not (model / DOCUMENT).is_file():
            open_model(model)  # says why it is none
        with locked(model):
            classifier = open_model(model)
            change = ability(classifier, "forget")
            read, before = given(classifier), classifier.state_
            change(ids, _joined(read) if read else None, remove_class=remove_class)
            # First the store: a model that was saved no longer knows what is to leave it.
            vectors = _clear_store(classifier, before, set(ids), read)  # pyright: ignore[reportArgumentType]
            classifier.save(model)
        classes = classifier.classes_
    if as_json:
        print_json({"model": str(model), "forgotten": ids, "classes": classes, "vectors_removed": vectors})
    else:
        say(f"forgotten: {len(ids):,} examples; {len(classes):,} classes now; {vectors:,} vectors left the store")


def _joined(read: list[Data]) -> tuple[np.ndarray, np.ndarray, list[str], np.ndarray]:
    """Rows of several data as one; an id in two of them is one row."""
    rows = {}
    for each in read:
        weights = np.ones(len(each.X)) if each.weights is None else each.weights
        for name, x, label, weight in zip(each.ids, each.X, np.asarray(each.y).tolist(), weights, strict=True):
            rows[name] = (x, label, weight)
    X, y, weights = zip(*rows.values(), strict=True)
    return np.array(X), np.array(y), list(rows), np.array(weights)


def _clear_store(classifier: Classifier, before: FittedState, ids: set[str], read: list[Data]) -> int:
    """Remove the vectors of what was forgotten from the default store: those that the model saw as it saw these."""
    if before.encoder is None:
        return 0
    kept = [row for row, name in enumerate(before.ids) if name in ids]
    known = [before.X[kept].double().cpu().numpy()]
    for each in read:
        rows = [row for row, name in enumerate(each.ids) if name in ids]
        known.append(before.features(each.X[rows]).double().cpu().numpy() if rows else known[0][:0])
    gone = np.concatenate(known)

    def chosen(X: np.ndarray) -> np.ndarray:
        seen, goes = before.features(X).double().cpu().numpy(), np.zeros(len(X), dtype=bool)
        for row in gone:
            goes |= np.abs(seen - row).max(1) < _SAME
        return goes

    return Store().remove(before.encoder, chosen)
