"""scikit-learn's digits in two stratified halves, always the same; nothing is read from the folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from benchmarks.data import Dataset


def load(folder: Path) -> Dataset:
    x, y = (np.asarray(array) for array in load_digits(return_X_y=True))
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=0)
    x = x.astype(np.float32)
    return Dataset("digits", x[train], y[train], x[test], y[test], tuple("0123456789"))
