"""Stand-ins for faiss and napkinXC, which the tests do not install: the parts that are used, in NumPy."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.core import peers


class IndexFlatIP:
    def __init__(self, d: int) -> None:
        self.points = np.empty((0, d), np.float32)

    @property
    def ntotal(self) -> int:
        return len(self.points)

    def add(self, points: np.ndarray) -> None:
        self.points = np.concatenate([self.points, points])

    def search(self, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        cosines = rows @ self.points.T
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(cosines, best, 1), best


def normalize_L2(rows: np.ndarray) -> None:
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)


class LabelTree:
    """Softmax over distances from class means, into a folder, as its answers: (label, probability), best first."""

    def __init__(self, folder: str, **settings: float) -> None:
        self.folder, self.settings = Path(folder), settings

    def fit(self, X: np.ndarray, y: list) -> None:
        labels = np.ravel(y)
        self.means = np.stack([X[labels == c].mean(0) for c in np.unique(labels)])
        (self.folder / "weights").write_text(json.dumps(self.settings))

    def predict_proba(self, X: np.ndarray, top_k: int) -> list[list[tuple[int, float]]]:
        scores = np.exp(-np.square(X[:, None] - self.means).sum(2) / X.shape[1])
        shares = 0.9 * scores / scores.sum(1, keepdims=True)  # as of a label tree: they need not sum to one
        best = np.argsort(-shares, axis=1)[:, :top_k]
        return [[(int(c), float(row[c])) for c in chosen] for row, chosen in zip(shares, best, strict=True)]


MODULES = {
    "faiss": SimpleNamespace(
        IndexFlatIP=IndexFlatIP,
        normalize_L2=normalize_L2,
        omp_set_num_threads=lambda threads: None,
        write_index=lambda index, file: Path(file).write_bytes(index.points.tobytes()),
    ),
    "napkinxc.models": SimpleNamespace(HSM=LabelTree, PLT=LabelTree),
}


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "package", lambda name, distribution: MODULES[name])
