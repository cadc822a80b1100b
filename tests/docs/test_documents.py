"""Everything that documents and examples show is executed: Python blocks, `gptree` commands, scripts, links."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from pages import EXAMPLES, PAGES, ROOT, anchors, blocks, definitions, differences, find_file, links, markers, places
from typer.testing import CliRunner

from gptree.cli.main import app
from gptree.embed import Encoder, Preprocessing
from gptree.embed.encoders import DEFAULTS

#: By how much printed numbers may differ from those on the page: rounding differs between machines.
TOLERANCE = 0.02
README_TOLERANCE = 0.005

pytestmark = pytest.mark.usefixtures("quick_pictures")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents write files where they run. Encoders that need no weights stand in for the default ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPTREE_CACHE", str(tmp_path / "cache"))
    small = Preprocessing(size=8)
    pixels = Encoder.of(lambda x: x.flatten(1), name="pixels/1", dimension=192, preprocessing=small)
    words = Encoder.of(word_counts, name="words/1", dimension=64, kind="text")
    monkeypatch.setitem(DEFAULTS, "image", pixels.name)
    monkeypatch.setitem(DEFAULTS, "text", words.name)


def word_counts(texts: list[str]) -> np.ndarray:
    counts = np.zeros((len(texts), 64))
    for row, text in zip(counts, texts, strict=True):
        np.add.at(row, [zlib.crc32(word.encode()) % 64 for word in re.findall(r"\w+", text.lower())], 1)
    return counts


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_runs_as_printed(page: Path) -> None:
    """The blocks of one page share one namespace and one folder, top to bottom."""
    tolerance = README_TOLERANCE if page.name == "README.md" else TOLERANCE
    namespace = {"__name__": "__main__"}
    for block in blocks(page):
        printed = io.StringIO()
        if block.language == "python":
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
        elif block.language == "sh":
            printed.write(run_commands(block.text))
        if block.shown is not None:
            wrong = differences(block.shown, printed.getvalue(), tolerance)
            assert not wrong, f"{name_of(page)}, line {block.line}: {wrong}\n\nprinted:\n{printed.getvalue()}"


def run_commands(text: str) -> str:
    """Run the lines that begin with `gptree`; what they print on stdout."""
    out = []
    for line in text.splitlines():
        command = shlex.split(line, comments=True)
        if command[:1] == ["gptree"]:
            result = CliRunner().invoke(app, command[1:])
            assert result.exit_code == 0, f"{line}: {result.output}"
            out.append(result.stdout)
    return "".join(out)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{name_of(page)}: {link}"
        assert not anchor or anchor in anchors(target), f"{name_of(page)}: no heading {link}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_places_in_the_code_exist(page: Path) -> None:
    for file, name in places(page):
        path = find_file(file)
        assert path is not None, f"{name_of(page)}: no file {file}"
        assert name in definitions(path.read_text(encoding="utf-8")), f"{name_of(page)}: no {name} in {file}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_tables_stand_between_markers(page: Path) -> None:
    """As the script that fills them needs it: in pairs, each on a line of its own, each name once."""
    lines = markers(page)
    opening, closing = lines[::2], lines[1::2]
    assert all(re.fullmatch(r"<!-- table:[\w-]+ -->", line) for line in opening), opening
    assert closing == ["<!-- /table -->"] * len(opening)
    assert len(set(opening)) == len(opening)


def test_numbers_of_when_not_to_use_it_are_measured() -> None:
    """Every number of a section is on a page of results that it links to, unless the paragraph says there is none."""
    page = ROOT / "docs" / "when-not-to-use.md"
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for section in prose.split("\n## ")[1:]:
        results = [page.parent / path for path in re.findall(r"\]\((results/[\w-]+\.md)", section)]
        measured = {number for path in results for number in re.findall(r"\d+\.\d+", path.read_text(encoding="utf-8"))}
        quoted = {
            number
            for paragraph in section.split("\n\n")
            if "no table" not in paragraph
            for number in re.findall(r"\d+\.\d+", paragraph)
        }
        assert quoted <= measured, f"{section.splitlines()[0]}: {sorted(quoted - measured)}"


@pytest.mark.parametrize("script", EXAMPLES, ids=name_of)
def test_examples_run(script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = []
    if script.name == "deep_digits.py":
        arguments = ["--epochs", "2"]
    if script.name == "draw_pictures.py":  # the others need nothing
        write_intents(Path("clinc150_minilm.npz"))
        arguments = ["--data", ".", "--out", "."]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()


def write_intents(path: Path, classes: int = 90, shots: int = 3) -> None:
    """A file of the form of CLINC150's: random embeddings of made-up intents."""
    y = np.repeat(np.arange(classes), shots)
    x = np.random.default_rng(0).standard_normal((len(y), 8)).astype(np.float16)
    np.savez(path, train_x=x, train_y=y, names=np.array([f"intent_{c}" for c in range(classes)]))


def test_differences_are_noticed() -> None:
    assert differences("p = 0.91\n", "p = 0.92", 0.02) == []
    assert differences("p = 0.91", "p = 0.94", 0.02) != []
    assert differences("p = 0.941", "p = 0.946", 0.005) == []
    assert differences("p = 0.941", "p = 0.947", 0.005) != []
    assert differences("a cat 0.91", "a dog 0.91", 0.02) != []
    assert differences("0.91", "0.91\n0.91", 0.02) != []
