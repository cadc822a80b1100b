"""A run folder as one HTML page that needs nothing else: no network, no scripts, light or dark as the reader likes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gptree.protocols.report_charts import confusion_chart, line_chart, reliability_chart, trade_off, tree_chart
from gptree.protocols.report_folder import Bin, Detail, Row, Run, read_run
from gptree.protocols.report_style import STYLE, Measure, element, escaped, legend, table
from gptree.protocols.run import BINS
from gptree.protocols.tables import Estimate, summary

_SHOWN_COMPLAINTS = 20
_CONFUSED_CLASSES = 10  # in the picture of confusions

_SUMMARY = (
    Measure("last", "Last accuracy", "%", 100, 1, higher_is_better=True),
    Measure("average", "Average accuracy", "%", 100, 1, higher_is_better=True),
    Measure("drop", "Drop", "%", 100, 1),
    Measure("harmonic_mean", "Harmonic mean", "%", 100, 1, higher_is_better=True),
    Measure("forgetting", "Forgetting", "%", 100, 1),
    Measure("nll", "NLL", decimals=3),
    Measure("ece", "ECE", "%", 100, 1),
    Measure("auroc", "Open AUROC", "%", 100, 1, higher_is_better=True),
    Measure("seconds", "Learning", "s"),
    Measure("bytes", "Memory", "kB", 1e-3),
)
_CURVES = (
    Measure("accuracy", "Accuracy on all classes seen", "%", 100, 1, higher_is_better=True),
    Measure("harmonic_mean", "Harmonic mean of base and novel", "%", 100, 1, higher_is_better=True),
    Measure("nll", "Negative log-likelihood (NLL)", decimals=3),
    Measure("ece", "Calibration error (ECE)", "%", 100, 1),
    Measure("open_auroc", "AUROC of classes still to come", "%", 100, 1, higher_is_better=True),
)
_BASE_NOVEL = (
    Measure("base_accuracy", "Accuracy on base classes", "%", 100, 1, higher_is_better=True),
    Measure("novel_accuracy", "Accuracy on novel classes", "%", 100, 1, higher_is_better=True),
)
_FORGETTING = Measure("forgetting", "Average forgetting", "%", 100, 1)
_AT_THE_END = Measure("", "Accuracy at the end, by session", "%", 100, 1, higher_is_better=True)
_COSTS = (
    Measure("seconds_add", "Learning", "s"),
    Measure("seconds_predict", "Prediction", "s"),
    Measure("bytes", "Memory", "kB", 1e-3),
)


def write_report(run_folder: str | Path, path: str | Path | None = None) -> Path:
    """Write the page about a run folder; returns its path, by default `report.html` in the folder.

    Damaged lines of the folder's files are left out, and the page says so.
    """
    run = read_run(Path(run_folder))
    path = Path(run_folder) / "report.html" if path is None else Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_page(run), encoding="utf-8")
    return path


def _page(run: Run) -> str:
    title = escaped(f"{run.data}: classes that keep arriving")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        # Nothing is loaded or run, whatever a label says.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{title}</title><style>{STYLE}</style>"
    )
    parts = (_facts, _complaints, _summary, _curves, _base_and_novel, _forgetting, _reliability, _confusion, _trees)
    main = element("main", element("h1", title), *(part(run) for part in (*parts, _sessions, _settings)))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{main}</body></html>\n'


def _section(heading: str, explanation: str, *parts: str) -> str:
    return element("section", element("h2", escaped(heading)), element("p", escaped(explanation)), *parts)


def _folded(title: str, *parts: str, is_open: bool = False) -> str:
    return element("details", element("summary", escaped(title)), *parts, open="" if is_open else None)


# ---------------------------------------------------------------------------------------------------- what was run


def _facts(run: Run) -> str:
    rows = run.all_rows
    base = sorted({row["classes"] for row in rows if row["session"] == 0})
    end = sorted({row["classes"] for row in rows if row["session"] == run.n_sessions - 1})
    facts = {
        "Data": run.data,
        "Sessions": f"{run.n_sessions}, from {_words(base)} classes in the base to {_words(end)}",
        "Methods": len(run.methods),
        "Seeds": _words(sorted({row["seed"] for row in rows})),
        **{key.capitalize(): _all_words(rows, key) for key in ("versions", "machine", "commit")},
    }
    items = (element("dt", escaped(name)) + element("dd", escaped(fact)) for name, fact in facts.items() if fact)
    return element("dl", *items)


def _all_words(rows: Iterable[Row], key: str) -> str:
    """What the rows say under a key, each thing once."""
    return "; ".join(dict.fromkeys(_words(row[key]) for row in rows if row.get(key)))


def _words(value: Any) -> str:
    """A value of JSON for people."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items() if item is not None)
    return ", ".join(_words(item) for item in value) if isinstance(value, list) else str(value)


