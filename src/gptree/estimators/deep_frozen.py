"""Frozen deep classifiers: pixels, network and what predicts on its embeddings, as one torch module."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gptree.deep import ObjectiveLayer, TreeHead, WeightedEnsemble
from gptree.deep.heads.forest import as_forest
from gptree.estimators.deep_inputs import Inputs
from gptree.estimators.deep_state import DeepState
from gptree.estimators.frozen import FrozenClassifier
from gptree.estimators.validation import placement
from gptree.inference import PredictAt
from gptree.maths.frozen import NotFrozenError
from gptree.model import Prediction


class FrozenInputs(nn.Module):
    """Inputs as the network takes them: pictures in uint8 become (x/255 − mean)/std, floats the network's dtype."""

    like: Tensor
    scale: Tensor | None
    shift: Tensor | None

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        scale = shift = None
        if inputs.mean is not None and inputs.std is not None:
            mean, std = torch.tensor([inputs.mean, inputs.std], dtype=torch.float64)[:, :, None, None]
            scale, shift = (1 / (255 * std)).float(), (-mean / std).float()  # as `Arrays` has them
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self.register_buffer("like", torch.zeros((), dtype=getattr(torch, inputs.dtype)))

    def forward(self, X: Tensor) -> Tensor:
        x = X.to(self.like.dtype)
        return x if self.scale is None or self.shift is None else x * self.scale + self.shift


class FrozenTree(nn.Module):
    """Class log-probabilities (T, C) of embeddings, by the trained tree."""

    like: Tensor

    def __init__(self, head: TreeHead, predict_at: PredictAt) -> None:
        super().__init__()
        # its factors may take all the memory they need: `NotFrozenError` bounds what is kept of them
        model = as_forest(head, (head.points.dtype, head.points.device), 2**34, grows=False)
        self.prediction = Prediction(model, None, None, True, predict_at, frozen=True)
        self.register_buffer("like", head.points.new_zeros(()))

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.prediction(normalize(embeddings.to(self.like.dtype), dim=-1))


class FrozenSoftmax(nn.Module):
    """Class log-probabilities (T, C) of embeddings, by the layer of an objective."""

    def __init__(self, layer: ObjectiveLayer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, embeddings: Tensor) -> Tensor:
        return self.layer.scores(embeddings.to(self.layer.weight.dtype)).log_softmax(-1)


class FrozenEnsemble(nn.Module):
    """The weighted product of what the layers say, as `WeightedEnsemble` has it."""

    weights: Tensor

    def __init__(self, ensemble: WeightedEnsemble, predict_at: PredictAt) -> None:
        super().__init__()
        layers: Iterable[nn.Module] = ensemble.layers
        self.layers = nn.ModuleList(
            [FrozenTree(each, predict_at) if isinstance(each, TreeHead) else _softmax(each) for each in layers]
        )
        self.register_buffer("weights", ensemble.weights.clone())

    def forward(self, embeddings: Tensor) -> Tensor:
        logs = torch.stack([layer(embeddings).to(self.weights.dtype) for layer in self.layers])
        return (self.weights[:, None, None] * logs).sum(0).log_softmax(-1)


def _softmax(layer: nn.Module) -> FrozenSoftmax:
    if not isinstance(layer, ObjectiveLayer):
        raise NotFrozenError(f"the layer {type(layer).__name__} cannot be frozen: it is code.")
    return FrozenSoftmax(layer)


@torch.no_grad()
def freeze_deep(state: DeepState, predict_at: PredictAt, dtype: str | None) -> FrozenClassifier:
    """The prediction of a state as a module, in a precision; None is that of network and head, or classifier."""
    wanted = None if dtype is None else placement(dtype, "cpu")[0]
    features: nn.Module = nn.Sequential(FrozenInputs(state.inputs).to(state.device), state.network)
    if state.ensemble is not None:
        prediction: nn.Module = FrozenEnsemble(state.ensemble, predict_at)
    elif hasattr(state.classifier, "freeze"):
        inner = state.classifier.freeze()
        features, prediction = nn.Sequential(*features, inner.features), inner.prediction
    else:
        raise NotFrozenError(f"the classifier {type(state.classifier).__name__} cannot be frozen: it is code.")
    frozen = copy.deepcopy(FrozenClassifier(state.classes.copy(), features, prediction))  # nothing of it is the model's
    frozen = frozen.eval().requires_grad_(False)
    return frozen if wanted is None else frozen.to(wanted)


def without_network(frozen: FrozenClassifier) -> FrozenClassifier:
    """What follows the network of a frozen deep classifier: from embeddings to probabilities."""
    _, _, *others = frozen.features.children()
    return FrozenClassifier(frozen.classes, nn.Sequential(*others), frozen.prediction)
