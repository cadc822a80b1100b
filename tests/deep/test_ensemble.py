"""Layers that predict together: weights chosen on rows that were not trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gptree.deep import (
    Arrays,
    CrossEntropy,
    ObjectiveLayer,
    Trained,
    Training,
    TreeHead,
    VariationalTree,
    WeightedEnsemble,
    convnet,
    train,
)
from gptree.deep import ensemble as vote_module
from gptree.deep.ensemble import Layer
from gptree.experts import calibration
from gptree.maths.kernels import make_kernel
from gptree.tree import build_tree


class Given(Layer):
    """A layer whose scores are its inputs, or some columns of them."""

    def __init__(self, columns: slice = slice(None)) -> None:
        super().__init__()
        self.columns, self.unused = columns, torch.nn.Parameter(torch.zeros(1))

    def scores(self, embeddings: torch.Tensor) -> torch.Tensor:
        return embeddings[:, self.columns]


def drawn(logits: torch.Tensor, seed: int = 3) -> torch.Tensor:
    """A class for each row, from the softmax of its logits."""
    random = np.random.default_rng(seed)
    return torch.as_tensor(np.array([random.choice(len(p), p=p) for p in logits.softmax(-1).numpy()]))


def cost(weights: np.ndarray, logs: list[torch.Tensor], y: torch.Tensor) -> float:
    """What `choose` minimises, by its definition, but for the smoothing of labels."""
    log_p = sum(w * log for w, log in zip(weights.tolist(), logs, strict=True)).log_softmax(-1)  # pyright: ignore
    return float(-log_p.gather(1, y[:, None]).sum()) + 0.5 * float(((weights - 1 / len(logs)) ** 2).sum())


@pytest.mark.parametrize("times", [0.3, 1.0, 4.0])
def test_one_layer_gets_the_temperature_of_its_softmax(times: float) -> None:
    """Labels drawn from a softmax whose logits were multiplied: the weight undoes it; a fine grid finds no better."""
    logits = torch.as_tensor(np.random.default_rng(3).normal(size=(4000, 5)) * 2)
    y, ensemble = drawn(logits), WeightedEnsemble(Given())
    ensemble.choose(logits / times, y)
    (weight,) = ensemble.weights.tolist()

    logs = [(logits / times).log_softmax(-1)]
    best = min(cost(np.array([w]), logs, y) for w in np.geomspace(0.05, 20, 400))
    assert cost(np.array([weight]), logs, y) < best + 0.05  # of 4,000 nats: half a row's label is smoothed
    assert abs(np.log(weight / times)) < 0.15  # about three standard errors of the maximum-likelihood estimate


def test_two_layers_get_the_weights_of_the_product_that_drew_the_labels() -> None:
    """Scores of two layers, the labels from softmax(0.7 s₁ + 1.6 s₂); a grid around the weights finds no better."""
    both = torch.as_tensor(np.random.default_rng(4).normal(size=(4000, 10)) * 1.5)
    logs = [both[:, :5].log_softmax(-1), both[:, 5:].log_softmax(-1)]
    y, ensemble = drawn(0.7 * logs[0] + 1.6 * logs[1]), WeightedEnsemble(Given(slice(0, 5)), Given(slice(5, 10)))
    torch.testing.assert_close(ensemble.log_probabilities(both), logs[0])  # before they are chosen
    ensemble.choose(both, y)

    weights = ensemble.weights.numpy()
    assert weights == pytest.approx([0.7, 1.6], abs=0.15)  # more than three standard errors
    around = [weights + 0.02 * np.array([i, j]) for i in range(-3, 4) for j in range(-3, 4)]
    assert cost(weights, logs, y) < min(cost(w, logs, y) for w in around) + 0.05
    expected = (logs[0].exp() ** weights[0]) * (logs[1].exp() ** weights[1])
    torch.testing.assert_close(ensemble.log_probabilities(both).exp(), expected / expected.sum(1, keepdim=True))


def test_few_rows_that_are_all_right_do_not_call_for_certainty() -> None:
    scores, y = 3.0 * torch.eye(4, dtype=torch.float64), torch.arange(4)
    few, many = WeightedEnsemble(Given()), WeightedEnsemble(Given())
    few.choose(scores, y)
    many.choose(scores.repeat(1000, 1), y.repeat(1000))
    assert 1.0 < float(few.weights) < 2.0
    assert float(many.weights) > 2.5


def test_of_very_many_rows_some_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.as_tensor(np.random.default_rng(5).normal(size=(1000, 3)))
    y, all_of_them, some = drawn(2 * logits), WeightedEnsemble(Given()), WeightedEnsemble(Given())
    all_of_them.choose(logits, y)
    monkeypatch.setattr(calibration, "MAX_CALIBRATION_SIZE", 900)
    monkeypatch.setattr(calibration, "MIN_CALIBRATION_ROWS", 10)
    seen, real = [], vote_module.pool_weights
    monkeypatch.setattr(
        vote_module, "pool_weights", lambda logs, *a, **b: seen.append(logs.shape) or real(logs, *a, **b)
    )
    some.choose(logits, y)
    assert seen == [(1, 300, 3)]
    assert float(some.weights) == pytest.approx(float(all_of_them.weights), rel=0.4)


def test_predictions_that_are_worth_nothing_are_unsure_but_not_all_the_same() -> None:
    logits = torch.as_tensor(np.random.default_rng(6).normal(size=(500, 4)))
    one, two = WeightedEnsemble(Given()), WeightedEnsemble(Given(slice(0, 2)), Given(slice(2, 4)))
    one.choose(logits, logits.argmin(1))  # always wrong
    assert one.weights.tolist() == [vote_module.LEAST]
    assert torch.equal(one.log_probabilities(logits).argmax(1), logits.argmax(1))
    two.choose(logits, logits[:, :2].argmin(1))
    assert float(two.weights.sum()) >= vote_module.LEAST


def test_a_head_is_never_worse_for_it_where_it_was_chosen() -> None:
    random = np.random.default_rng(0)
    means, y = random.normal(size=(4, 3)), torch.arange(4).repeat_interleave(30)
    x = torch.as_tensor(means[y.numpy()] + 0.6 * random.normal(size=(len(y), 3)))
    tree, counts = build_tree(None, means, list(range(4)), 0), torch.full((4,), 30)
    head = TreeHead(tree, x[::6], y[::6], counts, make_kernel("rbf", 4.0), VariationalTree(inducing=5))
    head.refit(x, y, 10)
    ensemble = WeightedEnsemble(head)
    before = -ensemble.log_probabilities(x).gather(1, y[:, None]).mean()
    ensemble.choose(x, y)
    after = -ensemble.log_probabilities(x).gather(1, y[:, None]).mean()
    assert after < before - 0.01
    at_mean = (ensemble.weights * head.log_probabilities(x, "mean")).log_softmax(-1)
    torch.testing.assert_close(ensemble.log_probabilities(x, "mean"), at_mean)


class TestInTraining:
    @staticmethod
    def trained(
        trained_on: Any = slice(None), held_out: np.ndarray | None = None, **changes: object
    ) -> Trained[TreeHead]:
        random = np.random.default_rng(1)
        y = np.repeat(np.arange(3), 30)
        X = (random.normal(size=(3, 1, 6, 6))[y] + 1.5 * random.normal(size=(90, 1, 6, 6))).astype(np.float32)
        settings = {"epochs": 3, "cross_entropy_epochs": 3, "batch_size": 16, "objective": CrossEntropy(), **changes}
        given = {} if held_out is None else {"validation": (Arrays(X[held_out]), y[held_out])}
        settings |= {"validation": None} if given else {}
        how = {"training": Training(**settings), "head": VariationalTree(inducing=3), "device": "cpu"}  # pyright: ignore
        return train(
            convnet(1, width=4, depth=1, embedding=4),
            Arrays(X[trained_on]),
            y[trained_on],
            ["a", "b", "c"],
            **how,
            **given,
        )

    def test_weights_come_from_rows_held_out_only(self) -> None:
        assert float(self.trained(validation=0.2).ensemble.weights) != 1.0
        assert float(self.trained(validation=0.2, calibrate=False).ensemble.weights) == 1.0
        assert float(self.trained(validation=None).ensemble.weights) == 1.0

    def test_rows_that_are_given_choose_weights_as_those_set_aside_do(self) -> None:
        aside = self.trained(cross_entropy_epochs=1, validation=0.2)
        kept = np.setdiff1d(np.arange(90), aside.rows)
        given = self.trained(cross_entropy_epochs=1, trained_on=aside.rows, held_out=kept)
        torch.testing.assert_close(given.ensemble.weights, aside.ensemble.weights)
        assert given.ensemble.weights.tolist() != [1.0, 0.0]
        only_measured = self.trained(cross_entropy_epochs=1, trained_on=aside.rows, held_out=kept, calibrate=False)
        assert list(only_measured.ensemble.layers) == [only_measured.head]

    def test_the_layer_trained_beside_the_head_joins_where_rows_are_held_out(self) -> None:
        found = self.trained(cross_entropy_epochs=1, validation=0.2)
        assert [type(layer) for layer in found.ensemble.layers] == [TreeHead, ObjectiveLayer]
        assert found.ensemble.layers[0] is found.head
        assert found.ensemble.layers[1] is found.objective_layer
        assert found.ensemble.weights.tolist() != [1.0, 0.0]
        for changes in ({"calibrate": False}, {"validation": None}, {"objective_weight": 0.0}):
            alone = self.trained(**{"cross_entropy_epochs": 1, "validation": 0.2, **changes})
            assert list(alone.ensemble.layers) == [alone.head]
