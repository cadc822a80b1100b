"""A run folder as one HTML page that needs nothing else: no network, no scripts, light or dark as the reader likes.

The charts are those of `gptree.protocols.plots` and `gptree.tree`, as inline SVG about as wide as a phone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from gptree.protocols.markup import element, escaped, folded, page, table
from gptree.protocols.report_charts import (
    base_and_novel_section,
    confusion_section,
    curves_section,
    forgetting_section,
    mistakes_section,
    reliability_section,
    trees_section,
)
from gptree.protocols.report_folder import Run, read_run
from gptree.protocols.report_numbers import sessions_section, summary_section, words
from gptree.protocols.rows import Row
from gptree.storage import locked, write_atomically

_COMPLAINTS = 20  # that the page prints


def write_report(run_folder: str | Path, path: str | Path | None = None) -> Path:
    """Write the page about a run folder.

    Lines of the folder's files that are damaged, or hold impossible numbers, are left out: the page says so, and a
    warning.

    Parameters
    ----------
    run_folder : path
        As `gptree fscil` and `RunFolder` write it.
    path : path or None
        Of the page, in a folder that exists; None is `report.html` in the run's folder.

    Returns
    -------
    Path
        Of the page.

    Examples
    --------
    >>> write_report("run")  # doctest: +SKIP
    PosixPath('run/report.html')
    """
    run = read_run(Path(run_folder))
    path = Path(run_folder) / "report.html" if path is None else Path(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's fonts count
        content = _page(run)
    is_beside = path.parent.resolve() == Path(run_folder).resolve()
    with locked(run_folder) if is_beside else nullcontext():
        write_atomically(path, content)
    if run.complaints:
        more = f" ({len(run.complaints) - 1} more on the page)" if len(run.complaints) > 1 else ""
        warnings.warn(f"{run.complaints[0]}{more}", stacklevel=2)
    return path


def _page(run: Run) -> str:
    parts = (
        _facts,
        _complaints,
        summary_section,
        curves_section,
        base_and_novel_section,
        forgetting_section,
        reliability_section,
        confusion_section,
        mistakes_section,
        trees_section,
        sessions_section,
        _settings,
    )
    return page(f"{run.data}: classes that keep arriving", *(part(run) for part in parts))


def _facts(run: Run) -> str:
    rows = run.all_rows
    base = sorted({row["classes"] for row in rows if row["session"] == 0})
    end = sorted({row["classes"] for row in rows if row["session"] == run.n_sessions - 1})
    facts = {
        "Data": run.data,
        "Sessions": f"{run.n_sessions}, from {words(base)} classes in the base to {words(end)}",
        "Methods": len(run.methods),
        "Seeds": words(sorted({row["seed"] for row in rows})),
        **{key.capitalize(): _all_words(rows, key) for key in ("versions", "machine", "commit")},
    }
    items = (element("dt", escaped(name)) + element("dd", escaped(fact)) for name, fact in facts.items() if fact)
    return element("dl", *items)


def _all_words(rows: Iterable[Row], key: str) -> str:
    """The different values of a key in the rows."""
    return "; ".join(dict.fromkeys(words(row[key]) for row in rows if row.get(key)))


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
    items = [element("li", escaped(complaint)) for complaint in complaints[:_COMPLAINTS]]
    if len(complaints) > _COMPLAINTS:
        items.append(element("li", f"… and {len(complaints) - _COMPLAINTS} more."))
    heading = element("strong", "This run has gaps, which are left out below:")
    return element("div", heading, element("ul", *items), class_="damage", role="note")


def _settings(run: Run) -> str:
    rows = [
        [method, element("td", escaped(_all_words(rows, "settings") or "–"), class_="text")]
        for method, rows in run.rows.items()
    ]
    return element("section", folded("Settings", table("Settings of every method", ["method", "settings"], rows)))
