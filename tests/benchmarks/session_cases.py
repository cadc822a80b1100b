"""Small made-up sets of pictures, of which sessions can be made."""

from __future__ import annotations

import numpy as np

from benchmarks.core.pictures import Pictures

BASE, SESSIONS, WAY = 5, 2, 2
CLASSES = BASE + SESSIONS * WAY


def made_up_pictures(per_class: int = 12) -> tuple[np.ndarray, Pictures]:
    """Embeddings of classes that can be told apart, in eight dimensions, and what is known of the pictures."""
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(CLASSES), per_class)
    x = random.normal(size=(CLASSES, 8))[y] + 0.3 * random.normal(size=(len(y), 8))
    place = np.tile(np.arange(per_class), CLASSES)
    path = np.array([f"c{c}/{i}.jpg" for c, i in zip(y, place, strict=True)])
    names = tuple(f"c{c}" for c in range(CLASSES))
    return x, Pictures(np.zeros((len(y), 1, 1, 3), np.uint8), y, names, (place >= 8).astype(np.int8), path)
