"""Nearest class mean for classes that arrive later."""

from __future__ import annotations

import numpy as np

from gptree.rivals.frozen.class_mean import NearestClassMean
from gptree.rivals.incremental.base import IncrementalRival
from gptree.rivals.left_out import class_means


class SessionClassMean(NearestClassMean, IncrementalRival):
    """`NearestClassMean`, whose parameters it has, for classes that arrive later.

    Later classes add their means. The temperature and the unit of distance stay those of the base.

    Examples
    --------
    >>> from gptree.rivals import SessionClassMean
    >>> rival = SessionClassMean().fit([[1.0, 0.0], [0.0, 1.0]], ["a", "b"]).add_classes([[-1.0, 0.0]], ["c"])
    """

    name = "class-mean"

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        self.means_ = np.concatenate([self.means_, class_means(x, y)])
