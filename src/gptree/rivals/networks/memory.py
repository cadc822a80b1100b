"""`Memory`: pictures kept of past classes, and which rows are chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gptree.deep import Arrays, Batch, Source, embed
from gptree.rivals.networks.blocks import herded
from gptree.rivals.networks.lesson import Lesson
from gptree.settings import require


@dataclass(frozen=True, eq=False)
class Memory:
    """Pictures kept of past classes, class after class, each in the order of choice.

    Attributes
    ----------
    pictures : Tensor (m, …)
        As they were given (uint8, or floats), on the CPU.
    y : int array (m,)
        Columns of their classes, ascending.
    """

    pictures: Tensor
    y: np.ndarray

    @property
    def nbytes(self) -> int:
        """Of pictures and classes."""
        return self.pictures.nbytes + self.y.nbytes

    def cut(self, quotas: np.ndarray) -> Memory:
        """The first quotas[c] pictures of every class c."""
        place = np.arange(len(self.y)) - np.searchsorted(self.y, self.y)
        kept = np.flatnonzero(place < quotas[self.y])
        return Memory(self.pictures[kept], self.y[kept])


def raw_rows(source: Source, rows: np.ndarray) -> Tensor:
    """Rows of a source on the CPU: as they were given, or without augmentation as the source gives them."""
    if isinstance(source, Arrays):
        return source.rows(rows)
    (x,) = source.batches([Batch(rows)], torch.device("cpu"))
    return x


def herded_rows(features: Tensor, y: np.ndarray, quotas: np.ndarray) -> np.ndarray:
    """Rows chosen by herding, class after class, at most quotas[c] of class c."""
    chosen = [rows[herded(features[rows], int(quotas[c]))] for c in np.unique(y) for rows in [np.flatnonzero(y == c)]]
    return np.concatenate(chosen)


def balanced_rows(lesson: Lesson) -> np.ndarray:
    """Rows of a lesson, equally many of every class: the first exemplars of old ones, new ones herded."""
    count = int(np.bincount(lesson.y).min())
    require(count > 0, "balanced fine-tuning needs pictures of every class: keep more, or leave fine-tuning out.")
    features = embed(lesson.student, lesson.arrays, lesson.new_rows, lesson.device)
    quotas = np.full(int(lesson.y.max()) + 1, count)
    new = lesson.new_rows[herded_rows(features, lesson.y[lesson.memory :], quotas)]
    old = [np.flatnonzero(lesson.y == c)[:count] for c in range(lesson.n_old)]
    return np.concatenate([*old, new])
