"""The map: two numbers for every example, which never change when a class is added.

t-SNE of at most 5,000 examples, in the encoder's space, once; all others, and all that come later, stand among their
nearest neighbours.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from gptree.maths.sphere import unit_length
from gptree.project.folder import MAP
from gptree.storage import write_atomically

#: Examples that t-SNE lays out.
MOST = 5000
_DIMENSIONS = 50  # of the principal components that t-SNE sees
_NEIGHBOURS = 5
_CHUNK = 2048  # rows whose neighbours are looked for at a time


def first_layout(X: np.ndarray, seed: int = 0) -> np.ndarray:
    """Positions (n, 2) in [0, 1] of the first examples of a project.

    Parameters
    ----------
    X : ndarray (n, d)
    seed : int
    """
    n = len(X)
    if n < 4:
        return np.column_stack([(np.arange(n) + 1) / (n + 1), np.full(n, 0.5)]).astype(np.float32)
    X = unit_length(np.asarray(X, dtype=np.float32))
    chosen = np.sort(np.random.default_rng(seed).permutation(n)[:MOST])
    places = _scaled(_tsne(X[chosen], seed))
    known = np.zeros((n, 2), dtype=np.float32)
    known[chosen] = places
    others = np.setdiff1d(np.arange(n), chosen)
    if len(others):
        known[others] = placed(X[others], X[chosen], places)
    return known


def placed(X: np.ndarray, known: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Positions (n, 2) of further examples: the mean of those of five nearest neighbours, nearer ones counting more.

    Parameters
    ----------
    X, known : ndarray (n, d) and (m, d)
        Of unit length.
    places : ndarray (m, 2)
    """
    found = np.full((len(X), 2), 0.5, dtype=np.float32)
    k = min(_NEIGHBOURS, len(known))
    if not k:
        return found
    for start in range(0, len(X), _CHUNK):
        similarity = X[start : start + _CHUNK] @ known.T
        near = np.argpartition(-similarity, k - 1, axis=1)[:, :k]
        closeness = np.take_along_axis(similarity, near, axis=1)
        weights = np.exp(20 * (closeness - closeness.max(1, keepdims=True)))
        weights /= weights.sum(1, keepdims=True)
        found[start : start + _CHUNK] = np.einsum("nk,nkd->nd", weights, places[near])
    return found


def _tsne(X: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    components = min(_DIMENSIONS, *X.shape)
    X = PCA(components, random_state=seed, svd_solver="randomized").fit_transform(X - X.mean(0))
    perplexity = float(min(30, max(2, (len(X) - 1) / 4)))
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(X)


def _scaled(places: np.ndarray) -> np.ndarray:
    """Into [0, 1]², each axis by itself: distances on a t-SNE map mean little, and the page has room to fill."""
    low, reach = places.min(0), np.maximum(np.ptp(places, axis=0), 1e-9)
    return ((places - low) / reach).astype(np.float32)


# ---------------------------------------------------------------------------------------------------------- on disk


def load_or_draw(folder: Path, ids: Sequence[str], X: np.ndarray, keep: bool = True) -> np.ndarray:
    """The map of a project: the one that was drawn before, with places for what came since; else a new one."""
    known = _load(folder)
    if known is not None and len(known[0]) <= len(ids) and list(known[0]) == list(ids[: len(known[0])]):
        return extended(folder, ids, X, known[1], keep=keep)
    places = first_layout(X)
    if keep:
        save(folder, ids, places)
    return places


def extended(folder: Path, ids: Sequence[str], X: np.ndarray, places: np.ndarray, keep: bool = True) -> np.ndarray:
    """Places of all examples, when the first of them have theirs."""
    old = len(places)
    if old == len(ids):
        return places
    if old < 4:
        places = first_layout(X)
    else:
        X = unit_length(np.asarray(X, dtype=np.float32))
        places = np.concatenate([places, placed(X[old:], X[:old], places)])
    if keep:
        save(folder, ids, places)
    return places


def _load(folder: Path) -> tuple[list[str], np.ndarray] | None:
    """None where there is none, or it is damaged: it can be drawn again."""
    try:
        with np.load(folder / MAP, allow_pickle=False) as arrays:
            ids, places = arrays["ids"].tolist(), arrays["places"]
    except (OSError, ValueError, KeyError):
        return None
    sound = places.shape == (len(ids), 2) and places.dtype == np.float32 and np.isfinite(places).all()
    return (ids, np.clip(places, 0.0, 1.0)) if sound else None


def save(folder: Path, ids: Sequence[str], places: np.ndarray) -> None:
    """Keep a map for the next time."""
    file = io.BytesIO()
    np.savez_compressed(file, ids=np.array(ids, dtype=str), places=places)
    with suppress(OSError):  # it can be drawn again
        write_atomically(folder / MAP, file.getvalue())
