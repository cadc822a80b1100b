"""Pages about the quality of a model, and about trouble in data: HTML that needs nothing else."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gptree.embed.pictures import UnreadableError, decoded, read_file
from gptree.project.answers import Changes
from gptree.project.checks import Findings
from gptree.project.quality import Quality
from gptree.protocols.markup import (
    axes,
    charts,
    element,
    escaped,
    figure_element,
    folded,
    one_line,
    page,
    section,
    table,
)
from gptree.protocols.plots import draw_confusion, plot_reliability
from gptree.tree.text import shorten

_CLASSES = 10  # in the picture of confusions
_NAME_WIDTH = 16  # characters of a class name beside it
_SHOWN = 100  # rows of a table
_TEXT = 240  # characters of a text
_SIDE = 96  # pixels of a small picture

#: What an example looks like, by its id: the path of a picture, a text, or None.
Sources = Mapping[str, Path | str]


def quality_page(title: str, quality: Quality, rows: Sequence[Sequence[Any]], sources: Sources) -> str:
    """A page about one model: numbers, reliability, confusions, classes, and the rows it got most wrong.

    Parameters
    ----------
    title : str
    quality : Quality
    rows : sequence of (id, true label, its probability, answer, the answer's probability)
    sources : see `Sources`
    """
    facts = {
        "Rows": f"{quality.rows:,}",
        "Accuracy": f"{100 * quality.accuracy:.1f} %",
        "NLL": f"{quality.nll:.3f}",
        "ECE": f"{100 * quality.ece:.1f} %",
        "Measured": quality.note,
    }
    items = (element("dt", escaped(name)) + element("dd", escaped(fact)) for name, fact in facts.items())
    worst = [
        [*_cells(name, sources), _text(truth), _number(p), _text(answer), _number(sure)]
        for name, truth, p, answer, sure in rows[:_SHOWN]
    ]
    parts = [
        element("dl", *items),
        _reliability(quality),
        _confusions(quality),
        _classes(quality),
        _listing(
            "Answers that are most wrong",
            "Rows whose true label has the least probability.",
            ["row", "", "true label", "p", "answer", "p"],
            worst,
            len(rows),
        ),
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts count
        return page(title, *parts, pictures=True)


def findings_page(title: str, found: Findings, sources: Sources) -> str:
    """A page about trouble in data.

    Parameters
    ----------
    title : str
    found : Findings
    sources : see `Sources`
    """
    suspects = [
        [*_cells(s.id, sources), _text(s.label), _number(s.probability), _text(s.answer), _number(s.answer_probability)]
        for s in found.suspects[:_SHOWN]
    ]
    twins = []
    for each in found.twins[:_SHOWN]:
        what = "two labels" if each.disagree else "exact" if each.exact else "near"
        others = "".join(_example(name, label, sources) for name, label in zip(each.ids, each.labels, strict=True))
        twins.append([what, element("td", element("div", others, class_="row")), _number(each.distance)])
    outliers = [
        [*_cells(each.id, sources), _text(each.label), _number(each.deviations, 1)] for each in found.outliers[:_SHOWN]
    ]
    failed = [[each.id, element("td", escaped(each.reason), class_="text")] for each in found.failed[:_SHOWN]]
    alone = ", ".join(map(one_line, found.alone[:_SHOWN]))
    return page(
        title,
        element("p", escaped(str(found))),
        _listing(
            "Labels that are probably wrong",
            "A model that was not shown the row gives its label little, and another class much. Not every one is a "
            "mistake: look at each.",
            ["row", "", "label", "p", "looks like", "p"],
            suspects,
            len(found.suspects),
        ),
        _listing(
            "Duplicates",
            "Rows of equal content, and rows far nearer to each other than rows usually are. Those with two labels "
            "come first. The distance is a share of the usual one to a nearest row.",
            ["kind", "rows", "distance"],
            twins,
            len(found.twins),
        ),
        _listing(
            "Outliers",
            "Rows far from all others, in robust standard deviations above the usual distance.",
            ["row", "", "label", "deviations"],
            outliers,
            len(found.outliers),
        ),
        _listing("Not read", "Files or texts that could not be used.", ["what", "why"], failed, len(found.failed)),
        section("Classes with one row", "Nothing can be said about their labels.", element("p", escaped(alone)))
        if alone
        else "",
        pictures=True,
    )


def changes_page(title: str, found: Changes, sources: Sources) -> str:
    """A page about answers that changed.

    Parameters
    ----------
    title : str
    found : Changes
    sources : see `Sources`
    """
    better, worse = set(found.now_right), set(found.now_wrong)
    rows = []
    for each in found.items[:_SHOWN]:
        verdict = "now right" if each.id in better else "now wrong" if each.id in worse else ""
        was, now = _text(each.was.shown), _text(each.now.shown)
        probabilities = _number(each.was.probability), _number(each.now.probability)
        rows.append([*_cells(each.id, sources), was, probabilities[0], now, probabilities[1], _text(verdict)])
    header = ["row", "", "was", "p", "is", "p", "on test rows"]
    return page(
        title,
        element("p", escaped(str(found))),
        _listing("What changed", "The least sure of the new answers first.", header, rows, len(found)),
        pictures=True,
    )


# ------------------------------------------------------------------------------------------------------------ parts


def _reliability(quality: Quality) -> str:
    curve = quality.reliability
    if curve is None:
        return ""
    ax = axes(3.6, 4.4)
    plot_reliability(curve, ax)
    gap = np.nansum(curve.count * (curve.confidence - curve.accuracy))
    side = "more confident than accurate" if gap > 0 else "more accurate than confident"
    description = f"Accuracy over confidence in {np.sum(curve.count > 0)} bins, {quality.rows:,} rows; {side}."
    drawn = figure_element("reliability", f"ECE {100 * curve.ece:.1f} %", description, ax.figure.figure)
    explanation = (
        "Accuracy over confidence. On the dashed line the model is as often right as it is confident; below, it is too "
        "confident; above, not confident enough. The bars at the foot show how many rows have that confidence."
    )
    return section("Reliability", explanation, charts(drawn))


def _confusions(quality: Quality) -> str:
    if not quality.confusions:
        return ""
    counts = {(c.true, c.predicted): c.count for c in quality.confusions}
    labels = list(dict.fromkeys(label for pair in counts for label in pair))[:_CLASSES]
    ax = axes(4.0, 0.5 + 0.26 * len(labels))
    matrix = np.array([[counts.get((true, predicted), 0) for predicted in labels] for true in labels])
    names = [shorten(one_line(label), _NAME_WIDTH) for label in labels]
    draw_confusion(ax, matrix, names, [False] * len(labels))
    pairs = "; ".join(f"{c.true} taken for {c.predicted} {c.count} times" for c in quality.confusions[:_CLASSES])
    drawn = figure_element("confusion", "Most confused classes", f"{pairs}.", ax.figure.figure)
    rows = [[str(c.true), _text(c.predicted), element("td", str(c.count))] for c in quality.confusions]
    listed = table("The most frequent mistakes", ["true", "taken for", "rows"], rows)
    explanation = "Classes that are taken for each other most often: a row is the true class, a column the answer."
    return section("Confusions", explanation, charts(drawn), folded("As a table", listed))


def _classes(quality: Quality) -> str:
    ranked = sorted(quality.classes, key=lambda each: (each.right / max(each.rows, 1), -each.rows))
    rows = [
        [
            str(each.label),
            element("td", f"{each.rows:,}"),
            element("td", f"{100 * each.right / each.rows:.0f} %" if each.rows else "–"),
            element("td", f"{each.answered:,}"),
        ]
        for each in ranked
    ]
    listed = table("Every class, the worst first", ["class", "rows", "answered right", "is the answer"], rows)
    return section("Classes", f"{len(rows):,} classes.", folded("All classes", listed, is_open=len(rows) <= 20))


def _listing(heading: str, explanation: str, header: Sequence[str], rows: Sequence[Sequence[str]], total: int) -> str:
    if not rows:
        return ""
    more = f" The first {len(rows):,} of {total:,} are shown." if len(rows) < total else ""
    return section(heading, explanation + more, table(heading, header, rows))


def _cells(name: str, sources: Sources) -> list[str]:
    """The head of a row, and a cell with its picture or text."""
    return [name, element("td", _look(sources.get(name)), class_="look")]


def _example(name: str, label: Any, sources: Sources) -> str:
    said = f"{one_line(name)} · {'no label' if label is None else one_line(label)}"
    return element("div", _look(sources.get(name)), element("small", escaped(said)), class_="example")


def _look(source: Path | str | None) -> str:
    if source is None:
        return ""
    if isinstance(source, str):
        text = one_line(source[: 4 * _TEXT])
        return escaped(text if len(text) <= _TEXT else text[:_TEXT] + "…")
    try:
        picture = decoded(read_file(source)).convert("RGB")
    except (UnreadableError, OSError):
        return "(cannot be shown)"
    picture.thumbnail((_SIDE, _SIDE))
    file = io.BytesIO()
    picture.save(file, format="PNG")
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="" width="{picture.width}" height="{picture.height}" src="data:image/png;base64,{data}">'


def _text(value: Any) -> str:
    return element("td", "–" if value is None else escaped(value))


def _number(value: float, decimals: int = 3) -> str:
    return element("td", f"{value:.{decimals}f}")
