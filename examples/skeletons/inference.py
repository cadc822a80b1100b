"""An inference to copy: rename, fill in `fit`, and use it as `GPTreeClassifier(inference="fixed-omega")`.

Importing the module is enough; a file in src/gptree/inference is found without any import. Models are saved and loaded,
nodes of classes that arrive later are fitted by it, and a grid search reaches its fields: {"inference__omega": [0.1]}.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gptree.inference import Diagnostics, Grams, Inference, NodeBatch, NodePosterior, make_posterior
from gptree.settings import require


@dataclass(frozen=True)
class FixedOmega(Inference):
    """Every Pólya-Gamma variable at the same value: the posterior of GP regression on y − ½ with noise 1 / ω.

    Parameters
    ----------
    omega : float
        ω of a row of weight 1; ¼ is its prior mean.
    """

    omega: float = 0.25

    name = "fixed-omega"
    sparse = True  # `grams.space` and `make_posterior` know inducing points, and nothing here is against them

    def __post_init__(self) -> None:
        require(self.omega > 0, f"omega must be positive, got {self.omega}.")

    def fit(self, batch: NodeBatch, grams: Grams, work: int) -> tuple[NodePosterior, Diagnostics]:
        space, root, jitter = grams.space(batch)
        # one Gaussian site exp(κ f − ½ ω f²) a point; b is 0 on padding, and so is ω
        omega = (self.omega * batch.b).unsqueeze(0)
        posterior = make_posterior(batch, space, omega, work, root=root)
        return posterior, Diagnostics(batch.nodes, torch.ones_like(batch.nodes), jitter=jitter)
