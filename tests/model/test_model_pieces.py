"""How predictions, prior means and left-out predictions are cut into pieces that memory holds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from forest_cases import FIRST, SECOND, data, fit, kernel, new_points

from gptree.inference import CoordinateAscent, DensePosterior, Gibbs, Grams, InducingPoints, SubsetOfData
from gptree.model import TrainingData, cavities, forest, leave_one_out, node_data, node_problems, prior_means
from gptree.model.forest import ForestModel
from gptree.model.prediction import Prediction
from gptree.model.stored import model_from_parts, model_to_parts
from gptree.storage import StorageError
from gptree.tree import ClassTree, ForestPaths

SWEPT = fit(CoordinateAscent())
LINEAR = fit(CoordinateAscent(), k=kernel("linear"))


def sizes(chunks: list[slice], n: int) -> list[int]:
    return [len(range(n)[chunk]) for chunk in chunks]


def test_new_points_at_a_time() -> None:
    """An eighth of the budget holds four times: draws of all nodes, rows in use, 2C for each tree and once more."""
    model = fit(Gibbs(chains=3), (FIRST, SECOND))  # 4 + 1 nodes: the trees differ at the root
    x = new_points(7)
    numbers = 4 * (3 * 5 + 35 + 2 * 5 * (1 + 2))
    for budget, expected in ((8 * 8 * numbers * 3, [3, 3, 1]), (8 * 8 * numbers * 3 - 1, [2, 2, 2, 1]), (1, [1] * 7)):
        assert sizes(replace(model, memory_budget=budget).chunks(x), 7) == expected


def test_a_processor_takes_no_more_than_its_cache_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, numbers = new_points(7), 4 * (4 + 35 + 2 * 5 * 2) + 10
    assert sizes(SWEPT.chunks(x, beside=10), 7) == [7]
    for least, expected in ((1, [3, 3, 1]), (4, [4, 3])):
        monkeypatch.setattr(forest, "PIECE_NUMBERS", 3 * numbers)
        monkeypatch.setattr(forest, "PIECE_ROWS", least)
        assert sizes(SWEPT.chunks(x, beside=10), 7) == expected


def test_features_far_from_the_origin_lose_no_digits() -> None:
    """Distances are those to the mean of the features: ten thousand away, nine digits of thirteen are left."""
    x = new_points()

    def prediction(far: float) -> Any:
        given = data()
        model = fit(CoordinateAscent(), with_data=replace(given, X=given.X + far))
        rows = Prediction(model, None, None, unit_length=False)
        return rows(x + far), rows(x + far, "quadrature"), model.log_probabilities(x + far)

    torch.testing.assert_close(prediction(1e4), prediction(0.0), rtol=0, atol=1e-9)


def test_training_rows_of_prior_means_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    odds = ForestPaths.log_odds
    monkeypatch.setattr(ForestPaths, "log_odds", lambda self, s: seen.append(len(s)) or odds(self, s))
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
    variance = DensePosterior.variance_at_rows

    def counted(self: DensePosterior, K: Any, draws: Any = slice(None)) -> Any:
        seen.append(len(self.sites[draws]))
        return variance(self, K, draws)

    monkeypatch.setattr(DensePosterior, "variance_at_rows", counted)
    places = cavities.Places(model, torch.as_tensor(data().y))
    whole = cavities.kept_members(model, posterior, places, 10**9)
    assert seen == [5]
    for work, expected in ((6 * posterior.factor_numbers, [2, 2, 1]), (6 * posterior.factor_numbers - 1, [1] * 5)):
        seen.clear()
        pieces = cavities.kept_members(model, posterior, places, work)
        assert seen == expected
        torch.testing.assert_close(pieces.variance, whole.variance)


def test_points_of_sparse_nodes_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four arrays of inducing points × points in an eighth of the budget, of 8 bytes a number."""
    d = data()
    model = fit(CoordinateAscent(), with_data=d, large_nodes=InducingPoints(6))
    (posterior,) = [p for p in model.predictor.posteriors if p.kind == "sites" and 0 in p.nodes.tolist()]
    places = cavities.Places(model, torch.as_tensor(d.y))
    points = places.members(posterior.nodes).sum(1).tolist()
    assert points[posterior.nodes.tolist().index(0)] == 35
    m = posterior.rows.shape[1]
    for work, step in ((4 * m * 20, 20), (4 * m * 20 - 1, 19), (1, 1)):
        small = replace(model, memory_budget=8 * 8 * work)
        seen = [len(part.points) for part in cavities.node_members(small, posterior, places)]
        assert seen == [min(step, n - start) for n in points for start in range(0, n, step)]


