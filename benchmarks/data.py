"""Data sets of features for the benchmarks, read from a folder that the user names."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split


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


@functools.cache
def load(name: str, folder: str | Path) -> Dataset:
    """The data set called `name`, one of `DATASETS`; read once a process."""
    if name not in DATASETS:
        raise ValueError(f"There is no data set {name!r}; there are {', '.join(DATASETS)}.")
    return DATASETS[name](Path(folder))


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


def clinc150(folder: Path) -> Dataset:
    """CLINC150 intents with out-of-scope test queries."""
    arrays = _arrays(folder / "clinc150_minilm.npz", (*TEXT_ARRAYS, "oos_test_x"))
    return replace(_text("clinc150", arrays), oos=arrays["oos_test_x"].astype(np.float32))


def banking77(folder: Path) -> Dataset:
    """Banking77 intents."""
    return _text("banking77", _arrays(folder / "banking77_minilm.npz", TEXT_ARRAYS))


def cub200(folder: Path) -> Dataset:
    """Birds of CUB-200-2011, official split."""
    arrays = _arrays(folder / "cub_efficientnet_lite2.npz", ("x", "y", "train", "path"))
    x, y, train = arrays["x"].astype(np.float32), arrays["y"].astype(int), arrays["train"]
    first = np.unique(y, return_index=True)[1]
    names = tuple(str(path).split("/")[0] for path in arrays["path"][first])
    return Dataset("cub200", x[train], y[train], x[~train], y[~train], names)


def digits(folder: Path) -> Dataset:
    """scikit-learn's digits in two stratified halves, always the same; nothing is read from the folder."""
    x, y = (np.asarray(array) for array in load_digits(return_X_y=True))
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=0)
    x = x.astype(np.float32)
    return Dataset("digits", x[train], y[train], x[test], y[test], tuple("0123456789"))


DATASETS: dict[str, Callable[[Path], Dataset]] = {
    "clinc150": clinc150,
    "banking77": banking77,
    "cub200": cub200,
    "digits": digits,
}

TEXT_ARRAYS = ("train_x", "train_y", "test_x", "test_y", "names")


def _text(name: str, arrays: dict[str, np.ndarray]) -> Dataset:
    x = {part: arrays[f"{part}_x"].astype(np.float32) for part in ("train", "test")}
    y = {part: arrays[f"{part}_y"].astype(int) for part in ("train", "test")}
    return Dataset(name, x["train"], y["train"], x["test"], y["test"], tuple(map(str, arrays["names"])))


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    wanted = f"{path.name} should be a NumPy .npz file with the arrays {', '.join(names)}"
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing. {wanted}. Name its folder with --data DIR.")
    with np.load(path, allow_pickle=False) as file:
        missing = [name for name in names if name not in file.files]
        if missing:
            raise ValueError(f"{path} lacks {', '.join(missing)}. {wanted}.")
        return {name: file[name] for name in names}
