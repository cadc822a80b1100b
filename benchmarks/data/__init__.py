"""Data sets, one module each: a module `NAME` of this package with `load(folder)`, a recipe `PICTURES`, or both."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np


@dataclass(frozen=True)
class Dataset:
    """Features (n, d) as float32, labels 0 … C−1 and their names; `oos`: queries that belong to no class."""

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    names: tuple[str, ...]
    oos: np.ndarray | None = None


def modules() -> dict[str, ModuleType]:
    """The modules of this package by their names."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


@functools.cache
def load(name: str, folder: str | Path) -> Dataset:
    """The data set called `name`, of features; read once a process."""
    readers = {each: module.load for each, module in modules().items() if hasattr(module, "load")}
    if name not in readers:
        raise ValueError(f"There is no data set {name!r}; there are {', '.join(readers)}.")
    return readers[name](Path(folder))


def about() -> Iterator[str]:
    """A line of Markdown for each data set: its docstring."""
    for name, module in modules().items():
        yield f"- `{name}`: {' '.join(inspect.cleandoc(module.__doc__ or '').split())}"


def draw(dataset: Dataset, classes: int | None, shots: int | None, seed: int) -> Dataset:
    """A few-shot task: `classes` random classes, `shots` random training rows of each, all their test rows.

    None means all. Labels are kept. A class with fewer rows than `shots` gives what it has. The draws are
    fixed: permute the classes, keep the first; then, class by class in that order, permute its rows and keep
    the first.
    """
    total = len(dataset.names)
    if classes is not None and not 1 <= classes <= total:
        raise ValueError(f"{dataset.name} has {total} classes; {classes} cannot be drawn.")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(total)[:classes]
    rows = np.concatenate([rng.permutation(np.flatnonzero(dataset.train_y == c))[:shots] for c in chosen])
    test = np.isin(dataset.test_y, chosen)
    return replace(
        dataset,
        train_x=dataset.train_x[rows],
        train_y=dataset.train_y[rows],
        test_x=dataset.test_x[test],
        test_y=dataset.test_y[test],
    )


def text_features(name: str, arrays: dict[str, np.ndarray]) -> Dataset:
    """The data set of arrays `train_x`, `train_y`, `test_x`, `test_y` and `names`."""
    x = {part: arrays[f"{part}_x"].astype(np.float32) for part in ("train", "test")}
    y = {part: arrays[f"{part}_y"].astype(int) for part in ("train", "test")}
    return Dataset(name, x["train"], y["train"], x["test"], y["test"], tuple(map(str, arrays["names"])))


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Arrays of an .npz file; a missing one is named."""
    wanted = f"{path.name} should be a NumPy .npz file with the arrays {', '.join(names)}"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. {wanted}. Name its folder with --data DIR.")
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in names if name not in file.files]
        if missing:
            raise ValueError(f"{path} lacks {', '.join(missing)}. {wanted}.")
        return {name: file[name] for name in names}
