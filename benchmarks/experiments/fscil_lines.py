"""The lines of the tables and figures on sessions, and the data sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.fscil_networks import NETWORKS
from benchmarks.rows import Row, Trial
from gptree.rivals import INCREMENTAL

FROZEN = "cub-frozen"
CUB, MINI = (FROZEN, "cub", "cub-held-out"), ("mini-margin", "mini-rotations")
CIFAR = ("cifar-plain", "cifar-rotations")
DATA = {
    FROZEN: "CUB-200, EfficientNet-Lite2 of ImageNet, frozen",
    "cub": "CUB-200, EfficientNet-Lite0 trained on the base classes",
    "cub-held-out": "CUB-200, EfficientNet-Lite0, 5 rows a base class held out",
    "mini-margin": "mini-ImageNet, ResNet-18 trained on the base classes",
    "mini-rotations": "mini-ImageNet, ResNet-18, 20 rows a base class held out",
    "cifar-plain": "CIFAR-100, ResNet-18 trained on the base classes",
    "cifar-rotations": "CIFAR-100, ResNet-18, 25 rows a base class held out",
}
#: How the embeddings of a data set were made.
EMBEDDED = {
    FROZEN: "EfficientNet-Lite2 with ImageNet weights, never trained on birds, 1,280 features.",
    "cub": "EfficientNet-Lite0 with ImageNet weights, trained on the 100 base classes by cross-entropy for 24 epochs.",
    "cub-held-out": "The same training, but 5 of the 30 pictures of each base class were held out from it: they "
    "chose how all pictures are embedded (enlarged to 288 pixels), and a forest can be fitted to them alone, or to all "
    "and be told which they are.",
    "mini-margin": "A ResNet-18 with a stem for small pictures, trained from scratch on the 60 base classes with "
    "rotated pictures, for 72 epochs with a cosine margin.",
    "mini-rotations": "A ResNet-18 with a stem for small pictures, trained from scratch on the 60 base classes with "
    "rotated pictures, for 100 epochs by cross-entropy. 20 pictures of each base class were held out from it: they "
    "chose how all pictures are embedded (enlarged to 108 pixels, and four rotations side by side, 2,048 features), "
    "and a forest can be fitted to them alone, or to all and be told which they are.",
    "cifar-plain": "A ResNet-18 with a stem for 32 × 32 pixels, trained on the 60 base classes for 150 epochs by "
    "cross-entropy.",
    "cifar-rotations": "A ResNet-18 with a stem for 32 × 32 pixels, trained on the 60 base classes with rotated "
    "pictures for 75 epochs by cross-entropy, squares of 8 pixels cut out. 25 of the 500 pictures of each base class "
    "were held out from it: they chose how all pictures are embedded (four rotations side by side, 2,048 "
    "features), and a forest can be fitted to them alone, or to all and be told which they are.",
}


@dataclass(frozen=True)
class Line:
    """What one line shows: a method, and its settings where they are not the usual ones.

    base_rows : of the base session, "all", or those "held out" from the network's training; "told" is all, and the
        method is told which were held out.
    """

    name: str
    method: str
    exemplars: int = 5
    kernel: str = "rbf"
    base_rows: str = "all"

    @property
    def settings(self) -> dict[str, Any]:
        """Of the trial; a kernel belongs to the paper's tree alone."""
        kernel = {"kernel": self.kernel} if self.method.startswith("paper, ") else {}
        rows = {} if self.base_rows == "all" else {"base_rows": self.base_rows}
        return {"exemplars": self.exemplars, **kernel, **rows}

    def fits(self, data: str) -> bool:
        """Whether the data has such rows."""
        return self.base_rows == "all" or (data in NETWORKS and NETWORKS[data].training.validation is not None)

    def trial(self, data: str, seed: int) -> Trial:
        return Trial("fscil-sessions", self.method, data, seed, self.settings)

    def shows(self, trial: Trial) -> bool:
        return trial.method == self.method and dict(trial.settings) == self.settings

    def of(self, rows: Iterable[Row], data: str) -> list[Row]:
        """Its rows on a data set, one a seed."""
        return [row for row in rows if row.trial.data == data and self.shows(row.trial)]


PAPER = Line("GP-Tree, the paper's settings", "paper, shared root")
FOREST = Line("gptree forest", "forest, shared root")
FEW = Line("gptree forest, held-out rows only", "forest, shared root", base_rows="held out")
TOLD = Line("gptree forest, held-out rows told", "forest, shared root", base_rows="told")
RIVAL_NAMES = {
    "class-mean": "nearest class mean",
    "slda": "streaming LDA",
    "ranpac": "RanPAC",
    "ranpac-balanced": "RanPAC, class-balanced",
    "lda-teen": "LDA with shrunk novel means",
    "rf-lda-teen": "LDA with shrunk novel means, random features",
    "logistic-memory": "logistic regression on kept examples",
}
RIVALS = tuple(Line(RIVAL_NAMES.get(name, name), f"rival: {name}") for name in INCREMENTAL)
METHODS = (
    PAPER,
    FOREST,
    FEW,
    TOLD,
    Line("gptree tree", "tree, shared root"),
    *RIVALS,
)

SHARED, SESSION, REBUILD, GRAFT = TREES = (
    Line("shared root (GP-Tree)", "paper, shared root"),
    Line("session tree", "paper, session tree"),
    Line("rebuild tree", "paper, rebuild"),
    Line("graft", "paper, graft"),
)
REPRESENTATIVES = tuple(Line(f"{kept} kept", "paper, shared root", exemplars=kept) for kept in (5, 4, 3, 2, 1))
RBF, MATERN, LINEAR = KERNELS = (
    Line("RBF", "paper, shared root"),
    Line("Matérn 5/2", "paper, shared root", kernel="matern52"),
    Line("linear", "paper, shared root", kernel="linear"),
)
