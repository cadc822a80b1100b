"""Tables as Markdown and as LaTeX."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from collections.abc import Sequence

from benchmarks.experiment import Table

_NUMBER = re.compile(r"[-+−±≈<>≤≥]?\s*[\d.]+.*|[–—-]?")  # also "85.0 ± 5.0", "88.1 / 0.41", and nothing
_EMPHASIS = re.compile(r"\*\*(?P<bold>.+?)\*\*|(?<!\*)\*(?P<italic>[^*\s][^*]*)\*|`(?P<code>[^`]+)`")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)\s]*\)")

_TEXT = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "[": "{[}",  # at the beginning of a line it would be an argument of the line break before; so would a star
    "*": "{*}",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "‘": "`",
    "’": "'",
    "“": "``",
    "”": "''",
    "\u00a0": "~",
    "\u202f": r"\,",
}
_SYMBOLS = {
    "±": r"\pm",
    "×": r"\times",
    "·": r"\cdot",
    "−": "-",
    "→": r"\rightarrow",
    "←": r"\leftarrow",
    "↑": r"\uparrow",
    "↓": r"\downarrow",
    "≈": r"\approx",
    "≤": r"\le",
    "≥": r"\ge",
    "≠": r"\ne",
    "∞": r"\infty",
    "√": r"\surd",
    "°": r"{^{\circ}}",
    "½": r"\frac{1}{2}",
    "¼": r"\frac{1}{4}",
    "†": r"\dagger",
    "‡": r"\ddagger",
    **{letter: rf"\{unicodedata.name(letter).split()[-1].lower()}" for letter in "αβγδεζηθικμνξπρστυφχψω"},
    **{letter: rf"\{unicodedata.name(letter).split()[-1].capitalize()}" for letter in "ΓΔΘΞΠΣΥΦΨΩ"},
    "µ": r"\mu",  # the sign for micro
    "λ": r"\lambda",  # Unicode spells them "lamda"
    "Λ": r"\Lambda",
}
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-", strict=True))
_MATHS = re.compile(f"[{''.join((*_SYMBOLS, *_RAISED, *_LOWERED))}]+")


def quoted(table: Table) -> Table:
    """The table with a title that says that it is quoted."""
    if "quoted" in table.title.lower():
        return table
    return dataclasses.replace(table, title=f"{table.title} (quoted from the paper)")


def to_markdown(table: Table) -> str:
    """Title in bold, lines, and the note below. Columns of numbers stand to the right."""
    _check(table)
    rule = ["---:" if right else "---" for right in _numeric(table)]
    lines = [_markdown_line(line) for line in (table.head, rule, *table.lines)]
    return "\n\n".join(part for part in (f"**{table.title}**", "\n".join(lines), table.note) if part) + "\n"


def to_latex(table: Table, label: str = "") -> str:
    """A `table` with a caption; needs the package booktabs. Markdown's emphasis becomes LaTeX's."""
    _check(table)
    columns = "".join("r" if right else "l" for right in _numeric(table))
    body = [_latex_line(line) for line in table.lines]
    parts = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.title)}}}",
        rf"\label{{{label}}}" if label else "",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_line(table.head),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        rf"\par\smallskip\footnotesize {latex_text(table.note)}" if table.note else "",
        r"\end{table}",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def latex_text(text: str) -> str:
    """Text with Markdown's emphasis as LaTeX, everything special escaped; links lose their address."""
    text = _LINK.sub(r"\1", " ".join(text.split()))
    parts, end = [], 0
    for match in _EMPHASIS.finditer(text):
        parts.append(_escaped(text[end : match.start()]))
        if match["bold"]:
            parts.append(rf"\textbf{{{latex_text(match['bold'])}}}")
        elif match["italic"]:
            parts.append(rf"\emph{{{latex_text(match['italic'])}}}")
        else:
            parts.append(rf"\texttt{{{_escaped(match['code'])}}}")
        end = match.end()
    return "".join((*parts, _escaped(text[end:])))


def _escaped(text: str) -> str:
    parts, end = [], 0
    for match in _MATHS.finditer(text):
        parts.extend(_character(c) for c in text[end : match.start()])
        parts.append(f"${_maths(match[0])}$")
        end = match.end()
    return "".join((*parts, *(_character(c) for c in text[end:])))


def _maths(symbols: str) -> str:
    for sign, digits in (("^", _RAISED), ("_", _LOWERED)):
        pattern = f"[{''.join(digits)}]+"
        symbols = re.sub(pattern, lambda m, s=sign, d=digits: f"{s}{{{''.join(d[c] for c in m[0])}}}", symbols)
    return "".join(_SYMBOLS.get(c, c) for c in symbols)


def _character(c: str) -> str:
    if c in _TEXT:
        return _TEXT[c]
    if c.isascii() or "LATIN" in unicodedata.name(c, ""):
        return c
    raise ValueError(f"{c!r} ({unicodedata.name(c, 'no name')}) has no LaTeX here: add it to benchmarks/rendering.py.")


def _check(table: Table) -> None:
    for line in table.lines:
        if len(line) != len(table.head):
            raise ValueError(f"table {table.title!r}: {len(line)} cells under a head of {len(table.head)}: {line}.")


def _numeric(table: Table) -> list[bool]:
    """For each column, whether it holds numbers; the first holds names."""
    columns = list(zip(*table.lines, strict=True)) or [()] * len(table.head)
    return [
        i > 0 and all(_NUMBER.fullmatch(cell.replace("*", "").strip()) for cell in column)
        for i, column in enumerate(columns)
    ]


def _markdown_line(cells: Sequence[str]) -> str:
    texts = (" ".join(cell.split()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(latex_text(cell) for cell in cells) + r" \\"
