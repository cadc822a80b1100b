"""Embeddings of clean inputs, and how good class probabilities are."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from gptree.deep.data.sources import Source, whole
from gptree.deep.loop.processes import Processes
from gptree.deep.loop.rows import clean_plan

#: Rows that the network embeds together.
ROWS_AT_ONCE = 512
#: A true class given less than this counts as given this much: one row costs at most 34.5 nats.
LEAST_PROBABILITY = 1e-15
#: Bins of confidence, of equal width.
BINS = 15


@torch.no_grad()
def embed(
    network: nn.Module, source: Source, rows: np.ndarray, device: torch.device, group: Processes | None = None
) -> Tensor:
    """Embeddings (len(rows), d) of clean inputs in eval mode; the processes of a group share the work."""
    part, training = whole if group is None else group.part, network.training
    network.eval()
    plan = clean_plan(rows, ROWS_AT_ONCE)
    found = []
    for batch, x in zip(plan, source.batches(plan, device, part), strict=True):
        own = _embedded(network, x)
        found.append(own if group is None else group.gather(own, len(batch.rows)))
    network.train(training)
    return torch.cat(found)


def precision_of(network: nn.Module) -> torch.dtype | None:
    """What a network computes in: the dtype of its first parameter of floats, None without one."""
    return next((p.dtype for p in network.parameters() if p.is_floating_point()), None)


def _embedded(network: nn.Module, x: Tensor) -> Tensor:
    try:
        return network(x)
    except RuntimeError as error:  # which torch raises for numbers of two precisions, without a word on who has which
        own = precision_of(network)
        if x.is_floating_point() and own not in (None, x.dtype):
            raise TypeError(
                f"inputs are {x.dtype} and the network computes in {own}: turn them into {own}, in the transform of a "
                f"data set or before, or the network into {x.dtype}."
            ) from error
        raise


def measure(log_p: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, mean −log p of the true class, and expected calibration error of log-probabilities (n, C)."""
    log_p = log_p.double()
    log_confidence, predicted = log_p.max(-1)
    confidence, right = log_confidence.exp(), (predicted == y).double()
    own = log_p.gather(1, y[:, None]).clamp_min(math.log(LEAST_PROBABILITY))
    inner = torch.arange(1, BINS, device=y.device).double() / BINS
    bins = torch.bucketize(confidence, inner)  # a bin holds its upper edge
    # Σ_b count_b / n · |accuracy_b − confidence_b| = 1/n Σ_b |Σ_{i in b} right_i − confidence_i|
    gaps = confidence.new_zeros(BINS).index_add_(0, bins, right - confidence)
    values = torch.stack([right.mean(), -own.mean(), gaps.abs().sum() / len(y)])
    return dict(zip(("accuracy", "nll", "ece"), values.tolist(), strict=True))
