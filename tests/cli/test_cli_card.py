"""Model cards: what they say of a model, and that nothing in a label becomes markup."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gptree import GPTreeClassifier, Growth

Run = Callable[..., Any]
TRICKY = "<script>alert(1)</script> | *b*"


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, then a third whose name tries to be markup."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(18, 5)) + 3 * np.repeat(np.eye(5)[:3], 6, 0)
    y = np.repeat(["ant", "bee", TRICKY], 6)
    model = GPTreeClassifier(growth=Growth(), random_state=0).fit(X[:12], y[:12])
    model.add_classes(X[12:], y[12:], note="from the field", author="Ada")
    folder = tmp_path_factory.mktemp("cards") / "insects"
    model.save(folder)
    np.savez(folder.with_name("test.npz"), X=X, y=y)
    return folder


def test_a_card_on_the_terminal(run: Run, grown: Path) -> None:
    text = run("card", grown).stdout
    assert text.startswith("# Model card: insects\n")
    counts = ("- classes: 3\n", "- sessions since: 1\n- changes since: 1\n", "12 examples of 2 classes")
    for fact in ("- kind: GPTreeClassifier\n", *counts):
        assert fact in text
    assert "- of the first fit: ant (5), bee (5)\n- of session 1: " in text
    assert "- encoder: not recorded" in text
    assert "each left out" in text  # no test rows were named
    assert ", by Ada: from the field\n" in text
    assert "\\<script\\>" in text
    assert "<script>" not in text
    assert "\\*b\\*" in text


def test_measured_on_given_rows(run: Run, grown: Path) -> None:
    text = run("card", grown, "--test", grown.with_name("test.npz")).stdout
    assert "Measured on 18 rows of test.npz." in text
    assert "- expected calibration error: " in text


def test_a_card_as_a_page(run: Run, grown: Path, tmp_path: Path) -> None:
    run("card", grown, "--out", tmp_path / "card.html")
    page = (tmp_path / "card.html").read_text(encoding="utf-8")
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(page)
    assert tags.count("h2") == 5
    assert "script" not in tags
    assert "insects" in page


@pytest.mark.parametrize(
    ("name", "reason"), [("card.pdf", "a .md or .html file"), ("no/card.md", "there is no folder")]
)
def test_files_that_cannot_be_written(run: Run, grown: Path, tmp_path: Path, name: str, reason: str) -> None:
    assert reason in run("card", grown, "--out", tmp_path / name, code=2).stderr
