"""`gptree suggest`: what to label next, named, and copied into a folder to label."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree import DeepGPTreeClassifier
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, print_table, say, visible
from gptree.cli.models import Classifier, ability, open_model, read_for


@clear_errors
def suggest(
    model: options.Model,
    data: options.Data,
    n: Annotated[int, typer.Option("-n", help="How many.", min=1)] = 20,
    copy: Annotated[
        Path | None,
        typer.Option(help="Copy these pictures into a new folder, sorted by what they look like.", metavar="FOLDER"),
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
    one, and give the folder to gptree add.
    """
    if copy is not None:
        if not data.is_dir():
            raise ValueError("--copy belongs to a folder of pictures.")
        check_parent(copy)
        if copy.exists():
            raise ValueError(f"{copy} exists: --copy names a new folder.")
    classifier = open_model(model)
    pick = ability(classifier, "suggest")
    rows = read_for(classifier, data, features, None, ids=ids, weights=weights)
    names, free = np.array(rows.ids), _unlabelled(classifier, rows.X)
    if not len(free):
        raise ValueError(f"the model was taught all {len(names):,} rows of {data}: there is nothing left to label.")
    chosen = free[pick(rows.X[free], min(n, len(free)))]
    probabilities = classifier.predict_proba(rows.X[chosen])
    answers, sure = classifier.classes_[probabilities.argmax(1)], probabilities.max(1)
    if copy is not None:
        _copy(data, copy, names[chosen].tolist(), answers)
        say(f"{len(chosen):,} pictures copied into {copy}")
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


def _copy(data: Path, folder: Path, ids: list[str], answers: np.ndarray) -> None:
    """Pictures into folders of their answers, their names made of their ids; all of them or none."""
    from gptree.embed import ImageFolder

    sources = {item.id: item.source for item in ImageFolder(data).items}
    try:
        for name, answer in zip(ids, answers.tolist(), strict=True):
            place = folder / _file_name(str(answer))
            place.mkdir(parents=True, exist_ok=True)
            target = place / _file_name(name)
            while target.exists():  # of another picture, whose name reads alike
                target = target.with_stem(target.stem + "_")
            shutil.copyfile(sources[name], target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _file_name(text: str) -> str:
    """An id or a label as the name of a file or folder."""
    name = "".join("_" if c in '/\\:*?"<>|' or ord(c) < 32 else c for c in text).lstrip("._ ")
    return name or "_"
