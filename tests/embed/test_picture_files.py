"""Pictures of every kind give the same pixels as the plain one, and those that cannot be read say why."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from embed_cases import picture
from PIL import Image, features

from gptree.embed import Preprocessing, UnreadableError
from gptree.embed import pictures as module
from gptree.embed.pictures import decoded


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned() -> bytes:
    """Stored lying on its side, with the note that it has to be turned back."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(picture().rotate(90, expand=True), "PNG", exif=exif.tobytes())


def sixteen_bits() -> bytes:
    grey = np.asarray(picture().convert("L")).astype(np.uint16) * 257
    return saved(Image.fromarray(grey), "PNG")


def animated() -> bytes:
    frames = [picture("blue", seed) for seed in range(2)]
    return saved(picture().quantize(64), "GIF", save_all=True, append_images=frames)


RED, GREY = np.asarray(picture()), np.asarray(picture().convert("L").convert("RGB"))


@pytest.mark.parametrize(
    ("content", "expected", "most"),
    [
        (saved(picture(), "PNG"), RED, 0),
        (saved(picture(), "TIFF"), RED, 0),
        (saved(picture(), "BMP"), RED, 0),
        (saved(picture(), "WEBP", lossless=True), RED, 0),
        (turned(), RED, 0),
        (saved(picture().convert("RGBA"), "PNG"), RED, 0),
        (saved(picture().convert("L"), "PNG"), GREY, 0),
        (sixteen_bits(), GREY, 0),
        (saved(picture().convert("CMYK"), "TIFF"), RED, 1),
        (saved(picture().convert("CMYK"), "JPEG", quality=100), RED, 60),  # colours at half the resolution
        (animated(), RED, 30),  # of 64 colours
    ],
    ids=["png", "tiff", "bmp", "webp", "exif", "alpha", "grey", "16 bit", "cmyk", "cmyk jpeg", "animated"],
)
def test_all_kinds_become_upright_rgb(content: bytes, expected: np.ndarray, most: int) -> None:
    image = decoded(content)
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image).astype(int) - expected).max() <= most


def test_what_is_transparent_is_white() -> None:
    clear = Image.new("RGBA", (3, 3), (255, 0, 0, 0))
    assert (np.asarray(decoded(saved(clear, "PNG"))) == 255).all()
    palette = Image.new("P", (3, 3), 0)
    assert (np.asarray(decoded(saved(palette, "PNG", transparency=0))) == 255).all()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (lambda: b"no picture", "not a picture that can be read"),
        (lambda: saved(picture(size=(60, 60)), "PNG")[:-200], "damaged"),
        (lambda: saved(picture(size=(60, 60)), "JPEG")[:300], "damaged"),
        (lambda: saved(Image.new("F", (2, 2)), "TIFF"), "32 bits a channel"),
        (lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "not a picture"),
    ],
    ids=["text", "cut png", "cut jpeg", "float", "postscript"],
)
def test_what_cannot_be_read_says_why(content: Callable[[], bytes], reason: str) -> None:
    with pytest.raises(UnreadableError, match=reason):
        decoded(content())


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_001, 15_000])
def test_gigantic_pictures_are_not_decoded(side: int) -> None:
    """A small file that says so of itself; Pillow stops at twice its own limit only."""
    content = saved(Image.new("1", (8, 8)), "BMP")
    content = content[:18] + 2 * side.to_bytes(4, "little") + content[26:]
    with pytest.raises(UnreadableError, match=r"pixels"):
        decoded(content)


def test_file_size_is_limited(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 2**20)
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate(2**20 + 1)
    with pytest.raises(UnreadableError, match="more than 1 MiB"):
        module.read_file(tmp_path / "a.png")


@pytest.mark.parametrize("size", [(40, 40), (60, 40), (40, 90)])
def test_the_square_in_the_middle(size: tuple[int, int]) -> None:
    """A slow twin for a size that divides: the average of the pixels of the square, block by block."""
    image = picture(size=size)
    pixels = Preprocessing(size=4, crop=0.8, interpolation="bilinear")(image)
    assert pixels.shape == (4, 4, 3)
    left, top = (size[0] - 32) // 2, (size[1] - 32) // 2
    square = np.asarray(image)[top : top + 32, left : left + 32].astype(float)
    blocks = square.reshape(4, 8, 4, 8, 3).mean((1, 3))
    assert np.abs(pixels - blocks).max() < 6  # noise of ±20, averaged over triangles in place of blocks
    whole = image.resize((4, 4), Image.Resampling.BILINEAR, box=(left, top, left + 32, top + 32))
    assert np.array_equal(pixels, np.asarray(whole))


def test_a_thread_of_a_picture_needs_no_memory() -> None:
    pixels = Preprocessing(size=16)(Image.new("RGB", (100_000, 1), "red"))
    assert pixels.tolist() == np.full((16, 16, 3), [255, 0, 0]).tolist()


def test_pixels_are_standardised() -> None:
    pixels = torch.randint(0, 256, (2, 3, 3, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    got = Preprocessing(size=3, mean=mean, std=std).standardised(pixels)
    for b in range(2):
        for c in range(3):
            for i in range(3):
                for j in range(3):
                    expected = (pixels[b, i, j, c].item() / 255 - mean[c]) / std[c]
                    assert got[b, c, i, j].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"size": 0}, "size"),
        ({"crop": 0.0}, "crop"),
        ({"std": (1.0, 0.0, 1.0)}, "std"),
        ({"mean": (1.0,)}, "red, green and blue"),
        ({"interpolation": "area"}, "interpolation"),
    ],
)
def test_bad_settings(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Preprocessing(**setting)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_avif() -> None:
    content = saved(picture(size=(32, 32)), "AVIF", quality=100)
    assert decoded(content).size == (32, 32)
