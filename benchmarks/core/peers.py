"""Classifiers of other packages, which are not installed with gptree: `pip install faiss-cpu napkinxc`, both MIT."""

from __future__ import annotations

import importlib
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.core.classifying import Shortlist

LONGEST = 100  # classes or neighbours that a peer names for a row
#: Of these faiss chooses on training rows: sharpness of the votes, and the share that all classes have alike.
SHARPNESSES = tuple(np.geomspace(3, 1_000, 18))
FLOORS = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
CHOOSERS = 2_000  # training rows at most to choose with
FLOOR = 0.01  # the same share with napkinXC, which may leave nothing for classes that it does not name


def package(name: str, distribution: str) -> Any:
    """An optional module; where it is missing the error says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} cannot be imported ({error}): pip install {distribution}") from error


class Faiss:
    """Votes of the 100 nearest class means or rows by cosine: p_c = (1 − ε) Σ_{i of class c} w_i / Σ w_i + ε / C.

    w_i = exp(β cos). β and ε are chosen by the NLL of the last example of each class, which is left out for it.

    means : whether the points are class means, and not rows.
    """

    def __init__(self, means: bool) -> None:
        self.faiss = package("faiss", "faiss-cpu")
        self.faiss.omp_set_num_threads(1)
        self.means = means

    def fit(self, X: np.ndarray, y: np.ndarray) -> Faiss:
        self.mean, self.n_classes = X.mean(0), int(y.max()) + 1
        last = len(y) - 1 - np.unique(y[::-1], return_index=True)[1]
        rest = np.setdiff1d(np.arange(len(y)), last)
        self._set_points(X[rest], y[rest])
        self._choose(X[last], y[last])
        self._set_points(X, y)
        return self

    def _set_points(self, X: np.ndarray, y: np.ndarray) -> None:
        points = (X - self.mean).astype(np.float32)
        if self.means:
            order = np.argsort(y, kind="stable")
            y, starts = np.unique(y[order], return_index=True)
            points = np.add.reduceat(points[order], starts)
        self.labels, self.index = y, self.faiss.IndexFlatIP(points.shape[1])
        self.faiss.normalize_L2(points)
        self.index.add(points)

    def _choose(self, X: np.ndarray, y: np.ndarray) -> None:
        some = np.random.default_rng(0).permutation(len(y))[:CHOOSERS]
        cosines, labels = self._nearest(X[some])
        own = labels == y[some, None]

        def loss(sharpness: float, floor: float) -> float:
            share = (_votes(cosines, sharpness) * own).sum(1)
            return -float(np.log((1 - floor) * share + floor / self.n_classes).mean())

        self.sharpness, self.floor = min(itertools.product(SHARPNESSES, FLOORS), key=lambda pair: loss(*pair))

    def _nearest(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = (X - self.mean).astype(np.float32)
        self.faiss.normalize_L2(rows)
        cosines, places = self.index.search(rows, min(LONGEST, self.index.ntotal))
        return cosines.astype(float), self.labels[places]

    def predict_proba(self, X: np.ndarray) -> Shortlist:
        cosines, labels = self._nearest(X)
        votes = _votes(cosines, self.sharpness)
        if not self.means:  # the nearest row of a class has the votes of them all
            same = labels[:, :, None] == labels[:, None, :]
            nearest = ~np.tril(same, -1).any(2)
            votes = np.where(nearest, np.einsum("nij,nj->ni", same, votes), 0.0)
            labels = np.where(nearest, labels, -1)
        outside = self.floor / self.n_classes
        p = np.where(labels >= 0, (1 - self.floor) * votes + outside, 0.0)
        order = np.argsort(-p, axis=1, kind="stable")
        classes, p = (np.take_along_axis(part, order, 1) for part in (labels, p))
        return Shortlist(classes, p, np.full(len(X), outside))

    def save(self, folder: Path) -> None:
        folder.mkdir()
        self.faiss.write_index(self.index, str(folder / "index"))
        np.savez(folder / "rest", mean=self.mean, labels=self.labels, votes=[self.sharpness, self.floor])


def _votes(cosines: np.ndarray, sharpness: float) -> np.ndarray:
    weights = np.exp(sharpness * (cosines - cosines[:, :1]))  # the nearest comes first
    return weights / weights.sum(1, keepdims=True)


class Napkin:
    """A tree of logistic regressions of napkinXC with its own probabilities, and a hundredth for all classes alike.

    name : "HSM", a hierarchical softmax, or "PLT", a probabilistic label tree, whose probabilities need not sum to one
        and are divided by their sum.
    cost : of LIBLINEAR, the inverse penalty.
    """

    def __init__(self, name: str, cost: float, seed: int) -> None:
        self.name, self.settings = name, {"liblinear_c": cost, "seed": seed, "threads": 1}
        self.models = package("napkinxc.models", "napkinxc")

    def fit(self, X: np.ndarray, y: np.ndarray) -> Napkin:
        self.folder, self.n_classes = tempfile.TemporaryDirectory(), int(y.max()) + 1
        self.model = getattr(self.models, self.name)(self.folder.name, **self.settings)
        self.model.fit(X, y.tolist() if self.name == "HSM" else y[:, None].tolist())
        return self

    def predict_proba(self, X: np.ndarray) -> Shortlist:
        k = min(LONGEST, self.n_classes)
        answer = np.array(self.model.predict_proba(X, top_k=k))
        p, others = answer[:, :, 1], self.n_classes - k
        rest = np.maximum(1 - p.sum(1), 0) if others else np.zeros(len(p))
        total, floor = p.sum(1) + rest, FLOOR / self.n_classes
        p, outside = (1 - FLOOR) * p / total[:, None] + floor, (1 - FLOOR) * rest / total / max(others, 1) + floor
        return Shortlist(answer[:, :, 0].astype(int), p, outside)

    def save(self, folder: Path) -> None:
        shutil.copytree(self.folder.name, folder)
