"""What can be opened: projects, models, folders of pictures, tables; and digits to try."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptree.studio.desk import Tell

if TYPE_CHECKING:
    from gptree.project import Project

DIGITS = "digits"
_SUFFIX = ".project"  # of the folder of a project beside what it was made from
_TABLES = (".csv", ".parquet", ".npz")
_PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
_LOOK_AT = 400  # files or folders, when the start screen looks for something to open
_BASE, _SHOTS, _WAITING, _TEST = 5, 20, 40, 20  # digits known at first, pictures of each; of all, in pool and test


def is_project(path: Path) -> bool:
    """Whether a folder holds a project; asked before anything heavy is imported."""
    return (path / "project.json").is_file()


def is_model(path: Path) -> bool:
    return (path / "model.json").is_file()


def opener(path: Path, author: str = "", **how: Any) -> Callable[[Tell], Project]:
    """A function that opens what is at a path; a project is made beside data or a model, if there is none yet.

    Parameters
    ----------
    path : Path
    author : str
    how
        For `Project.create`: encoder, weights, data (beside a model), test, hold_out.
    """
    if not path.exists():
        raise ValueError(f"{path}: there is no such file or folder.")

    def opened(tell: Tell) -> Project:
        tell("loading", 0, 0)
        from gptree.project import Project

        project = path if is_project(path) else path.with_name(path.name + _SUFFIX)
        if is_project(project):
            tell("loading the project", 0, 0)
            return Project.open(project)
        given = {name: value for name, value in how.items() if value is not None}
        data = {"model": path, **given} if is_model(path) else {"data": path, **given}

        def progress(done: int, of: int) -> None:
            tell("encoding", done, of) if done < of else tell("fitting the first model", 0, 0)

        return Project.create(project, **data, name=path.name, author=author, progress=progress)

    return opened


def digits_opener(root: Path, author: str = "") -> Callable[[Tell], Project]:
    """A function that opens the project of handwritten digits below the root, and makes it if it is not there."""

    def opened(tell: Tell) -> Project:
        tell("loading", 0, 0)
        from gptree.project import Project

        folder = root / f"{DIGITS}{_SUFFIX}"
        if is_project(folder):
            return Project.open(folder)
        pictures = root / DIGITS
        if pictures.exists():
            raise ValueError(f"{pictures} is in the way of the digits: start the studio in another folder.")
        tell("writing pictures of digits", 0, 0)
        write_digits(pictures)
        tell("fitting the first model", 0, 0)
        test = pictures / "test"
        return Project.create(folder, pictures / "train", test=test, encoder="pixels:8", name=DIGITS, author=author)

    return opened


def write_digits(folder: Path, seed: int = 0) -> None:
    """scikit-learn's handwritten digits as pictures: some of 0 to 4 with labels, all ten waiting, and a test set."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    grey = (255 - np.asarray(x) * (255 / 16)).round().astype(np.uint8).reshape(-1, 8, 8)
    order = np.random.default_rng(seed).permutation(len(y))
    for digit in range(10):
        rows = order[np.asarray(y)[order] == digit]
        parts = {"train/unlabelled": rows[_SHOTS : _SHOTS + _WAITING], f"test/{digit}": rows[-_TEST:]}
        if digit < _BASE:
            parts[f"train/{digit}"] = rows[:_SHOTS]
        for name, some in parts.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            for row in some:
                Image.fromarray(grey[row]).save(folder / name / f"{row:04}.png")


def found_below(root: Path) -> list[dict[str, str]]:
    """What the start screen offers: projects first, then models, tables and folders of pictures."""
    found = []
    for path in _entries(root):
        kind = _kind(path)
        if kind is not None:
            found.append({"name": path.name, "kind": kind[0], "path": path.name, "detail": kind[1]})
    order = ("project", "model", "pictures", "table")
    taken = {each["name"].removesuffix(_SUFFIX) for each in found if each["kind"] == "project"}
    rest = [each for each in found if each["kind"] == "project" or each["name"] not in taken]
    return sorted(rest, key=lambda each: (order.index(each["kind"]), each["name"]))


def _entries(folder: Path) -> list[Path]:
    some: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if len(some) >= _LOOK_AT:
                break
            if not entry.name.startswith((".", "_")) and not entry.is_symlink():
                some.append(Path(entry.path))
    return some


def _kind(path: Path) -> tuple[str, str] | None:
    if path.is_file():
        return ("table", path.suffix[1:]) if path.suffix.lower() in _TABLES else None
    if is_project(path):
        return "project", ""
    if is_model(path):
        return "model", ""
    classes = [each for each in _entries(path) if each.is_dir()]
    for each in classes[:8]:
        if any(file.suffix.lower() in _PICTURES for file in _entries(each)):
            return "pictures", f"{len(classes)} folders"
    return None
