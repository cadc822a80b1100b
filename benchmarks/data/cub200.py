"""CUB-200-2011, 200 birds: pooled EfficientNet-Lite2 features with the official split, and pictures.

File `cub_efficientnet_lite2.npz`: `x` (11788, 1280), `y` 0 … 199, `train` (bool, the official split), `path`
(`class_folder/file.jpg`). Folder `fscil/cub200`: the public lists for few-shot class-incremental learning,
`session_1.txt` … `session_11.txt` and `test_1.txt` … `test_11.txt`, one image path a line; `test_N` lists the classes
that session N adds. Pictures as the public repository cyizhuo/CUB-200-2011-dataset holds them, those that the lists
name: whole ones, shrunk (Lanczos, aspect ratio kept) until the shorter side is at most 256 and the longer at most 320
pixels; WebP of quality 86, 36.0 dB.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.core.pictures import Lossy
from benchmarks.data import Dataset, read_arrays

FILE = "cub_efficientnet_lite2.npz"
PICTURES = Lossy(quality=86, shorter=256, longer=320)


def load(folder: Path) -> Dataset:
    arrays = read_arrays(folder / FILE, ("x", "y", "train", "path"))
    x, y, train = arrays["x"].astype(np.float32), arrays["y"].astype(int), arrays["train"]
    first = np.unique(y, return_index=True)[1]
    names = tuple(str(path).split("/")[0] for path in arrays["path"][first])
    return Dataset("cub200", x[train], y[train], x[~train], y[~train], names)
