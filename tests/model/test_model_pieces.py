"""How predictions, prior means and left-out predictions are cut into pieces that memory holds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from forest_cases import FIRST, SECOND, data, fit, kernel, new_points

from gptree.inference import CoordinateAscent, DensePosterior, Gibbs, InducingPoints
from gptree.model import leave_one_out, prior_means
from gptree.model.forest import ForestModel
from gptree.tree import ClassTree


def sizes(chunks: list[slice], n: int) -> list[int]:
    return [len(range(n)[chunk]) for chunk in chunks]


def test_new_points_at_a_time() -> None:
    """An eighth of the budget holds four times: draws of all nodes, rows in use, 2C for each tree and once more."""
    model = fit(Gibbs(chains=3), (FIRST, SECOND))  # 4 + 1 nodes: the trees differ at the root
    x = new_points(7)
    numbers = 4 * (3 * 5 + 35 + 2 * 5 * (1 + 2))
    for budget, expected in ((8 * 8 * numbers * 3, [3, 3, 1]), (8 * 8 * numbers * 3 - 1, [2, 2, 2, 1]), (1, [1] * 7)):
        assert sizes(replace(model, memory_budget=budget).chunks(x), 7) == expected


def test_training_rows_of_prior_means_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    odds = prior_means.node_log_odds
    monkeypatch.setattr(prior_means, "node_log_odds", lambda tree, s: seen.append(len(s)) or odds(tree, s))
    scores = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rows = [np.arange(7), np.array([1, 6])]
    whole = prior_means.training_log_odds(FIRST, scores, [0, 1], rows)
    for numbers, expected in ((30, [3, 3, 1]), (29, [2, 2, 2, 1]), (1, [1] * 7)):  # 2C = 10 a row
        monkeypatch.setattr(prior_means, "CHUNK_NUMBERS", numbers)
        seen.clear()
        assert all(map(torch.equal, prior_means.training_log_odds(FIRST, scores, [0, 1], rows), whole))
        assert seen == expected


def test_draws_of_left_out_predictions_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of an eighth of the budget holds the factors of so many draws."""
    model = fit(Gibbs(chains=5))
    posterior: Any = model.predictor.posteriors[0]
    seen: list[int] = []
    variance = DensePosterior.variance

    def counted(self: DensePosterior, factors: Any, cross: Any, prior: Any, draws: Any = slice(None)) -> Any:
        seen.append(len(factors))
        return variance(self, factors, cross, prior, draws)

    monkeypatch.setattr(DensePosterior, "variance", counted)
    whole = leave_one_out._kept_members(model, posterior, 10**9)
    assert seen == [5]
    for work, expected in ((6 * posterior.factor_numbers, [2, 2, 1]), (6 * posterior.factor_numbers - 1, [1] * 5)):
        seen.clear()
        pieces = leave_one_out._kept_members(model, posterior, work)
        assert seen == expected
        torch.testing.assert_close(pieces.variance, whole.variance)


def test_points_of_sparse_nodes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four arrays of inducing points × points in an eighth of the budget, of 8 bytes a number."""
    d = data()
    model = fit(CoordinateAscent(), with_data=d, large_nodes=InducingPoints(6))
    (posterior,) = [p for p in model.predictor.posteriors if p.kind == "sparse" and 0 in p.nodes.tolist()]
    places = leave_one_out._Places(model, torch.as_tensor(d.y))
    points = [len(places.members(node)) for node in posterior.nodes]
    assert points[posterior.nodes.tolist().index(0)] == 35
    m = posterior.rows.shape[1]
    for work, step in ((4 * m * 20, 20), (4 * m * 20 - 1, 19), (1, 1)):
        small = replace(model, memory_budget=8 * 8 * work)
        seen = [len(part.points) for part in leave_one_out._members(small, posterior, places)]
        assert seen == [min(step, n - start) for n in points for start in range(0, n, step)]


# ----------------------------------------------------------------------------------------------------------- novelty


def threshold_twin(novelty: list[float], y: list[int], reject: float) -> float:
    """Points one by one: each stands at the weight up to and with it, times n / (n + 1) for n equal ones."""
    counts = {c: y.count(c) for c in y}
    several = [(v, c) for v, c in zip(novelty, y, strict=True) if counts[c] > 1]
    used = sorted(several or zip(novelty, y, strict=True))
    weights = [1 / counts[c] for _, c in used]
    weights = [w / sum(weights) for w in weights]
    n = 1 / sum(w * w for w in weights)
    corners = [(0.0, 0.0)]
    for i, (value, _) in enumerate(used):
        corners.append((sum(weights[: i + 1]) * n / (n + 1), value))
    corners.append((1.0, 1.0))
    at = 1 - reject
    for (a, low), (b, high) in pairwise(corners):
        if a <= at <= b:
            return low + (high - low) * (at - a) / (b - a)
    raise AssertionError


@pytest.mark.parametrize("y", [[0, 0, 1, 1, 1, 2], [0, 1, 2, 3, 4, 5], [0, 0, 0, 0, 1, 1]])
@pytest.mark.parametrize("reject", [0.0, 0.05, 0.2, 0.5, 0.9, 1.0])
def test_the_threshold_of_novelty_equals_a_loop(y: list[int], reject: float) -> None:
    novelty = [0.3, 0.7, 0.1, 0.45, 0.9, 0.2]
    found = leave_one_out.novelty_threshold(np.array(novelty), np.array(y), reject)
    assert found == pytest.approx(threshold_twin(novelty, y, reject), abs=1e-12)


@pytest.mark.parametrize("reject", [-0.001, 1.001])
def test_a_share_lies_between_none_and_all(reject: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        leave_one_out.novelty_threshold(np.array([0.5, 0.5]), np.array([0, 0]), reject)


# ------------------------------------------------------------------------------------------------------- one decision


def test_a_forest_of_one_decision_each() -> None:
    """Two classes: the probability is the logistic function of the latent mean, whichever side a class is on."""
    labels = ["a", "b"]
    d = data()
    two = d.y < 2
    pair = replace(d, X=d.X[two], y=d.y[two], labels=labels)
    left = fit(CoordinateAscent(), (ClassTree.from_nested(["a", "b"], labels),), pair, kernel())
    right = fit(CoordinateAscent(), (ClassTree.from_nested(["b", "a"], labels),), pair, kernel())
    x = new_points()
    mean, _ = left.predictor.moments(x)
    expected = torch.stack([torch.sigmoid(mean[0]), torch.sigmoid(-mean[0])], 1)
    for model in (left, right):
        assert isinstance(model, ForestModel)
        torch.testing.assert_close(model.log_probabilities(x).exp(), expected)
