"""Folders of pictures: a folder a class."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from gptree.embed.collection import Collection, Failure, Item, check_ids
from gptree.embed.tables import TableFile

#: Names of picture files end so.
SUFFIXES = {
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".avif", ".heic", ".heif"),
}
#: A table in the folder that says labels, with the columns path and label.
LABELS = "labels.csv"
#: Folders of pictures whose class is not known, beside those whose name begins with an underscore.
POOL = "unlabelled"

_CLUTTER = {"__macosx", "thumbs.db", "desktop.ini"}  # and everything hidden


class ImageFolder(Collection):
    """The pictures below a folder; a picture's label is the first folder on its path.

    Pictures in the folder itself, in `unlabelled` and in folders whose name begins with "_" have no label. A table
    `labels.csv` in the folder, with the columns `path` and `label`, takes the place of folder names for the pictures it
    names. Hidden files are not looked at. Links are followed to files inside the folder only. The order is that of the
    ids.

    Parameters
    ----------
    folder : path

    Raises
    ------
    ValueError
        If there is no such folder, no picture in it, or two classes whose names differ in case alone.

    Examples
    --------
    >>> data = ImageFolder("products")                          # doctest: +SKIP
    >>> [item.id for item in data.items][:2]                    # doctest: +SKIP
    ['cup/001.jpg', 'mug/017.jpg']
    """

    kind = "image"

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder).expanduser()
        if not self.path.is_dir():
            raise ValueError(f"{self.path} is not a folder: give the folder of the pictures, with a folder a class.")
        files, failed = _files(self.path)
        labels, unknown = _labels(self.path, {each.id for each in files})
        items = [Item(each.id, each.source, labels.get(each.id, each.label)) for each in files]
        if not items:
            why = f" ({failed[0].id}: {failed[0].reason})" if failed else ""
            raise ValueError(f"{self.path} holds no pictures{why}. Names of pictures end in .jpg, .png and the like.")
        check_ids(self.path, [item.id for item in items])
        _check_cases(self.path, {str(item.label) for item in items if item.label is not None})
        self.items = tuple(sorted(items, key=lambda item: item.id))
        self.failed = tuple(sorted([*failed, *unknown]))


def _files(root: Path) -> tuple[list[Item], list[Failure]]:
    """Pictures with the labels that folders give, and what is none."""
    inside, items, failed = root.resolve(), [], []
    empty: dict[str, bool] = {}  # whether a folder of the first level holds no picture
    for relative, entry in _walk(root, failed):
        name = unicodedata.normalize("NFC", relative)
        top = name.split("/")[0] if "/" in name else None
        if top is not None:
            empty.setdefault(top, True)
        if any("\ud800" <= character <= "\udfff" for character in name):
            failed.append(Failure(name.encode("utf-8", "backslashreplace").decode(), "its name is not UTF-8"))
            continue
        reason = _trouble(entry, inside)
        if reason is not None:
            if relative != LABELS:
                failed.append(Failure(name, reason))
            continue
        if top is not None:
            empty[top] = False
        label = None if top is None or top == POOL or top.startswith("_") else top
        items.append(Item(name, Path(entry.path), label))
    folders = {unicodedata.normalize("NFC", each.name) for each in os.scandir(root) if each.is_dir() and _counts(each)}
    nothing = [name for name in folders if empty.get(name, True) and not any(name == f.id for f in failed)]
    return items, failed + [Failure(name, "the folder holds no pictures") for name in nothing]


def _walk(root: Path, failed: list[Failure]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything below a folder but folders, with its path below it; links to folders are not entered."""
    waiting = [("", root)]
    while waiting:
        prefix, folder = waiting.pop()
        try:
            entries = [entry for entry in os.scandir(folder) if _counts(entry)]
        except OSError as error:
            failed.append(Failure(prefix.rstrip("/"), f"the folder cannot be read ({error.strerror})"))
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append((f"{prefix}{entry.name}/", Path(entry.path)))
            else:
                yield prefix + entry.name, entry


def _counts(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.name.lower() not in _CLUTTER


def _trouble(entry: os.DirEntry[str], inside: Path) -> str | None:
    """Why a file is no picture, as far as can be told without reading it."""
    if entry.is_symlink():
        target = Path(os.path.realpath(entry.path))
        if not target.exists():
            return "a link that leads nowhere"
        if not target.is_relative_to(inside):
            return "a link that leads out of the folder"
        if target.is_dir():
            return "a link to a folder"
    if not entry.is_file():
        return "not a file"
    suffix = os.path.splitext(entry.name)[1].lower()
    return None if suffix in SUFFIXES else "not a picture, by the end of its name"


def _labels(root: Path, ids: set[str]) -> tuple[dict[str, str], list[Failure]]:
    """Labels that the table in the folder gives, by id, and paths in it that are none."""
    table = root / LABELS
    if not table.is_file():
        return {}, []
    column = TableFile.read(table).column
    labels, unknown = {}, []
    for path, label in zip(column("path"), column("label"), strict=True):
        name = unicodedata.normalize("NFC", (path or "").strip().replace("\\", "/").removeprefix("./"))
        if name not in ids:
            unknown.append(Failure(name, f"{LABELS} names it, but there is no such picture"))
        elif label is not None and label.strip():
            labels[name] = unicodedata.normalize("NFC", label.strip())
    return labels, unknown


def _check_cases(root: Path, labels: set[str]) -> None:
    """A ValueError if two classes have one name in two cases: they are one class by mistake on most machines."""
    alike = defaultdict(list)
    for label in sorted(labels):
        alike[label.casefold()].append(label)
    twice = next((names for names in alike.values() if len(names) > 1), None)
    if twice is not None:
        raise ValueError(
            f"{root} has the classes {' and '.join(map(repr, twice))}, whose names differ in case alone: make one "
            "folder of them, or give one another name."
        )
