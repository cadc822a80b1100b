"""What a model says of its own examples, each left out."""

from __future__ import annotations

import numpy as np
import pytest

from gptree import GPTreeClassifier, Growth

CENTRES = np.eye(3) * 4


def rows(count: int, seed: int, of: int = 2) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(np.arange(of), count)
    return CENTRES[y] + np.random.default_rng(seed).normal(0, 0.7, (len(y), 3)), np.array(["a", "b", "c"])[y]


def test_a_wrong_label_is_the_least_probable_one() -> None:
    """Whatever it was trained to say: at its own row the model itself gives the wrong label more."""
    X, y = rows(8, 0)
    y[3] = "b"
    model = GPTreeClassifier(random_state=0).fit(X, y, ids=[f"r{i}" for i in range(16)])
    found = model.left_out()
    assert sorted(found.ids) == sorted(f"r{i}" for i in range(16))
    given = found.probabilities[np.arange(16), found.y]
    assert found.ids[given.argmin()] == "r3"
    assert given.min() < 0.2
    assert model.predict_proba(X[3:4])[0, 1] > given.min()
    assert found.probabilities.sum(1) == pytest.approx(np.ones(16))


@pytest.mark.parametrize("growth", [None, Growth(exemplars=3)])
def test_of_a_grown_model_the_rows_in_memory(growth: Growth | None) -> None:
    X, y = rows(6, 1)
    model = GPTreeClassifier(growth=growth, random_state=0).fit(X, y, ids=[f"r{i}" for i in range(12)])
    new = rows(4, 2, 3)[0][8:]
    model.add_classes(new, ["c"] * 4, ids=[f"n{i}" for i in range(4)])
    found = model.left_out()
    assert {f"n{i}" for i in range(4)} < set(found.ids)
    assert found.probabilities.shape == (len(found.ids), 3)
    named = dict(zip([f"r{i}" for i in range(12)], y, strict=True)) | {f"n{i}": "c" for i in range(4)}
    assert model.classes_[found.y].tolist() == [named[name] for name in found.ids]
    assert (found.probabilities.argmax(1) == found.y).mean() > 0.8


def test_how_sure_decisions_are_by_a_loop() -> None:
    X, y = rows(5, 3, 3)
    model = GPTreeClassifier(random_state=0).fit(X, y)
    found, tree = model.left_out(), model.tree_
    expected = []
    for lo, mid, hi in zip(tree.lo, tree.mid, tree.hi, strict=True):
        left, right = set(tree.order[lo:mid].tolist()), set(tree.order[mid:hi].tolist())
        shares = []
        for p, c in zip(found.probabilities, found.y.tolist(), strict=True):
            if c in left | right:
                side = left if c in left else right
                shares.append(sum(p[k] for k in side) / sum(p[k] for k in left | right))
        expected.append(np.mean(shares))
    assert model.split_sureness() == pytest.approx(np.array(expected), abs=1e-12)
    assert min(expected) > 0.5
