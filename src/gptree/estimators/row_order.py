"""The order in which a model sees its rows: one that does not depend on the order in which they were given.

Folds, subsets, exemplars and sums all look at rows in some order. Rows are brought into a fixed one at the door:

    by_value      class after class, and in a class by a digest of each row's values: whatever is computed from here on,
                  to the last bit, is a function of the set of rows
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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptree.incremental import ClassRegistry
from gptree.tree import label_hashes, node_generator, node_key


def by_value(X: np.ndarray, codes: np.ndarray, held_out: np.ndarray | None = None) -> np.ndarray:
    """Row numbers (n,), class after class, in a class by the values of the rows.

    Equal rows are told apart only by whether they are held out.

    Parameters
    ----------
    X : (n, d)
    codes : (n,) class numbers.
    held_out : (n,) booleans, optional
    """
    digests = np.array([hashlib.blake2b((row + 0.0).tobytes(), digest_size=16).digest() for row in X], dtype="V16")
    words = digests.view("<u8").reshape(-1, 2)
    marks = np.zeros(len(X), dtype=bool) if held_out is None else held_out
    return np.lexsort((marks, words[:, 1], words[:, 0], codes))


def direction(features: Tensor, codes: Tensor, labels: Sequence[Any]) -> Tensor:
    """A direction (d,) of the data: the sum of the class means of features (n, d), each with a weight of its label.

    The weights are random, so that it passes no two rows by alike, as the mean of a class of two rows would.
    """
    keys = [node_generator(0, node_key(key)) for key in label_hashes(labels)[:, None]]
    weights = torch.tensor([key.standard_normal() for key in keys]).to(features)
    counts = torch.bincount(codes, minlength=len(weights)).clamp(min=1)
    return (weights / counts)[codes] @ features


def shuffled(features: Tensor, codes: np.ndarray, along: Tensor, labels: Sequence[Any], seed: int) -> np.ndarray:
    """Row numbers (n,), class after class, in a class by the projection on a direction, then shuffled.

    Parameters
    ----------
    features : (n, d) mapped, in the order of `by_value`.
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

    def ordered(features: Tensor, first: int, key: Any) -> np.ndarray:
        part = (np.arange(len(features)) >= first).astype(np.int64)
        order = by_value(features.cpu().numpy(), part)
        return order[shuffled(features[torch.as_tensor(order)], part[order], along, (key, key), seed)]

    base, novel = [], []
    for c in registry.base:
        order = ordered(c.extra, len(c.extra), registry.base_keys[c.number])
        base.append(replace(c, extra=c.extra[torch.as_tensor(order)], origins=tuple(c.origins[i] for i in order)))
    for c in registry.novel:
        order = ordered(c.features, c.first, c.key)
        novel.append(
            replace(c, features=c.features[torch.as_tensor(order)], origins=tuple(c.origins[i] for i in order))
        )
    return replace(registry, base=tuple(base), novel=tuple(novel))
