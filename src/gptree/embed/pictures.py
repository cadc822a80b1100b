"""Pictures from files: decoded to RGB whatever they were, cut to a square, scaled."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from gptree.settings import require, require_whole

#: Larger pictures, in pixels, and larger files, in bytes, are not read: they may be made to fill the memory.
MOST_PIXELS, MOST_BYTES = 100_000_000, 256 * 2**20
#: What is decoded, where Pillow or a plug-in can. Formats that run other programs are not among them.
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "AVIF", "HEIF")

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


class UnreadableError(ValueError):
    """A picture or a text that cannot be encoded; the message is the reason."""


@dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes the input of a network: the square in its middle, scaled to a size, then standardised.

    Parameters
    ----------
    size : int
        Pixels of a side.
    crop : float
        Side of the square as a share of the shorter side of the picture.
    mean, std : tuple of float
        Of each channel, for pixels from 0 to 1: a network sees (x − mean) / std.
    interpolation : "bicubic", "bilinear", "lanczos" or "nearest"

    Examples
    --------
    >>> Preprocessing(size=2, crop=1.0)(Image.new("RGB", (6, 4), "red")).tolist()[0][0]
    [255, 0, 0]
    """

    size: int = 224
    crop: float = 0.875
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        require_whole("size", self.size, 1)
        require(0 < self.crop <= 1, f"crop must be in (0, 1], got {self.crop}.")
        require(len(self.mean) == len(self.std) == 3, "mean and std have a number for each of red, green and blue.")
        require(min(self.std) > 0, f"std must be above 0, got {self.std}.")
        require(self.interpolation in _FILTERS, f"interpolation is one of {', '.join(_FILTERS)}.")

    def describe(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Pixels (size, size, 3) of a picture, uint8."""
        side = self.crop * min(image.size)
        left, top = ((length - side) / 2 for length in image.size)
        box = (left, top, left + side, top + side)
        # only the square is ever scaled, so that a picture of 1 × 100,000 pixels needs no more memory than others
        return np.asarray(image.resize((self.size, self.size), _FILTERS[self.interpolation], box=box))

    def standardised(self, pixels: Any) -> Any:
        """What a network sees of a tensor of pixels (B, size, size, 3): another one, (B, 3, size, size)."""
        scaled = pixels.permute(0, 3, 1, 2).float() / 255
        mean, std = (scaled.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return ((scaled - mean) / std).contiguous()


def grey(value: float) -> tuple[float, float, float]:
    """The same number for red, green and blue."""
    return value, value, value


def read_file(path: Path) -> bytes:
    """The content of a picture file; `UnreadableError` says why there is none."""
    try:
        if not path.is_file():
            raise UnreadableError("there is no such file" if not path.exists() else "not a file")
        if path.stat().st_size > MOST_BYTES:
            raise UnreadableError(f"the file has more than {MOST_BYTES // 2**20} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"the file cannot be read ({error.strerror or error})") from None
    if not content:
        raise UnreadableError("the file is empty")
    return content


def decoded(content: bytes | Image.Image) -> Image.Image:
    """The picture in a file, upright, in RGB, its first frame; `UnreadableError` says why there is none.

    Transparent pixels are white. 16 bits a channel become 8.
    """
    try:
        image = Image.open(io.BytesIO(content), formats=_formats()) if isinstance(content, bytes) else content
        width, height = image.size
        if width * height > MOST_PIXELS:
            raise UnreadableError(f"{width} × {height} pixels are more than {MOST_PIXELS:,}")
        return _rgb(ImageOps.exif_transpose(image))
    except UnreadableError:
        raise
    except Image.UnidentifiedImageError:
        raise UnreadableError("not a picture that can be read") from None
    except Image.DecompressionBombError:
        raise UnreadableError(f"it has more than {MOST_PIXELS:,} pixels") from None
    except Exception as error:  # decoders raise a dozen kinds for damaged files
        raise UnreadableError(f"damaged ({type(error).__name__}: {error})") from None


def _formats() -> list[str]:
    Image.init()
    return [name for name in FORMATS if name in Image.OPEN]


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise UnreadableError("32 bits a channel have no fixed range: save it with 8 or 16")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        return Image.alpha_composite(white, image).convert("RGB")
    return image.convert("RGB")
