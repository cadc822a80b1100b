"""`gptree tree` and `gptree explain`: the class tree of a fitted model, and explanations of its predictions."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from gptree import DeepGPTreeClassifier, GPForestClassifier, GPTreeClassifier
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, say, visible
from gptree.cli.models import Classifier, ability, open_model, read_for
from gptree.cli.options import choice
from gptree.estimators.explain import Explanation
from gptree.storage import write_figure
from gptree.tree import plot_tree, to_dot, to_newick, to_text

_FORMATS = ("text", "dot", "newick")
_PICTURES = (".png", ".svg", ".pdf")
_MOST_SURE = 500  # classes of a tree whose decisions are asked how sure they are
_ROWS = 5  # that `gptree explain` explains without --rows


@clear_errors
def tree(
    model: options.Model,
    form: Annotated[str, choice(_FORMATS, "Text, or a language that other programs draw", "--format")] = "text",
    depth: Annotated[int | None, typer.Option(help="Text: sum up what lies below so many decisions.", min=1)] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw a picture into this .png, .svg or .pdf file instead of printing text."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show the class tree of a model; of a forest, the first tree.

    In the picture, classes that were added later are bold and red, and a dot at each decision says how sure it is: the
    mean probability that the model gives to the right side, over the examples it keeps, each left out.

    --json gives the classes and the tree as gptree stores it: the order of the leaves, and for every inner node the
    interval of leaves it owns, [lo, hi), cut at mid.
    """
    if depth is not None and form != "text":
        raise ValueError("--depth belongs to --format text.")
    if picture is not None:
        if picture.suffix.lower() not in _PICTURES:
            raise ValueError(f"{picture}: pictures are {', '.join(_PICTURES)} files; name such a file with --picture.")
        check_parent(picture)
    classifier = open_model(model)
    class_tree, names = classifier.tree_, classifier.classes_.tolist()
    if picture is not None:
        write_figure(picture, plot_tree(class_tree, names, **_marks(classifier)))
        say(f"drawn into {picture}")
    shown = [visible(name) for name in names]
    if as_json:
        print_json({"classes": names, "height": class_tree.height, "tree": class_tree.to_json()})
    elif form == "dot":
        typer.echo(to_dot(class_tree, shown), nl=False)
    elif form == "newick":
        typer.echo(to_newick(class_tree, shown))
    elif picture is None:
        typer.echo(to_text(class_tree, shown, max_depth=depth))


def _marks(classifier: Classifier) -> dict[str, Any]:
    """What a picture of the tree shows besides names: novel classes, and how sure decisions are."""
    inner = classifier.classifier_ if isinstance(classifier, DeepGPTreeClassifier) else classifier
    if not isinstance(inner, GPTreeClassifier | GPForestClassifier):
        return {}
    novel = {label for labels in inner.sessions_[1:] for label in labels.tolist()}
    marked = [number for number, label in enumerate(inner.classes_.tolist()) if label in novel]
    values = inner.split_sureness() if 2 < len(inner.classes_) <= _MOST_SURE else None
    return {"highlight": marked, "node_values": values}


@clear_errors
def explain(
    model: options.Model,
    data: options.Data,
    rows: Annotated[
        str | None,
        typer.Option(help="Row numbers from 0, e.g. 3 or 0-4,17; the first five if not given.", metavar="LIST"),
    ] = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    weights: options.Weights = None,
    as_json: options.Json = False,
) -> None:
    """Explain predictions: the decisions on the path of the predicted class, and its nearest training examples.

    Where DATA has labels, they are shown beside the predictions.
    """
    classifier = open_model(model)
    table = read_for(classifier, data, features, labels, ids=ids, weights=weights)
    chosen = _row_numbers(rows, len(table.X))
    explanations = ability(classifier, "explain")(table.X[chosen])
    truth = [None] * len(chosen) if table.y is None else table.y[chosen].tolist()
    names = table.ids
    explained = list(zip(chosen, truth, explanations, strict=True))
    if as_json:
        rows_json = [{"id": names[row], "row": row, "true_label": y, **why.to_json()} for row, y, why in explained]
        print_json({"rows": rows_json})
        return
    for row, y, why in explained:
        name = f"row {row}" if table.names is None else visible(names[row])
        typer.echo(name + ("" if y is None else f", truly {visible(y)}"))
        typer.echo(f"{_visible(why)}\n")


def _visible(why: Explanation) -> Explanation:
    """The explanation with labels that a terminal can show."""

    def labels(many: tuple[Any, ...]) -> tuple[str, ...]:
        return tuple(visible(label) for label in many)

    path = tuple(replace(step, towards=labels(step.towards), away=labels(step.away)) for step in why.path)
    neighbours = tuple(replace(near, id=visible(near.id)) for near in why.neighbours)
    return replace(why, label=visible(why.label), runner_up=visible(why.runner_up), path=path, neighbours=neighbours)


def _row_numbers(text: str | None, n_rows: int) -> list[int]:
    """The rows that a list such as "0-4,17" names."""
    if text is None:
        return list(range(min(_ROWS, n_rows)))
    chosen = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if ends is None:
            raise ValueError(f"--rows: cannot read '{part}'; write row numbers and ranges, e.g. 0-4,17.")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if not first <= last < n_rows:
            raise ValueError(f"--rows: there is no row range {part.strip()}; the rows are 0 to {n_rows - 1}.")
        chosen += range(first, last + 1)
    return chosen
