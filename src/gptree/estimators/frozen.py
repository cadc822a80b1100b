"""Frozen classifiers: the prediction alone, as a torch module."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gptree.estimators.feature_map import SphereMap
from gptree.estimators.state import FittedState, is_unit
from gptree.estimators.validation import placement
from gptree.inference import PredictAt
from gptree.maths.frozen import NotFrozenError
from gptree.model import Prediction, unit_rows


class FrozenClassifier(nn.Module):
    """Class probabilities (T, C) of raw features (T, d), and nothing else: a module that learns nothing any more.

    Of a deep classifier it takes the inputs of its network. All its state is in buffers, but for the weights of a
    network, which ask for no gradients. It needs no gptree object, can be moved, saved by its `state_dict`, and
    exported by torch.export.

    Attributes
    ----------
    classes : ndarray (C,)
        Labels of the columns.
    """

    def __init__(
        self, classes: np.ndarray, features: nn.Module, prediction: nn.Module, rows_at_a_time: int | None = None
    ) -> None:
        super().__init__()
        self.classes, self.rows_at_a_time = classes, rows_at_a_time
        self.features, self.prediction = features, prediction

    def forward(self, X: Tensor) -> Tensor:
        return self.log_probabilities(X).exp()

    def log_probabilities(self, X: Tensor) -> Tensor:
        """Their logarithms (T, C)."""
        step = self.rows_at_a_time
        if torch.compiler.is_compiling() or step is None or not X.is_cpu or len(X) <= step:
            return self.prediction(self.features(X))
        return torch.cat([self.prediction(self.features(some)) for some in X.split(step)])


class FrozenMap(nn.Module):
    """The feature map: as `SphereMap` or `UnitLength` have it, or none; then the dtype of the model."""

    like: Tensor
    mean: Tensor | None

    def __init__(self, feature_map: Any, dtype: torch.dtype) -> None:
        super().__init__()
        if feature_map is not None and not is_unit(feature_map):
            raise NotFrozenError(
                f"the feature map {type(feature_map).__name__} cannot be frozen: it is code. Transform the features "
                'before, and fit with feature_map="sphere", "unit" or None.'
            )
        sphere = isinstance(feature_map, SphereMap)
        self.unit = is_unit(feature_map)
        self.roots = sphere and bool(feature_map.non_negative_)
        self.register_buffer("mean", torch.as_tensor(feature_map.mean_).to(dtype) if sphere else None)
        self.register_buffer("like", torch.zeros((), dtype=dtype))

    def forward(self, X: Tensor) -> Tensor:
        if self.unit:
            X = unit_rows(X.clamp(min=0.0).sqrt() if self.roots else X)
        if self.mean is not None:
            X = unit_rows(X - self.mean.to(X.dtype))
        return X.to(self.like.dtype)


@torch.no_grad()
def freeze(state: FittedState, predict_at: PredictAt, dtype: str | None) -> FrozenClassifier:
    """The prediction of a state as a module, in a precision; None is that of the model."""
    wanted = None if dtype is None else placement(dtype, "cpu")[0]
    prediction = Prediction(
        state.model, state.experts, state.class_log_prior, is_unit(state.feature_map), predict_at, frozen=True
    )
    step = state.model.rows_at_a_time(state.X, prediction.width)
    frozen = FrozenClassifier(state.classes.copy(), FrozenMap(state.feature_map, state.X.dtype), prediction, step)
    frozen = copy.deepcopy(frozen).eval()  # nothing of it is the model's
    return frozen if wanted is None else frozen.to(wanted)
