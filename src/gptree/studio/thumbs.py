"""Small pictures of examples. They are drawn anew, so that nothing of a file but its pixels is ever sent back."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from gptree.embed.pictures import UnreadableError, decoded, read_file

SIDE = 256  # pixels
_BARS = 64  # of a bare vector


def thumb_of_file(path: Path) -> bytes:
    """PNG of a picture; a grey one where the file cannot be read any more."""
    try:
        image = decoded(read_file(path))
    except UnreadableError:
        image = Image.new("RGB", (SIDE, SIDE), "#c9cfd2")
    if max(image.size) <= SIDE // 4:  # a few pixels: each is to be seen
        factor = SIDE // 2 // max(image.size)
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    image.thumbnail((SIDE, SIDE))
    return _png(image)


def thumb_of_vector(x: np.ndarray) -> bytes:
    """PNG of a bare vector: a bar for each number, or for the mean of neighbouring ones."""
    parts = np.array_split(np.asarray(x, dtype=float), min(_BARS, len(x)))
    values = np.array([part.mean() for part in parts])
    reach = max(float(np.abs(values).max()), 1e-12)
    width, height = max(1, 128 // len(values)), 64
    canvas = np.full((height, width * len(values), 3), 255, dtype=np.uint8)
    for i, value in enumerate(values / reach):
        low, high = sorted((height // 2, height // 2 - round(value * (height // 2 - 2))))
        canvas[low : max(high, low + 1), i * width : max((i + 1) * width - 1, i * width + 1)] = (11, 110, 102)
    return _png(Image.fromarray(canvas))


def _png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()
