"""`gptree suggest`: what to label next, named, and copied into a folder to label."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree import DeepGPTreeClassifier
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, print_table, say, visible
from gptree.cli.data import Data
from gptree.cli.models import Classifier, ability, open_model, read_for
from gptree.storage import write_atomically


@clear_errors
def suggest(
    model: options.Model,
    data: options.Data,
    n: Annotated[int, typer.Option("-n", help="How many.", min=1)] = 20,
    copy: Annotated[
        Path | None,
        typer.Option(
            help="Copy these pictures into a new folder, sorted by what they look like; texts into a new .csv file.",
            metavar="FOLDER",
        ),
    ] = None,
    features: options.Features = None,
    ids: options.Ids = None,
    weights: options.Weights = None,
    as_json: options.Json = False,
) -> None:
    """Name the rows of DATA that are worth a label, the most useful first.

    They stand for many others that the model is unsure of, and are unlike what it was taught and unlike each other.
    Rows that the model holds already are not among them.

    With --copy, pictures go into a folder a class, by the answer of the model: move those that are wrong into the right
    one, and give the folder to gptree add. Texts go into a table with the columns id, text and label, the answer of the
    model: correct it there.
    """
    if copy is not None:
        check_parent(copy)
        if copy.exists():
            raise ValueError(f"{copy} exists: --copy names a new folder, or for texts a new file.")
    classifier = open_model(model)
    pick = ability(classifier, "suggest")
    rows = read_for(classifier, data, features, None, ids=ids, weights=weights)
    if copy is not None:
        _check_copy(rows, copy)
    names, free = np.array(rows.ids), _unlabelled(classifier, rows.X)
    if not len(free):
        raise ValueError(f"the model was taught all {len(names):,} rows of {data}: there is nothing left to label.")
    chosen = free[pick(rows.X[free], min(n, len(free)))]
    probabilities = classifier.predict_proba(rows.X[chosen])
    answers, sure = classifier.classes_[probabilities.argmax(1)], probabilities.max(1)
    if copy is not None:
        _copy(rows, copy, names[chosen].tolist(), answers.tolist())
        say(f"{len(chosen):,} {'pictures' if data.is_dir() else 'texts'} copied into {copy}")
    if as_json:
        found: list[dict[str, Any]] = [
            {"id": name, "row": row, "prediction": answer, "confidence": p}
            for name, row, answer, p in zip(
                names[chosen].tolist(), chosen.tolist(), answers.tolist(), sure.tolist(), strict=True
            )
        ]
        print_json({"suggestions": found})
    else:
        cells = zip(names[chosen].tolist(), answers.tolist(), sure.tolist(), strict=True)
        print_table(["label next", "looks like", "p"], [[visible(a), visible(b), f"{p:.3f}"] for a, b, p in cells])


def _unlabelled(classifier: Classifier, X: np.ndarray) -> np.ndarray:
    """Numbers of the rows that are not among those which the model keeps; a network's rows are not compared."""
    if isinstance(classifier, DeepGPTreeClassifier):
        return np.arange(len(X))
    state = classifier.state_
    kept, asked = (np.round(part.double().cpu().numpy(), 9) + 0.0 for part in (state.X, state.features(X)))
    known = {row.tobytes() for row in kept[state.y >= 0]}
    return np.array([number for number, row in enumerate(asked) if row.tobytes() not in known], dtype=int)


def _check_copy(rows: Data, copy: Path) -> None:
    """Complain of a copy that is not for such data."""
    if not rows.sources or (not rows.path.is_dir() and isinstance(next(iter(rows.sources.values())), Path)):
        raise ValueError("--copy belongs to a folder of pictures or a table of texts.")
    if not rows.path.is_dir() and copy.suffix.lower() != ".csv":
        raise ValueError(f"{copy}: texts are copied into a .csv file; name such a file with --copy.")


def _copy(rows: Data, target: Path, ids: list[str], answers: list[Any]) -> None:
    """Pictures into folders of their answers, their names made of their ids; texts into a table. All or none."""
    if not rows.path.is_dir():
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "text", "label"])
        writer.writerows([name, rows.sources[name], answer] for name, answer in zip(ids, answers, strict=True))
        write_atomically(target, file.getvalue())
        return
    try:
        for name, answer in zip(ids, answers, strict=True):
            place = target / _file_name(str(answer))
            place.mkdir(parents=True, exist_ok=True)
            path = place / _file_name(name)
            while path.exists():  # of another picture, whose name reads alike
                path = path.with_stem(path.stem + "_")
            shutil.copyfile(rows.sources[name], path)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _file_name(text: str) -> str:
    """An id or a label as the name of a file or folder."""
    name = "".join("_" if c in '/\\:*?"<>|' or ord(c) < 32 else c for c in text).lstrip("._ ")
    return name or "_"
