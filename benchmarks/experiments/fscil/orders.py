"""Orders of the classes and draws of the shots.

Is the forest's lead on sessions one of the public lists, or does it hold for other classes and shots?

On frozen features of CUB, over draws of base classes, order and shots, the forest ends
{gap accuracy | gptree forest | LDA with shrunk novel means | data=cub-frozen} points of accuracy from LDA with shrunk
novel means, {gap accuracy | gptree forest | RanPAC, class-balanced | data=cub-frozen} from class-balanced RanPAC and
{gap accuracy | gptree forest | TEEN | data=cub-frozen} from TEEN.

Findings
--------
- LDA with shrunk novel means, behind the forest [on the public list](fscil-cub.md), is {ahead accuracy | LDA with
  shrunk novel means | gptree forest | data=cub-frozen} points ahead of it over draws. In NLL there is no difference
  ({level NLL | gptree forest | LDA with shrunk novel means | data=cub-frozen}); in ECE the forest is ahead ({ahead ECE
  | gptree forest | LDA with shrunk novel means | data=cub-frozen} points).
- The paper's tree ends at {mean accuracy | GP-Tree on a cross-entropy network | data=cub-frozen} %, {behind accuracy |
  GP-Tree on a cross-entropy network | nearest class mean | data=cub-frozen} points from nearest class means, with {mean
  novel | GP-Tree on a cross-entropy network | data=cub-frozen} % of the novel classes' test rows; only RanPAC, which
  learns fewer of them ({mean novel | RanPAC | data=cub-frozen} %), is near.

Set-up
------
In [sessions of CUB](fscil-cub.md), [mini-ImageNet](fscil-mini-imagenet.md) and [CIFAR-100](fscil-cifar100.md) classes
and shots are those of the public lists, and seeds change the methods' own random choices only. Here a seed draws, of
frozen features that were never trained on the data, which classes are the base, the order of the others and their
shots; of a network that was trained on the base classes, the order of the others and their shots. All methods see the
same draw, and gaps are paired by draw: their standard errors are over draws. Numbers of classes and shots, features,
methods and settings are those of the pages above; test rows are all of the classes seen so far.

The data folder holds `cub_efficientnet_lite2.npz` and, for networks, their embeddings in `networks` as [networks for
sessions](fscil-networks.md) writes them, under the name of the data with `-cross-entropy-0` behind it. The embeddings
of networks have not been measured yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.trials import Trial
from benchmarks.data import cub200, read_arrays
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import CALIBRATED, FOREST, FROZEN, PAPERS_TREE, RIVALS
from benchmarks.experiments.fscil.methods import run_method
from benchmarks.experiments.fscil.networks import HELD_OUT, TEST, Embeddings, read
from gptree.protocols import SessionStream, stream_from_arrays

GROUP, SEEDS = "Classes that arrive later", 10


@dataclass(frozen=True)
class Protocol:
    """Numbers of base classes, of classes of a later session, and of shots."""

    base: int
    way: int
    shot: int = 5


PROTOCOLS = {
    FROZEN: Protocol(100, 10),
    "cub-pictures": Protocol(100, 10),
    "mini-pictures": Protocol(60, 5),
    "cifar-pictures": Protocol(60, 5),
}
LINES = (PAPERS_TREE, FOREST, CALIBRATED, *RIVALS)
PAIRS = [(ours, other) for ours in (FOREST, CALIBRATED) for other in (PAPERS_TREE, *RIVALS)]
STUDY = made.Study(
    LINES, tuple(PROTOCOLS), PAIRS, gaps=(made.ACCURACY, made.BASE, made.NOVEL, made.NLL, made.ECE), main=FROZEN
)
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
tables, figure, glance = STUDY.tables, STUDY.figure, STUDY.glance


def trials(seeds: int) -> list[Trial]:
    return [replace(trial, experiment="fscil-orders") for trial in STUDY.trials(seeds)]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """A method on the sessions that the trial's seed draws."""
    stream, held_out = make_stream(trial.data, Path(folder), trial.seed)
    calibrate = trial.settings.get("held_out") == "calibrate"
    return run_method(trial, stream, {"held_out": held_out} if calibrate else {})


def make_stream(data: str, folder: Path, seed: int) -> tuple[SessionStream, np.ndarray]:
    """Drawn sessions, and which rows of the base a network was not trained on."""
    if data == FROZEN:
        arrays = read_arrays(folder / cub200.FILE, ("x", "y", "train"))
        split = np.where(arrays["train"], 0, TEST)
        rows = Embeddings(arrays["x"].astype(np.float32), arrays["y"].astype(int), split, np.array([]))
        return drawn(rows, PROTOCOLS[data], seed, data)
    return drawn(read(f"{data}-cross-entropy-0", folder / "networks"), PROTOCOLS[data], seed, data)


def drawn(rows: Embeddings, protocol: Protocol, seed: int, data: str) -> tuple[SessionStream, np.ndarray]:
    """Of a trained network the base classes are the first ones, which it was trained on; of frozen features any."""
    numbers, test = np.arange(len(rows.y))[:, None], rows.split == TEST
    parts = (array[some] for some in (~test, test) for array in (numbers, rows.y))
    base = protocol.base if data == FROZEN else np.unique(rows.y)[: protocol.base]
    stream = stream_from_arrays(*parts, base=base, way=protocol.way, shot=protocol.shot, seed=seed, name=data)
    held_out = rows.split[stream.sessions[0].X[:, 0]] == HELD_OUT
    sessions = (replace(s, X=rows.x[s.X[:, 0]], X_test=rows.x[s.X_test[:, 0]]) for s in stream.sessions)
    return SessionStream(data, tuple(sessions)), held_out
