"""Numbers about a model for the page, with the charts of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gptree.project.checks import suspects_of
from gptree.protocols.markup import inline_svg
from gptree.protocols.plots import draw_confusion, plot_reliability
from gptree.studio.views import Json, View, finite
from gptree.tree.text import shorten

if TYPE_CHECKING:
    from gptree.project import Quality

_SUSPECTS, _DUPLICATES, _CHART_CLASSES, _PAIRS = 12, 20, 10, 15


def quality_json(quality: Quality, view: View) -> Json:
    """What the page shows of quality."""
    return finite(
        {
            "version": view.version,
            "source": {"test": "test", "left out": "left-out"}.get(quality.source, "none"),
            "note": quality.note,
            "rows": quality.rows,
            "unknown": quality.unknown,
            "accuracy": float(quality.accuracy),
            "nll": float(quality.nll),
            "ece": float(quality.ece),
            "charts": _charts(quality) if quality.rows else [],
            "confusions": [
                {"truth": str(each.true), "answer": str(each.predicted), "count": int(each.count)}
                for each in quality.confusions[:_PAIRS]
            ],
            "classes": [
                {"name": str(each.label), "rows": int(each.rows), "right": int(each.right)} for each in quality.classes
            ],
            "suspects": suspects(view),
            "duplicates": duplicates(view),
        }
    )


def _charts(quality: Quality) -> list[Json]:
    from matplotlib.figure import Figure

    charts = []
    if quality.reliability is not None:
        figure = Figure(figsize=(4.2, 4.6), layout="constrained")
        plot_reliability(quality.reliability, figure.subplots())
        charts.append({"title": "Is it as sure as it should be?", "svg": _svg(figure, "reliability")})
    if quality.confusions:
        labels = list(dict.fromkeys(label for each in quality.confusions for label in (each[0], each[1])))[
            :_CHART_CLASSES
        ]
        counts = np.zeros((len(labels), len(labels)), dtype=int)
        for each in quality.confusions:
            if each[0] in labels and each[1] in labels:
                counts[labels.index(each[0]), labels.index(each[1])] = each.count
        figure = Figure(figsize=(4.2, 4.2), layout="constrained")
        names = [shorten(str(label), 14) for label in labels]
        draw_confusion(figure.subplots(), counts, names, [False] * len(labels))
        title = "What is taken for what (a row is the truth)"
        charts.append({"title": title, "svg": _svg(figure, "confusion")})
    return charts


def _svg(figure: Any, key: str) -> str:
    """The figure with its styles under another name: the page's policy allows none in markup, and takes them over."""
    drawn = inline_svg(figure, key, role="presentation", xmlns="http://www.w3.org/2000/svg")
    return drawn.replace(' style="', ' data-style="')


def suspects(view: View) -> list[Json]:
    """Taught examples whose labels are probably wrong."""
    if view.model is None or len(view.number) < 2:
        return []
    found = [each for each in suspects_of(view.model) if each.id in view.row_of]
    return [
        {
            "example": view.example(view.row_of[each.id]),
            "given": str(each.label),
            "p": each.probability,
            "instead": str(each.answer),
        }
        for each in found[:_SUSPECTS]
    ]


def duplicates(view: View) -> list[Json]:
    """Examples of one content; those with two labels first."""
    by_content: dict[str, list[Any]] = {}
    for example in view.examples:
        by_content.setdefault(example.key, []).append(example)
    found = []
    for group in by_content.values():
        if len(group) > 1:
            labels = sorted({str(each.label) for each in group if each.label is not None})
            found.append({"ids": [each.id for each in group[:5]], "labels": labels})
    return sorted(found, key=lambda each: -len(each["labels"]))[:_DUPLICATES]
