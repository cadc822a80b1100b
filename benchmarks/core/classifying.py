"""A classifier on a task: what it costs, and how good its probabilities are.

Nothing of gptree is imported, so that an earlier version of it can be measured (`benchmarks.earlier`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.core.machine import forget_peak, held_memory, peak_memory

BATCH = 1_000  # rows that are predicted together
BINS, LEAST_PROBABILITY = 15, 1e-15  # as `gptree.metrics` has them


class Task(NamedTuple):
    """Examples, and rows to predict; labels are 0 … C−1."""

    X: np.ndarray
    y: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray


class Shortlist(NamedTuple):
    """The k most probable classes of n rows (n, k), the best first, their probabilities (n, k), and that of each class
    outside (n,)."""

    classes: np.ndarray
    p: np.ndarray
    outside: np.ndarray


class Judged(NamedTuple):
    """Of each row: the probability of the true class, the largest, and whether the true class has it or one of the
    five largest."""

    p: np.ndarray
    confidence: np.ndarray
    right: np.ndarray
    in_five: np.ndarray


def measure(classifier: Any, task: Task) -> dict[str, float | None]:
    """Fit, predict and save; a prediction is probabilities (n, C) or a `Shortlist`.

    Seconds are those of the processor, and of the wall clock beside them; those of a prediction are for 1,000 rows. The
    process's peak of memory counts from the fit on; that of the fit alone stands beside it.
    """
    own_peak = forget_peak()
    found: dict[str, float | None] = {"held_bytes": held_memory()}
    seconds, judged = np.zeros(2), []
    began = _clocks()
    classifier.fit(task.X, task.y)
    found["fit"], found["fit_wall"] = (_clocks() - began).tolist()
    found["fit_peak_bytes"] = peak_memory() if own_peak else None
    for start in range(0, len(task.y_new), BATCH):
        rows = slice(start, start + BATCH)
        began = _clocks()
        answer = classifier.predict_proba(task.X_new[rows])
        seconds += _clocks() - began
        judged.append(judge(answer, task.y_new[rows]))
    found["predict"], found["predict_wall"] = (seconds * 1_000 / len(task.y_new)).tolist()
    if hasattr(classifier, "save"):
        with tempfile.TemporaryDirectory() as scratch:
            classifier.save(Path(scratch) / "model")
            found["file_bytes"] = sum(file.stat().st_size for file in Path(scratch).rglob("*") if file.is_file())
    return found | metrics(judged)


def _clocks() -> np.ndarray:
    return np.array([time.process_time(), time.perf_counter()])


def judge(answer: np.ndarray | Shortlist, y: np.ndarray) -> Judged:
    if isinstance(answer, Shortlist):
        hit = answer.classes == y[:, None]
        p = np.where(hit.any(1), np.where(hit, answer.p, 0.0).sum(1), answer.outside)
        return Judged(p, answer.p[:, 0], hit[:, 0], hit[:, :5].any(1))
    of_true = answer[np.arange(len(y)), y]
    five = np.argpartition(answer, -5, axis=1)[:, -5:] if answer.shape[1] > 5 else np.arange(answer.shape[1])[None]
    return Judged(of_true, answer.max(1), answer.argmax(1) == y, (five == y[:, None]).any(1))


def metrics(parts: Iterable[Judged]) -> dict[str, float | None]:
    """Accuracy, top-5 accuracy, NLL and expected calibration error."""
    all_rows = Judged(*(np.concatenate(part) for part in zip(*parts, strict=True)))
    edges = np.linspace(0, 1, BINS + 1)[1:-1]
    gap = np.bincount(np.searchsorted(edges, all_rows.confidence), all_rows.confidence - all_rows.right)
    return {
        "accuracy": float(all_rows.right.mean()),
        "top5": float(all_rows.in_five.mean()),
        "nll": -float(np.log(np.maximum(all_rows.p, LEAST_PROBABILITY)).mean()),
        "ece": float(np.abs(gap).sum() / len(all_rows.p)),
    }
