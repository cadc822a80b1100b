"""The rows that a model sees, and their order: a function of the set of rows, not of how they were given.

Folds, subsets, exemplars and sums all look at rows in some order. Rows are brought into a fixed one at the door:

    distinct      class after class, and in a class by a digest of each row's values; equal rows of a class become one
                  that counts as often as they do together, rows of weight 0 are left out: whatever is computed from
                  here on, to the last bit, is a function of the set of rows and their weights
    shuffled      in a class by the projection of the mapped rows on one direction of the data, and then shuffled by
                  seed and label

The direction turns with the features and grows with them, so that the second order is the same for scaled and rotated
features. Rows of a class whose projections are equal stay in the first order, which is not. Of classes that grow, what
arrived is ordered in the same way, along a direction of the base session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from gptree.incremental import BaseClass, ClassRegistry, NovelClass
from gptree.tree import label_hashes, node_generator, node_key

Taught = TypeVar("Taught", BaseClass, NovelClass)


class Distinct(NamedTuple):
    """Rows of a class that differ, and how many times each counts."""

    rows: np.ndarray
    """(m,) row numbers, class after class, in a class by the values of the rows; of equal rows the first."""
    weights: np.ndarray | None
    """(m,) the sum over equal rows; None where each counts once."""
    held_out: np.ndarray | None
    """(m,) whether one of the equal rows is held out."""


def distinct(
    X: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None, held_out: np.ndarray | None = None
) -> Distinct:
    """The distinct rows of every class, in order.

    Parameters
    ----------
    X : (n, d)
    codes : (n,) class numbers.
    weights : (n,), optional
        How many times each row counts, at least 0; once by default. Rows that count 0 times are left out.
    held_out : (n,) booleans, optional
    """
    order, first = _by_value(X, codes, weights)
    starts = np.flatnonzero(first)
    # the sum begins with the smallest: it must not depend on the order in which equal rows were given
    counted = np.ones(len(order)) if weights is None else weights[order]
    counted = np.add.reduceat(counted, starts)
    marks = None if held_out is None else np.logical_or.reduceat(held_out[order], starts)
    return Distinct(order[starts], None if (counted == 1).all() else counted, marks)


def by_value(X: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Row numbers (n,), class after class, in a class by the values of the rows, without those of weight 0.

    Parameters
    ----------
    X : (n, d)
    codes : (n,) class numbers.
    weights : (n,), optional
    """
    return _by_value(X, codes, weights)[0]


def _by_value(X: np.ndarray, codes: np.ndarray, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers in order, equal rows by their weight, and which of them are the first of their kind."""
    there = np.arange(len(X)) if weights is None else np.flatnonzero(weights)
    digests = [hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest() for row in X[there]]
    words = np.array(digests, dtype="V16").view("<u8").reshape(-1, 2)
    counted = np.ones(len(there)) if weights is None else weights[there]
    order = np.lexsort((counted, words[:, 1], words[:, 0], codes[there]))
    keys = np.column_stack([codes[there].astype(np.uint64), words])[order]
    first = np.concatenate([[True], (keys[1:] != keys[:-1]).any(1)])[: len(order)]
    return there[order], first


def direction(features: Tensor, codes: Tensor, labels: Sequence[Any], counted: Tensor | None = None) -> Tensor:
    """A direction (d,) of the data: the sum of the class means of features (n, d), each with a weight of its label.

    The weights are random, so that it passes no two rows by alike, as the mean of a class of two rows would. `counted`
    (n,) is how many times each row counts.
    """
    weights = torch.tensor(_label_weights(label_hashes(labels).tobytes())).to(features)
    counts = torch.bincount(codes, counted, minlength=len(weights))
    shares = (weights / torch.where(counts > 0, counts, 1))[codes]
    return (shares if counted is None else shares * counted) @ features


@lru_cache(maxsize=4)
def _label_weights(hashes: bytes) -> tuple[float, ...]:
    """A random number for each label; those of a base session are asked for at every change of its classes."""
    keys = np.frombuffer(hashes, dtype=np.uint64)
    return tuple(node_generator(0, node_key(key)).standard_normal() for key in keys[:, None])


def shuffled(features: Tensor, codes: np.ndarray, along: Tensor, labels: Sequence[Any], seed: int) -> np.ndarray:
    """Row numbers (n,), class after class, in a class by the projection on a direction, then shuffled.

    Parameters
    ----------
    features : (n, d) mapped, in the order of `distinct`.
    codes : (n,) class numbers.
    along : (d,) see `direction`.
    labels : of the classes; with the seed they are the keys of the shuffling.
    seed : int
    """
    order = np.lexsort(((features @ along).cpu().numpy(), codes))
    ends = np.cumsum(np.bincount(codes, minlength=len(labels)))
    for rows, key in zip(np.split(order, ends[:-1]), label_hashes(labels), strict=True):
        np.random.default_rng([seed, int(key), len(rows)]).shuffle(rows)  # a view of the order
    return order


def in_order(registry: ClassRegistry, along: Tensor, seed: int) -> ClassRegistry:
    """The registry with the later examples of each class in order, whichever call brought them.

    Those that came with a novel class stay before the others.

    Parameters
    ----------
    registry : ClassRegistry
    along : (d,) a `direction` of the base session.
    seed : int
    """
    base = tuple(_ordered(c, along, registry.base_keys[c.number], seed) for c in registry.base)
    return replace(registry, base=base, novel=tuple(_ordered(c, along, c.key, seed) for c in registry.novel))


def merged_examples(registry: ClassRegistry) -> ClassRegistry:
    """The registry with one example in the place of equal ones of a class, which counts as often as they do together.

    It is called as the first of them.
    """
    return replace(registry, base=tuple(map(_merged, registry.base)), novel=tuple(map(_merged, registry.novel)))


def _merged(c: Taught) -> Taught:
    if len(c.weights) == 0:
        return c
    place: dict[bytes, int] = {}
    rows = (c.extra if isinstance(c, BaseClass) else c.features).cpu().numpy()
    groups = [place.setdefault((row + 0.0).tobytes(), len(place)) for row in rows]
    if len(place) == len(groups):
        return c
    first = np.unique(groups, return_index=True)[1]
    at = torch.as_tensor(groups, device=c.weights.device)

    def summed(weights: Tensor) -> Tensor:
        return weights.new_zeros(len(first)).index_add_(0, at, weights)

    chosen = torch.as_tensor(first, device=c.weights.device)
    shared = {"weights": summed(c.weights), "origins": tuple(c.origins[i] for i in first)}
    if isinstance(c, BaseClass):
        return replace(c, extra=c.extra[chosen], **shared)
    return replace(c, features=c.features[chosen], arrival=summed(c.arrival), **shared)


def _ordered(c: Taught, along: Tensor, key: Any, seed: int) -> Taught:
    features = c.extra if isinstance(c, BaseClass) else c.features
    if len(features) < 2:
        return c
    later = (
        np.zeros(len(features), dtype=np.int64) if isinstance(c, BaseClass) else (c.arrival == 0).long().cpu().numpy()
    )
    order = by_value(features.cpu().numpy(), later)
    order = order[shuffled(features[torch.as_tensor(order)], later[order], along, (key, key), seed)]
    at = torch.as_tensor(order, device=features.device)
    shared = {"weights": c.weights[at], "origins": tuple(c.origins[i] for i in order)}
    if isinstance(c, BaseClass):
        return replace(c, extra=features[at], **shared)
    return replace(c, features=features[at], arrival=c.arrival[at], **shared)
