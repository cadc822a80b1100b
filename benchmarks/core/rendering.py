"""Tables as Markdown and as LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmarks.core.tables import Table

_NUMBER = re.compile(r"[-+−±≈<>≤≥]?\s*[\d.]+.*|[–—-]?")  # also "85.0 ± 5.0", "88.1 / 0.41", and nothing
_EMPHASIS = (
    (re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)"), r"\1"),  # links lose their address
    (re.compile(r"\*\*(.+?)\*\*"), r"\\textbf{\1}"),
    (re.compile(r"`([^`]+)`"), r"\\texttt{\1}"),
    (re.compile(r"(?<!\*)\*([^*\s][^*]*)\*"), r"\\emph{\1}"),
)
_SPECIAL = str.maketrans(
    {character: f"\\{character}" for character in "{}%&_#$"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "–": "--"}
    | {"±": r"$\pm$", "−": "$-$", "×": r"$\times$", "≤": r"$\le$", "≥": r"$\ge$", "→": r"$\rightarrow$"}
    | {"∞": r"$\infty$", "Δ": r"$\Delta$", "λ": r"$\lambda$", "½": r"$\frac{1}{2}$"}
)


def to_markdown(table: Table) -> str:
    """Title in bold, lines, and the note below. Columns of numbers stand to the right."""
    rule = ["---:" if right else "---" for right in _numeric(table)]
    cells = (table.columns, rule, *table.lines)
    texts = ([" ".join(cell.split()).replace("|", r"\|") for cell in line] for line in cells)
    lines = [f"| {' | '.join(line)} |" for line in texts]
    title = f"**{table.title}**" if table.title else ""
    return "\n\n".join(part for part in (title, "\n".join(lines), table.note) if part) + "\n"


def to_latex(table: Table, label: str = "") -> str:
    """A `table` with a caption; needs the package booktabs. Other than ASCII letters are left to a UTF-8 engine."""
    columns = "".join("r" if right else "l" for right in _numeric(table))
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.title)}}}",
        rf"\label{{{label}}}" if label else "",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_line(table.columns),
        r"\midrule",
        *map(_latex_line, table.lines),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\par\smallskip\footnotesize {latex_text(table.note)}" if table.note else "",
        r"\end{table}",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def latex_text(text: str) -> str:
    """Text with Markdown's emphasis as LaTeX, everything special escaped."""
    text = " ".join(text.split()).translate(_SPECIAL)
    for pattern, replacement in _EMPHASIS:
        text = pattern.sub(replacement, text)
    return text


def _latex_line(cells: Iterable[str]) -> str:
    texts = [latex_text(cell) for cell in cells]
    # At the beginning of a line a bracket or a star would be an argument of the line break before.
    texts[0] = f"{{}}{texts[0]}" if texts[0].startswith(("[", "*")) else texts[0]
    return " & ".join(texts) + r" \\"


def _numeric(table: Table) -> list[bool]:
    """For each column, whether it holds numbers; the first holds names."""
    for line in table.lines:
        if len(line) != len(table.columns):
            raise ValueError(
                f"table {table.title!r}: {len(line)} cells under {len(table.columns)} column titles: {line}."
            )
    columns = list(zip(*table.lines, strict=True)) or [()] * len(table.columns)
    return [
        i > 0 and all(_NUMBER.fullmatch(cell.replace("*", "").strip()) for cell in column)
        for i, column in enumerate(columns)
    ]
