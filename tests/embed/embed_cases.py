"""Small pictures, texts and encoders that need no weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from gptree.embed import Encoder, Preprocessing

Run = Callable[..., Any]

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (20, 40, 210)}
SMALL = Preprocessing(size=8, crop=1.0)


def tiny(name: str = "tiny/1", **other: Any) -> Encoder:
    """An encoder in three lines: the mean of each colour, and how it varies."""
    function = lambda x: np.concatenate([x.mean((2, 3)), x.std((2, 3))], 1)  # noqa: E731
    return Encoder.of(lambda x: function(x.numpy()), name=name, dimension=6, preprocessing=SMALL, **other)


def letters(name: str = "letters/1") -> Encoder:
    """How often each letter comes in a text."""

    def counts(texts: list[str]) -> np.ndarray:
        return np.array([[text.lower().count(letter) / len(text) for letter in "abcdefghij"] for text in texts])

    return Encoder.of(counts, name=name, dimension=10, kind="text")


def picture(colour: str = "red", seed: int = 0, size: tuple[int, int] = (12, 10)) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-20, 21, (*size[::-1], 3))
    return Image.fromarray(np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8))


def photos(folder: Path, count: int = 4, classes: tuple[str, ...] = tuple(COLOURS), first: int = 0) -> Path:
    """Pictures of a class a folder; other ones for another `first`."""
    for number, colour in enumerate(classes):
        (folder / colour).mkdir(parents=True)
        for i in range(count):
            picture(colour, 100 * number + first + i).save(folder / colour / f"{i:03}.png")
    return folder
