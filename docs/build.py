"""Builds the site: pages, API reference and source listings in build/docs, then HTML in build/site.

    make docs                          # or: python docs/build.py
    python docs/build.py --stage       # only build/docs, for another builder that reads mkdocs.yml

The pages of this folder are written for the repository host: formulas in ``math`` blocks, relative links to files of
the repository, code such as `tree/builders.py::TwoMeans.build` for a place in it. Staging turns formulas into what
KaTeX reads, and both kinds of links into links to listings of the files: the built site needs no other host.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STAGE, SITE = ROOT / "build" / "docs", ROOT / "build" / "site"

#: Documents at the root of the repository, and the pages that they become.
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}

_FENCE = re.compile(r"^(`{3,})(\w*)[^\n]*\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_PLACE = re.compile(r"(?<!\[)`([\w/]+\.py)::([\w.]+)`")


# ----------------------------------------------------------------------------------------------- places in the code


def first_lines(path: Path) -> dict[str, int]:
    """The line on which every class and function of a file begins, by qualified name."""
    lines: dict[str, int] = {}
    stack: list[tuple[str, ast.AST]] = [("", ast.parse(path.read_text(encoding="utf-8")))]
    while stack:
        prefix, parent = stack.pop()
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = prefix + node.name
                lines[name] = node.lineno
                stack.append((name + ".", node))
    return lines


def find_file(name: str) -> Path | None:
    """A Python file by its path from the root of the repository or, for short, from src/gptree."""
    for path in (ROOT / name, ROOT / "src" / "gptree" / name):
        if path.is_file():
            return path
    return None


# --------------------------------------------------------------------------------------------------------- staging


@dataclass
class Site:
    """The folder of staged pages, and the files whose listings they link to."""

    listed: set[Path] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)

    def stage(self) -> None:
        shutil.rmtree(STAGE, ignore_errors=True)
        left_out = shutil.ignore_patterns("*.py", "*.md", "templates", "__pycache__")
        shutil.copytree(ROOT / "docs", STAGE, ignore=left_out)
        for page in sorted((ROOT / "docs").rglob("*.md")):
            self.write(page, page.relative_to(ROOT / "docs").as_posix())
        for name, page in ROOT_PAGES.items():
            if name != "README.md":
                self.write(ROOT / name, page)
        for page, text in api_pages():
            with (STAGE / page).open("a", encoding="utf-8") as file:  # the index has an introduction
                file.write(text)
        self.listed.update((ROOT / "src" / "gptree").rglob("*.py"))
        for path in sorted(self.listed):
            write_listing(path)

    def write(self, source: Path, page: str) -> None:
        """Stage one document as a page."""
        target = STAGE / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.translate(source, page), encoding="utf-8")

    def translate(self, source: Path, page: str) -> str:
        text, parts, at = source.read_text(encoding="utf-8"), [], 0
        for fence in _FENCE.finditer(text):
            parts.append(self.prose(text[at : fence.start()], source, page))
            parts.append(f"$$\n{fence[3]}$$" if fence[2] == "math" else fence[0])
            at = fence.end()
        return "".join([*parts, self.prose(text[at:], source, page)])

    def prose(self, text: str, source: Path, page: str) -> str:
        text = _LINK.sub(lambda link: self.link(link[1], source, page), text)
        return _PLACE.sub(lambda place: self.place(place, page), text)

    def link(self, link: str, source: Path, page: str) -> str:
        """A link of a document, for the page that it becomes."""
        path, hash_, anchor = link.partition("#")
        if "://" in link or not path:
            return link
        target = (source.parent / path).resolve()
        if not target.exists():
            self.missing.append(f"{source.relative_to(ROOT)}: {link}")
            return link
        name = target.relative_to(ROOT).as_posix()
        if name in ROOT_PAGES:
            staged = ROOT_PAGES[name]
        elif name.startswith("docs/") and not name.endswith(".py"):
            staged = name.removeprefix("docs/")
        else:
            self.listed.add(target)
            staged = listing(target)
        return relative(staged, page) + hash_ + anchor

    def place(self, place: re.Match[str], page: str) -> str:
        """`file.py::name` as a link to its first line."""
        path = find_file(place[1])
        lines = {} if path is None else first_lines(path)
        if path is None or place[2] not in lines:
            self.missing.append(f"{page}: {place[0]}")
            return place[0]
        self.listed.add(path)
        shown = f"{path.name}::{place[2]}" if path.name.startswith("test_") else f"{place[1]}::{place[2]}"
        address = relative(listing(path), page).removesuffix(".md") + f".html#__codelineno-0-{lines[place[2]]}"
        # a narrow cell may break it after these; an underscore must not begin emphasis
        breakable = re.sub(r"(::|[/._])", r"\1<wbr>", shown).replace("_", "&#95;")
        return f'<a href="{address}"><code>{breakable}</code></a>'


def relative(target: str, page: str) -> str:
    return Path(os.path.relpath(target, Path(page).parent)).as_posix()


def listing(path: Path) -> str:
    """The page that lists a file or a folder."""
    name = path.relative_to(ROOT).as_posix().removeprefix("src/")
    return f"source/{name}.md"


def write_listing(path: Path) -> None:
    """A page with the lines of a file, or with the names in a folder."""
    target = STAGE / listing(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    name = path.relative_to(ROOT).as_posix()
    head = f"---\ntitle: {name}\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n# `{name}`\n\n"
    if path.is_dir():
        body = "\n".join(f"- `{child.name}`" for child in sorted(path.iterdir()) if child.name != "__pycache__")
    elif path.suffix in (".py", ".toml", ".yml"):
        language = {".py": "python", ".toml": "toml", ".yml": "yaml"}[path.suffix]
        body = f'````{language} linenums="1"\n{path.read_text(encoding="utf-8").rstrip()}\n````'
    else:
        body = f"A file of the repository, {path.stat().st_size:,} bytes."
    target.write_text(f"{head}{body}\n", encoding="utf-8")


# ----------------------------------------------------------------------------------------------------- API reference


@dataclass(frozen=True)
class Package:
    """A module whose `__all__` is public: its dotted name, its description and its names."""

    name: str
    description: str
    names: tuple[str, ...]

    @property
    def page(self) -> str:
        return f"api/{self.name}.md"


def packages() -> list[Package]:
    """gptree, and its packages and modules of the first level that have an `__all__`."""
    top = ROOT / "src" / "gptree"
    files = [top / "__init__.py", *sorted(top.glob("*/__init__.py")), *sorted(top.glob("[a-z]*.py"))]
    return [package for path in files if (package := read_package(path)) is not None]


def read_package(path: Path) -> Package | None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            names = tuple(each for each in ast.literal_eval(node.value) if not each.startswith("__"))
            return Package(name, (ast.get_docstring(tree) or "").strip(), names)
    return None


def api_pages() -> Iterator[tuple[str, str]]:
    """Page and text of the API reference: an index, and a page a package with every name of its `__all__`."""
    modules = packages()
    at_top = set(modules[0].names)
    lines = [""]
    for package in modules:
        title = package.description.splitlines()[0] if package.description else ""
        names = ", ".join(f"[`{name}`][{home(package, name, at_top)}]" for name in sorted(package.names, key=str.lower))
        lines.append(f"## [{package.name}]({Path(package.page).name})\n\n{title}\n\n{names}\n")
    yield "api/index.md", "\n".join(lines)
    for package in modules:
        here = [name for name in package.names if home(package, name, at_top) == f"{package.name}.{name}"]
        elsewhere = [name for name in package.names if name not in here]
        text = [f"# {package.name}\n\n{package.description}\n"]
        if elsewhere:
            links = ", ".join(f"[`{name}`][{home(package, name, at_top)}]" for name in elsewhere)
            text.append(f"Also here, and described on the page of `gptree`: {links}.\n")
        text += [f"::: {package.name}.{name}\n" for name in here]
        yield package.page, "\n".join(text)


def home(package: Package, name: str, at_top: set[str]) -> str:
    """Where a name is described: in gptree itself if it is exported there."""
    return f"gptree.{name}" if name in at_top else f"{package.name}.{name}"


# ------------------------------------------------------------------------------------------------------------ main


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the site in build/site.")
    parser.add_argument("--stage", action="store_true", help="only write the pages to build/docs")
    options = parser.parse_args()
    site = Site()
    site.stage()
    for text in site.missing:
        print(f"no such target: {text}", file=sys.stderr)
    if site.missing:
        sys.exit(1)
    if not options.stage:
        builder = Path(sys.executable).with_name("zensical")
        subprocess.run([str(builder), "build", "--clean", "--strict"], cwd=ROOT, check=True)
        print(f"open {SITE.relative_to(ROOT) / 'index.html'}")


if __name__ == "__main__":
    main()
