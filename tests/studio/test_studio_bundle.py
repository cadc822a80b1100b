"""The built page is that of the sources; node is not needed to see that."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB, STATIC = ROOT / "web", ROOT / "src" / "gptree" / "studio" / "static"


def test_the_bundle_was_built_from_these_sources() -> None:
    names = ["index.html", "style.css", "package.json", *(f"src/{path.name}" for path in (WEB / "src").iterdir())]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(name.encode() + b"\0" + (WEB / name).read_bytes() + b"\0")
    recorded = re.search(r"sources ([0-9a-f]{64})", (STATIC / "studio.js").read_text(encoding="utf-8"))
    assert recorded is not None
    assert recorded[1] == digest.hexdigest(), "the page is older than its sources: run make web"


def test_the_page_is_small_and_whole() -> None:
    sizes = {path.name: path.stat().st_size for path in STATIC.iterdir()}
    assert sorted(sizes) == ["icon.svg", "index.html", "studio.js", "style.css"]
    assert sum(sizes.values()) < 150_000
    assert (STATIC / "index.html").read_bytes() == (WEB / "index.html").read_bytes()
