"""The tables of README and docs are those of the rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks import publish

PAGES = ("README.md", "docs/benchmarks.md", "docs/tables/heads.md")


def test_pages_show_what_the_rows_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {page: (publish.ROOT / page).read_text(encoding="utf-8") for page in PAGES}
    for page in PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(publish.ROOT / page, tmp_path / page)
    (tmp_path / "docs" / "pictures").mkdir()
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    publish.main()
    assert {page: (tmp_path / page).read_text(encoding="utf-8") for page in PAGES} == before


def test_the_best_as_shown_is_bold_and_what_was_not_measured_a_dash() -> None:
    nan = float("nan")
    cells = publish._cells([[77.16, 0.8896, 3.04], [77.2, 0.8645, 2.39], [nan, nan, nan]])
    assert cells == ["**77.2** / 0.890 / 3.0", "**77.2** / **0.865** / **2.4**", "–"]
