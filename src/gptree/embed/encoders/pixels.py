"""The grey values of a small picture as they are: no network and no weights, for drawings, digits, stamps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gptree.embed.encoders.base import Description, Encoder, PictureEncoder, Sources
from gptree.embed.pictures import Preprocessing

_LARGEST = 64  # pixels of a side


class PixelEncoder(PictureEncoder):
    """Grey values of a picture that is scaled to a square.

    Parameters
    ----------
    size : int
        Pixels of a side, 2 … 64.
    """

    family = "pixels"

    def __init__(self, size: int) -> None:
        if not 2 <= size <= _LARGEST:
            raise ValueError(f"pixels:SIZE takes sides of 2 to {_LARGEST} pixels, not {size}.")
        self.size, self.name, self.dimension = size, f"pixels:{size}", size * size
        self.preprocessing = Preprocessing(size, crop=1.0)

    @classmethod
    def named(cls, rest: str, sources: Sources) -> Encoder:
        if not rest.isdecimal():
            raise ValueError(f"pixels:{rest} is no encoder: say the side in pixels, such as pixels:8.")
        return cls(int(rest))

    @classmethod
    def described(cls, description: Mapping[str, Any], sources: Sources) -> Encoder:
        return cls.named(str(description.get("name")).partition(":")[2], sources)

    def describe(self) -> Description:
        return {
            "family": self.family,
            "name": self.name,
            "kind": self.kind,
            "dimension": self.dimension,
            "preprocessing": self.preprocessing.describe(),
            "weights": None,
        }

    def embed(self, pixels: Any) -> Any:
        return pixels.mean(1).flatten(1)
