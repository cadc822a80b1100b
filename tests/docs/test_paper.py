"""docs/paper.md and the tags in the code agree: `# paper (12)` stands where the page says, and nowhere else."""

from __future__ import annotations

import re

import pytest
from pages import ROOT, definitions

SOURCE = ROOT / "src" / "gptree"
PAGE = ROOT / "docs" / "paper.md"
EQUATIONS = [f"({n})" for n in range(1, 18)] + [f"(S{n})" for n in range(1, 6)]

_TOKEN = r"\((?:\d+|S\d)\)|section [\dA-D](?:\.\d)?|algorithm \d"
_TAG = re.compile(rf"#\s*paper\s+((?:{_TOKEN})(?:, (?:{_TOKEN}))*)")
_PLACE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")

Place = tuple[str, str]
"""A file and a qualified name in it."""


def tags(text: str) -> set[tuple[str, str]]:
    """Pairs of a token, such as "(12)", and the innermost function or class around its tag."""
    spans = definitions(text)
    pairs = set()
    for number, line in enumerate(text.splitlines(), start=1):
        for tag in _TAG.finditer(line):
            around = [name for name, (first, last) in spans.items() if first <= number <= last]
            place = max(around, key=lambda name: spans[name][0], default="")
            pairs.update((token, place) for token in re.findall(_TOKEN, tag[1]))
    return pairs


def tagged() -> set[tuple[str, Place]]:
    """All tags of the package."""
    return {
        (token, (path.relative_to(SOURCE).as_posix(), place))
        for path in SOURCE.rglob("*.py")
        for token, place in tags(path.read_text(encoding="utf-8"))
    }


def rows() -> list[tuple[str, Place, list[Place]]]:
    """The tables of the page: token, place in the code, tests. Those of equations stand below a heading with it."""
    entries, token = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = re.match(r"### (\([\dS]+\)) ", line)
            token = heading[1] if heading else ""
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        places = [place for cell in cells for place in _PLACE.findall(cell)]
        named = re.fullmatch(_TOKEN, cells[0]) if cells else None
        if len(places) > 1:  # a place and its tests; rows of the overview have no test
            entries.append((named[0] if named else token, places[0], places[1:]))
    return entries


def test_tags_and_page_agree() -> None:
    listed = {(token, place) for token, place, _ in rows()}
    assert listed == tagged()


def test_every_equation_is_on_the_page() -> None:
    on_page = [token for token, _, _ in rows()]
    assert [token for token in EQUATIONS if token not in on_page] == []
    assert "algorithm 1" in on_page
    headings = re.findall(r"^### (\([\dS]+\)) ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(headings) == sorted(EQUATIONS)


def test_every_test_on_the_page_exists() -> None:
    known: dict[str, set[str]] = {}
    for token, _, tests in rows():
        for file, name in tests:
            if file not in known:
                known[file] = set(definitions((ROOT / file).read_text(encoding="utf-8")))
            assert name in known[file], f"{token}: {file}::{name}"
            assert name.rpartition(".")[2].startswith("test_")


def test_the_overview_names_places_of_the_tables() -> None:
    overview = PAGE.read_text(encoding="utf-8").partition("\n## ")[0]
    places = _PLACE.findall(overview)
    assert len(places) >= 15
    assert set(places) <= {place for _, place, _ in rows()}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("def f():\n    # paper (12): α\n    return 1\n", {("(12)", "f")}),
        ("class A:\n    def g(self):\n        # paper (7), (S1)\n        pass\n", {("(7)", "A.g"), ("(S1)", "A.g")}),
        ("# paper section 3.1\n", {("section 3.1", "")}),
        ("x = 1  # the paper's section 3.2\n", set()),
    ],
)
def test_tags_are_found(text: str, pairs: set[tuple[str, str]]) -> None:
    assert tags(text) == pairs
