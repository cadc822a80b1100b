"""What every table as LaTeX must be."""

from __future__ import annotations

import re


def assert_sound(latex: str) -> None:
    """As far as it can be told without LaTeX: braces, maths and environments close, and columns are as many."""
    bare = re.sub(r"\\[\\{}$%&_#]", "", latex)  # what is escaped; line breaks too
    depth = 0
    for c in bare:
        depth += (c == "{") - (c == "}")
        assert depth >= 0, latex
    assert depth == 0, latex
    assert bare.count("$") % 2 == 0, latex
    assert not re.search(r"[_^%#~]", re.sub(r"\$[^$]*\$", "", bare)), latex
    opened = []
    for what, environment in re.findall(r"\\(begin|end){(\w+)}", latex):
        if what == "begin":
            opened.append(environment)
        else:
            assert opened.pop() == environment, latex
    assert not opened, latex
    for columns, body in re.findall(r"\\begin{tabular}{(\w+)}\n(.*?)\\end{tabular}", latex, re.DOTALL):
        lines = [line for line in body.splitlines() if not line.startswith(("\\toprule", "\\midrule", "\\bottomrule"))]
        for line in lines:
            assert line.endswith(r" \\"), line
            assert not line.startswith(("[", "*")), line
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1, line
