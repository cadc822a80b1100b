"""Embeddings of clean inputs, and the metrics of class log-probabilities."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from gptree.deep.data.base import Source, clean_plan, whole
from gptree.deep.loop.processes import Processes
from gptree.metrics import accuracy, ece, nll

#: Rows that the network embeds together.
ROWS_AT_ONCE = 512


@torch.no_grad()
def embed(
    network: nn.Module, source: Source, rows: np.ndarray, device: torch.device, group: Processes | None = None
) -> Tensor:
    """Embeddings of clean inputs, with the network in eval mode.

    Parameters
    ----------
    network : nn.Module
    source : Source
    rows : int array (n,)
        Row numbers of the source.
    device : torch.device
    group : Processes or None
        The processes of a training, which share the work.

    Returns
    -------
    Tensor (n, d)
    """
    part, training = whole if group is None else group.part, network.training
    network.eval()
    plan = clean_plan(rows, ROWS_AT_ONCE)
    embeddings = []
    for batch, x in zip(plan, source.batches(plan, device, part), strict=True):
        part_of_batch = _embedded(network, x)
        embeddings.append(part_of_batch if group is None else group.gather(part_of_batch, len(batch.rows)))
    network.train(training)
    return torch.cat(embeddings)


def precision_of(network: nn.Module) -> torch.dtype | None:
    """The dtype that a network computes in: that of its first parameter of floats, None without one."""
    return next((p.dtype for p in network.parameters() if p.is_floating_point()), None)


def _embedded(network: nn.Module, x: Tensor) -> Tensor:
    try:
        return network(x)
    except RuntimeError as error:  # which torch raises for numbers of two precisions, without naming them
        dtype = precision_of(network)
        if x.is_floating_point() and dtype not in (None, x.dtype):
            raise TypeError(
                f"inputs are {x.dtype} and the network computes in {dtype}: turn them into {dtype}, in the transform "
                f"of a data set or before, or the network into {x.dtype}."
            ) from error
        raise


def measure(log_p: Tensor, y: Tensor) -> dict[str, float]:
    """Accuracy, NLL and expected calibration error of class log-probabilities.

    Parameters
    ----------
    log_p : Tensor (n, C)
    y : Tensor (n,)
        Class numbers.

    Returns
    -------
    dict
        "accuracy", "nll" and "ece", all NaN where a probability is.
    """
    p = log_p.double().exp()
    measures = {"accuracy": accuracy, "nll": nll, "ece": ece}
    return {name: math.nan if bool(p.isnan().any()) else metric(p, y) for name, metric in measures.items()}
