"""`gptree score` and `gptree check`: how good a model is, and what is wrong with data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree.cli import options
from gptree.cli.console import check_page, clear_errors, print_json, print_table, say, shows_progress, visible
from gptree.cli.data import read_data
from gptree.cli.encoding import Encoding
from gptree.cli.models import ability, open_model, read_for, score_cells, truth_of
from gptree.metrics import auroc, brier
from gptree.project import Project, is_project
from gptree.project.checks import Findings, findings
from gptree.project.pages import findings_page, quality_page
from gptree.project.quality import Quality, quality_of_test
from gptree.storage import DOCUMENT, write_atomically

_SHOWN = 10  # findings of a kind that are printed


@clear_errors
def score(
    model: options.Model,
    data: options.Data,
    page: options.Page = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    weights: options.Weights = None,
    as_json: options.Json = False,
) -> None:
    """Measure a model on labelled DATA: accuracy, NLL, calibration, reliability and confusions.

    Rows of classes that the model does not know are left out of these numbers; how well their novelty tells them from
    the others is the AUROC.
    """
    check_page(page)
    classifier = open_model(model)
    rows = read_for(classifier, data, features, labels, ids=ids, weights=weights, need_labels=True)
    classes = classifier.classes_.tolist()
    truth = truth_of(rows, classes)
    probabilities = classifier.predict_proba(rows.X)
    quality = quality_of_test(probabilities, truth, classes)
    assert quality is not None
    if not quality.rows:
        raise ValueError(f"{data} has no row of a class that the model knows: its labels begin with {truth[0]!r}.")
    known = np.array([label in set(classes) for label in truth])
    y = np.array([classes.index(label) for label in truth if label in set(classes)])
    numbers: dict[str, Any] = {
        "accuracy": quality.accuracy,
        "nll": quality.nll,
        "brier": brier(probabilities[known], y),
        "ece": quality.ece,
    }
    if not known.all() and hasattr(classifier, "novelty_score"):
        novelty = ability(classifier, "novelty_score")(rows.X)
        numbers["open_auroc"] = auroc(novelty[known], novelty[~known])
    worst = _worst(probabilities[known], y, classes, [name for name, k in zip(rows.ids, known, strict=True) if k])
    if page is not None:
        write_atomically(page, quality_page(f"{model} on {data}", quality, worst, rows.sources))
        say(f"written to {page}")
    if as_json:
        print_json(
            {
                "model": str(model),
                "data": str(data),
                "rows": quality.rows,
                "unknown": quality.unknown,
                "score": numbers,
                "confusions": [confusion._asdict() for confusion in quality.confusions],
                "classes": [each._asdict() for each in quality.classes],
                "reliability": _bins(quality),
                "worst": [dict(zip(_WORST, row, strict=True)) for row in worst[:100]],
            }
        )
        return
    cells = {"rows": f"{quality.rows:,}", **score_cells(numbers)}
    if "open_auroc" in numbers:
        cells |= {"of unknown classes": f"{quality.unknown:,}", "AUROC": f"{100 * numbers['open_auroc']:.1f} %"}
    print_table(["model", *cells], [[str(model), *cells.values()]])
    if quality.confusions:
        pairs = [[str(c.true), str(c.predicted), str(c.count)] for c in quality.confusions[:_SHOWN]]
        print_table(["true label", "taken for", "rows"], pairs)


_WORST = ("id", "label", "probability", "answer", "answer_probability")


def _worst(p: np.ndarray, y: np.ndarray, classes: list[Any], ids: list[str]) -> list[tuple[Any, ...]]:
    """Rows that are answered wrong, the least probable true label first."""
    own, answer = p[np.arange(len(y)), y], p.argmax(1)
    order = [i for i in np.argsort(own, kind="stable").tolist() if answer[i] != y[i]]
    return [(ids[i], classes[y[i]], float(own[i]), classes[answer[i]], float(p[i, answer[i]])) for i in order]


def _bins(quality: Quality) -> list[dict[str, Any]]:
    curve = quality.reliability
    assert curve is not None
    return [
        {"confidence": c, "accuracy": a, "rows": n}
        for c, a, n in zip(curve.confidence.tolist(), curve.accuracy.tolist(), curve.count.tolist(), strict=True)
        if n
    ]


@clear_errors
def check(
    data: Annotated[
        Path,
        typer.Argument(
            help="A folder of pictures, a table of texts, a file of vectors, or a project.",
            metavar="DATA",
            show_default=False,
        ),
    ],
    page: options.Page = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    encoder: options.Encoder = None,
    weights: options.Weights = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Look for trouble in data: labels that are probably wrong, duplicates, outliers, files that cannot be read.

    A label is judged by a forest that was not shown its row. Rows of equal content are exact duplicates, rows far
    nearer than rows usually are near ones; those with two labels come first. Nothing is changed.
    """
    check_page(page)
    if (data / DOCUMENT).is_file():
        raise ValueError(f"{data} is a model, which keeps vectors alone: give the data it was fitted to, or a project.")
    sources: dict[str, Path | str]
    if is_project(data):
        project = Project.open(data)
        found, sources = project.check(progress=shows_progress(as_json)), project.sources()
    else:
        encoding = Encoding(encoder, weights, download)
        rows = read_data(data, features, labels, ids=ids, need_labels=labels is not None, encoding=encoding)
        found = findings(*(rows.X, rows.labels, rows.ids, rows.contents, rows.failed), progress=shows_progress(as_json))
        sources = dict(rows.sources)
    if page is not None:
        write_atomically(page, findings_page(f"Check of {data}", found, sources))
        say(f"written to {page}")
    if as_json:
        print_json({"data": str(data), **_plain(found)})
        return
    typer.echo(visible(str(found)))
    _print_findings(found)


def _plain(found: Findings) -> dict[str, Any]:
    return {
        "rows": found.rows,
        "labelled": found.labelled,
        "classes": found.classes,
        "suspects": [each._asdict() for each in found.suspects],
        "duplicates": [{**each._asdict(), "disagree": each.disagree} for each in found.twins],
        "outliers": [each._asdict() for each in found.outliers],
        "alone": found.alone,
        "failed": [each._asdict() for each in found.failed],
    }


def _print_findings(found: Findings) -> None:
    """The first of every kind; the page has more."""
    if found.suspects:
        rows = [
            [s.id, str(s.label), f"{s.probability:.3f}", str(s.answer), f"{s.answer_probability:.3f}"]
            for s in found.suspects[:_SHOWN]
        ]
        print_table(["probably wrong", "label", "p", "looks like", "p"], rows)
    if found.twins:
        rows = [
            [
                " = ".join(each.ids[:4]) + (" = …" if len(each.ids) > 4 else ""),
                ", ".join(dict.fromkeys("–" if label is None else str(label) for label in each.labels)),
                "exact" if each.exact else "near",
            ]
            for each in found.twins[:_SHOWN]
        ]
        print_table(["duplicates", "labels", ""], rows)
    if found.outliers:
        rows = [
            [o.id, "–" if o.label is None else str(o.label), f"{o.deviations:.1f}"] for o in found.outliers[:_SHOWN]
        ]
        print_table(["outliers", "label", "deviations"], rows)
    if found.failed:
        print_table(["not read", "why"], [[each.id, each.reason] for each in found.failed[:_SHOWN]])
