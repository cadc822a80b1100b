"""Sets of pictures, packed into a few files that load in seconds.

    python -m benchmarks.core.pictures NAME TREE OUT [--lists DIR] [--first K] [--workers N]

TREE holds picture files as `FOLDER/CLASS/FILE`; OUT gets `NAME.0.npz`, `NAME.1.npz`, …, each below 48 MiB, so that each
can be copied alone. NAME is a module of `benchmarks.data` with a recipe `PICTURES`.

Lists (`--lists`) are the public ones of few-shot class-incremental learning, `session_N.txt` and `test_N.txt`. An item
is found by its last two parts, `CLASS/FILE`; the folders above are another split and do not count. With lists, classes
are numbered in the order in which they arrive and the split is the lists'; without, classes are sorted by name. With
`--first K` only the first K pictures of a class and split are packed, in the order of their names.

A part is a NumPy .npz file without pickles: `bytes`, encoded files one after another; `offsets` (m + 1,), where they
start; `count` (m,), the pictures in each; of each picture `label`, `split` (0 train, 1 test) and `path`, `CLASS/FILE`;
`names` of all classes; `part`, its number and the number of parts.
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from PIL import Image

MEBIBYTE = 2**20
LARGEST_PART = 48 * MEBIBYTE
SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class Pictures:
    """X (n, H, W, 3) uint8, class numbers y (n,) and their names, split (n,) 0 train 1 test, path (n,) `CLASS/FILE`."""

    X: np.ndarray
    y: np.ndarray
    names: tuple[str, ...]
    split: np.ndarray
    path: np.ndarray


# --------------------------------------------------------------------------------------------------------- encoding


@dataclass(frozen=True)
class Lossless:
    """Bit-exact: up to `strip` pictures of one size, one below the other, in one WebP file.

    size: None takes the pictures as they are. A number takes the largest square in the middle, resized to this side.
    """

    strip: int = 100
    size: int | None = None

    def encode(self, files: Sequence[Path]) -> bytes:
        pictures = [_read(file) for file in files]
        if self.size is not None:
            pictures = [centre_square(picture, self.size, margin=1) for picture in pictures]
        pixels = np.concatenate([np.asarray(picture) for picture in pictures])
        # Effort 75: effort 100 takes thirty times as long and saves 0.3 %.
        encoded = _webp(Image.fromarray(pixels), lossless=True, exact=True, quality=75)
        if not np.array_equal(np.asarray(_from_webp(encoded)), pixels):
            raise RuntimeError(f"The WebP file of {files[0]} and those after it does not decode to the same pixels.")
        return encoded


@dataclass(frozen=True)
class Lossy:
    """One WebP file for each picture; one that is larger than the sides given here is shrunk, aspect ratio kept."""

    quality: int
    shorter: float = math.inf
    longer: float = math.inf
    strip: ClassVar[int] = 1

    def encode(self, files: Sequence[Path]) -> bytes:
        (file,) = files
        picture = _read(file)
        scale = min(self.shorter / min(picture.size), self.longer / max(picture.size))
        if scale < 1:
            width, height = (max(round(scale * side), 1) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.LANCZOS)
        return _webp(picture, quality=self.quality)


def _read(file: Path) -> Image.Image:
    with Image.open(file) as picture:
        return picture.convert("RGB")


def _webp(picture: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", method=6, **options)
    return buffer.getvalue()


def _from_webp(encoded: bytes) -> Image.Image:
    with Image.open(io.BytesIO(encoded), formats=("WEBP",)) as picture:  # guessing the format takes as long as decoding
        return picture.convert("RGB")


# ---------------------------------------------------------------------------------------------------------- packing


class Item(NamedTuple):
    """A picture to be packed. Items sort by split, class and path."""

    split: int
    label: int
    path: str
    file: Path


def pack(
    name: str,
    tree: str | Path,
    out: str | Path,
    recipe: Lossless | Lossy,
    lists: str | Path | None = None,
    workers: int = 2,
    first: int | None = None,
) -> list[Path]:
    """Write the parts of a set, and say where they are."""
    items, names = whole_tree(Path(tree)) if lists is None else listed_items(Path(tree), Path(lists))
    strips = list(_strips(sorted(items), recipe.strip, first))
    with ThreadPoolExecutor(workers) as pool:
        encoded = list(pool.map(lambda strip: recipe.encode([item.file for item in strip]), strips))
    return _write(Path(out), name, strips, encoded, names)


def whole_tree(tree: Path) -> tuple[list[Item], list[str]]:
    """All pictures of `train` and `test`, and the names of the classes, sorted."""
    files = [(split, file) for split, top in enumerate(SPLITS) for file in (tree / top).glob("*/*")]
    names = sorted({file.parent.name for _, file in files})
    if not names:
        raise ValueError(f"{tree} holds no picture: its files should be train/CLASS/FILE and test/CLASS/FILE.")
    label = {name: number for number, name in enumerate(names)}
    return [Item(split, label[file.parent.name], _path(file), file) for split, file in files], names


def listed_items(tree: Path, lists: Path) -> tuple[list[Item], list[str]]:
    """The pictures that the lists name, and the names of the classes in their order of arrival."""
    files = {_path(file): file for file in tree.glob("*/*/*")}
    label: dict[str, int] = {}
    items = []
    for split, kind in enumerate(("session", "test")):
        numbered = sorted(lists.glob(f"{kind}_*.txt"), key=lambda file: int(file.stem.removeprefix(f"{kind}_")))
        if not numbered:
            raise ValueError(f"{lists} holds no {kind}_1.txt, {kind}_2.txt, ….")
        for path in (_path(Path(line)) for file in numbered for line in file.read_text("utf-8").split()):
            if path not in files:
                raise ValueError(f"The lists of {lists} name {path}, which {tree} lacks.")
            items.append(Item(split, label.setdefault(path.split("/")[0], len(label)), path, files[path]))
    return items, list(label)


def _path(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


def _strips(items: Sequence[Item], longest: int, first: int | None) -> Iterator[tuple[Item, ...]]:
    """Items that share a file: of one class and one split, the first so many of them."""
    for _, group in itertools.groupby(items, key=lambda item: (item.split, item.label)):
        yield from _batched(tuple(group)[:first], longest)


def _batched(group: tuple[Item, ...], longest: int) -> Iterator[tuple[Item, ...]]:
    return (group[start : start + longest] for start in range(0, len(group), longest))


def _write(
    out: Path, name: str, strips: Sequence[tuple[Item, ...]], encoded: Sequence[bytes], names: Sequence[str]
) -> list[Path]:
    """Parts of about the same size, as few as will do."""
    ends = np.cumsum([len(file) for file in encoded])
    n_parts = math.ceil(ends[-1] / (LARGEST_PART - MEBIBYTE))  # the MiB is for all that is not pictures
    part_of = (ends - 1) * n_parts // ends[-1]
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for part in range(n_parts):
        chosen = np.flatnonzero(part_of == part).tolist()
        items = [item for strip in chosen for item in strips[strip]]
        file = out / f"{name}.{part}.npz"
        np.savez_compressed(  # the paths shrink; the pictures cannot
            file,
            bytes=np.frombuffer(b"".join(encoded[strip] for strip in chosen), np.uint8),
            offsets=np.cumsum([0, *(len(encoded[strip]) for strip in chosen)], dtype=np.int64),
            count=np.array([len(strips[strip]) for strip in chosen], np.int32),
            label=np.array([item.label for item in items], np.int32),
            split=np.array([item.split for item in items], np.int8),
            path=np.array([item.path for item in items]),
            names=np.array(names),
            part=np.array([part, n_parts]),
        )
        if file.stat().st_size >= LARGEST_PART:
            raise RuntimeError(f"{file} is larger than {LARGEST_PART // MEBIBYTE} MiB.")
        written.append(file)
    return written


# ---------------------------------------------------------------------------------------------------------- loading


def load(
    folder: str | Path, name: str, size: int | None = None, margin: float = 8 / 7, workers: int | None = None
) -> Pictures:
    """All parts of a set, decoded; rows are sorted by split, class and path.

    size: None leaves the pictures as they are, and they must be of one size. A number gives squares of this side, as
    usual for testing: the shorter side is resized to size × margin (bicubic), then the centre is cut out. Networks that
    train on random crops want size = 256 and margin = 1, the largest square, whose centre of 224 is the same cut.
    workers: threads, for Pillow decodes and resizes outside the interpreter's lock; None is one for each core.
    """
    parts = _read_parts(Path(folder), name)
    files = [file for part in parts for file in _files(part)]
    starts = np.cumsum([0, *(count for _, count in files)])
    height, width = (size, size) if size else _shape(*files[0])
    X = np.empty((starts[-1], height, width, 3), np.uint8)

    def decode(file: tuple[bytes, int], start: int) -> None:
        pixels = _decoded(*file, size, margin)
        if pixels.shape[1:] != X.shape[1:]:
            raise ValueError(f"The pictures of {name} are not of one size; give a size.")
        X[start : start + len(pixels)] = pixels

    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        list(pool.map(decode, files, starts[:-1]))
    y, split, path = (np.concatenate([part[key] for part in parts]) for key in ("label", "split", "path"))
    return Pictures(X, y.astype(np.int64), tuple(parts[0]["names"].tolist()), split, path)


def _read_parts(folder: Path, name: str) -> list[dict[str, np.ndarray]]:
    parts: list[dict[str, np.ndarray]] = []
    while not parts or len(parts) < parts[0]["part"][1]:
        file = folder / f"{name}.{len(parts)}.npz"
        if not file.is_file():
            raise FileNotFoundError(f"{file} is missing; make it with `python -m benchmarks.core.pictures {name} …`.")
        with np.load(file, allow_pickle=False) as arrays:
            part = {key: arrays[key] for key in arrays.files}
        if parts and part["part"][1] != parts[0]["part"][1]:
            raise ValueError(f"{file} and {name}.0.npz are parts of different packs; make the pack again.")
        parts.append(part)
    return parts


def _files(part: dict[str, np.ndarray]) -> Iterator[tuple[bytes, int]]:
    """The encoded files of a part, and how many pictures are in each."""
    content, offsets = part["bytes"], part["offsets"].tolist()
    for start, end, count in zip(offsets[:-1], offsets[1:], part["count"].tolist(), strict=True):
        yield content[start:end].tobytes(), count


def _shape(encoded: bytes, count: int) -> tuple[int, int]:
    with Image.open(io.BytesIO(encoded)) as picture:
        return picture.height // count, picture.width


def _decoded(encoded: bytes, count: int, size: int | None, margin: float) -> np.ndarray:
    """The pictures of a file, (count, H, W, 3)."""
    strip = _from_webp(encoded)
    pixels = np.asarray(strip).reshape(count, strip.height // count, strip.width, 3)
    if size is None:
        return pixels
    return np.stack([np.asarray(centre_square(Image.fromarray(picture), size, margin)) for picture in pixels])


def centre_square(picture: Image.Image, size: int, margin: float) -> Image.Image:
    """The square of this side in the middle of the picture, whose shorter side is first resized to size × margin."""
    if size < 1 or margin < 1:
        raise ValueError(f"size and margin must be 1 or more, got {size} and {margin}.")
    cut = min(picture.size) / margin  # the side of the square, in pixels of the picture
    left, top = ((side - cut) / 2 for side in picture.size)
    return picture.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + cut, top + cut))


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks import data

    recipes = {name: module.PICTURES for name, module in data.modules().items() if hasattr(module, "PICTURES")}
    parser = argparse.ArgumentParser(description="Pack a set of pictures into a few files.")
    parser.add_argument("name", choices=list(recipes))
    parser.add_argument("tree", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--lists", type=Path)
    parser.add_argument("--first", type=int)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    recipe = recipes[given.name]
    for file in pack(given.name, given.tree, given.out, recipe, given.lists, given.workers, given.first):
        print(f"{file}: {file.stat().st_size / MEBIBYTE:.1f} MiB")


if __name__ == "__main__":
    main()
