"""The lines of the tables and figures on sessions, and the data sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil.networks import NETWORKS
from benchmarks.experiments.fscil.rivals import FROZEN as AT_REST
from benchmarks.experiments.fscil.rivals import TAO, TUNED
from benchmarks.experiments.fscil.sets import SETS

FROZEN = "cub-frozen"
CUB, MINI, CIFAR = (
    (FROZEN, "cub", "cub-held-out", "cub-pictures", "cub-deep"),
    ("mini-margin", "mini-rotations", "mini-pictures", "mini-deep"),
    ("cifar-plain", "cifar-rotations", "cifar-pictures"),
)
#: Of the studies of the paper's supplement: features of networks that were not trained with a tree, and of those of
#: GP-Tree as published.
STUDIED, DEEP = (FROZEN, MINI[0]), {"cub-deep": "cub-pictures", "mini-deep": "mini-pictures"}
DATA = {
    FROZEN: "CUB-200, EfficientNet-Lite2 of ImageNet, frozen",
    "cub": "CUB-200, EfficientNet-Lite0 trained on the base classes",
    "cub-held-out": "CUB-200, EfficientNet-Lite0, 5 rows a base class held out",
    "mini-margin": "mini-ImageNet, ResNet-18 trained on the base classes",
    "mini-rotations": "mini-ImageNet, ResNet-18, 20 rows a base class held out",
    "cifar-plain": "CIFAR-100, ResNet-18 trained on the base classes",
    "cifar-rotations": "CIFAR-100, ResNet-18, 25 rows a base class held out",
    "cub-pictures": "CUB-200, EfficientNet-Lite0, from pictures",
    "mini-pictures": "mini-ImageNet, ResNet-18, from pictures",
    "cifar-pictures": "CIFAR-100, ResNet-18, from pictures",
    "cub-deep": "CUB-200, network of GP-Tree as published",
    "mini-deep": "mini-ImageNet, network of GP-Tree as published",
}


#: Classifiers on a frozen network that are drawn beside methods that learn from pictures.
DRAWN = ("paper, shared root", "forest, shared root", "rival: class-mean", "rival: lda-shrunk-means")
FOREST_ROWS = {"forest, shared root": "calibrate"}


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
        trained = NETWORKS.get(data) or SETS.get(DEEP.get(data, data))
        return self.held_out is None or (trained is not None and trained.training.validation is not None)

    def is_drawn(self, data: str) -> bool:
        """Beside methods that learn from pictures, a few of the others are drawn, the forest calibrated."""
        return data not in SETS or (self.method in DRAWN and self.held_out == FOREST_ROWS.get(self.method))

    @property
    def is_rival(self) -> bool:
        return self.method.startswith(("rival: ", "network: "))

    def trial(self, data: str, seed: int) -> Trial:
        return Trial("fscil-sessions", self.method, data, seed, self.settings)

    def of(self, rows: Iterable[Row], data: str) -> list[Row]:
        """Its rows on a data set, one a seed."""
        wanted = data, self.method, self.settings
        return [row for row in rows if (row.trial.data, row.trial.method, dict(row.trial.settings)) == wanted]


@dataclass(frozen=True)
class FromPictures(Line):
    """A method that learns from pictures; `exemplars` of a base class, where it keeps pictures and not the usual 5."""

    @property
    def settings(self) -> dict[str, Any]:
        return {} if self.exemplars == 5 else {"exemplars": self.exemplars}

    @property
    def fields(self) -> dict[str, Any]:
        return {"method": self.method, "exemplars": None, **self.settings}

    def fits(self, data: str) -> bool:
        """CIFAR-100 is not run with Tao's settings; 20 exemplars are for mini-ImageNet."""
        wanted = data in SETS and (data != "cifar-pictures" or not self.method.endswith(TAO))
        return wanted and (self.exemplars == 5 or data == "mini-pictures")

    def is_drawn(self, data: str) -> bool:
        return self.method.startswith("pipeline: ") or (self.method.endswith(TUNED) and self.exemplars == 5)


PAPERS_TREE = Line("GP-Tree on a cross-entropy network", "paper, shared root")
FOREST = Line("gptree forest", "forest, shared root")
FEW = Line("gptree forest, held-out rows only", "forest, shared root", held_out="only")
CALIBRATED = Line("gptree forest, calibrated on held-out rows", "forest, shared root", held_out="calibrate")
RIVALS = (
    Line("nearest class mean", "rival: class-mean"),
    Line("TEEN", "rival: teen"),
    Line("TEEN, weight 0.1", "rival: teen-0.1"),
    Line("streaming LDA", "rival: slda"),
    Line("RanPAC", "rival: ranpac"),
    Line("RanPAC, class-balanced", "rival: ranpac-balanced"),
    Line("LDA with shrunk novel means", "rival: lda-shrunk-means"),
    Line("LDA with shrunk novel means, random features", "rival: rf-lda-shrunk-means"),
    Line("logistic regression on kept examples", "rival: logistic-memory"),
)
PUBLISHED = FromPictures("GP-Tree as published", "pipeline: published")
CORRECTED = FromPictures("GP-Tree, corrected", "pipeline: corrected")
OURS = FromPictures("gptree from pictures", "pipeline: defaults")
NETWORK_RIVALS = {
    "icarl": "iCaRL",
    "eeil": "EEIL",
    "lucir": "LUCIR (NCM)",
    "topic": "TOPIC",
    "sdc": "SDC",
    "podnet": "PODNet",
}
TUNED_LINES = {
    name: FromPictures(f"{title}, tuned", f"network: {name}, {TUNED}") for name, title in NETWORK_RIVALS.items()
}
PUBLISHED_LINES = {
    name: FromPictures(f"{title}, published settings", f"network: {name}, {TAO}")
    for name, title in NETWORK_RIVALS.items()
}
AT_REST_LINES = {
    name: FromPictures(f"{title}, learning rate 0", f"network: {name}, {AT_REST}")
    for name, title in NETWORK_RIVALS.items()
}
MANY = tuple(
    FromPictures(f"{NETWORK_RIVALS[name]}, tuned, 20 exemplars", f"network: {name}, {TUNED}", exemplars=20)
    for name in ("lucir", "podnet")
)
FROM_PICTURES = (
    PUBLISHED,
    CORRECTED,
    OURS,
    *TUNED_LINES.values(),
    *MANY,
    *AT_REST_LINES.values(),
    *PUBLISHED_LINES.values(),
)
METHODS = (*FROM_PICTURES, PAPERS_TREE, FOREST, FEW, CALIBRATED, Line("gptree tree", "tree, shared root"), *RIVALS)
#: What is compared in the tables of sessions.
PAIRS = [
    *(
        (ours, other)
        for ours in (PAPERS_TREE, FOREST, FEW, CALIBRATED)
        for other in (PAPERS_TREE, *RIVALS)
        if ours != other
    ),
    *(
        (ours, other)
        for ours in (PUBLISHED, CORRECTED, OURS)
        for other in (*TUNED_LINES.values(), PAPERS_TREE, CALIBRATED)
    ),
    *((CORRECTED, PUBLISHED), (OURS, CORRECTED)),
    *((TUNED_LINES[name], AT_REST_LINES[name]) for name in NETWORK_RIVALS),
]
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
