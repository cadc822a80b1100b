"""`gptree preview` and `gptree diff`: what a lesson would change, and what changed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree.cli import options
from gptree.cli.console import check_page, clear_errors, print_json, print_table, say, visible
from gptree.cli.data import Data
from gptree.cli.growing import labels_as_classes
from gptree.cli.models import Classifier, ability, open_model, read_for, truth_of
from gptree.embed.tables import TableFile
from gptree.project import Answer, Changes, Example, Project, is_project
from gptree.project.answers import answers_of, changes
from gptree.project.pages import changes_page
from gptree.storage import write_atomically

_SHOWN = 20  # changes that are printed

_On = Annotated[Path, typer.Option("--on", help="Rows to answer about.", metavar="DATA", show_default=False)]
_Reject = Annotated[
    float,
    typer.Option(help="The share of known rows that may be called none of these.", min=1e-6, max=0.999),
]


@clear_errors
def preview(
    model: options.Model,
    lesson: Annotated[
        Path, typer.Argument(help="Examples with labels, as for gptree add.", metavar="LESSON", show_default=False)
    ],
    on: _On,
    reject: _Reject = 0.05,
    page: options.Page = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    weights: options.Weights = None,
    as_json: options.Json = False,
) -> None:
    """Say what a lesson would change, without teaching it. Nothing is saved.

    LESSON may hold new classes and more of known ones. Where DATA has labels, the answers that become right and wrong
    are counted.
    """
    check_page(page)
    before = open_model(model)
    ability(before, "journal_")
    names: dict[str, Any] = {"ids": ids, "weights": weights}
    lessons = read_for(before, lesson, features, labels, need_labels=True, **names)
    y = labels_as_classes(np.asarray(lessons.y), before)
    rows = read_for(before, on, features, _if_there(on, labels), **names)
    after = copy.copy(before)
    known = np.isin(y, before.classes_)
    for teach, part in ((after.add_classes, ~known), (after.add_examples, known)):
        if part.any():
            teach(lessons.X[part], y[part])
    _tell(_compared(before, after, rows, reject, None), f"{lesson} taught to {model}", rows, page, as_json)


@clear_errors
def diff(
    model: Annotated[
        Path, typer.Argument(help="Folder of a fitted model, or of a project.", metavar="MODEL", show_default=False)
    ],
    data: Annotated[
        Path | None,
        typer.Argument(help="Rows to answer about; a project has its own.", metavar="DATA", show_default=False),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="The earlier model.", metavar="MODEL", show_default=False)
    ] = None,
    back: Annotated[
        int | None, typer.Option(help="The earlier model is this one without its last so many changes; 1.", min=1)
    ] = None,
    versions: Annotated[
        tuple[int, int] | None, typer.Option(help="Of a project: the two versions to compare.", show_default=False)
    ] = None,
    reject: _Reject = 0.05,
    page: options.Page = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    weights: options.Weights = None,
    as_json: options.Json = False,
) -> None:
    """Say which answers differ between two models, or between two versions of one.

    Without --against, the model is compared with what it was before its last change; a project with its version before.
    Where DATA has labels, the answers that became right and wrong are counted.
    """
    check_page(page)
    if is_project(model):
        if data is not None or against is not None or back is not None:
            raise ValueError(f"{model} is a project, with rows and versions of its own: give --versions A B alone.")
        _diff_project(Project.open(model), versions, page, as_json)
        return
    if versions is not None:
        raise ValueError("--versions belongs to a project.")
    if data is None:
        raise ValueError("name the DATA to answer about.")
    if against is not None and back is not None:
        raise ValueError("give --against or --back, not both.")
    now = open_model(model)
    rows = read_for(now, data, features, labels, ids=ids, weights=weights)
    if against is not None:
        was = open_model(against)
    else:
        was, steps = copy.copy(now), back or 1
        if len(ability(now, "journal_")) <= steps:
            raise ValueError(f"the model has changed {len(now.journal_) - 1} times since it was fitted, not {steps}.")
        for _ in range(steps):
            was.undo()
    for each in (was, now):
        ability(each, "novelty_score")
    title = f"{model} against {against or 'what it was'}"
    _tell(_compared(was, now, rows, reject, 1), title, rows, page, as_json)


def _diff_project(project: Project, versions: tuple[int, int] | None, page: Path | None, as_json: bool) -> None:
    before, after = versions or (project.version - 1, project.version)
    found = project.diff(before, after)
    title = f"{project.name}: version {before} and version {after}"
    _tell(found, title, project.sources(), page, as_json)


def _if_there(data: Path, labels: str | None) -> str | None:
    """The name of the lesson's labels, where DATA has some of this name."""
    if labels is None or not data.is_file():
        return None
    if data.suffix.lower() == ".npz":
        with np.load(data, allow_pickle=False) as arrays:
            return labels if labels in arrays else None
    return labels if data.suffix.lower() != ".npy" and labels in TableFile.read(data).header else None


def _compared(was: Classifier, now: Classifier, rows: Data, reject: float, version: int | None) -> Changes:
    """What another model answers; rows with a label test."""
    labels = truth_of(rows, now.classes_.tolist())
    examples = [
        Example(name, "", split="pool" if label is None else "test", label=label)
        for name, label in zip(rows.ids, labels, strict=True)
    ]
    before, _ = answers_of(was, examples, rows.X, reject, 0)
    after, quality = answers_of(now, examples, rows.X, reject, version)
    return changes(before, after, quality)


def _tell(found: Changes, title: str, rows: Data | dict[str, Path | str], page: Path | None, as_json: bool) -> None:
    if page is not None:
        sources = rows.sources if isinstance(rows, Data) else rows
        write_atomically(page, changes_page(title, found, sources))
        say(f"written to {page}")
    if as_json:
        print_json(
            {
                "summary": str(found),
                "rows": found.rows,
                "changed": len(found),
                "test_rows": found.test_rows,
                "now_right": found.now_right,
                "now_wrong": found.now_wrong,
                "changes": [{"id": c.id, "was": _answer(c.was), "now": _answer(c.now)} for c in found.items],
            }
        )
        return
    typer.echo(visible(str(found)))
    if found.items:
        cells = [
            [
                c.id,
                c.was.shown,
                f"{c.was.probability:.3f}",
                c.now.shown,
                f"{c.now.probability:.3f}",
                _verdict(c.id, found),
            ]
            for c in found.items[:_SHOWN]
        ]
        print_table(["row", "was", "p", "is", "p", ""], cells)


def _verdict(name: str, found: Changes) -> str:
    return "now right" if name in found.now_right else "now wrong" if name in found.now_wrong else ""


def _answer(answer: Answer) -> dict[str, Any]:
    return {"label": answer.label, "probability": answer.probability, "novelty": answer.novelty}
