"""Omniglot, 1,623 handwritten characters of 50 alphabets, 20 drawings of each: histograms of gradients, 256 numbers.

Lake, Salakhutdinov and Tenenbaum, Science 2015; MIT licence. File `omniglot_hog.npz`: `train_x`, five drawings of each
character chosen at random, `test_x`, the fifteen others, `train_y`, `test_y` and `names` (`ALPHABET/CHARACTER`). It is
made by `python -m benchmarks.data.omniglot TREE FILE` from black and white pictures of 105 × 105 pixels, files
`*/ALPHABET/CHARACTER/*.png` below TREE, as the public repository tensorfreitas/Siamese-Networks-for-One-Shot-Learning
holds them. The principal components are those of the training rows alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.decomposition import PCA

from benchmarks.data import Dataset, read_arrays, text_features

FILE = "omniglot_hog.npz"
SHOTS, COMPONENTS, SEED = 5, 256, 0
SIDE, SHRINK, CELL, DIRECTIONS = 105, 3, 5, 9
MOST = 0.2  # of a number of a block of unit length; larger ones are cut


def load(folder: Path) -> Dataset:
    return text_features("omniglot", read_arrays(folder / FILE, ("train_x", "train_y", "test_x", "test_y", "names")))


def gradient_histograms(ink: np.ndarray) -> np.ndarray:
    """Histograms of oriented gradients (Dalal and Triggs, 2005), (n, 1296), of pictures (n, 105, 105), 1 where ink is.

    Squares of 3 × 3 pixels are averaged, so that edges have more than eight directions. A cell of 5 × 5 averages is a
    histogram of nine directions without sign, each gradient shared by the two nearest; a block of 2 × 2 cells, at
    every place, has unit length, before and after numbers above 0.2 are cut.
    """
    n, side = len(ink), SIDE // SHRINK
    grey = ink.reshape(n, side, SHRINK, side, SHRINK).mean((2, 4))
    down, right = np.zeros((2, n, side, side))
    down[:, 1:-1] = grey[:, 2:] - grey[:, :-2]
    right[:, :, 1:-1] = grey[:, :, 2:] - grey[:, :, :-2]
    place = np.arctan2(down, right) % np.pi * (DIRECTIONS / np.pi)
    first, strength = np.floor(place), np.hypot(down, right)
    cells = side // CELL
    histograms = np.stack(
        [
            np.where(first % DIRECTIONS == k, strength * (1 - place + first), 0.0)
            + np.where((first + 1) % DIRECTIONS == k, strength * (place - first), 0.0)
            for k in range(DIRECTIONS)
        ],
        axis=-1,
    )
    histograms = histograms.reshape(n, cells, CELL, cells, CELL, DIRECTIONS).sum((2, 4))
    corners = (slice(None, -1), slice(1, None))
    blocks = np.concatenate([histograms[:, i, j] for i in corners for j in corners], axis=-1)
    return _unit(np.minimum(_unit(blocks), MOST)).reshape(n, -1)


def _unit(blocks: np.ndarray) -> np.ndarray:
    return blocks / np.maximum(np.linalg.norm(blocks, axis=-1, keepdims=True), 1e-6)


def make(tree: Path) -> dict[str, np.ndarray]:
    """The arrays of the file, from a tree of pictures."""
    characters: dict[str, list[Path]] = {}
    for file in sorted(tree.glob("*/*/*/*.png")):
        characters.setdefault(f"{file.parts[-3]}/{file.parts[-2]}", []).append(file)
    if not characters:
        raise ValueError(f"{tree} holds no picture: its files should be */ALPHABET/CHARACTER/*.png.")
    names = sorted(characters)
    random = np.random.default_rng(SEED)
    drawings = [[files[i] for i in random.permutation(len(files))] for files in map(characters.__getitem__, names)]
    parts = {"train": [files[:SHOTS] for files in drawings], "test": [files[SHOTS:] for files in drawings]}
    rows = {part: np.concatenate([_features(files) for files in each]) for part, each in parts.items()}
    pca = PCA(min(COMPONENTS, len(rows["train"])), svd_solver="full").fit(rows["train"])
    found = {"names": np.array(names)}
    for part, each in parts.items():
        found[f"{part}_x"] = pca.transform(rows[part]).astype(np.float16)
        found[f"{part}_y"] = np.repeat(np.arange(len(names), dtype=np.int16), [len(files) for files in each])
    return found


def _features(files: Sequence[Path]) -> np.ndarray:
    return gradient_histograms(np.stack([_ink(file) for file in files]))


def _ink(file: Path) -> np.ndarray:
    with Image.open(file) as picture:
        pixels = np.asarray(picture.convert("1"))
    if pixels.shape != (SIDE, SIDE):
        raise ValueError(f"{file} has {pixels.shape[1]} × {pixels.shape[0]} pixels, not {SIDE} × {SIDE}.")
    return ~pixels


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Features of Omniglot from its pictures.")
    parser.add_argument("tree", type=Path)
    parser.add_argument("file", type=Path)
    given = parser.parse_args(arguments)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {**make(given.tree)}
    np.savez(given.file, **arrays)
    print(f"{given.file}: {given.file.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