def _complaints(run: Run) -> str:
    complaints = [
        *run.complaints,
        *(
            f"{method}, seed {seed}, has {n} of {run.n_sessions} sessions: it counts in the curves, not in the summary."
            for (method, seed), n in run.incomplete().items()
        ),
    ]
    if not complaints:
        return ""
    items = [element("li", escaped(complaint)) for complaint in complaints[:_SHOWN_COMPLAINTS]]
    if len(complaints) > _SHOWN_COMPLAINTS:
        items.append(element("li", f"… and {len(complaints) - _SHOWN_COMPLAINTS} more."))
    said = "This run has gaps. What follows leaves them out:"
    return element("div", element("strong", said), element("ul", *items), class_="damage", role="note")


def _settings(run: Run) -> str:
    rows = [
        [method.name, element("td", escaped(_all_words(found, "settings") or "–"), class_="text")]
        for method, found in run.rows.items()
    ]
    return element("section", _folded("Settings", table("Settings of every method", ["method", "settings"], rows)))


# ---------------------------------------------------------------------------------------------------------- numbers


def _summary(run: Run) -> str:
    complete = run.complete()
    found = {line["method"]: line for line in summary(complete)} if complete else {}
    lines = {}
    for method in run.methods:
        own = [row for row in complete if row["method"] == method.name]
        lines[method.name] = {**found.get(method.name, {"seeds": 0}), **_costs(own)}
    best = {measure.key: _best(measure, lines.values()) for measure in _SUMMARY}
    rows = []
    for name, line in lines.items():
        cells = [_cell(measure, line.get(measure.key), best[measure.key]) for measure in _SUMMARY]
        rows.append([name, element("td", str(line["seeds"])), *cells])
    header = ["method", "seeds", *(_head(measure, " ↑" if measure.higher_is_better else " ↓") for measure in _SUMMARY)]
    explanation = "Mean ± one standard error over seeds. The best mean is bold; ↑ and ↓ say where better numbers lie."
    meanings = (
        "Last accuracy, harmonic mean (of the accuracies on base and on novel classes), forgetting, NLL and ECE are "
        "those after the last session. Average accuracy: over the sessions. Drop: accuracy after the base session "
        "minus after the last. Open AUROC: how well the classes still to come are told from known ones, mean over the "
        "sessions that are followed by others. Learning: seconds of all sessions together. Memory: what is kept of the "
        "training data."
    )
    numbers = table("Every method over all sessions", header, rows)
    return _section("Summary", explanation, numbers, _folded("What the columns mean", element("p", meanings)))


def _costs(rows: Iterable[Row]) -> dict[str, Estimate | None]:
    """Seconds of learning over all sessions, and bytes after the last."""
    seconds: dict[int, float] = {}
    kept: dict[int, int | None] = {}
    for row in sorted(rows, key=lambda row: row["session"]):
        seconds[row["seed"]] = seconds.get(row["seed"], 0.0) + row["seconds_add"]
        kept[row["seed"]] = row["bytes"]
    return {"seconds": Estimate.of(seconds.values()), "bytes": Estimate.of(kept.values())}


def _best(measure: Measure, lines: Iterable[Mapping[str, Any]]) -> str | None:
    """The best of several means as it is shown: what looks the same is equally good."""
    means = [line[measure.key].mean for line in lines if line.get(measure.key) is not None]
    best: Callable[..., float] = max if measure.higher_is_better else min
    return measure.text(best(means)) if len(means) > 1 else None


def _head(measure: Measure, arrow: str = "") -> str:
    return f"{escaped(measure.title)} {element('small', measure.unit + arrow)}"


def _cell(measure: Measure, estimate: Estimate | None, best: str | None = None) -> str:
    if estimate is None:
        return element("td", "–")
    mean = measure.text(estimate.mean)
    return element("td", element("strong", mean) if mean == best else mean, element("small", measure.spread(estimate)))


def _curve(rows: Iterable[Row], key: str) -> dict[int, Estimate]:
    """The estimate of every session that has one."""
    by_session: dict[int, list[float | None]] = {}
    for row in rows:
        by_session.setdefault(row["session"], []).append(row[key])
    found = {session: Estimate.of(values) for session, values in sorted(by_session.items())}
    return {session: estimate for session, estimate in found.items() if estimate is not None}


def _sessions(run: Run) -> str:
    measures = (_CURVES[0], *_BASE_NOVEL, _CURVES[1], _FORGETTING, *_CURVES[2:], *_COSTS)
    tables = []
    for method, rows in run.rows.items():
        curves = {measure: _curve(rows, measure.key) for measure in measures}
        lines = []
        for session in sorted({row["session"] for row in rows}):
            classes = sorted({row["classes"] for row in rows if row["session"] == session})
            cells = (_cell(measure, curve.get(session)) for measure, curve in curves.items())
            lines.append([str(session), element("td", _words(classes)), *cells])
        header = ["session", "classes", *(_head(measure) for measure in measures)]
        tables.append(_folded(method.name, table(f"{method.name}, session by session", header, lines)))
    return _section("Session by session", "All numbers of the charts: mean ± one standard error over seeds.", *tables)


# ----------------------------------------------------------------------------------------------------------- charts


def _chart(run: Run, measure: Measure) -> str:
    """The measure over the sessions; nothing where no method has it."""
    curves = {method: _curve(rows, measure.key) for method, rows in run.rows.items()}
    curves = {method: curve for method, curve in curves.items() if curve}
    return line_chart(f"curve-{measure.key}", measure, curves) if curves else ""


