"""Training: numerical trouble while it runs, and bad input."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import nn
from torch.utils.data import TensorDataset
from training_cases import LABELS, digits, network, small_train

from gptree.deep import (
    Arrays,
    CrossEntropy,
    FromDataset,
    Milestones,
    Training,
    TreeHead,
    VariationalTree,
    train,
)
from gptree.deep.heads.gp_tree import LARGEST_JITTER
from gptree.deep.loop.task import Task
from gptree.maths.kernels import make_kernel
from gptree.storage import read_folder

X, Y = digits()


# ------------------------------------------------------------------------------------------- trouble while it runs


def test_what_is_not_finite_is_an_error_and_never_saved(tmp_path: Path) -> None:
    class Breaking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = network(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += self.training
            return self.inner(x) * (float("nan") if self.calls > 7 else 1.0)  # step 3 of epoch 2

    with pytest.raises(FloatingPointError, match=r"epoch 2.*last, epoch 1, step 0.*learning_rate"):
        small_train(Breaking(), Arrays(X), Y, folder=tmp_path)
    with pytest.raises(FloatingPointError, match=r"epoch 2.*last, epoch 1, step 2"):
        small_train(Breaking(), Arrays(X), Y, folder=tmp_path / "more", how={"checkpoint_steps": 2})
    for name in (".", "more"):
        _, tensors = read_folder(tmp_path / name / "last")
        assert all(bool(value.isfinite().all()) for value in tensors.values())
    with pytest.raises(FloatingPointError, match="no checkpoint"):
        small_train(Breaking(), Arrays(X), Y)


def test_probabilities_that_are_not_finite_are_an_error_too(tmp_path: Path) -> None:
    """As of a network that is finite in training and overflows in evaluation."""

    class Overflowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.steps = network(), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.steps += self.training
            return self.inner(x) * (float("inf") if self.steps > 5 and not self.training else 1.0)

    with pytest.raises(FloatingPointError, match=r"epoch 2: probabilities of measured rows.*last, epoch 1"):
        small_train(Overflowing(), Arrays(X), Y, folder=tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_failed_factorisations_are_told_and_end_in_an_error(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    update = TreeHead.update

    def failing(head: TreeHead) -> None:
        update(head)
        head.skipped += 1
        head.jitter.copy_((10 * head.jitter).clamp_max(LARGEST_JITTER))

    monkeypatch.setattr(TreeHead, "update", failing)
    with (
        pytest.warns(RuntimeWarning, match="epoch 3: factorisations failed 5 times.*jitter on K_mm is now 1e-02"),
        pytest.raises(FloatingPointError, match=r"epoch 4.*at its largest"),
    ):
        small_train(network(), Arrays(X), Y, head=VariationalTree(inducing=3, dtype=dtype))


# ------------------------------------------------------------------------------------------------------- bad input


def bad(match: str, error: type[Exception] = ValueError, y: np.ndarray = Y, **others: Any) -> None:
    how = {"epochs": 1, "cross_entropy_epochs": 1, "batch_size": 32, **others.pop("how", {})}
    given = {"source": Arrays(X), "labels": LABELS, "device": "cpu", **others}
    with pytest.raises(error, match=match):
        train(given.pop("backbone", network()), y=y, training=Training(**how), **given)


def test_bad_rows_and_settings_show_before_any_work() -> None:
    bad("has 200 rows and y 199", y=Y[:199])
    bad("vector of class numbers", TypeError, y=Y.astype(float))
    bad("0 … 3, got 0 … 4", labels=LABELS[:4])
    bad("at least two classes", y=np.zeros_like(Y), labels=LABELS[:1])
    bad("no row to train on.*'five'", labels=[*LABELS, "five"], how={"validation": None})
    bad("validation=60", how={"validation": 60})
    bad("less than one batch", how={"batch_size": 181})
    bad("validation", how={"validation": None, "best": "nll"})
    bad("set that to None", validation=(Arrays(X), Y))
    bad("0 … 4", how={"validation": None}, validation=(Arrays(X), Y + 1))
    bad("8 × 7 pixels", how={"validation": None}, validation=(Arrays(X[:, :, :, :7]), Y))
    bad("seed", seed=-1)
    bad("square", source=Arrays(X[:, :, :7]), how={"objective": CrossEntropy(rotations=True)})
    bad("pairs", how={"objective": CrossEntropy(mixup=1.0), "batch_size": 31})
    bad("vector of floats", backbone=nn.Unflatten(1, (1, 1)))
    bad("64 features", source=Arrays(X[:, :, :7]))
    double = TensorDataset(torch.as_tensor(X).double(), torch.as_tensor(Y))
    mixed = "float64 and the network computes in torch.float32"
    bad(mixed, TypeError, source=FromDataset(double))
    bad(mixed, TypeError, source=Untouched(), how={"validation": None}, validation=(FromDataset(double), Y))
    bad("device", device="tpu")
    bad("unknown kernel", kernel="sinc")
    bad("bfloat16.*mixed_precision", backbone=nn.Sequential(network(), Halved()))
    for wrong in ({"epochs": 2.5}, {"batch_size": 32.0}, {"checkpoint_steps": 1.5}, {"validate_every": True}):
        with pytest.raises(TypeError, match="whole number"):
            Training(**wrong)
    with pytest.raises(ValueError, match="tuple of epochs"):
        Milestones(100)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="lies between 0 and 1"):
        Training(validation=np.float32(1.5))  # pyright: ignore[reportArgumentType]


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.bfloat16()


def test_what_is_wrong_with_the_head_shows_before_any_work() -> None:
    """Though it joins the network only later."""
    joint = {"epochs": 2, "cross_entropy_epochs": 1}
    bad("Unknown tree", how=joint, tree="nonsense", source=Untouched())
    bad("cap=3", how=joint, head=VariationalTree(cap=3), source=Untouched())
    bad("size", RuntimeError, how=joint, kernel=ScaleKernel(RBFKernel(ard_num_dims=5)), source=Untouched())


class Untouched(Arrays):
    """Pictures that may be looked at, and not trained on."""

    def __init__(self) -> None:
        super().__init__(X)

    def batches(self, plan: Any, *others: Any) -> Any:
        assert all(batch.seed is None for batch in plan)
        return super().batches(plan, *others)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there() -> None:
    bad("no CUDA device", device="cuda")
    bad("fp16", how={"mixed_precision": "fp16"})


def test_without_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    bad(r"gptree\[deep\]", ImportError)


def test_the_first_head_is_fitted() -> None:
    """From q = p, where the gradient into the embeddings is zero, the bound would have the kernel shrink to nothing."""
    kernel = make_kernel("rbf", 4.0).double()
    settings = {
        "training": Training(batch_size=32, validation=None),
        "head": VariationalTree(inducing=4),
        "kernel": kernel,
    }
    task = Task.checked(Arrays(X), Y, LABELS, None, tree=None, seed=0, **settings)
    embeddings, y = torch.as_tensor(X).flatten(1), torch.as_tensor(Y)
    head = task.new_head(embeddings)
    first = head.bound(embeddings, y).sum()
    head.refit(embeddings, y, 20)
    best = head.bound(embeddings, y).sum()
    nothing = -math.log(2 * math.cosh(1.0)) * head.rows.sum()  # the bound at q = p, where c² is the output scale
    assert best - first < 0.01 * (best - nothing)


def test_embeddings_that_are_all_alike_are_told() -> None:
    with pytest.warns(RuntimeWarning, match="embeddings of all rows are alike"):
        small_train(network(), Arrays(np.ones_like(X)), Y)


def test_a_collapse_is_told() -> None:
    """A learning rate that kills the kernel: with large natural steps the posterior is soon its prior."""
    how = {"epochs": 6, "learning_rate": 0.1, "head_learning_rate": 100.0}
    with pytest.warns(RuntimeWarning, match="lost what they knew"):
        small_train(network(), Arrays(X), Y, how=how, head=VariationalTree(inducing=3, step=0.5, dtype="float64"))
