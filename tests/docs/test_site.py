"""The built site: it loads nothing from another host, and every link within it leads somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pages import ROOT

SITE = ROOT / "build" / "site"
#: Attributes whose address a browser loads by itself, by element; those of `a` are for the reader to follow.
LOADED = {
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "input": ("src",),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "track": ("src",),
    "video": ("src", "poster"),
}


class Page(HTMLParser):
    """What a page loads, the places it links to, and the places it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        self.loaded += [values[name] for name in LOADED.get(tag, ()) if name in values]
        self.loaded += re.findall(r"url\(([^)]+)\)", values.get("style", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def is_elsewhere(address: str) -> bool:
    """Whether an address names another host."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def dead_links(pages: dict[Path, Page]) -> list[str]:
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            known = pages[target].anchors if target in pages else set()
            if not target.exists() or (anchor and target.suffix == ".html" and anchor not in known):
                dead.append(f"{path.relative_to(SITE)}: {link}")
    return dead


@pytest.mark.skipif(find_spec("zensical") is None, reason="the builder of the site is not installed: run `make docs`")
def test_the_site_is_whole_and_asks_no_other_host() -> None:
    """One test, so that the site is built once."""
    built = subprocess.run([sys.executable, "docs/build.py"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in SITE.rglob("*.html") if path.name != "404.html"}
    assert len(pages) > 20
    elsewhere = [f"{p.relative_to(SITE)}: {a}" for p, page in pages.items() for a in page.loaded if is_elsewhere(a)]
    for sheet in SITE.rglob("*.css"):
        addresses = re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)", sheet.read_text(encoding="utf-8"))
        elsewhere += [f"{sheet.relative_to(SITE)}: {address}" for address in addresses if is_elsewhere(address)]
    assert not elsewhere
    assert not dead_links(pages)
    for package, names in public_names().items():
        page = pages[SITE / "api" / f"{package}.html"]
        described = {anchor.removeprefix(f"{package}.") for anchor in page.anchors if anchor.startswith(f"{package}.")}
        described |= {link.partition("#")[2].removeprefix("gptree.") for link in page.links}
        assert names <= described, f"{package}: {sorted(names - described)}"


def public_names() -> dict[str, set[str]]:
    """The names in `__all__` of gptree, and of its packages and modules of the first level."""
    top = ROOT / "src" / "gptree"
    names = {}
    for path in [top / "__init__.py", *top.glob("*/__init__.py"), *top.glob("[a-z]*.py")]:
        exported = re.search(r"^__all__ = (\[.*?\])", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        if exported:
            parts = path.relative_to(ROOT / "src").with_suffix("").parts
            name = ".".join(part for part in parts if part != "__init__")
            names[name] = {each for each in ast.literal_eval(exported[1]) if not each.startswith("__")}
    return names


def test_every_page_is_in_the_navigation() -> None:
    """Pages of docs/ and of the API reference, and no page that is not there; results link to each other."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"[\w./-]+\.md", text))
    for page in (ROOT / "docs" / "results").glob("*.md"):
        listed |= {f"results/{link}" for link in re.findall(r"\]\(([\w-]+\.md)", page.read_text(encoding="utf-8"))}
    written = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    generated = {"contributing.md", "security.md", "changelog.md", "api/index.md"}
    assert listed == written | generated | {f"api/{name}.md" for name in public_names()}


def test_readme_has_no_dead_links_outside_the_repository() -> None:
    """As it is packaged: every picture and link that is left names its host, or a heading of README itself."""
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]["hooks"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for substitution in hook["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(substitution["pattern"], substitution["replacement"], text)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|href)=\"([^\"]+)\"", prose)
    assert all(re.match(r"https?://|#", first or second) for first, second in targets), targets
    assert "docs/guide.md" in prose  # the pages are still named


def test_checks_notice_trouble() -> None:
    page = Page('<link href="https://fonts.example/a.css"><img src="a.png"><a id="here" href="https://x.org">x</a>')
    assert [a for a in page.loaded if is_elsewhere(a)] == ["https://fonts.example/a.css"]
    assert page.anchors == {"here"}
    assert is_elsewhere("//cdn.example/x.js")
    pages = {SITE / "a.html": Page('<a href="#no">x</a><a href="no.html">y</a>')}
    assert len(dead_links(pages)) == 2
