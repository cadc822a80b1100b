"""Training: against a plain loop, and its choices."""

from __future__ import annotations

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset
from training_cases import LABELS, digits, network, small_train, tensors_of, without_seconds

from gptree.deep import (
    Arrays,
    Cosine,
    CrossEntropy,
    FromDataset,
    Milestones,
    Training,
    TreeHead,
    VariationalTree,
    embed,
    measure,
    train,
)
from gptree.deep.data.base import FIRST_LAYER, epoch_plan, key
from gptree.deep.heads.gp_tree import JITTER
from gptree.deep.heads.variational_tree import FIRST_SWEEPS
from gptree.deep.loop.state import State, make_optimiser
from gptree.deep.loop.task import split_rows
from gptree.deep.loop.train import weighted_gradient
from gptree.inference import class_inducing
from gptree.maths.kernels import make_kernel
from gptree.tree import build_tree, label_hashes

CPU = torch.device("cpu")
X, Y = digits()


# ------------------------------------------------------------------------------------------------------ a plain loop


def test_training_equals_a_plain_loop() -> None:
    """The same epochs written out, with nothing but torch and the head."""
    training = Training(
        epochs=3,
        cross_entropy_epochs=2,
        objective_weight=0.0,
        batch_size=40,
        learning_rate=0.05,
        schedule=Cosine(1.0),
        calibrate=False,
    )
    settings = VariationalTree(inducing=4, learn_kernel="shared", dtype="float64")
    data, backbone = digits(dtype=np.float64)[0], network().double()
    found = train(backbone, Arrays(data), Y, LABELS, training=training, head=settings, seed=5, device="cpu")

    rows, _ = split_rows(Y, LABELS, 0.1, 5)
    x, y = torch.as_tensor(data), torch.as_tensor(Y)
    net, first = copy.deepcopy(backbone), a_first_layer(5)
    steps = len(rows) // 40
    parameters = [*net.named_parameters(), ("first.weight", first.weight), ("first.bias", first.bias)]
    velocity: dict[str, torch.Tensor] = {}

    def step(loss: torch.Tensor, named: list, rate: float) -> None:
        for _, p in named:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for name, p in named:
                decay = 5e-4 if name.endswith("weight") else 0.0
                gradient = p.grad + decay * p
                velocity[name] = 0.9 * velocity[name] + gradient if name in velocity else gradient.clone()
                p -= rate * (gradient + 0.9 * velocity[name])

    head: TreeHead | None = None
    for epoch in range(3):
        if epoch == 2:
            head = a_first_head(net(x).detach()[rows], Y[rows], settings, 5)
            parameters = [*net.named_parameters(), *head.named_parameters()]
        for number, batch in enumerate(epoch_plan(rows, 40, 5, epoch)):
            t = epoch + number / steps
            rate = 0.05 * (t if t < 1 else 0.5 * (1 + math.cos(math.pi * (t - 1) / 2)))
            embeddings, target = net(x[batch.rows]), y[batch.rows]
            if head is None:
                logits = first(embeddings)
                step(nn.functional.cross_entropy(logits, target), parameters, rate)
            else:
                step(head.loss(embeddings, target), parameters, rate)
                head.update()
    assert head is not None
    expected = {f"network.{name}": value for name, value in net.state_dict().items()}
    expected |= {f"ensemble.layers.0.{name}": value for name, value in head.state_dict().items()}
    for name, value in expected.items():
        torch.testing.assert_close(tensors_of(found)[name], value, rtol=1e-9, atol=1e-9, msg=name)


