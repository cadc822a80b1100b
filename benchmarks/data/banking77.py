"""Banking77, 77 intents (CC BY 4.0), MiniLM-L6-v2 sentence embeddings.

File `banking77_minilm.npz`: `train_x` (10003, 384), `train_y`, `test_x` (3080, 384), `test_y`, `names` (77,).
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.data import Dataset, read_arrays, text_features


def load(folder: Path) -> Dataset:
    names = ("train_x", "train_y", "test_x", "test_y", "names")
    return text_features("banking77", read_arrays(folder / "banking77_minilm.npz", names))
