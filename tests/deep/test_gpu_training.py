"""Training on a GPU: recorded passes of the network, shapes that change, and no waiting within an epoch."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

from gptree.deep import Arrays, CrossEntropy, RandomCrop, Trained, Training, VariationalTree, convnet, embed, train
from gptree.deep.loop.processes import processes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

RANDOM = np.random.default_rng(0)
Y = np.repeat(np.arange(5), 40)
X = np.clip(RANDOM.normal(110, 40, (5, 8, 8, 3))[Y] + RANDOM.normal(0, 40, (200, 8, 8, 3)), 0, 255).astype(np.uint8)
CUDA = torch.device("cuda")


def small_train(device: str = "cuda", backbone: torch.nn.Module | None = None, **changes: object) -> Trained:
    how = {"epochs": 6, "cross_entropy_epochs": 3, "batch_size": 40, "learning_rate": 0.05, **changes}
    source = Arrays(X, augment=(RandomCrop(1),))
    network = convnet(width=8, depth=2, embedding=16) if backbone is None else backbone
    return train(
        network, source, Y, list("abcde"), training=Training(**how), head=VariationalTree(inducing=4), device=device
    )


@pytest.mark.parametrize(("precision", "tolerance"), [("no", 2e-3), ("bf16", 5e-2)])
@pytest.mark.parametrize("rotations", [False, True])
def test_it_is_the_training_of_a_cpu(precision: str, tolerance: float, rotations: bool) -> None:
    """Losses of all epochs. With rotations the number of pictures changes between the stages: another recording."""
    changes = {"mixed_precision": precision, "objective": CrossEntropy(rotations=rotations), "objective_weight": 0.5}
    here, there = (small_train(device, **changes) for device in ("cpu", "cuda"))
    assert [row["loss"] for row in there.log] == pytest.approx([row["loss"] for row in here.log], rel=tolerance)


def test_the_network_that_comes_back_is_an_ordinary_one() -> None:
    found = small_train()
    assert "forward" not in vars(found.network)
    source = Arrays(X)
    both = [embed(found.network, source, np.arange(rows), CUDA) for rows in (7, 3)]
    torch.testing.assert_close(both[0][:3], both[1], rtol=1e-2, atol=1e-2)  # TF32 sums differ with the shape


class Unused(torch.nn.Module):
    """With a parameter that nothing depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.spare = torch.nn.Linear(192, 16), torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.flatten(1))


class Looking(Unused):
    """Which looks at values on their way, and cannot be recorded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (1.0 if float(x.sum()) > -1e9 else 0.0)


def test_networks_that_are_hard_to_record_train_all_the_same() -> None:
    found = []
    for network in (Unused(), Looking()):
        torch.manual_seed(0)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        warns = pytest.warns(RuntimeWarning, match="cannot be recorded")
        with warns if isinstance(network, Looking) else contextlib.nullcontext():
            found.append(small_train(backbone=network, epochs=2, cross_entropy_epochs=2))
    assert found[1].log[-1]["loss"] == pytest.approx(found[0].log[-1]["loss"], rel=1e-3)


def test_recorded_passes_are_plain_ones() -> None:
    """Embeddings, gradients and the statistics of batch normalisation, over a few steps."""
    with processes("cuda", "no") as group:
        networks = [convnet(width=8, depth=2, embedding=16).to(CUDA).train() for _ in range(2)]
        recorded = group.wrapped(networks[0])
        for seed in range(3):
            x = torch.randn(12, 3, 8, 8, generator=torch.Generator().manual_seed(seed)).to(CUDA)
            outputs = [recorded(x), networks[1](x)]
            torch.testing.assert_close(*outputs, rtol=1e-4, atol=1e-4)
            for output, network in zip(outputs, networks, strict=True):
                network.zero_grad()
                output.square().sum().backward()
            for mine, theirs in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
                torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-3)
            for mine, theirs in zip(networks[0].buffers(), networks[1].buffers(), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