def test_a_head_in_single_precision_trains_as_one_in_double(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as much jitter: what the larger one of single precision changes is much more than rounding."""
    monkeypatch.setitem(JITTER, torch.float64, JITTER[torch.float32])
    log, p = [], []
    for dtype in ("float64", "float32"):
        head = VariationalTree(inducing=30, dtype=dtype)
        found = small_train(network(), Arrays(X), Y, seed=3, how={"epochs": 6}, head=head)
        log.append([[row[name] for name in ("bound", "kl", "skipped")] for row in found.log[2:]])
        p.append(found.ensemble.log_probabilities(embed(found.network, Arrays(X), np.arange(len(Y)), CPU)).exp())
    torch.testing.assert_close(p[1].double(), p[0].double(), rtol=0.0, atol=1e-3)
    np.testing.assert_allclose(log[1], log[0], rtol=1e-3, atol=0.0)


def a_first_layer(seed: int) -> nn.Linear:
    made = CrossEntropy().layer(6, len(LABELS), key(seed, FIRST_LAYER), torch.float64)
    linear = nn.Linear(6, len(LABELS), dtype=torch.float64)
    linear.load_state_dict(made.state_dict())
    return linear


def a_first_head(embeddings: torch.Tensor, y: np.ndarray, settings: VariationalTree, seed: int) -> TreeHead:
    features = nn.functional.normalize(embeddings).numpy()
    means = np.stack([features[y == c].mean(0) for c in range(len(LABELS))])
    tree = build_tree(None, means, LABELS, seed)
    rows = class_inducing(features, y, settings.inducing, label_hashes(LABELS), seed)
    points, counts = torch.as_tensor(features[rows]), torch.as_tensor(np.bincount(y))
    head = TreeHead(tree, points, torch.as_tensor(y[rows]), counts, make_kernel("rbf", 4.0), settings)
    head.refit(embeddings, torch.as_tensor(y), FIRST_SWEEPS)
    return head


# ------------------------------------------------------------------------------------------------------- its choices


def test_a_seed_decides_everything_and_nothing_global_changes() -> None:
    backbone = network(normalise=True)
    before = copy.deepcopy(backbone.state_dict())
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    one, same, other = (small_train(backbone, Arrays(X), Y, seed=seed) for seed in (1, 1, 2))
    assert without_seconds(one.log) == without_seconds(same.log)
    assert all(torch.equal(value, tensors_of(same)[name]) for name, value in tensors_of(one).items())
    assert without_seconds(one.log) != without_seconds(other.log)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert torch.equal(torch_state, torch.get_rng_state())
    assert np.array_equal(numpy_state, np.random.get_state()[1])  # noqa: NPY002


def test_a_network_that_draws_is_keyed_by_the_step() -> None:
    drawing = nn.Sequential(network(), nn.Dropout(0.3))
    one, same = (small_train(drawing, Arrays(X), Y) for _ in range(2))
    torch.manual_seed(77)
    third = small_train(drawing, Arrays(X), Y)
    assert without_seconds(one.log) == without_seconds(same.log) == without_seconds(third.log)


def test_accelerates_global_state_is_left_alone() -> None:
    from accelerate.state import AcceleratorState, PartialState

    small_train(network(), Arrays(X), Y, how={"epochs": 1, "cross_entropy_epochs": 1})
    assert AcceleratorState._shared_state == {}
    assert PartialState._shared_state == {}


def test_what_the_log_holds() -> None:
    log = small_train(network(), Arrays(X), Y, how={"validate_every": 3}).log
    assert [row["epoch"] for row in log] == [1, 2, 3, 4]
    assert [row["stage"] for row in log] == ["pre-training"] * 2 + ["joint"] * 2
    assert ["accuracy" in row for row in log] == [False, False, True, True]  # the last one always
    for row in log[2:]:
        assert row["bound"] == pytest.approx(row["expected_log_likelihood"] - row["kl"])
        assert row["skipped"] == 0
        assert row["jitter"] > 0
    assert log[-1]["loss"] < log[2]["loss"]


@pytest.mark.parametrize("best", ["accuracy", "nll"])
def test_the_best_state_is_kept(best: str) -> None:
    how = {"epochs": 8, "best": best, "learning_rate": 0.3, "calibrate": False}
    found = small_train(network(), Arrays(X), Y, how=how)
    held_out = np.setdiff1d(np.arange(len(X)), found.rows)
    log_p = found.log_probabilities(embed(found.network, Arrays(X), held_out, CPU))
    again = measure(log_p, torch.as_tensor(Y[held_out]))
    joint = [row for row in found.log if row["stage"] == "joint"]
    wanted = (max if best == "accuracy" else min)(row[best] for row in joint)
    assert again[best] == pytest.approx(wanted)
    assert found.best_epoch == next(row["epoch"] for row in joint if row[best] == wanted)


def test_softmax_alone() -> None:
    found = small_train(network(), Arrays(X), Y, how={"epochs": 12, "cross_entropy_epochs": 12})
    assert found.head is None
    assert found.objective_layer is not None
    assert found.best_epoch == 12
    assert found.log[-1]["accuracy"] > 0.9
    assert not any("bound" in row for row in found.log)


def test_a_head_from_the_start_and_a_tree_that_is_given() -> None:
    tree = [[["zero", "one"], "two"], ["three", "four"]]
    found = small_train(network(), Arrays(X), Y, how={"cross_entropy_epochs": 0}, tree=tree)
    assert found.head is not None
    assert found.head.tree.to_nested(LABELS) == tree
    assert found.ensemble.first is found.head


def test_measured_on_another_source() -> None:
    how = {"epochs": 2, "cross_entropy_epochs": 1, "validation": None, "calibrate": False}
    found = small_train(network(), Arrays(X[:150]), Y[:150], how=how, validation=(Arrays(X[150:]), Y[150:]))
    assert len(found.rows) == 150
    log_p = found.log_probabilities(embed(found.network, Arrays(X), np.arange(150, 200), CPU))
    again = measure(log_p, torch.as_tensor(Y[150:]))
    assert again == pytest.approx({name: found.log[-1][name] for name in again})


def test_rows_to_calibrate_on_that_miss_classes_are_told_of() -> None:
    how = {"epochs": 1, "cross_entropy_epochs": 1, "validation": None}
    some, given = Y < 3, Arrays(X)
    with pytest.warns(UserWarning, match=r"none of \['three', 'four'\]"):
        small_train(network(), given, Y, how=how, validation=(Arrays(X[some]), Y[some]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for changes, rows in (({}, slice(None)), ({"calibrate": False}, some)):
            small_train(network(), given, Y, how=how | changes, validation=(Arrays(X[rows]), Y[rows]))


def test_a_data_set_is_trained_on_as_an_array_is() -> None:
    data = TensorDataset(torch.as_tensor(X), torch.as_tensor(Y))
    one, other = (small_train(network(), source, Y) for source in (Arrays(X), FromDataset(data)))
    assert without_seconds(one.log) == without_seconds(other.log)


def test_mixed_precision_leaves_no_trace_in_the_network() -> None:
    found = small_train(network(), Arrays(X), Y, how={"mixed_precision": "bf16", "learning_rate": 0.1})
    assert found.log[-1]["accuracy"] > 0.8
    assert "forward" not in vars(found.network)
    assert {value.dtype for value in found.network.state_dict().values()} == {torch.float32}


def test_a_network_trained_before_is_trained_in_mixed_precision_again() -> None:
    seen = set()

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.add(x.dtype)
            return x.float()

    few = {"epochs": 1, "cross_entropy_epochs": 1, "validation": None}
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), Spy())
    first = small_train(backbone, Arrays(X), Y, how=few)
    assert seen == {torch.float32}
    small_train(first.network, Arrays(X), Y, how={**few, "mixed_precision": "bf16"})
    assert torch.bfloat16 in seen


@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_a_forward_of_the_networks_own_stays(precision: str) -> None:
    """As people give it who leave out the last layer of a classifier."""

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.last = nn.Sequential(nn.Flatten(), nn.Linear(64, 6)), nn.Linear(6, 6)

        def features(self, x: torch.Tensor) -> torch.Tensor:
            return self.body(x)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.body(x))

    backbone = Classifier()
    backbone.forward = backbone.features
    found = small_train(backbone, Arrays(X), Y, how={"mixed_precision": precision})
    x = torch.as_tensor(X)
    assert torch.equal(found.network(x), found.network.body(x))  # pyright: ignore[reportCallIssue]
    assert found.network.body is not backbone.body


def test_a_progress_bar_leaves_nothing_behind(capsys: pytest.CaptureFixture[str]) -> None:
    small_train(network(), Arrays(X), Y, how={"epochs": 1, "cross_entropy_epochs": 1}, progress=True)
    assert capsys.readouterr().out.strip() == ""


def test_decay_is_for_matrices_of_the_network() -> None:
    net, training = network(normalise=True), Training(weight_decay=0.1, head_learning_rate=3.0)
    head = a_first_head(
        torch.randn(200, 6, generator=torch.Generator().manual_seed(0)), Y, VariationalTree(inducing=2), 0
    )
    linear = CrossEntropy().layer(6, 5, 0, torch.float32)
    for layer, beside in ((linear, None), (head, None), (head, linear)):
        groups = make_optimiser(training, net, layer, beside).param_groups
        for group in groups:
            for p in group["params"]:
                is_head = any(p is q for q in head.parameters())
                assert group["weight_decay"] == (0.1 if p.dim() > 1 and not is_head else 0.0)
                assert group["times"] == (3.0 if is_head else 1.0)
        trained = [p for part in (net, layer, beside) if part is not None for p in part.parameters()]
        assert {id(p) for group in groups for p in group["params"]} == {id(p) for p in trained if p.requires_grad}


def test_the_objective_may_stay_beside_the_head() -> None:
    """The first joint step, by hand: both losses by their weights, the head's own parameters by its loss alone.

    The log shows the head's alone.
    """
    source, weight, head_weight = Arrays(X), 0.7, 0.3
    how = {"epochs": 2, "cross_entropy_epochs": 1, "batch_size": 200, "momentum": 0.0, "nesterov": False}
    how |= {"validation": None, "weight_decay": 0.0, "schedule": Milestones(())}
    first = small_train(network(), source, Y, how={**how, "epochs": 1})
    both = small_train(network(), source, Y, how={**how, "objective_weight": weight, "head_weight": head_weight})
    assert first.objective_layer is not None
    assert both.head is not None

    net, linear = copy.deepcopy(first.network), first.objective_layer
    x, y = torch.as_tensor(X), torch.as_tensor(Y)
    head = a_first_head(embed(net, source, np.arange(len(Y)), torch.device("cpu")), Y, VariationalTree(inducing=3), 0)
    net.train()
    found = net(x)
    of_head = head.loss(found, y)
    (of_points,) = torch.autograd.grad(of_head, head.points, retain_graph=True)
    torch.testing.assert_close(both.head.points.detach(), head.points.detach() - 0.05 * of_points)
    (head_weight * of_head + weight * torch.nn.functional.cross_entropy(linear.scores(found), y)).backward()
    for name, p in net.named_parameters():
        assert p.grad is not None
        expected = p.detach() - 0.05 * p.grad
        torch.testing.assert_close(both.network.get_parameter(name).detach(), expected, rtol=1e-4, atol=1e-5)
    assert both.log[-1]["loss"] == pytest.approx(of_head.item(), rel=1e-5)


def test_a_weighted_gradient_changes_no_bit_of_the_values() -> None:
    x = torch.randn(50, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    for weight in (0.0, 0.1, 0.5, 0.7, 1.0):
        found = weighted_gradient(x, weight)
        assert torch.equal(found, x)
        (gradient,) = torch.autograd.grad(found.square().sum(), x)
        torch.testing.assert_close(gradient, 2 * weight * x.detach(), rtol=1e-15, atol=0)


def test_momentum_goes_on_when_the_head_joins() -> None:
    net = network()
    state = State(net, CrossEntropy().layer(6, 5, 0, torch.float32), Training(objective_weight=0.0))
    layer = state.layer
    layer.loss(net(torch.as_tensor(X[:8])), torch.as_tensor(Y[:8]), 0).backward()  # pyright: ignore
    state.optimiser.step()
    before = {name: value.clone() for name, value in state.momentum().items() if name.startswith("momentum.network")}
    assert len(before) == len(list(net.parameters()))
    state.join(a_first_head(net(torch.as_tensor(X)).detach(), Y, VariationalTree(inducing=2), 0))
    after = state.momentum()
    assert after.keys() == before.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