def _charts(*charts: str) -> str:
    return element("div", *charts, class_="charts")


def _curves(run: Run) -> str:
    explanation = "Mean over seeds after every session; bars are one standard error to each side."
    if len({row["seed"] for row in run.all_rows}) == 1:
        explanation = "One seed, so there are no error bars."
    charts = _charts(*(_chart(run, measure) for measure in _CURVES))
    return _section("Curves", explanation, legend(run.methods), charts)


def _base_and_novel(run: Run) -> str:
    if run.n_sessions == 1:
        return ""
    curves = [{m: _curve(rows, measure.key) for m, rows in run.rows.items()} for measure in _BASE_NOVEL]
    last = run.n_sessions - 1
    ends = {m: (curves[0][m].get(last), curves[1][m].get(last)) for m in run.methods}
    points = {m: (base, novel) for m, (base, novel) in ends.items() if base is not None and novel is not None}
    scatter = trade_off("trade-off", "After the last session", points) if points else ""
    explanation = (
        "Who keeps the base often learns new classes badly, and the other way round. On the dotted lines the harmonic "
        "mean is the number written there, in %: up and to the right is better."
    )
    charts = _charts(scatter, *(_chart(run, measure) for measure in _BASE_NOVEL))
    return _section("Base against novel classes", explanation, legend(run.methods), charts)


def _forgetting(run: Run) -> str:
    if run.n_sessions == 1:
        return ""
    at_the_end = {}
    for method, rows in run.rows.items():
        last = [row["session_accuracy"] for row in rows if row["session"] == run.n_sessions - 1]
        found = {session: Estimate.of(values) for session, values in enumerate(zip(*last, strict=True))}
        if found:
            at_the_end[method] = found
    explanation = (
        "Forgetting: how far the accuracy on the classes of an earlier session lies below its best so far, on average "
        "over those sessions; below 0, later sessions helped. Beside it, what is left at the end of each session's "
        "classes."
    )
    left = line_chart("left", _AT_THE_END, at_the_end, "session that brought the classes") if at_the_end else ""
    return _section("Forgetting", explanation, legend(run.methods), _charts(_chart(run, _FORGETTING), left))


def _reliability(run: Run) -> str:
    bins = {method: _pooled(details) for method, details in run.details.items()}
    charts = [reliability_chart(f"reliability-{m.number}", m, pooled) for m, pooled in bins.items() if pooled]
    explanation = (
        "Accuracy over confidence after the last session, with the ECE, all seeds pooled. On the dotted line a model "
        "is as often right as it says; below, it is too sure; above, not sure enough. The bars at the foot show how "
        "many rows have that confidence."
    )
    if not charts:
        explanation = "The run folder has no details of the last session."
    return _section("Reliability", explanation, _charts(*charts))


def _pooled(details: Iterable[Detail]) -> list[Bin]:
    """The bins of all seeds together; bins hold their upper edge, and a mean lies in its bin."""
    pooled: dict[int, list[Bin]] = {}
    for detail in details:
        for one in detail.reliability:
            pooled.setdefault(math.ceil(one[0] * BINS - 1e-9), []).append(one)
    found = []
    for _, bins in sorted(pooled.items()):
        count = sum(n for *_, n in bins)
        found.append((sum(c * n for c, _, n in bins) / count, sum(a * n for _, a, n in bins) / count, count))
    return found


def _confusion(run: Run) -> str:
    charts = []
    for method, details in run.details.items():
        counts: Counter[tuple[Any, Any]] = Counter()
        for detail in details:
            for true, predicted, count in detail.confusion:
                counts[true, predicted] += count
        if not counts:
            continue
        ranked = dict.fromkeys(label for pair, _ in counts.most_common() for label in pair)
        novel = set.intersection(*({c for c, new in zip(d.labels, d.novel, strict=True) if new} for d in details))
        shown = list(ranked)[:_CONFUSED_CLASSES]
        charts.append(confusion_chart(f"confusion-{method.number}", method.name, counts, shown, novel))
    explanation = (
        "The classes that are taken for each other most often after the last session, counted over all seeds: a row is "
        "the true class, a column the predicted one, under the same letter or name. Classes with a dot were novel in "
        "every seed. Of each seed, the 40 most frequent mistakes are known."
    )
    return _section("Confusion", explanation, _charts(*charts)) if charts else ""


def _trees(run: Run) -> str:
    parts = []
    for method, details in run.details.items():
        detail = next((detail for detail in details if detail.tree is not None), None)
        if detail is None or detail.tree is None:
            continue
        novel = [c for c, new in enumerate(detail.novel) if new]
        title = f"{method.name}, seed {detail.seed}: {len(detail.labels)} classes, {len(novel)} of them novel"
        picture = tree_chart(f"tree-{method.number}", title, detail.tree, detail.labels, novel)
        parts.append(_folded(method.name, element("div", picture, class_="tree"), is_open=not parts))
    explanation = "The class tree after the last session, of the first seed. Novel classes are bold and red."
    return _section("Trees", explanation, *parts) if parts else ""
