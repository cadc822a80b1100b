"""The built page is that of the sources; node is not needed to see that."""

from __future__ import annotations

import hashlib
import json
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
    assert sorted(sizes) == ["LICENSES.txt", "icon.svg", "index.html", "studio.js", "style.css"]
    assert sum(sizes.values()) < 150_000
    assert (STATIC / "index.html").read_bytes() == (WEB / "index.html").read_bytes()


def test_what_ships_is_our_own_or_has_its_licence() -> None:
    """LICENSES.txt says that nothing of others is bundled: then there is nothing to depend on but tools."""
    assert set(json.loads((WEB / "package.json").read_text())) & {"dependencies", "peerDependencies"} == set()
    assets = ROOT / "docs" / "assets"
    for vendored in (path for path in assets.iterdir() if path.is_dir()):
        assert "Permission is hereby granted, free of charge" in (vendored / "LICENSE").read_text(encoding="utf-8")
    fonts = {path.stem.partition("-")[0] for path in (assets / "katex" / "fonts").glob("*.woff2")}
    licence = (assets / "katex" / "fonts" / "OFL.txt").read_text(encoding="utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert [name for name in sorted(fonts) if name not in licence] == []
