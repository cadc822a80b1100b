"""How sure predictions are: one number, chosen on rows that were not trained on."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gptree.deep import Arrays, CrossEntropy, SparseHead, Training, TreeHead, convnet, train
from gptree.deep.sharpness import LEAST, MOST, best_sharpness
from gptree.maths.kernels import make_kernel
from gptree.tree import build_tree


@pytest.mark.parametrize("times", [0.3, 1.0, 4.0])
def test_finds_the_temperature_of_a_softmax(times: float) -> None:
    """Labels drawn from a softmax whose logits were multiplied: the search undoes it; a fine grid finds no better."""
    random = np.random.default_rng(3)
    logits = torch.as_tensor(random.normal(size=(4000, 5)) * 2)
    y = torch.as_tensor(np.array([random.choice(5, p=p) for p in logits.softmax(-1).numpy()]))

    found = best_sharpness(logits / times, y)

    def cost(sharpness: float) -> float:
        log_p = (sharpness * logits / times).log_softmax(-1).gather(1, y[:, None])
        return float(0.5 * math.log(sharpness) ** 2 - log_p.sum())

    assert cost(found) <= min(cost(s) for s in np.geomspace(LEAST, MOST, 400)) + 1e-3
    assert abs(math.log(found / times)) < 0.15  # about three standard errors of the maximum-likelihood estimate


def test_few_rows_that_are_all_right_do_not_call_for_certainty() -> None:
    scores, y = 3.0 * torch.eye(4, dtype=torch.float64).log_softmax(-1), torch.arange(4)
    assert 1.0 < best_sharpness(scores, y) < 2.0
    assert best_sharpness(scores.repeat(1000, 1), y.repeat(1000)) > 3.0


def a_head(C: int = 4, d: int = 3) -> tuple[TreeHead, torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(0)
    means = random.normal(size=(C, d))
    y = np.repeat(np.arange(C), 30)
    x = torch.as_tensor(means[y] + 0.6 * random.normal(size=(len(y), d)))
    head = TreeHead(
        build_tree(None, means, list(range(C)), 0),
        x[::6],
        torch.as_tensor(y[::6]),
        torch.full((C,), 30),
        make_kernel("rbf", 4.0),
        SparseHead(inducing=5),
    )
    head.refit(x, torch.as_tensor(y), 10)
    return head, x, torch.as_tensor(y)


def test_a_head_is_never_worse_for_it_where_it_was_chosen() -> None:
    head, x, y = a_head()
    before = -head.log_probabilities(x).gather(1, y[:, None]).mean()
    head.sharpen(x, y)
    after = -head.log_probabilities(x).gather(1, y[:, None]).mean()
    assert head.sharpness != 1.0
    assert after < before


def test_sharpness_is_a_power_of_the_class_probabilities() -> None:
    head, x, _ = a_head()
    plain = head.log_probabilities(x).exp()
    head.sharpness.fill_(2.5)
    by_hand = torch.stack([row**2.5 / (row**2.5).sum() for row in plain])
    torch.testing.assert_close(head.log_probabilities(x).exp(), by_hand)


def test_training_chooses_it_on_rows_held_back_only() -> None:
    random = np.random.default_rng(1)
    y = np.repeat(np.arange(3), 30)
    X = (random.normal(size=(3, 1, 6, 6))[y] + 1.5 * random.normal(size=(90, 1, 6, 6))).astype(np.float32)

    def trained(**changes: object) -> torch.Tensor:
        settings = {"epochs": 3, "cross_entropy_epochs": 3, "batch_size": 16, "objective": CrossEntropy(), **changes}
        given = {"held_out": (Arrays(X), y)} if settings.get("validation", 0) is None else {}
        network = convnet(1, width=4, depth=1, embedding=4)
        found = train(network, Arrays(X), y, ["a", "b", "c"], training=Training(**settings), device="cpu", **given)
        assert found.objective_layer is not None
        return found.objective_layer.sharpness

    assert trained(validation=0.2) != 1.0
    assert trained(validation=0.2, calibrate=False) == 1.0
    assert trained(validation=None) == 1.0  # rows that are only measured choose nothing
