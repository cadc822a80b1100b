"""`gptree add`, `remove`, `rename`, `merge`, `undo` and `history`: changes of a model's classes.

A command loads, changes and saves under the lock of the folder, so that none undoes what another one has done. It waits
for another one up to a minute.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, say, visible
from gptree.cli.models import Classifier, ability, open_model, read_for
from gptree.incremental import Entry
from gptree.storage import DOCUMENT, holds_nothing, locked

_Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="Write the changed model into this new folder, and leave MODEL as it is.",
        metavar="FOLDER",
        show_default=False,
    ),
]
_Label = Annotated[
    str, typer.Argument(help="A label; write -- before labels that begin with a dash.", show_default=False)
]
_Labels = Annotated[
    list[str],
    typer.Argument(help="Labels; write -- before those that begin with a dash.", metavar="LABEL", show_default=False),
]

WORDS = {
    "fit": "fitted",
    "add_classes": "added",
    "add_examples": "extended",
    "remove_classes": "removed",
    "rename_class": "renamed",
    "merge_classes": "merged",
}
_MOST_LABELS = 6


# --------------------------------------------------------------------------------------------------------- commands


@clear_errors
def add(
    model: options.Model,
    data: options.Data,
    examples: Annotated[
        bool, typer.Option("--examples", help="DATA holds more examples of classes that the model knows.")
    ] = False,
    out: _Out = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    row_weights: options.RowWeights = None,
    weights: options.Weights = None,
    note: options.Note = "",
    author: options.Author = "",
    as_json: options.Json = False,
) -> None:
    """Teach a model new classes from a few examples each; with --examples, more of the classes it knows.

    What the model knew it keeps, and gptree undo takes the lesson back.
    """
    with _changing(model, out) as classifier:
        parts = {"ids": ids, "row_weights": row_weights, "weights": weights}
        rows = read_for(classifier, data, features, labels, **parts, need_labels=True)
        y = labels_as_classes(np.asarray(rows.y), classifier)
        _check_newness(data, np.unique(y).tolist(), classifier.classes_.tolist(), examples)
        teach = classifier.add_examples if examples else classifier.add_classes
        said = {"sample_weight": rows.weights, "note": note, "author": author}
        _apply(lambda: teach(rows.X, y, rows.names, **said), classifier, out or model, as_json)


@clear_errors
def remove(
    model: options.Model,
    labels: _Labels,
    out: _Out = None,
    note: options.Note = "",
    author: options.Author = "",
    as_json: options.Json = False,
) -> None:
    """Make a model forget classes.

    A class that was added leaves no trace. One that the model was fitted with can only be cut out of the trees.
    """
    with _changing(model, out) as classifier:
        gone = [_label(text, classifier) for text in labels]
        said = {"note": note, "author": author}
        _apply(lambda: classifier.remove_classes(gone, **said), classifier, out or model, as_json)


@clear_errors
def rename(
    model: options.Model,
    old: _Label,
    new: _Label,
    out: _Out = None,
    note: options.Note = "",
    author: options.Author = "",
    as_json: options.Json = False,
) -> None:
    """Give a class another label."""
    with _changing(model, out) as classifier:
        both = _label(old, classifier), _label(new, classifier)
        said = {"note": note, "author": author}
        _apply(lambda: classifier.rename_class(*both, **said), classifier, out or model, as_json)


@clear_errors
def merge(
    model: options.Model,
    labels: _Labels,
    into: Annotated[str, typer.Option(help="What the one class is called.", metavar="LABEL", show_default=False)],
    out: _Out = None,
    note: options.Note = "",
    author: options.Author = "",
    as_json: options.Json = False,
) -> None:
    """Make one class of several. At most one of them may be a class that the model was fitted with."""
    with _changing(model, out) as classifier:
        merged, name = [_label(text, classifier) for text in labels], _label(into, classifier)
        said = {"note": note, "author": author}
        _apply(lambda: classifier.merge_classes(merged, name, **said), classifier, out or model, as_json)


@clear_errors
def undo(model: options.Model, out: _Out = None, as_json: options.Json = False) -> None:
    """Take back the last change. The model is then what it was before, to the last bit."""
    with _changing(model, out) as classifier:
        _apply(classifier.undo, classifier, out or model, as_json)


@clear_errors
def history(model: options.Model, as_json: options.Json = False) -> None:
    """Show what happened to a model: when, which labels, from how many examples. Times are UTC."""
    journal = ability(open_model(model), "journal_")
    if as_json:
        print_json({"history": [{"number": i, **_facts(entry)} for i, entry in enumerate(journal)]})
        return
    _print_history(journal)


# ----------------------------------------------------------------------------------------------------------- changes


@contextmanager
def _changing(folder: Path, out: Path | None) -> Iterator[Classifier]:
    """The model, to be changed and saved under the lock of the folder that is written.

    What cannot be is found before the work begins: an --out that is no new folder, a folder without a model.
    """
    if out is not None:
        check_parent(out)
        _check_new(out)
    elif not (folder / DOCUMENT).is_file():
        open_model(folder)  # says why it is none
    with locked(out or folder):
        if out is not None:
            _check_new(out)  # another command may have made it meanwhile
        classifier = open_model(folder)
        ability(classifier, "journal_")  # a network without a classifier that grows has none
        yield classifier


def _check_new(out: Path) -> None:
    if out.exists() and not (out.is_dir() and holds_nothing(out)):
        raise ValueError(f"{out} exists: --out names a new folder; without it, the model is changed where it is.")


def _apply(change: Callable[[], Any], classifier: Classifier, folder: Path, as_json: bool) -> None:
    """Change the model, save it, and say what it has become."""
    before = classifier.journal_
    start = time.perf_counter()
    change()
    seconds = time.perf_counter() - start
    classifier.save(folder)
    taken_back = len(classifier.journal_) < len(before)
    entry = before[-1] if taken_back else classifier.journal_[-1]
    memory, count = classifier.memory_, len(classifier.classes_)
    if as_json:
        print_json(
            {
                "model": str(folder),
                "taken_back" if taken_back else "change": _facts(entry),
                "classes": classifier.classes_,
                "memory": {"examples": len(memory), "bytes": memory.nbytes},
                "seconds": seconds,
            }
        )
        return
    say(f"{'taken back: ' if taken_back else ''}{WORDS[entry.kind]} {described(entry)}")
    say(
        f"{count:,} {'class' if count == 1 else 'classes'} now, {len(memory):,} examples in memory "
        f"({memory.nbytes / 1e3:,.0f} kB with all that was learnt); {seconds:.2f} s; saved in {folder}"
    )


def _facts(entry: Entry) -> dict[str, Any]:
    """An entry of the journal, for machines."""
    return {
        "time": entry.time,
        "what": entry.kind,
        "labels": entry.labels,
        "examples": entry.counts,
        "ids": entry.ids,
        "note": entry.note,
        "author": entry.author,
    }


def described(entry: Entry) -> str:
    """The labels of an entry and how many examples of each it brought, for people."""
    if entry.kind == "rename_class":
        old, new = entry.labels
        return f"{old} to {new}"
    if entry.kind == "merge_classes":
        *labels, into = entry.labels
        return f"{_listed(labels)} into {into}"
    return _listed(entry.labels) + (f" (examples: {_examples(entry)})" if entry.counts else "")


def when(entry: Entry) -> str:
    """Its time (UTC), for people."""
    return entry.time.removesuffix("+00:00").replace("T", " ")


def _examples(entry: Entry) -> str:
    """How many examples of each label an entry brought."""
    fewest, most = min(entry.counts, default=0), max(entry.counts, default=0)
    if fewest == most:
        return f"{most:,}{' each' if len(entry.counts) > 1 else ''}" if entry.counts else ""
    return f"{fewest:,} to {most:,} each"


def _listed(labels: Sequence[Any]) -> str:
    first = ", ".join(str(label) for label in labels[:_MOST_LABELS])
    return first if len(labels) <= _MOST_LABELS else f"{first} and {len(labels) - _MOST_LABELS:,} more"


def _print_history(journal: Sequence[Entry]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    who, why = (any(getattr(entry, name) for entry in journal) for name in ("author", "note"))
    table = Table("", "time (UTC)", "what", "labels", "examples", *["who"] * who, *["note"] * why)
    for number, entry in enumerate(journal):
        labels = described(entry) if not entry.counts else _listed(entry.labels)
        # Text: square brackets in a label are no markup
        remarks = [entry.author] * who + [entry.note] * why
        cells = (str(number), when(entry), WORDS[entry.kind], labels, _examples(entry), *remarks)
        table.add_row(*(Text(visible(cell)) for cell in cells))
    Console().print(table)


# ------------------------------------------------------------------------------------------------------------ labels


def _label(value: Any, classifier: Classifier) -> Any:
    """A label from the command line or from a file, as a value of the kind that the classes of the model are."""
    kind = type(classifier.classes_.tolist()[0])
    if kind is str:
        return str(value)
    names = {bool: "True or False", int: "whole numbers", float: "numbers"}
    parsed = {bool: _truth, int: _whole, float: _number}[kind](value)
    if parsed is None:
        raise ValueError(f"the classes of the model are {names[kind]}, and '{value}' is none: give such a label.")
    return parsed


def _truth(value: Any) -> bool | None:
    return {"True": True, "False": False}.get(str(value))


def _whole(value: Any) -> int | None:
    """Only what is written as a whole number: 007 is a name, and so is 1e3."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    text = str(value).strip()
    try:
        return int(text) if str(int(text)) == text else None
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def labels_as_classes(y: np.ndarray, classifier: Classifier) -> np.ndarray:
    """Labels (n,) as values of the kind that the classes of the model are."""
    values, codes = np.unique(y, return_inverse=True)
    return np.array([_label(value, classifier) for value in values.tolist()])[codes]


def _check_newness(data: Path, labels: list[Any], classes: list[Any], examples: bool) -> None:
    """Whether the labels of DATA are what the command takes: new ones, or with --examples known ones."""
    old = [label for label in labels if label in classes]
    new = [label for label in labels if label not in classes]
    if old and new:
        raise ValueError(
            f"{data} mixes labels the model knows ({_listed(old)}) with new ones ({_listed(new)}): make it two files, "
            "the new ones for gptree add, the known ones for gptree add --examples."
        )
    if old and not examples:
        raise ValueError(f"the model knows {_listed(old)} already: give it more examples with --examples.")
    if new and examples:
        raise ValueError(f"the model does not know {_listed(new)}: leave --examples out to teach it new classes.")
