"""A training step of the tree.

What does the tree cost in a training step of a network?

In double precision {mean step | classes=100 | inducing=40 | dtype=float64 | cap=null} ms with 100 classes and 40
inducing points each, {mean ratio | classes=100 | inducing=40 | dtype=float64 | cap=null} of a step of the network (the
authors' code: {mean authors | classes=100 | inducing=40 | dtype=float64 | cap=null} ms); with at most 1,024 points a
node {mean step | classes=100 | inducing=40 | cap=1024} ms. Single precision is the default ([what it
costs](deep-precision.md)), and its step is not measured yet.

Set-up
------
Forward, backward and the variational update, embeddings given. Beside it, in the same run, a whole step of a softmax
ResNet-18 (CIFAR stem, batch 256, TF32). Made-up embeddings around made-up class means; the tree is built from them as
in training. Wall-clock milliseconds on a GPU. The authors' code was measured on a card of the same
kind. With its products in TF32, too, which they never are in a training, a head in single precision took 10.4 ms with
100 classes and 40 points.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from gptree.deep import TreeHead, VariationalTree, resnet18
from gptree.maths import make_kernel
from gptree.tree import build_tree

GROUP, NEEDS_DATA = "Speed and size", False

SPREAD = 0.5  # of a class around its mean, relative to the length of the means
WARM_UP, STEPS = 10, 50
#: Milliseconds a step that the method's authors' code takes on the same kind of card (classes, points, size, batch).
AUTHORS = {(60, 5, 512, 128): 446, (100, 5, 512, 128): 664, (100, 40, 1024, 256): 1029}

COLUMNS = {
    "step": Column("step (ms)", "metrics.head.median", digits=1),
    "ratio": Column("of a softmax ResNet-18 step", "metrics.ratio", digits=2),
    "authors": Column("authors' code (ms)", "metrics.authors", digits=0),
    "memory": Column("memory (MB)", "metrics.bytes", scale=1e-6, digits=0),
}


def trials(seeds: int) -> list[Trial]:
    settings = [
        {"classes": c, "inducing": m, "embedding": d, "batch": b, "dtype": dtype, "cap": None}
        for c, m, d, b in AUTHORS
        for dtype in ("float64", "float32")
    ]
    capped = {"classes": 100, "inducing": 40, "embedding": 1024, "batch": 256, "dtype": "float64", "cap": 1024}
    return [
        Trial("deep-step", "gptree tree", "made-up", seed, each)
        for seed in range(seeds)
        for each in (*settings, capped)
    ]


def needs_gpu(trial: Trial) -> bool:
    return True


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    s = trial.settings
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    random = torch.Generator().manual_seed(trial.seed)
    head, draw = make_head(random, device, **{k: s[k] for k in ("classes", "inducing", "embedding", "dtype", "cap")})
    batches = [draw(s["batch"]) for _ in range(8)]

    def step(i: int) -> None:
        x, y = batches[i % len(batches)]
        head.loss(x.requires_grad_(), y).backward()
        head.update()
        head.zero_grad()
        x.grad = None

    step(0)  # libraries make their workspaces
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    taken = milliseconds(step, device)
    used = torch.cuda.max_memory_allocated() - before if device.type == "cuda" else 0
    softmax = milliseconds(softmax_step(device), device)
    key = (s["classes"], s["inducing"], s["embedding"], s["batch"])
    return {
        "head": taken,
        "softmax": softmax,
        "ratio": taken["median"] / softmax["median"],
        "authors": AUTHORS[key],
        "bytes": used,
        "skipped": int(head.skipped),
        "jitter": float(head.jitter),
        "depth": len(head.tree.levels),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
    }


def make_head(
    random: torch.Generator,
    device: torch.device,
    classes: int,
    inducing: int,
    embedding: int,
    dtype: Any,
    cap: int | None,
) -> tuple[TreeHead, Callable[[int], tuple[Tensor, Tensor]]]:
    """A head over made-up classes, and a source of batches for it."""
    means = torch.nn.functional.normalize(torch.randn(classes, embedding, generator=random), dim=-1)

    def draw(y: Tensor) -> Tensor:
        noise = torch.randn(len(y), embedding, generator=random) / embedding**0.5
        return (means[y] + SPREAD * noise).to(device)

    tree = build_tree(None, means.double().numpy(), list(range(classes)), 0)
    point_class = torch.arange(classes).repeat_interleave(inducing)
    settings = VariationalTree(inducing=inducing, cap=cap, dtype=dtype)
    counts = torch.full((classes,), 500)
    kernel = make_kernel("rbf", 4.0, 1.0)
    head = TreeHead(tree, draw(point_class), point_class.to(device), counts, kernel, settings)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        y = torch.randint(classes, (size,), generator=random)
        return draw(y), y.to(device)

    return head, batch


def softmax_step(device: torch.device, batch: int = 256) -> Callable[[int], None]:
    network = torch.nn.Sequential(resnet18(stem="cifar"), torch.nn.Linear(512, 100))
    network = network.to(device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    y = torch.randint(100, (batch,), device=device)

    def step(_: int) -> None:
        optimiser.zero_grad()
        cross_entropy(network(x), y).backward()
        optimiser.step()

    return step


def milliseconds(step: Callable[[int], None], device: torch.device) -> dict[str, float]:
    """Wall-clock time of one step when many follow each other."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    for i in range(WARM_UP):
        step(i)
    wait()
    each = []
    for _ in range(5):
        start = time.perf_counter()
        for i in range(STEPS // 5):
            step(i)
        wait()
        each.append(1e3 * (time.perf_counter() - start) / (STEPS // 5))
    return {"median": float(np.median(each)), "least": min(each), "most": max(each)}


def tables(rows: list[Row]) -> list[Table]:
    by = [f"settings.{name}" for name in ("classes", "inducing", "embedding", "batch", "dtype", "cap")]
    return [listing("A training step", rows, by, COLUMNS.values())]
