"""CLINC150, 150 intents (CC BY 3.0), MiniLM-L6-v2 sentence embeddings, with out-of-scope test queries.

File `clinc150_minilm.npz`: `train_x` (15000, 384), `train_y`, `test_x` (4500, 384), `test_y`, `names` (150,), and
`oos_test_x`, queries that belong to no intent.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.data import Dataset, read_arrays, text_features


def load(folder: Path) -> Dataset:
    names = ("train_x", "train_y", "test_x", "test_y", "names", "oos_test_x")
    arrays = read_arrays(folder / "clinc150_minilm.npz", names)
    return replace(text_features("clinc150", arrays), oos=arrays["oos_test_x"].astype(np.float32))
