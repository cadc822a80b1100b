"""Classifiers that grow by a matrix of class rows a session, and the objectives that train their first rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import normalize

from gptree.deep import Objective, ObjectiveLayer
from gptree.rivals.networks.blocks import unit


class SessionClassifier(nn.Module):
    """Class scores (B, C) of features (B, d), columns in order of arrival.

    Without a scale they are w_cᵀ f / ‖f‖, with one scale · cos(w_c, f).

    Parameters
    ----------
    rows : iterable of Tensor (k, d)
        The class rows of each session; each becomes a parameter of its own, so that some can stay out of an optimiser.
    scale : Tensor (1,) or None

    Attributes
    ----------
    rows : ParameterList
    scale : Parameter or None
    """

    def __init__(self, rows: Iterable[Tensor], scale: Tensor | None = None) -> None:
        super().__init__()
        self.rows = nn.ParameterList(nn.Parameter(block.detach().clone()) for block in rows)
        self.scale = None if scale is None else nn.Parameter(scale.detach().clone())

    @property
    def weight(self) -> Tensor:
        """(C, d), the rows of all sessions."""
        return torch.cat([*self.rows])

    @property
    def sizes(self) -> list[int]:
        """Columns of each session."""
        return [len(block) for block in self.rows]

    def grow(self, rows: Tensor) -> None:
        """Add the class rows (k, d) of a session."""
        self.rows.append(nn.Parameter(rows.detach().clone()))

    def cosines(self, features: Tensor) -> Tensor:
        """(B, C), before the scale."""
        return unit(features) @ normalize(self.weight, dim=1).T

    def forward(self, features: Tensor) -> Tensor:
        if self.scale is not None:
            return self.scale * self.cosines(features)
        return unit(features) @ self.weight.T


@dataclass(frozen=True, kw_only=True)
class LearnedCosine(Objective):
    """Cross-entropy of the softmax of η cos(w_c, f) with η learned, from 1 on; `Objective` has more parameters.

    `unit_rows` makes of it the linear layer on unit features that Tao et al. (2020) have. Trained as that layer, weight
    decay keeps its rows short, no row is ever fitted, and the network learns less; the scale has no decay.
    """

    name: ClassVar[str] = "learned-cosine"

    def layer(self, width: int, n_classes: int, seed: int, dtype: torch.dtype) -> ScaledLayer:
        return ScaledLayer(self, width, n_classes, seed, dtype)

    def logits(self, layer: ObjectiveLayer, embeddings: Tensor) -> Tensor:
        assert isinstance(layer, ScaledLayer)
        return layer.scale * functional.linear(unit(embeddings), normalize(layer.weight, dim=1))

    def cost(self, logits: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(logits, y)


def unit_rows(layer: ObjectiveLayer) -> Tensor:
    """(C, d) rows v_c = η w_c / ‖w_c‖ of the layer of `LearnedCosine`: v_cᵀ f / ‖f‖ are its logits."""
    assert isinstance(layer, ScaledLayer)
    return layer.scale * normalize(layer.weight, dim=1)


class ScaledLayer(ObjectiveLayer):
    """An objective's layer with a scale."""

    def __init__(self, objective: Objective, width: int, n_classes: int, seed: int, dtype: torch.dtype) -> None:
        super().__init__(objective, width, n_classes, seed, dtype)
        self.scale = nn.Parameter(torch.ones(1, dtype=dtype))
