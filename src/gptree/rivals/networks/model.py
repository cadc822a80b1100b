"""`Model`: a network and the classifier on it, cut where training begins; `BaseNetwork`: one trained on the base."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from gptree.deep import Objective, ObjectiveLayer, StagedBackbone
from gptree.estimators.deep_inputs import Inputs
from gptree.rivals.networks.blocks import precise
from gptree.rivals.networks.settings import Trainable
from gptree.settings import require
from gptree.storage import (
    StorageError,
    as_tuples,
    below,
    decode,
    encode,
    labels_from_json,
    labels_to_json,
    read_folder,
    write_folder,
)

KIND = "base network"


class Outputs(NamedTuple):
    """Of a model for a batch, in single precision at least."""

    features: Tensor
    """(B, d)."""
    logits: Tensor
    """(B, C)."""
    maps: tuple[Tensor, ...]
    """Maps of the stages that are trained, where they were asked for; else none."""


class Model(nn.Module):
    """A network and a classifier on its features.

    Parameters
    ----------
    network : nn.Module
        From inputs to features (B, d).
    classifier : nn.Module
        From features to scores (B, C); `SessionClassifier` or one like it.
    """

    def __init__(self, network: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.network, self.classifier = network, cast(Any, classifier)

    def forward(self, x: Tensor) -> Tensor:
        """The features (B, d)."""
        return self.network(x)

    @torch.no_grad()
    def trunk(self, x: Tensor, trainable: Trainable) -> Tensor:
        """What enters the part of the network that is trained."""
        return staged(self.network).trunk(x) if trainable == "last-block" else x

    def outputs(self, entered: Tensor, trainable: Trainable, maps: bool) -> Outputs:
        """From there to features and scores, with the maps of the stages or without."""
        if trainable == "last-block":
            found = staged(self.network).top(entered)
        elif maps:
            found = staged(self.network).stages(entered)
        else:
            found = None
        features = precise(self.network(entered) if found is None else found.features)
        with torch.autocast(features.device.type, enabled=False):
            logits = self.classifier(features)
        return Outputs(features, logits, found.maps if maps and found is not None else ())

    def trained_parameters(self, trainable: Trainable) -> list[nn.Parameter]:
        """Parameters of the network that sessions train; those of batch normalisation are never among them."""
        if callable(trainable):
            chosen = list(trainable(self.network))
        elif trainable == "all":
            chosen = list(self.network.parameters())
        else:
            chosen = [p for module in staged(self.network).top_modules() for p in module.parameters()]
        fixed = {p for module in self.network.modules() if isinstance(module, _BatchNorm) for p in module.parameters()}
        return [p for p in chosen if p not in fixed]


def frozen(model: Model) -> Model:
    """The model in eval mode, without gradients."""
    return model.eval().requires_grad_(False)


def staged(network: nn.Module) -> StagedBackbone:
    """The network, if it can be cut and shows its stages; else an error."""
    if not isinstance(network, StagedBackbone):
        raise TypeError(
            f"{type(network).__name__} does not say what its last block and its stages are: give it the methods of "
            'gptree.deep.StagedBackbone, use resnet18 or convnet, or SessionTraining(trainable="all").'
        )
    return network


def require_signed(network: nn.Module, method: str) -> None:
    """Raise unless the network says that its features have both signs."""
    if getattr(network, "rectified", True):
        raise ValueError(
            f"{method} compares features of both signs, and {type(network).__name__} ends in a rectifier or does not "
            "say: use resnet18(last_relu=False), a network with a linear embedding layer, or set network.rectified = "
            "False on one of your own whose features are not rectified."
        )


@dataclass(frozen=True, eq=False)
class BaseNetwork:
    """A network trained on the base classes, with its objective's layer: a value that several rivals can start from.

    `NetworkRival.train_base` makes one. Rivals whose settings have an equal `objective` can share it.

    Attributes
    ----------
    network : nn.Module
    layer : ObjectiveLayer
    labels : ndarray (C,)
        Sorted.
    inputs : Inputs
    log : list of dict
        As `gptree.deep.Trained` has it.
    """

    network: nn.Module
    layer: ObjectiveLayer
    labels: np.ndarray
    inputs: Inputs
    log: list[dict[str, Any]]

    @property
    def objective(self) -> Objective:
        """What it was trained with."""
        return self.layer.objective

    def to(self, device: torch.device) -> BaseNetwork:
        """Copies on a device; pictures in the order that is fastest there."""
        network, layer = copy.deepcopy(self.network).to(device), copy.deepcopy(self.layer).to(device)
        if device.type == "cuda":
            network = network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        return BaseNetwork(network.eval(), layer.eval(), self.labels, self.inputs, self.log)

    def save(self, folder: str | Path) -> None:
        """Write it to a folder; the backbone itself is not stored, only its weights."""
        inputs = self.inputs
        document = {
            "kind": KIND,
            "objective": encode("objective", self.objective),
            "labels": labels_to_json(self.labels),
            "inputs": {"shape": inputs.shape, "mean": inputs.mean, "std": inputs.std, "dtype": inputs.dtype},
            "log": self.log,
        }
        parts = {"network": self.network, "layer": self.layer}
        tensors = {f"{part}.{name}": t for part, module in parts.items() for name, t in module.state_dict().items()}
        write_folder(folder, document, tensors)

    @classmethod
    def load(cls, folder: str | Path, backbone: nn.Module) -> BaseNetwork:
        """Read it, with the weights in a copy of the backbone; on the CPU."""
        document, tensors = read_folder(folder)
        if document.get("kind") != KIND:
            raise StorageError(f"{folder} holds no base network.")
        network = copy.deepcopy(backbone).cpu()
        network.load_state_dict(below("network", tensors))
        labels, weights = labels_from_json(document["labels"]), below("layer", tensors)
        width = weights["weight"].shape[-1]
        layer = decode(document["objective"]).layer(width, len(labels), 0, weights["weight"].dtype)
        layer.load_state_dict(weights)
        inputs = Inputs(**{name: as_tuples(value) for name, value in document["inputs"].items()})
        return cls(network.eval(), layer, labels, inputs, document["log"])


def require_base(base: BaseNetwork, objective: Objective, labels: np.ndarray) -> None:
    """Raise unless a base network is of these classes, and was trained with this objective."""
    require(
        base.objective == objective,
        f"the base network was trained with {base.objective}, and this method needs {objective}: train another one "
        "with train_base.",
    )
    require(
        np.array_equal(base.labels, labels),
        f"the base network knows {len(base.labels)} classes that are not the {len(labels)} of y: give the rows of its "
        "own base session.",
    )
