"""`gptree embed` killed at random moments: resumed, it gives the same ids, labels and bytes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from crashes import in_silence
from faults import DONE, ended, start
from parts import Part
from PIL import Image

from gptree.cli.embedding import embed
from gptree.embed import Encoder, Preprocessing
from gptree.embed import encoding as encoding_module

PICTURES, KILLS = 60, 3


def _slow(pixels: torch.Tensor) -> torch.Tensor:
    time.sleep(0.002)  # so that a moment falls between batches, too
    return pixels.flatten(1)


def make(folder: Path, seed: int) -> None:
    """Small pictures, a bad file among them."""
    random = np.random.default_rng(seed)
    for i in range(PICTURES):
        place = folder / f"class {i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (6, 6, 3), dtype=np.uint8)).save(place / f"{i:03}.bmp")
    (folder / "class 0" / "bad.png").write_bytes(b"nothing")


def run(photos: Path, out: Path, store: Path) -> None:
    in_silence(lambda: embed(photos, out, encoder="slow/1", store=store, batch=4))


def check_kills(unit: int, folder: Path) -> int:
    """Some kills of one run, and what it gives in the end; how many there were."""
    Encoder.of(_slow, name="slow/1", dimension=27, preprocessing=Preprocessing(size=3))
    encoding_module.FLUSH_ROWS = 5
    make(folder / "photos", unit)
    begin = time.perf_counter()
    assert ended(start(lambda: run(folder / "photos", folder / "whole.npz", folder / "untouched"))) == DONE
    seconds, random = time.perf_counter() - begin, np.random.default_rng(unit)
    killed = 0
    for _ in range(KILLS):
        child = start(lambda: run(folder / "photos", folder / "out.npz", folder / "store"))
        time.sleep(random.uniform(0, seconds))
        os.kill(child, signal.SIGKILL)
        killed += ended(child) == -signal.SIGKILL
    assert ended(start(lambda: run(folder / "photos", folder / "out.npz", folder / "store"))) == DONE
    told = f"check_kills({unit}, folder): "
    assert (folder / "out.npz").read_bytes() == (folder / "whole.npz").read_bytes(), f"{told}it is another result"
    with np.load(folder / "out.npz") as arrays:
        assert len(arrays["X"]) == PICTURES, f"{told}rows are missing"
    return killed


PARTS = (
    Part(
        "embeddings",
        "kill -9 at random moments of embedding a folder of pictures; resumed, it gives the same bytes",
        50,
        check_kills,
        share=(0,),
    ),
)
