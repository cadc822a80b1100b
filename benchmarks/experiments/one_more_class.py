"""One more class of texts.

A table of texts has a few examples of every class, and then one class more: which method learns it, in which time, and
what of the others is forgotten?

With five shots, gptree and nearest neighbours learn it in {mean seconds | gptree | shots=5} and
{mean seconds | knn | shots=5} s of a processor, SetFit, which is trained anew, in {mean seconds | setfit | shots=5} s.
Accuracy, all classes: on Banking77 {mean accuracy | gptree | data=banking77 | shots=5},
{mean accuracy | knn | data=banking77 | shots=5} and {mean accuracy | setfit | data=banking77 | shots=5} %, on CLINC150
{mean accuracy | gptree | data=clinc150 | shots=5}, {mean accuracy | knn | data=clinc150 | shots=5} and
{mean accuracy | setfit | data=clinc150 | shots=5} %. gptree's probabilities are best: NLL
{mean nll | gptree | data=banking77 | shots=5}, {mean nll | knn | data=banking77 | shots=5} and
{mean nll | setfit | data=banking77 | shots=5} on Banking77.

Findings
--------
- SetFit's probabilities are far too careful (ECE {mean ece | setfit | data=banking77 | shots=5} % on Banking77): its
  head is logistic regression at scikit-learn's default strength, as in its package, on vectors of length one.
- One draw of 20 classes each, so that differences of a point in accuracy may be chance. Nothing was tuned.
- SetFit's new class costs as much as all classes did; it forgets {mean forgotten | setfit | data=banking77 | shots=5} %
  of what was right on Banking77, gptree {mean forgotten | gptree | data=banking77 | shots=5} %.

Set-up
------
Classes are drawn, and a few training rows of each. A method learns all classes but the last, and then the last one:
accuracy, NLL and calibration are on the test rows of all classes, after that. "Forgotten" are rows of the other classes
that were answered right before the last class came and are not any more, of all that were right. The seconds to add the
class are those of one processor, and include the encoding of its texts where the encoder changes; frozen vectors are
there already.

gptree is `GPForestClassifier(growth=Growth())` with `add_classes`. Nearest neighbours take the class in by refitting.
Both use the frozen MiniLM vectors of the data. SetFit (Tunstall et al. 2022) is its two steps: the encoder is tuned on
pairs of texts, 20 with the same label and 20 with another one for each (cosine loss, learning rate 2·10⁻⁵, batches of
16, one epoch), and logistic regression on its vectors; for another class it is trained anew from the pre-trained
encoder, as its users are told. It reads the texts: `banking77_train.csv` and `banking77_test.csv` (repository
PolyAI-LDN/task-specific-datasets), `clinc150.json` (`data_full.json` of clinc/oos-eval), and needs `gptree[texts]`.
It is measured with five shots alone: one trial takes a core eleven minutes.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data import Dataset, load
from gptree import GPForestClassifier, Growth
from gptree.metrics import accuracy, ece, nll
from gptree.rivals.frozen.neighbours import NearestNeighbours

GROUP, SEEDS = "Frozen features", 1

COLUMNS = {
    "accuracy": Column("accuracy %", "metrics.accuracy", 100, 1),
    "new": Column("the new class %", "metrics.accuracy_new", 100, 1),
    "nll": Column("NLL", "metrics.nll", 1, 3, min),
    "ece": Column("ECE %", "metrics.ece", 100, 1, min),
    "seconds": Column("processor s to add it", "metrics.seconds_add", 1, 2, min),
    "forgotten": Column("forgotten %", "metrics.forgotten", 100, 1, min),
}
#: Data, classes, shots.
TASKS = (("banking77", 20, 5), ("clinc150", 20, 5), ("banking77", 20, 10), ("clinc150", 20, 10))
PAIRS = 20  # of each kind for a text
TUNED_SHOTS = 5  # SetFit is trained anew for a class; with more shots that takes a core longer than it tells


class Learner(Protocol):
    """Learns rows by number, and then those of another class."""

    def fit(self, rows: np.ndarray) -> None: ...

    def add(self, rows: np.ndarray) -> None: ...

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Of test rows, (n, C); columns in the order in which the classes came."""
        ...


class Frozen:
    """gptree, or nearest neighbours, on the vectors of the data; classes are numbered as they come."""

    def __init__(self, data: Dataset, y: np.ndarray, method: str, seed: int) -> None:
        self.data, self.y, self.method, self.seed = data, y, method, seed
        self.rows = np.zeros(0, dtype=int)

    def fit(self, rows: np.ndarray) -> None:
        self.rows = rows
        if self.method == "gptree":
            self.model: Any = GPForestClassifier(growth=Growth(), random_state=self.seed, device="cpu")
        else:
            self.model = NearestNeighbours()
        self.model.fit(self.data.train_x[rows], self.y[rows])

    def add(self, rows: np.ndarray) -> None:
        if self.method == "gptree":
            self.model.add_classes(self.data.train_x[rows], self.y[rows])
        else:
            self.fit(np.concatenate([self.rows, rows]))

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        return self.model.predict_proba(self.data.test_x[rows])


