"""What sessions hand on: shares of the memory budget, labels in an error, how wide the classes of the base were."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gptree import GPForestClassifier, Growth, load_model
from gptree.incremental import joined_kernels, memorised
from gptree.incremental.journal import _named
from gptree.incremental.memory import _twins
from gptree.maths.kernels import make_kernel, node_kernels

BUDGET = 2**25


pytestmark = [pytest.mark.usefixtures("few_random_features"), pytest.mark.filterwarnings("ignore")]


def test_every_model_of_a_session_has_the_same_shares_of_the_budget(tmp_path: Path) -> None:
    """A quarter for the Gram matrix, and an eighth for matrices at work, of 8 bytes a number."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(5), 7)
    X = random.normal(size=(5, 4))[y] + 0.5 * random.normal(size=(35, 4))
    model = GPForestClassifier(n_estimators=1, growth=Growth(exemplars=3), memory_budget=BUDGET, device="cpu")

    def check(model: GPForestClassifier) -> None:
        predictor = model.model_.predictor
        assert model.model_.memory_budget == BUDGET
        assert predictor.grams._cache_bytes == BUDGET // 4
        assert predictor._work == BUDGET // 64

    check(model.fit(X[y < 4], y[y < 4]))
    check(model.add_examples(X[:2], y[:2]))
    check(model.add_classes(X[y == 4], y[y == 4]))
    check(model.remove_classes([0]))
    check(model.remove_classes([4]))
    model.save(tmp_path / "model")
    check(load_model(tmp_path / "model"))


def test_twins_do_not_see_the_sign_of_zero() -> None:
    base: Any = SimpleNamespace(y=torch.tensor([0, 1, 0]), X=torch.tensor([[0.0, 1.0], [0.0, 2.0], [-0.0, 3.0]]))
    extra = torch.tensor([[-0.0, 1.0], [0.0, 3.0], [0.0, 2.0]])
    registry: Any = SimpleNamespace(base=[SimpleNamespace(number=0, extra=extra, origins=(0, 1, 2))])
    assert _twins(base, registry, 4).tolist() == [0, 2, -1, -1]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "the label 'a' is"),
        (2, "the labels 'a', 'b' are"),
        (5, "the labels 'a', 'b', 'c', 'd', 'e' are"),
        (6, "the labels 'a', 'b', 'c', 'd', 'e', … are"),
    ],
)
def test_five_labels_are_named(count: int, text: str) -> None:
    assert _named("abcdefgh"[:count]) == text


def twin_of_wider(base: list[float], novel: list[float]) -> float | None:
    """Means and deviations of logarithms, one after the other."""
    old, new = ([math.log(value) for value in values if value > 0] for values in (base, novel))
    if len(old) < 2 or not new:
        return None
    mean = sum(old) / len(old)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in old) / (len(old) - 1))
    difference = sum(new) / len(new) - mean
    error = math.sqrt(deviation**2 / len(old) + deviation**2 / len(new))
    return math.exp(difference) if difference > math.log(1.6) and difference > 3 * error else None


@pytest.mark.parametrize("seed", range(40))
def test_how_much_wider_new_classes_are_equals_a_loop(seed: int) -> None:
    random = np.random.default_rng(seed)
    base = np.exp(random.uniform(0.05, 0.6) * random.normal(size=random.integers(0, 6)))
    novel = np.exp(random.uniform(0.2, 1.6) + 0.2 * random.normal(size=random.integers(0, 4)))
    base[random.random(len(base)) < 0.2] = 0.0
    expected = twin_of_wider(base.tolist(), novel.tolist())
    found = memorised.wider(torch.as_tensor(base), torch.as_tensor(novel))
    assert (found or 0.0) == pytest.approx(expected or 0.0, rel=1e-12)


def test_spreads_of_classes_equal_a_loop() -> None:
    X, y = torch.as_tensor(np.random.default_rng(0).normal(size=(9, 3))), torch.tensor([0, 0, 0, 1, 1, 2, 4, 4, 4])
    expected = [float(X[y == c].var(0).sum()) if (y == c).sum() > 1 else 0.0 for c in range(5)]
    assert memorised.class_spreads(X, y, 5).tolist() == pytest.approx(expected, rel=1e-12)
    counts = torch.tensor([1, 3, 2, 2, 1, 4, 1, 1, 2])
    more, labels = X.repeat_interleave(counts, 0), y.repeat_interleave(counts)
    expected = [float(more[labels == c].var(0).sum()) if c in (0, 1, 4) else 0.0 for c in range(5)]
    assert memorised.class_spreads(X, y, 5, counts.double()).tolist() == pytest.approx(expected, rel=1e-12)
    light = memorised.class_spreads(X, y, 5, torch.full((9,), 0.2, dtype=torch.float64))  # Σ w (n − 1) / n of freedom
    assert light.tolist() == pytest.approx(memorised.class_spreads(X, y, 5).tolist(), rel=1e-12)


def test_kernels_of_old_and_new_nodes_side_by_side_are_learnt_no_further() -> None:
    old, new = (node_kernels(make_kernel("rbf", scale, 0.7), nodes) for scale, nodes in ((2.0, 3), (5.0, 1)))
    joined: Any = joined_kernels(old, new)
    assert joined.outputscale.tolist() == pytest.approx([2.0, 2.0, 2.0, 5.0], rel=1e-6)
    assert joined.batch_shape == joined.base_kernel.batch_shape == (4,)
    assert not any(parameter.requires_grad for parameter in joined.parameters())
    with pytest.raises(ValueError, match="must be of the same kind"):
        joined_kernels(old, node_kernels(make_kernel("matern52"), 1))
