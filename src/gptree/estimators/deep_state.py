"""The fitted state of a deep classifier: one frozen value that fitting and loading return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gptree.deep import ObjectiveLayer, TreeHead, WeightedEnsemble
from gptree.deep import embed as embed_rows
from gptree.deep.loop.task import Rows
from gptree.estimators.deep_inputs import Inputs


@dataclass(frozen=True, eq=False)
class DeepState:
    """Everything that a deep classifier has learnt; either `ensemble` or `classifier` predicts."""

    network: nn.Module
    labels: np.ndarray
    """(C,) labels trained on, sorted."""
    inputs: Inputs
    """What inputs look like, and how they are normalised."""
    seed: int
    device: torch.device
    rows: np.ndarray
    """Rows trained on."""
    log: list[dict[str, Any]]
    """A row an epoch."""
    best_epoch: int
    ensemble: WeightedEnsemble | None = None
    """The layers on top of the network, where they predict."""
    classifier: Any = None
    """The fitted estimator on the embedding, where it predicts."""

    @property
    def head(self) -> TreeHead:
        """The variational head, where it predicts."""
        assert self.ensemble is not None
        if isinstance(self.ensemble.first, ObjectiveLayer):
            raise AttributeError("there is no tree: all epochs were cross-entropy (cross_entropy_epochs=epochs).")
        return self.ensemble.first

    def prediction_arguments(self, predict_at: str) -> tuple[str, ...]:
        """What the layers must know of how to predict: a tree, where."""
        return (predict_at,) if self.ensemble is not None and isinstance(self.ensemble.first, TreeHead) else ()

    @property
    def classes(self) -> np.ndarray:
        """(C,) labels: sorted, and after them those that arrived later."""
        return self.labels if self.classifier is None else self.classifier.classes_

    def predict_log_proba(self, X: Any, predict_at: str) -> np.ndarray:
        """Class log-probabilities (n, C) of inputs."""
        return self.answers(self.embed(X), predict_at)

    def answers(self, embeddings: Tensor, predict_at: str) -> np.ndarray:
        """Class log-probabilities (n, C) of embeddings."""
        if self.ensemble is None:
            return self.classifier.predict_log_proba(embeddings.cpu().numpy())
        how = self.prediction_arguments(predict_at)
        return self.ensemble.log_probabilities(embeddings.to(self.device), *how).cpu().numpy()

    def embed(self, X: Any) -> Tensor:
        """Embeddings (n, d) of inputs."""
        source = self.inputs.source(X)
        return embed_rows(self.network, source, np.arange(len(source)), self.device)

    def clean(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Embeddings of inputs without augmentation, and their class numbers."""
        classes = torch.as_tensor(rows.y, device=self.device)
        return embed_rows(self.network, rows.source, rows.rows, self.device), classes