class SetFit:
    """The encoder tuned on pairs, then logistic regression; another class is learnt by doing it again."""

    def __init__(
        self,
        texts: Mapping[str, list[str]],
        y: np.ndarray,
        seed: int,
        tuned: Callable[[list[tuple[str, str, float]], int], Callable[[list[str]], np.ndarray]],
    ) -> None:
        self.texts, self.y, self.seed, self.tuned = texts, y, seed, tuned
        self.rows = np.zeros(0, dtype=int)

    def fit(self, rows: np.ndarray) -> None:
        self.rows = rows
        texts = [self.texts["train"][row] for row in map(int, rows)]
        self.encode = self.tuned(pairs(texts, self.y[rows], self.seed), self.seed)
        self.head = LogisticRegression(max_iter=1000).fit(self.encode(texts), self.y[rows])

    def add(self, rows: np.ndarray) -> None:
        self.fit(np.concatenate([self.rows, rows]))

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        return self.head.predict_proba(self.encode([self.texts["test"][row] for row in map(int, rows)]))


def pairs(texts: Sequence[str], y: np.ndarray, seed: int) -> list[tuple[str, str, float]]:
    """For every text so many pairs with one of its own class (1) and with one of another class (0), shuffled."""
    random = np.random.default_rng(seed)
    found = []
    for row, label in enumerate(y):
        same = np.flatnonzero((y == label) & (np.arange(len(y)) != row))
        other = np.flatnonzero(y != label)
        for places, value in ((same, 1.0), (other, 0.0)):
            if len(places):
                found += [(texts[row], texts[i], value) for i in map(int, random.choice(places, PAIRS))]
    return [found[i] for i in random.permutation(len(found))]


def tuned_minilm(told: list[tuple[str, str, float]], seed: int) -> Callable[[list[str]], np.ndarray]:
    """MiniLM tuned on pairs: the cosine of the two vectors is to be the value."""
    from gptree.embed import encoder

    torch.manual_seed(seed)
    network: Any = encoder("minilm", device="cpu").network  # pyright: ignore[reportAttributeAccessIssue]
    network.train()
    steps = -(-len(told) // 16)
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: _warm_up(step, steps))
    for start in range(0, len(told), 16):
        left, right, value = zip(*told[start : start + 16], strict=True)
        u, v = (network(network.tokenize(list(part)))["sentence_embedding"] for part in (left, right))
        loss = (torch.cosine_similarity(u, v) - torch.tensor(value)).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    network.eval()
    return lambda texts: network.encode(texts, batch_size=64, show_progress_bar=False, convert_to_numpy=True)


def _warm_up(step: int, steps: int) -> float:
    """Up over the first tenth of the steps, then down to zero, along straight lines."""
    first = max(1, steps // 10)
    return min((step + 1) / first, max(0.0, (steps - step) / max(1, steps - first)))


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("one-more-class", method, data, seed, {"classes": classes, "shots": shots})
        for data, classes, shots in TASKS
        for seed in range(seeds)
        for method in ("gptree", "knn", "setfit")
        if method != "setfit" or shots <= TUNED_SHOTS
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    data = load(trial.data, folder)
    random = np.random.default_rng(trial.seed)
    chosen = random.permutation(len(data.names))[: trial.settings["classes"]]
    number = np.full(len(data.names), -1)
    number[chosen] = np.arange(len(chosen))
    y, test_y = number[data.train_y], number[data.test_y]
    shots = trial.settings["shots"]
    rows = np.concatenate([random.permutation(np.flatnonzero(y == c))[:shots] for c in range(len(chosen))])
    if trial.method == "setfit":
        learner: Learner = SetFit(read_texts(data, folder), y, trial.seed, tuned_minilm)
    else:
        learner = Frozen(data, y, trial.method, trial.seed)
    return measured(learner, rows, y, test_y)


def measured(learner: Learner, rows: np.ndarray, y: np.ndarray, test_y: np.ndarray) -> dict[str, Any]:
    """Learn all classes but the last, then the last one; rows of class −1 do not count."""
    last = int(y.max())
    old, test = np.flatnonzero((test_y >= 0) & (test_y != last)), np.flatnonzero(test_y >= 0)
    start = time.process_time()
    learner.fit(rows[y[rows] != last])
    fitted = time.process_time() - start
    before = learner.probabilities(old).argmax(1) == test_y[old]
    start = time.process_time()
    learner.add(rows[y[rows] == last])
    added = time.process_time() - start
    p, truth = learner.probabilities(test), test_y[test]
    right = p.argmax(1) == truth
    lost = before & ~right[truth != last]
    return {
        "accuracy": accuracy(p, truth),
        "accuracy_before": float(before.mean()),
        "accuracy_new": float(right[truth == last].mean()),
        "nll": nll(p, truth),
        "ece": ece(p, truth),
        "forgotten": float(lost.sum() / max(before.sum(), 1)),
        "seconds_fit": fitted,
        "seconds_add": added,
    }


def read_texts(data: Dataset, folder: Path) -> dict[str, list[str]]:
    """The texts behind the vectors of a data set, row by row; a ValueError where their labels differ."""
    if data.name == "clinc150":
        document = json.loads((folder / "clinc150.json").read_text(encoding="utf-8"))
        found = {part: [(text, label) for text, label in document[part]] for part in ("train", "test")}
    else:
        found = {}
        for part in ("train", "test"):
            with (folder / f"{data.name}_{part}.csv").open(newline="", encoding="utf-8") as file:
                found[part] = [(line["text"], line["category"]) for line in csv.DictReader(file)]
    for part, y in (("train", data.train_y), ("test", data.test_y)):
        if [label for _, label in found[part]] != [data.names[c] for c in y]:
            raise ValueError(f"the texts of {data.name}, {part}, are not in the order of its vectors.")
    return {part: [text for text, _ in lines] for part, lines in found.items()}


def tables(rows: list[Row]) -> list[Table]:
    return [listing("One more class", rows, ["data", "settings.classes", "settings.shots", "method"], COLUMNS.values())]