@pytest.mark.parametrize(("limit", "left"), [(2, 1), (3, 2), (4, 2), (5, 3), (6, 3), (7, 4)])
def test_more_classes_than_points_are_drawn_from_either_side(limit: int, left: int) -> None:
    """In proportion to its classes, 5 and 4 here, at least one; a class gives one row."""
    labels = list("zabcdefghi")
    tree = ClassTree.from_nested(["z", [["a", ["b", ["c", ["d", "e"]]]], ["f", ["g", ["h", "i"]]]]], labels)
    y = np.repeat(np.arange(10), 2)
    data = TrainingData(torch.zeros(20, 1, dtype=torch.float64), y, labels)
    problems, node_of = node_problems([tree], data, SubsetOfData(limit), seed=3)
    problem = problems[int(node_of[0][1])]
    assert int(problem.left.sum()) == left
    classes, goes_left = y[problem.rows.numpy()], problem.left.numpy()
    assert len(classes) == len(set(classes)) == limit
    assert set(classes[goes_left]) <= set(range(1, 6))
    assert set(classes[~goes_left]) <= set(range(6, 10))


@pytest.mark.parametrize("limit", [SubsetOfData(9), InducingPoints(9), InducingPoints(30)])
def test_rows_of_a_class_come_in_one_order_however_many_are_asked_for(
    limit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small classes at once, and some at a time: as if each node had asked for as many as it takes."""
    found = []
    for whole, together in ((0, 10**6), (3, 20), (16, 1)):
        monkeypatch.setattr(node_data, "SMALL_CLASS", whole)
        monkeypatch.setattr(node_data, "ORDERED_ROWS", together)
        found.append(node_problems([FIRST, SECOND], data(), limit, seed=3)[0])
    for one, *others in zip(*found, strict=True):
        for other in others:
            assert torch.equal(one.rows, other.rows)
            assert one.inducing is other.inducing or torch.equal(one.inducing, other.inducing)


# ---------------------------------------------------------------------------------------------------------- cavities


def members(omega: float, residual: float) -> cavities.Members:
    def one(value: float) -> torch.Tensor:
        return torch.tensor([[value]], dtype=torch.float64)

    zero = torch.zeros(1, dtype=torch.long)
    spare, prior = one(residual)[0], one(2.0)[0]
    return cavities.Members(zero, zero, one(omega), one(0.4), one(0.3), one(1.2), spare, prior)


@pytest.mark.parametrize("residual", [0.0, 0.5])
def test_without_a_point_no_variance_exceeds_the_prior(residual: float) -> None:
    """1 − ω v is v over what is left of the prior, at least."""
    mu = torch.tensor([0.1], dtype=torch.float64)
    for omega in (0.05, 0.2, 0.5, 0.9, 5.0):
        found = cavities.cavity(members(omega, residual), mu, mu, torch.ones_like(mu), torch.tensor([True]))
        left = max(1 - omega * 1.2, 1.2 / (2.0 - residual))
        variance = 1.2 / left + residual
        assert float(found.variance) == pytest.approx(variance, rel=1e-12)
        assert variance <= 2.0 + 1e-12
        assert float(found.mean) == pytest.approx(0.1 + (0.3 - 1.2 * 0.4) / left, rel=1e-12)
        assert float(found.share) == pytest.approx(1 - variance / 2.0, abs=1e-12)
        assert float(found.lost) == pytest.approx((variance - residual - 1.2) / 2.0, abs=1e-12)


def test_sites_of_a_sparse_node_are_those_of_its_next_sweep() -> None:
    """The site is that around the prior mean which the node has learnt with; the moments are around another."""
    mu, learnt, b = (torch.tensor([value], dtype=torch.float64) for value in (0.1, 0.25, 0.7))
    part = replace(members(0.0, 0.5), omega=None, kappa=None)
    c = math.sqrt(1.2 + 0.5 + (0.25 + 0.3) ** 2)
    omega = 0.7 * math.tanh(c / 2) / (2 * c)
    for goes_left, sign in ((True, 0.5), (False, -0.5)):
        found = cavities.cavity(part, mu, learnt, b, torch.tensor([goes_left]))
        kappa, left = 0.7 * sign - omega * 0.25, max(1 - omega * 1.2, 1.2 / 1.5)
        assert float(found.mean) == pytest.approx(0.1 + (0.3 - 1.2 * kappa) / left, rel=1e-12)
        assert float(found.variance) == pytest.approx(1.2 / left + 0.5, rel=1e-12)


# ------------------------------------------------------------------------------------------------------- stored models


@pytest.mark.parametrize(("budget", "fine"), [(2**20, True), (2**20 - 1, False), (2**62, True), (2**62 + 1, False)])
def test_budgets_that_a_file_may_hold(budget: int, fine: bool) -> None:
    document, tensors = model_to_parts(fit(CoordinateAscent()))
    document["memory_budget"] = budget
    if fine:
        assert model_from_parts(document, tensors, torch.device("cpu")).memory_budget == budget
    else:
        with pytest.raises(StorageError, match="memory_budget"):
            model_from_parts(document, tensors, torch.device("cpu"))


@pytest.mark.parametrize("part", ["weights", "omega"])
def test_every_number_of_a_file_is_in_the_precision_of_the_features(part: str) -> None:
    document, tensors = model_to_parts(fit(CoordinateAscent()))
    tensors[f"posterior.0.{part}"] = tensors[f"posterior.0.{part}"].float()
    with pytest.raises(StorageError, match="is not in the precision of the features"):
        model_from_parts(document, tensors, torch.device("cpu"))


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("posterior.0.nodes", lambda x: x.double()),
        ("posterior.0.rows", lambda x: x.double()),
        ("posterior.0.omega", lambda x: -x),
        ("posterior.0.omega", lambda x: x.clamp(min=1.1e9)),
        ("node_of.0", lambda x: x.double()),
        ("node_of.0", torch.zeros_like),
        ("diagnostics.nodes", torch.zeros_like),
        ("diagnostics.nodes", lambda x: x.double()),
        ("diagnostics.sweeps", lambda x: x.double()),
        ("diagnostics.sweeps", lambda x: -x),
        ("diagnostics.converged", lambda x: x.long()),
        ("diagnostics.change", lambda x: -x - 1),
        ("diagnostics.jitter", lambda x: x - 1),
    ],
)
def test_impossible_numbers_of_a_file_are_refused(part: str, change: Any) -> None:
    document, tensors = model_to_parts(SWEPT)
    tensors[part] = change(tensors[part])
    with pytest.raises(StorageError):
        model_from_parts(document, tensors, torch.device("cpu"))


def test_a_kernel_with_one_negative_variance_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def diagonal(self: Grams, nodes: Any, rows: torch.Tensor) -> torch.Tensor:
        return torch.where(rows == rows.max(), -1.0, 1.0).double()

    monkeypatch.setattr(Grams, "diagonal", diagonal)
    with pytest.raises(StorageError, match="a kernel with negative variances"):
        model_from_parts(*model_to_parts(SWEPT), torch.device("cpu"))


@pytest.mark.parametrize("change", [lambda x: -x, lambda x: x.clamp(min=1.1e9)])
def test_impossible_numbers_of_linear_nodes_are_refused(change: Any) -> None:
    document, tensors = model_to_parts(LINEAR)
    part = f"posterior.{document['posteriors'].index('linear')}.omega"
    assert bool(tensors[part].min() < 1)
    model_from_parts(document, tensors, torch.device("cpu"))
    tensors[part] = change(tensors[part])
    with pytest.raises(StorageError):
        model_from_parts(document, tensors, torch.device("cpu"))


@pytest.mark.parametrize(
    ("name", "value"), [("memory_budget", 2.0**21 + 0.5), ("posteriors", ["dense", 3]), ("posteriors", "dense")]
)
def test_impossible_entries_of_a_file_are_refused(name: str, value: Any) -> None:
    document, tensors = model_to_parts(SWEPT)
    with pytest.raises(StorageError):
        model_from_parts({**document, name: value}, tensors, torch.device("cpu"))


def test_a_row_without_prior_variance_may_be_stored() -> None:
    """As a row of zeros has under a linear kernel."""
    d = data()
    d.X[3] = 0.0
    document, tensors = model_to_parts(fit(CoordinateAscent(), with_data=d, k=kernel("linear")))
    assert model_from_parts(document, tensors, torch.device("cpu")).n_classes == 5


@pytest.mark.parametrize(("scale", "tried"), [(1.02, True), (0.98, False)])
def test_factors_of_a_file_are_tried_where_rounding_might_spoil_them(
    scale: float, tried: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the largest ω k(x, x) n is 1e-2 over the rounding unit; every draw by itself."""
    model = fit(Gibbs(chains=3), k=kernel(scale=1e6))
    document, tensors = model_to_parts(model)
    omega = tensors["posterior.0.omega"]
    enough = 1e-2 / np.finfo(float).eps / 1e6 / omega.shape[2]
    tensors |= {"posterior.0.omega": omega * (scale * enough / float(omega.max()))}
    seen: list[slice] = []
    monkeypatch.setattr(DensePosterior, "factoriser", lambda self, grams: seen.append)
    model_from_parts(document, tensors, torch.device("cpu"))
    assert seen == ([slice(0, 1), slice(1, 2), slice(2, 3)] if tried else [])


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
    asked = max(reject, leave_one_out.smallest_share(np.array(y))) if reject > 0 else 0.0
    assert found == pytest.approx(threshold_twin(novelty, y, asked), abs=1e-12)


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
