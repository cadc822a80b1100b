"""Documents as data: code blocks, links and places in the code; how printed output is compared with that shown."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"")
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_PLACE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text and the line on which that starts."""

    language: str
    text: str
    line: int
    shown: str | None
    """The text of a `text` block that follows with nothing but blank lines between: the output."""


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a document, in order."""
    text = page.read_text(encoding="utf-8")
    fences = list(_FENCE.finditer(text))
    result = []
    for i, match in enumerate(fences):
        after = fences[i + 1] if i + 1 < len(fences) else None
        output = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        line = text.count("\n", 0, match.start(2)) + 1
        result.append(Block(match[1], match[2], line, after[2] if after is not None and output else None))
    return result


def links(page: Path) -> list[str]:
    """Targets of links and pictures, outside of code."""
    prose = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return [first or second for first, second in _LINK.findall(prose)]


def places(page: Path) -> list[tuple[str, str]]:
    """Places in the code that a document names as `file.py::name`: file and qualified name."""
    return _PLACE.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))


def find_file(name: str) -> Path | None:
    """A Python file by its path from the root of the repository or, for short, from src/gptree."""
    return next((path for path in (ROOT / name, ROOT / "src" / "gptree" / name) if path.is_file()), None)


@cache
def definitions(text: str) -> dict[str, tuple[int, int]]:
    """First and last line of every function and class of a module, by qualified name."""
    lines: dict[str, tuple[int, int]] = {}
    stack: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
    while stack:
        prefix, parent = stack.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                lines[prefix + node.name] = (node.lineno, node.end_lineno or node.lineno)
                stack.append((f"{prefix}{node.name}.", node))
    return lines


def markers(page: Path) -> list[str]:
    """Lines with a comment that marks a table: `<!-- table:name -->` or `<!-- /table -->`."""
    return [line for line in page.read_text(encoding="utf-8").splitlines() if re.search(r"<!--\s*/?table", line)]


def anchors(page: Path) -> set[str]:
    """The names under which GitHub finds the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]  # a link is its text
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in words}


def differences(shown: str, printed: str, tolerance: float) -> list[str]:
    """Lines that differ: words must be equal, numbers with a decimal point differ by the tolerance at most."""
    old, new = (text.rstrip().splitlines() for text in (shown, printed))
    if len(old) != len(new):
        return [f"{len(old)} lines are shown, {len(new)} were printed"]
    return [f"{a!r} is shown, {b!r} was printed" for a, b in zip(old, new, strict=True) if not _alike(a, b, tolerance)]


def _alike(a: str, b: str, tolerance: float) -> bool:
    if _NUMBER.sub("#", a).split() != _NUMBER.sub("#", b).split():
        return False
    pairs = zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True)
    return all(abs(float(x) - float(y)) <= tolerance + 1e-9 for x, y in pairs)
