"""Features of Omniglot: the histograms against a loop, and the file from a small tree of pictures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.data import load, omniglot


def scrawls(n: int, seed: int = 0) -> np.ndarray:
    """Pictures (n, 105, 105) of a few thick strokes: True where ink is."""
    random, across = np.random.default_rng(seed), np.arange(105)
    ink = np.zeros((n, 105, 105), dtype=bool)
    for picture in ink:
        for slope, start in zip(random.uniform(-2, 2, 3), random.uniform(0, 105, 3), strict=True):
            picture |= np.abs(across[:, None] - start - slope * (across - 52)) < 3
    return ink


def slow_histograms(ink: np.ndarray) -> list[float]:
    """Of one picture, pixel by pixel."""
    grey = [[ink[3 * i : 3 * i + 3, 3 * j : 3 * j + 3].mean() for j in range(35)] for i in range(35)]
    cells = np.zeros((7, 7, 9))
    for i in range(35):
        for j in range(35):
            down = grey[i + 1][j] - grey[i - 1][j] if 0 < i < 34 else 0.0
            right = grey[i][j + 1] - grey[i][j - 1] if 0 < j < 34 else 0.0
            angle = math.degrees(math.atan2(down, right)) % 180
            lower = int(angle // 20)
            share = angle / 20 - lower
            cells[i // 5, j // 5, lower % 9] += (1 - share) * math.hypot(down, right)
            cells[i // 5, j // 5, (lower + 1) % 9] += share * math.hypot(down, right)
    found: list[float] = []
    for i in range(6):
        for j in range(6):
            block = np.concatenate([cells[i, j], cells[i, j + 1], cells[i + 1, j], cells[i + 1, j + 1]])
            for most in (0.2, math.inf):
                block = np.minimum(block / max(float(np.sqrt(block @ block)), 1e-6), most)
            found += block.tolist()
    return found


def test_histograms_are_those_of_a_loop() -> None:
    ink = np.concatenate([scrawls(2), np.zeros((1, 105, 105), dtype=bool)])
    found = omniglot.gradient_histograms(ink)
    np.testing.assert_allclose(found, [slow_histograms(picture) for picture in ink], atol=1e-10)
    assert not found[2].any()


def test_the_file_of_a_tree(tmp_path: Path) -> None:
    shape = scrawls(3)
    random = np.random.default_rng(1)
    for c, (part, name) in enumerate((("seen", "Greek/alpha"), ("unseen", "Runic/fehu"), ("seen", "Greek/beta"))):
        (tmp_path / part / name).mkdir(parents=True)
        for drawing in range(7):
            ink = shape[c] ^ (random.random((105, 105)) < 0.05)
            Image.fromarray(~ink).save(tmp_path / part / name / f"{drawing:02}.png")
    omniglot.main([str(tmp_path), str(tmp_path / "made" / omniglot.FILE)])
    data = load("omniglot", tmp_path / "made")
    assert data.names == ("Greek/alpha", "Greek/beta", "Runic/fehu")
    assert np.bincount(data.train_y).tolist() == [5, 5, 5]
    assert np.bincount(data.test_y).tolist() == [2, 2, 2]
    means = np.stack([data.train_x[data.train_y == c].mean(0) for c in range(3)])
    nearest = np.square(data.test_x[:, None] - means).sum(2).argmin(1)
    assert nearest.tolist() == data.test_y.tolist()  # rows and labels belong together
    np.testing.assert_allclose(data.train_x.mean(0), 0, atol=1e-3)  # components of the training rows


def test_other_trees_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\*/ALPHABET/CHARACTER"):
        omniglot.make(tmp_path)
    (tmp_path / "a/b/c").mkdir(parents=True)
    Image.new("1", (20, 30)).save(tmp_path / "a/b/c/1.png")
    with pytest.raises(ValueError, match="20 × 30 pixels, not 105"):
        omniglot.make(tmp_path)
