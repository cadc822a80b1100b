"""The lines of the tables and figures on sessions, and the data sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil.networks import NETWORKS

FROZEN = "cub-frozen"
CUB, MINI, CIFAR = (
    (FROZEN, "cub", "cub-held-out"),
    ("mini-margin", "mini-rotations"),
    ("cifar-plain", "cifar-rotations"),
)
#: Of the studies of the paper's supplement.
STUDIED = (FROZEN, MINI[0])
DATA = {
    FROZEN: "CUB-200, EfficientNet-Lite2 of ImageNet, frozen",
    "cub": "CUB-200, EfficientNet-Lite0 trained on the base classes",
    "cub-held-out": "CUB-200, EfficientNet-Lite0, 5 rows a base class held out",
    "mini-margin": "mini-ImageNet, ResNet-18 trained on the base classes",
    "mini-rotations": "mini-ImageNet, ResNet-18, 20 rows a base class held out",
    "cifar-plain": "CIFAR-100, ResNet-18 trained on the base classes",
    "cifar-rotations": "CIFAR-100, ResNet-18, 25 rows a base class held out",
}


@dataclass(frozen=True)
class Line:
    """A method, and its settings where they are not the usual ones.

    held_out : of the base rows that the network was not trained on: None ignores which they are, "only" fits to them
        alone, "calibrate" fits to all rows and calibrates the forest on them.
    """

    name: str
    method: str
    exemplars: int = 5
    kernel: str = "rbf"
    held_out: str | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Of the trial; a kernel belongs to the paper's tree alone."""
        kernel = {"kernel": self.kernel} if self.method.startswith("paper, ") else {}
        held_out = {} if self.held_out is None else {"held_out": self.held_out}
        return {"exemplars": self.exemplars, **kernel, **held_out}

    @property
    def fields(self) -> dict[str, Any]:
        """What its rows are found by, for `Numbers`; an absent setting is None."""
        return {"method": self.method, "kernel": None, "held_out": None, **self.settings}

    def fits(self, data: str) -> bool:
        """Whether the data has such rows."""
        return self.held_out is None or (data in NETWORKS and NETWORKS[data].training.validation is not None)

    def trial(self, data: str, seed: int) -> Trial:
        return Trial("fscil-sessions", self.method, data, seed, self.settings)

    def of(self, rows: Iterable[Row], data: str) -> list[Row]:
        """Its rows on a data set, one a seed."""
        wanted = data, self.method, self.settings
        return [row for row in rows if (row.trial.data, row.trial.method, dict(row.trial.settings)) == wanted]


PAPER = Line("GP-Tree, the paper's settings", "paper, shared root")
FOREST = Line("gptree forest", "forest, shared root")
FEW = Line("gptree forest, held-out rows only", "forest, shared root", held_out="only")
CALIBRATED = Line("gptree forest, calibrated on held-out rows", "forest, shared root", held_out="calibrate")
RIVALS = (
    Line("nearest class mean", "rival: class-mean"),
    Line("TEEN, α = 0.5", "rival: teen"),
    Line("TEEN, α = 0.1", "rival: teen-0.1"),
    Line("streaming LDA", "rival: slda"),
    Line("RanPAC", "rival: ranpac"),
    Line("RanPAC, class-balanced", "rival: ranpac-balanced"),
    Line("LDA with shrunk novel means", "rival: lda-shrunk-means"),
    Line("LDA with shrunk novel means, random features", "rival: rf-lda-shrunk-means"),
    Line("logistic regression on kept examples", "rival: logistic-memory"),
)
METHODS = (PAPER, FOREST, FEW, CALIBRATED, Line("gptree tree", "tree, shared root"), *RIVALS)
#: What is compared in the tables of sessions.
PAIRS = [(ours, other) for ours in (PAPER, FOREST, FEW, CALIBRATED) for other in (PAPER, *RIVALS) if ours != other]
TREES = (
    Line("shared root (GP-Tree)", "paper, shared root"),
    Line("session tree", "paper, session tree"),
    Line("rebuild tree", "paper, rebuild"),
    Line("graft", "paper, graft"),
)
EXEMPLARS = tuple(Line(f"{kept} kept", "paper, shared root", exemplars=kept) for kept in (5, 4, 3, 2, 1))
KERNELS = (
    Line("RBF", "paper, shared root"),
    Line("Matérn 5/2", "paper, shared root", kernel="matern52"),
    Line("linear", "paper, shared root", kernel="linear"),
)
