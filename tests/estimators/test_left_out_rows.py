"""What a model says of its own examples, each left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gptree import GPTreeClassifier, Growth
from gptree.inference import InducingPosterior, SitesPosterior

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


@pytest.mark.parametrize("growth", [None, Growth(exemplars=2)])
def test_of_classes_of_one_row(growth: Growth | None) -> None:
    """Nodes hardly looked at them, so there is hardly anything to leave out."""
    n = 280 if growth is None else 520  # the root is seen through inducing points
    X = np.random.default_rng(4).normal(size=(n, 5))
    model = GPTreeClassifier(growth=growth, random_state=0).fit(X, np.arange(n))
    assert any(isinstance(p, InducingPosterior) for p in model.state_.model.predictor.posteriors)
    found = model.left_out().probabilities
    scores = model.state_.left_out[torch.arange(n)].log_softmax(1).numpy()
    assert np.abs(np.log(found) - scores).max() < 0.5  # it was 30


def test_new_nodes_know_what_their_rows_count_for() -> None:
    """All base examples of a class count for as much as the three of a novel one."""
    random = np.random.default_rng(5)
    centres, y = 3 * random.normal(size=(24, 6)), np.repeat(np.arange(24), [14] * 18 + [3] * 6)
    X = centres[y] + 0.5 * random.normal(size=(len(y), 6))
    model = GPTreeClassifier(growth=Growth(exemplars=14), random_state=0).fit(X[y < 18], y[y < 18])
    model.add_classes(X[y >= 18], y[y >= 18])
    root = model.state_.model.node_of[0][0]
    (posterior,) = (p for p in model.state_.model.predictor.posteriors if root in p.nodes)
    assert isinstance(posterior, SitesPosterior)
    assert posterior.b is not None
    at_root = posterior.b[(posterior.nodes == root).nonzero()[0, 0]]
    assert sorted(at_root.tolist()) == pytest.approx([3 / 14] * 18 * 14 + [1.0] * 6 * 3)
