"""`State`: everything that changes while a network is trained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gptree.deep.heads.base import DeepHead
from gptree.deep.objectives import ObjectiveLayer
from gptree.deep.settings import Training
from gptree.storage import below

Layer = ObjectiveLayer | DeepHead


@dataclass(frozen=True)
class Best:
    """The best state so far, by what was measured on the validation rows."""

    epoch: int
    value: float
    tensors: dict[str, Tensor]


@dataclass
class State:
    """A training in progress. Epochs and steps are counted from 0; `epoch` and `step` are the next to be done."""

    network: nn.Module
    layer: Layer
    training: Training
    beside: ObjectiveLayer | None = None
    """The objective's layer once a head has taken its place, where it goes on being trained."""
    epoch: int = 0
    step: int = 0
    log: list[dict[str, Any]] = field(default_factory=list)
    best: Best | None = None

    def __post_init__(self) -> None:
        self.optimiser = make_optimiser(self.training, self.network, self.layer, self.beside)
        device = next(self.layer.parameters()).device
        self.total = torch.zeros((), dtype=torch.float64, device=device)  # of the losses of this epoch
        self.started = time.perf_counter()

    @property
    def head(self) -> DeepHead | None:
        return self.layer if isinstance(self.layer, DeepHead) else None

    def join(self, head: DeepHead) -> None:
        """The head takes the place of the objective's layer; the momentum of what is still trained goes on."""
        assert isinstance(self.layer, ObjectiveLayer)
        before, self.beside = self.optimiser.state, self.layer if self.training.objective_weight else None
        self.layer = head
        self.optimiser = make_optimiser(self.training, self.network, head, self.beside)
        for _, p in self._parameters():
            if p in before:
                self.optimiser.state[p] = before[p]

    def loss_beside(self, embeddings: Tensor, y: Tensor) -> Tensor | float:
        """The part of the loss that the objective adds to the head's."""
        return 0.0 if self.beside is None else self.training.objective_weight * self.beside.plain_loss(embeddings, y)

    def set_rate(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group["times"]

    def begin_epoch(self, epoch: int) -> None:
        self.epoch, self.step = epoch, 0
        self.total.zero_()
        self.started = time.perf_counter()

    # ------------------------------------------------------------------------------------------------- as tensors

    def model_tensors(self) -> dict[str, Tensor]:
        """Network and layers, by name; not copied."""
        parts = self._parts().items()
        return {f"{part}.{name}": value for part, module in parts for name, value in module.state_dict().items()}

    def load_model(self, tensors: dict[str, Tensor]) -> None:
        for part, module in self._parts().items():
            module.load_state_dict(below(part, tensors))

    def momentum(self) -> dict[str, Tensor]:
        buffers = {name: self.optimiser.state.get(p, {}).get("momentum_buffer") for name, p in self._parameters()}
        return {f"momentum.{name}": value for name, value in buffers.items() if value is not None}

    def load_momentum(self, tensors: dict[str, Tensor]) -> None:
        for name, p in self._parameters():
            stored = tensors.get(f"momentum.{name}")
            if stored is not None:  # in the parameter's own memory format
                self.optimiser.state[p]["momentum_buffer"] = torch.empty_like(p).copy_(stored)

    def all_finite(self) -> Tensor:
        """Whether the losses of the epoch and all of network and layer are, one boolean on the device."""
        # not the buffers of a kernel: the bounds of its hyper-parameters may be infinite
        values = [*self.network.buffers(), *self.layer.buffers(recurse=False), *(p for _, p in self._parameters())]
        return torch.stack([value.isfinite().all() for value in [self.total, *values]]).all()

    def _parts(self) -> dict[str, nn.Module]:
        parts: dict[str, nn.Module] = {"network": self.network, "layer": self.layer}
        return parts if self.beside is None else parts | {"beside": self.beside}

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for part, module in self._parts().items():
            for name, parameter in module.named_parameters():
                yield f"{part}.{name}", parameter


def make_optimiser(
    training: Training, network: nn.Module, layer: Layer, beside: ObjectiveLayer | None
) -> torch.optim.SGD:
    """Stochastic gradient descent; matrices decay (see `Training`), nothing in a head does."""
    is_head = isinstance(layer, DeepHead)
    linear = beside if is_head else layer
    parameters = [*network.parameters(), *([] if linear is None else linear.parameters())]
    matrices, vectors = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": training.weight_decay, "times": 1.0},
        {"params": vectors, "weight_decay": 0.0, "times": 1.0},
        {"params": [*layer.parameters()] if is_head else [], "weight_decay": 0.0, "times": training.head_learning_rate},
    ]
    for group in groups:
        group["params"] = [p for p in group["params"] if p.requires_grad]
    return torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=training.learning_rate,
        momentum=training.momentum,
        nesterov=training.nesterov,
        fused=True if next(layer.parameters()).is_cuda else None,
    )
