"""The map: neighbours stay neighbours, newcomers stand among theirs, and what is kept on disk is found again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gptree.maths.sphere import unit_length
from gptree.project.folder import MAP
from gptree.studio import layout
from gptree.studio.layout import extended, first_layout, load_or_draw, placed


def groups(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return (8 * np.eye(10)[y] + rng.standard_normal((n, 10))).astype(np.float32), y


def test_groups_stay_together() -> None:
    X, y = groups(90)
    places = first_layout(X)
    assert places.dtype == np.float32
    assert places.min() >= 0
    assert places.max() <= 1
    centres = np.array([places[y == c].mean(0) for c in range(3)])
    nearest = ((places[:, None] - centres) ** 2).sum(2).argmin(1)
    assert (nearest == y).mean() > 0.97


def test_placed_is_the_weighted_mean_of_five_neighbours() -> None:
    """Against a loop."""
    X, _ = groups(30)
    known, new = unit_length(X[:20]), unit_length(X[20:])
    places = np.random.default_rng(1).random((20, 2)).astype(np.float32)
    for x, found in zip(new, placed(new, known, places), strict=True):
        order = sorted(range(20), key=lambda i: -float(x @ known[i]))[:5]
        weights = np.array([np.exp(20 * (x @ known[i] - x @ known[order[0]])) for i in order])
        expected = sum(w * places[i] for w, i in zip(weights, order, strict=True)) / weights.sum()
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_only_some_are_laid_out_and_the_rest_placed(monkeypatch) -> None:
    monkeypatch.setattr(layout, "MOST", 40)
    X, y = groups(120)
    places = first_layout(X)
    centres = np.array([places[y == c].mean(0) for c in range(3)])
    assert (((places[:, None] - centres) ** 2).sum(2).argmin(1) == y).mean() > 0.95


def test_newcomers_move_nobody_and_the_file_is_found_again(tmp_path: Path) -> None:
    X, _ = groups(60)
    ids = [f"e{i}" for i in range(60)]
    first = load_or_draw(tmp_path, ids[:50], X[:50])
    more = load_or_draw(tmp_path, ids, X)
    assert (more[:50] == first).all()
    assert (load_or_draw(tmp_path, ids, X) == more).all()
    assert extended(tmp_path, ids, X, more) is more
    (tmp_path / MAP).write_bytes(b"damaged")
    assert load_or_draw(tmp_path, ids[:50], X[:50]).shape == (50, 2)
    other = load_or_draw(tmp_path, ids[::-1], X[::-1])  # of another order: drawn anew
    assert other.shape == (60, 2)


def test_tiny_projects() -> None:
    for n in range(6):
        assert first_layout(np.eye(6)[:n]).shape == (n, 2)
