"""Keys of random choices at nodes, from the labels of their classes.

A random choice at a node depends on the seed and on the labels of the node's classes, and on nothing else:
not on the order in which nodes are visited, nor on the numbers that the classes happen to carry. The same
node therefore meets the same randomness in every tree that holds it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np


def label_hashes(labels: Iterable[Any]) -> np.ndarray:
    """Hashes of labels that are the same on every platform and in every run; equal labels of one type agree.

    Parameters
    ----------
    labels : iterable of int, float, bool, str, bytes or None

    Returns
    -------
    uint64 array, one entry a label
    """
    digests = [hashlib.blake2b(_canonical(label), digest_size=8).digest() for label in labels]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def node_key(hashes_of_members: np.ndarray) -> int:
    """The key of a set of classes: the sum of their hashes modulo 2⁶⁴, so their order does not matter.

    Parameters
    ----------
    hashes_of_members : uint64 array
        `label_hashes` of the classes.

    Returns
    -------
    int
    """
    return int(np.sum(hashes_of_members, dtype=np.uint64))


def node_generator(seed: int, key: int) -> np.random.Generator:
    """The random generator of the node with this key.

    Parameters
    ----------
    seed : int
    key : int
        A `node_key`.

    Returns
    -------
    numpy.random.Generator
    """
    return np.random.default_rng([seed, key])


def _canonical(label: Any) -> bytes:
    """Type tag and value. NumPy scalars count as the Python type they stand for."""
    match label:
        case bool() | np.bool_():
            return b"bool:%d" % bool(label)
        case int() | np.integer():
            return b"int:%d" % int(label)
        case float() | np.floating():
            return b"float:" + (float(label) + 0.0).hex().encode()  # + 0.0 makes −0 equal to 0
        case str():
            return b"str:" + label.encode("utf-8", "surrogatepass")
        case bytes():
            return b"bytes:" + label
        case None:
            return b"none:"
    raise TypeError(f"Labels must be integers, floats, booleans, strings, bytes or None; got {type(label).__name__}.")
