"""Classes in sessions, with all their rows.

Sessions bring all training rows of their classes: what is lost where few rows of a class are kept?

gptree that keeps 20 rows of a class has {mean accuracy | gptree, 20 a class | data=cub200} % of all classes of CUB
after the last session, gptree that keeps all rows of later classes {mean accuracy | gptree, all rows | data=cub200}
%; on CLINC150 {mean accuracy | gptree, 20 a class | data=clinc150} and {mean accuracy | gptree, all rows |
data=clinc150} %, on Banking77 {mean accuracy | gptree, 20 a class | data=banking77} and {mean accuracy | gptree, all
rows | data=banking77} %.

Findings
--------
- Which is most accurate depends on the features: on CUB streaming LDA, on CLINC150 gptree with all rows, on Banking77
  and CIFAR-100 RanPAC. In NLL gptree with all rows leads on the three sets of frozen features; on CIFAR-100, whose
  network knows most classes by heart, class means do.
- On CIFAR-100 in 10 × 10 classes gptree with 20 rows of a class has {mean accuracy | gptree, 20 a class |
  data=cifar100, 10 × 10} %, with all rows {mean accuracy | gptree, all rows | data=cifar100, 10 × 10} %, RanPAC {mean
  accuracy | ranpac | data=cifar100, 10 × 10} %. In 50 + 5 × 10 the order is another: {mean accuracy | gptree, 20 a
  class | data=cifar100, 50 + 5 × 10}, {mean accuracy | gptree, all rows | data=cifar100, 50 + 5 × 10} and {mean
  accuracy | ranpac | data=cifar100, 50 + 5 × 10} %. Of its 50 base classes 20 rows each are kept, of later ones all
  500, and the first are forgotten: {mean forgetting | gptree, all rows | data=cifar100, 50 + 5 × 10} points, {mean
  forgetting | gptree, 20 a class | data=cifar100, 50 + 5 × 10} with 20 rows of all classes. Keep as many of later
  classes as of the base (`session_exemplars`).
- Two orders of the classes; one where gptree keeps all rows of CIFAR-100, whose slowest session takes {mean seconds |
  gptree, all rows | data=cifar100, 10 × 10} s.
- RanPAC has {mean accuracy | ranpac | data=cub200}, {mean accuracy | ranpac | data=clinc150} and {mean accuracy |
  ranpac | data=banking77} %, streaming LDA {mean accuracy | slda | data=cub200}, {mean accuracy | slda |
  data=clinc150} and {mean accuracy | slda | data=banking77} % of CUB, CLINC150 and Banking77. Both keep no row, but
  sums over all of them.
- Bounded memory costs a point of accuracy or less on CUB, CLINC150 and Banking77; the slowest session of CLINC150
  takes {mean seconds | gptree, 20 a class | data=clinc150} s instead of {mean seconds | gptree, all rows |
  data=clinc150}. Rivals that keep sums take a fraction of a second.
- What gptree keeps with 20 rows of a class on CLINC150: {mean kept | gptree, 20 a class | data=clinc150} MB in all,
  with all rows {mean kept | gptree, all rows | data=clinc150} MB; NLL {mean NLL | gptree, 20 a class | data=clinc150}
  and {mean NLL | gptree, all rows | data=clinc150}, of RanPAC {mean NLL | ranpac | data=clinc150}.

Set-up
------
Class-incremental learning on frozen features: classes in an order drawn with the seed, in sessions of equal size (CUB
10 × 20, CLINC150 10 × 15, Banking77 11 × 7), each with all training rows of its classes; the first is the base
session. After every session the model is tested on all classes seen. EfficientNet-Lite2 (ImageNet) and MiniLM have
seen none of the classes as such. CIFAR-100 has two protocols, 10 × 10 and 50 + 5 × 10, on stored embeddings
(`networks/cifar-pictures-cross-entropy-0.*.npz`): their ResNet-18 was trained on nearly all rows of the first 60
classes, which it knows by heart, and on none of the other 40, so that the two kinds of classes are not alike.

"gptree, 20 a class" is `GPTreeClassifier(growth=Growth(exemplars=20, shots=20, session_exemplars=20))`: of each class
20 rows are kept, chosen by k-means, which stand for the others. "All rows" has no `session_exemplars`: it keeps 20
rows of each base class, and all of later ones. Rivals see the features through the map of the base session, and keep
no rows. Numbers are those after the last session, on all classes; seconds are of the slowest session but the base, on
one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.figures import panels
from benchmarks.core.tables import Column, Summary, Table, chosen, grouped, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import load
from benchmarks.experiments.fscil.methods import NAMES, OF_RIVALS
from benchmarks.experiments.fscil.networks import read
from benchmarks.experiments.fscil.rivals import embedding_name
from benchmarks.experiments.fscil.streams import TEST
from benchmarks.experiments.fscil.tables import ACCURACY, ECE, FORGETTING, KEPT, NLL
from gptree import GPTreeClassifier, Growth
from gptree.protocols import Session, SessionMethod, SessionStream, run_stream

GROUP, SEEDS = "Classes that arrive later", 2

NETWORK = embedding_name("cifar-pictures", 0)
#: Data, classes of the base session, and of the others.
PROTOCOLS = {
    "cub200": ("cub200", 20, 20),
    "clinc150": ("clinc150", 15, 15),
    "banking77": ("banking77", 7, 7),
    "cifar100, 10 × 10": (NETWORK, 10, 10),
    "cifar100, 50 + 5 × 10": (NETWORK, 50, 10),
}
KEEPING = {"gptree, 20 a class": 20, "gptree, all rows": None}
METHODS = (*KEEPING, "ranpac", "slda", "class-mean")
SECONDS = Column("slowest session (s)", "metrics.slowest", 1, 1, min)
COLUMNS = {"accuracy": ACCURACY, "NLL": NLL, "ECE": ECE, "forgetting": FORGETTING, "kept": KEPT, "seconds": SECONDS}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("class-incremental", method, data, seed, {"base": base, "way": way})
        for seed in range(seeds)
        for data, (_, base, way) in PROTOCOLS.items()
        for method in METHODS
    ]


def make_stream(data: str, folder: Path, seed: int) -> SessionStream:
    name, base, way = PROTOCOLS[data]
    if name == NETWORK:
        pictures = read(NETWORK, folder / "networks", OF_RIVALS)
        test = pictures.split == TEST
        arrays = [array[some] for some in (~test, test) for array in (pictures.x.astype(np.float32), pictures.y)]
    else:
        features = load(name, folder)
        arrays = [features.train_x, features.train_y, features.test_x, features.test_y]
    X, y, X_test, y_test = arrays
    order = np.random.default_rng(seed).permutation(np.unique(y))
    sessions = []
    for classes in np.split(order, range(base, len(order), way)):
        learned, asked = np.isin(y, classes), np.isin(y_test, classes)
        sessions.append(Session(X[learned], y[learned], X_test[asked], y_test[asked], np.sort(classes)))
    return SessionStream(data, tuple(sessions))


def make_method(name: str, seed: int) -> Any:
    if name not in KEEPING:
        return SessionMethod(name=name, shots=20).make(seed)
    growth = Growth(exemplars=20, shots=20, session_exemplars=KEEPING[name])
    return GPTreeClassifier(growth=growth, random_state=seed, device="cpu")


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    stream = make_stream(trial.data, Path(folder), trial.seed)
    result = run_stream(make_method(trial.method, trial.seed), stream, seed=trial.seed, method=trial.method)
    sessions = [{key: value for key, value in row.items() if key not in NAMES} for row in result.rows]
    return {"sessions": sessions, "slowest": max(session["seconds_add"] for session in sessions[1:])}


def tables(rows: list[Row]) -> list[Table]:
    return [
        listing(data, group, ["method"], COLUMNS.values()) for data in PROTOCOLS if (group := chosen(rows, data=data))
    ]


def figure(rows: list[Row], path: Path) -> None:
    """Accuracy after each session."""
    there = [data for data in PROTOCOLS if chosen(rows, data=data)]
    picture, axes = panels(1, len(there), width=3.6)
    for ax, data in zip(axes, there, strict=True):
        for (method,), group in grouped(chosen(rows, data=data), ["method"]).items():
            count = len(group[0].metrics["sessions"])
            columns = [Column("", f"metrics.sessions.{k}.accuracy", 100, 1) for k in range(count)]
            means = [Summary.of(group, column).mean for column in columns]
            colour = f"C{METHODS.index(method)}"
            ax.plot(range(1, count + 1), means, color=colour, marker="o", markersize=4, label=method)
        ax.set(xlabel="session", ylabel="accuracy (%)", title=data)
    axes[0].legend(frameon=False, fontsize="small")
    picture.savefig(path, dpi=150)
