"""Active learning: the unlabelled rows to label next.

A label helps the rows around it. With u_j how unsure the model is of row j, k the default kernel (an RBF on the sphere,
without its output scale) and L what is labelled, the rows S to label are those that most increase

    Σ_j u_j · max over i in L and S of k(x_i, x_j),

every row counting by how unsure it is and how near its nearest label would be (a facility-location problem). So the
choice falls on rows that stand for many unsure ones, unlike what is labelled and unlike each other; outliers stand for
nobody and wait. The sum is submodular in S: taking the best row, and again, comes within 1 − 1/e of the best S.
"""

from __future__ import annotations

import numpy as np

from gptree.maths.sphere import unit_length

#: All pairs of so many rows are compared at a time; a larger pool is taken in parts.
ROWS_A_PART = 4096


def suggest(log_probabilities: np.ndarray, features: np.ndarray, labelled: np.ndarray, n: int) -> np.ndarray:
    """Numbers of the n rows to label next, (n,), in the order in which they were chosen.

    Parameters
    ----------
    log_probabilities : (N, C) class log-probabilities of the unlabelled rows.
    features, labelled : (N, d) and (M, d) mapped features of the unlabelled and of the labelled rows.

    Deterministic. A pool of more than 4,096 rows is dealt out in parts (every k-th row), each of which gives its share.
    """
    total = len(features)
    if not 0 <= n <= total:
        raise ValueError(f"{n} rows were asked for, but there are {total} to choose from.")
    unsure = uncertainty(log_probabilities).astype(np.float32)
    pool, known = (unit_length(np.asarray(x, dtype=np.float32)) for x in (features, labelled))
    parts = -(-total // ROWS_A_PART)
    chosen: list[np.ndarray] = []
    for part in range(min(parts, n)):
        rows = np.arange(part, total, parts)
        quota = n // parts + (part < n % parts)
        taken = rows[_most_covering(pool[rows], unsure[rows], known, quota)]
        chosen.append(taken)
        known = np.concatenate([known, pool[taken]])
    return np.concatenate([np.zeros(0, dtype=np.int64), *chosen])


def uncertainty(log_probabilities: np.ndarray) -> np.ndarray:
    """One minus the margin between the two most probable classes, (N,), in [0, 1]."""
    if log_probabilities.shape[1] == 1:
        return np.ones(len(log_probabilities))
    second, first = np.sort(np.exp(log_probabilities), axis=1)[:, -2:].T
    return 1.0 - (first - second)


def _most_covering(pool: np.ndarray, unsure: np.ndarray, known: np.ndarray, n: int) -> np.ndarray:
    """Greedy choice of n rows of the pool."""
    K = _kernel(pool, pool)
    covered = _kernel(pool, known).max(axis=1, initial=0.0)  # by the nearest label
    gain = np.maximum(K - covered, 0.0) @ unsure
    chosen: list[int] = []
    for _ in range(n):
        best = int(gain.argmax())
        chosen.append(best)
        closer = np.flatnonzero(K[best] > covered)  # only the gains that come from these rows change
        columns, before, after = K[:, closer], covered[closer], K[best, closer]
        gain -= (np.maximum(columns - before, 0.0) - np.maximum(columns - after, 0.0)) @ unsure[closer]
        covered[closer] = after
        gain[chosen] = -np.inf
    return np.array(chosen, dtype=np.int64)


def _kernel(x: np.ndarray, other: np.ndarray) -> np.ndarray:
    # k(x, x′) = exp(−½ ‖x − x′‖²) for vectors of unit length
    return np.exp(x @ other.T - 1.0)
