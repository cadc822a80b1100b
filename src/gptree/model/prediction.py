"""From mapped features to class log-probabilities, built once: experts, nodes, paths, mean over the trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gptree.experts import FittedExpert
from gptree.inference import PredictAt
from gptree.maths.frozen import NotFrozenError, Parts, Rows
from gptree.model.forest import ForestModel


class Prediction(nn.Module):
    """Class log-probabilities (T, C) of a forest around experts.

    Parameters
    ----------
    model : ForestModel
    experts : FittedExpert or None
        Whose log-odds are the nodes' prior means; None for zero means.
    class_log_prior : array (C,) or None
        Added to the experts' scores.
    unit_length : bool
        Whether the features have unit length: experts see them as they are.
    predict_at : "mean" or "quadrature"
        Of a frozen prediction.
    frozen : bool
        Whether all state must be in buffers and every operation one that torch.export knows; raises `NotFrozenError`
        where that cannot be.
    """

    log_prior: Tensor | None

    def __init__(
        self,
        model: ForestModel,
        experts: FittedExpert | None,
        class_log_prior: np.ndarray | None,
        unit_length: bool,
        predict_at: PredictAt = "mean",
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.nodes: Any
        self.experts: Any
        X = model.predictor.grams.X
        self.unit_length, self.n_classes = unit_length, model.n_classes
        centre = None if unit_length or not len(X) else X.mean(0)

        def build(code: bool) -> list[Parts]:
            parts = [Parts(frozen, centre)] if unit_length else [Parts(frozen, centre), Parts(frozen)]
            self.nodes = model.predictor.layer(parts[0])
            self.experts = None if experts is None else CodeScores(experts) if code else experts.frozen(parts[-1])
            return parts

        try:
            parts = build(code=False)
        except NotFrozenError:
            if frozen:
                raise
            parts = build(code=True)
        prior = None if class_log_prior is None else torch.as_tensor(class_log_prior[None]).to(X)
        self.register_buffer("log_prior", prior)
        self.paths = model.paths
        self._predictor = None if frozen else model.predictor
        self.variances: Any = None
        if frozen and predict_at == "quadrature":
            self.variances = model.predictor.frozen_variances(self.nodes)
        self.shared = nn.ModuleList([each.shared() for each in parts])
        self.width = sum(len(points) for name, points in self.named_buffers() if name.endswith("points"))
        """How many points a row is compared with."""

    def forward(self, x: Tensor, predict_at: PredictAt = "mean", raw: Any = None) -> Tensor:
        """(T, C), of mapped features x (T, d) and, for experts that ask for them, what these were computed from.

        A frozen prediction has the `predict_at` that it was made with.
        """
        if self.n_classes == 1:
            return x.new_zeros(x.shape[0], 1)
        rows = Rows(x, raw)
        odds = None
        if self.experts is not None:
            scores = self.experts(rows if self.unit_length else Rows(unit_rows(x), raw))
            odds = self.paths.log_odds(scores if self.log_prior is None else scores + self.log_prior)
        elif self.log_prior is not None:
            odds = self.paths.log_odds(self.log_prior)
        variances = None
        if self.variances is not None:
            variances = self.variances(rows)
        elif predict_at == "quadrature" and self._predictor is not None:
            variances = self._predictor.variances(rows, self.nodes.kernel)
        return self.paths.class_log_probabilities(*self.nodes(rows, odds, variances))


class CodeScores(nn.Module):
    """An expert that is known by its code alone."""

    def __init__(self, expert: FittedExpert) -> None:
        super().__init__()
        self._expert = expert

    def forward(self, rows: Rows) -> Tensor:
        return self._expert.log_probabilities(rows.x, rows.raw)


def unit_rows(x: Tensor) -> Tensor:
    """Rows divided by their length, as `gptree.maths.sphere.unit_length` does it."""
    tiny = torch.finfo(x.dtype).tiny
    scaled = x / x.abs().amax(1, keepdim=True).clamp_min(tiny)
    return scaled / torch.linalg.vector_norm(scaled, dim=1, keepdim=True).clamp_min(tiny)
