"""`embed`: what is encoded, what is found in the store, what is left out; memory, order and interruptions."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embed_cases import SMALL, letters, photos, picture, tiny
from PIL import Image

from gptree.embed import Embedding, Encoder, ImageFolder, Store, Table, embed
from gptree.embed import encoding as encoding_module
from gptree.embed.encoders.base import Encoder as Base


class Counting(Base):
    """An encoder around another that counts, and fails as it is told."""

    def __init__(self, inner: Encoder, most: int = 10**6, error: Exception | None = None) -> None:
        self.inner, self.most, self.error = inner, most, error or MemoryError("no room")
        self.name, self.kind, self.dimension = inner.name, inner.kind, inner.dimension
        self.batches: list[list[Any]] = []

    def describe(self) -> dict[str, Any]:
        return self.inner.describe()

    def prepare(self, source: Any) -> Any:
        return self.inner.prepare(source)

    def encode(self, batch: Any) -> np.ndarray:
        if len(batch) > self.most:
            raise self.error
        self.batches.append(list(batch))
        return self.inner.encode(batch)


Counting.__abstractmethods__ = frozenset()  # `named` and `described` are for encoders that have a family


def by_hand(folder: Path) -> np.ndarray:
    """The slow twin: every picture alone, in the order of the ids."""
    rows = []
    for path in sorted(folder.rglob("*.png"), key=lambda path: path.relative_to(folder).as_posix()):
        pixels = np.asarray(Image.open(path).convert("RGB").resize((8, 8), Image.Resampling.BICUBIC, _square(path)))
        x = pixels.astype(np.float64) / 255
        rows.append([*(x[..., c].mean() for c in range(3)), *(x[..., c].std() for c in range(3))])
    return np.array(rows)


def _square(path: Path) -> tuple[float, float, float, float]:
    width, height = Image.open(path).size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def test_it_is_what_a_plain_loop_gives(tmp_path: Path) -> None:
    root = photos(tmp_path / "p")
    found = embed(ImageFolder(root), tiny(), batch_size=5)
    np.testing.assert_allclose(found.X, by_hand(root), atol=1e-6)
    assert found.X.dtype == np.float32
    assert found.y is not None
    assert found.y.tolist() == ["blue"] * 4 + ["green"] * 4 + ["red"] * 4
    assert found.ids[0] == "blue/000.png"
    assert found.encoder == tiny().describe()


def test_what_is_known_is_not_encoded_again(tmp_path: Path) -> None:
    root, store = photos(tmp_path / "p"), Store(tmp_path / "s")
    encoder = Counting(tiny())
    first = embed(ImageFolder(root), encoder, store=store)
    assert first.encoded == 12
    encoder.batches.clear()
    again = embed(ImageFolder(root), encoder, store=store)
    assert (again.encoded, encoder.batches) == (0, [])
    assert again.X.tobytes() == first.X.tobytes()
    # renamed and copied: nothing; edited: one
    (root / "red" / "000.png").rename(root / "green" / "other.png")
    (root / "red" / "copy.png").write_bytes((root / "red" / "001.png").read_bytes())
    assert embed(ImageFolder(root), encoder, store=store).encoded == 0
    picture("red", 999).save(root / "red" / "001.png")
    found = embed(ImageFolder(root), encoder, store=store)
    assert found.encoded == 1
    np.testing.assert_allclose(found.X, by_hand(root), atol=1e-6)
    assert found.keys[found.ids.index("red/copy.png")] != found.keys[found.ids.index("red/001.png")]


def test_duplicates_are_encoded_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        picture().save(tmp_path / name / "x.png")
    encoder = Counting(tiny())
    found = embed(ImageFolder(tmp_path), encoder)
    assert sum(map(len, encoder.batches)) == 1
    assert found.keys[0] == found.keys[1]
    assert len(found) == 2


@pytest.mark.parametrize("old", [False, True])
def test_an_edit_that_keeps_size_and_time_is_seen(tmp_path: Path, old: bool) -> None:
    """Files that were written within the last seconds are read again; older ones have another change time."""
    (tmp_path / "a").mkdir()
    path, store = tmp_path / "a" / "x.bmp", Store(tmp_path / "s")
    picture("red").save(path)
    if old:
        past = time.time_ns() - 10**10
        os.utime(path, ns=(past, past))
    before = embed(ImageFolder(tmp_path), tiny(), store=store)
    stamp = path.stat()
    picture("blue").save(path)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    after = embed(ImageFolder(tmp_path), tiny(), store=store)
    assert after.X[0, 2] > 0.5 > before.X[0, 2]


def test_contents_are_not_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, store = photos(tmp_path / "p"), Store(tmp_path / "s")
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**10)  # the files are no longer new
    first = embed(ImageFolder(root), tiny(), store=store)
    monkeypatch.setattr("gptree.embed.encoders.base.read_file", lambda path: pytest.fail("it was read"))
    assert embed(ImageFolder(root), tiny(), store=store).X.tobytes() == first.X.tobytes()
    (seen,) = (tmp_path / "s" / "seen").iterdir()
    for damage in ("[]", "{", json.dumps({str(root / "red" / "000.png"): ["x"]})):
        seen.write_text(damage)
        monkeypatch.undo()
        assert embed(ImageFolder(root), tiny(), store=store).X.tobytes() == first.X.tobytes()


def test_bad_files_stop_nothing(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 3)
    good = embed(ImageFolder(root), tiny())
    (root / "red" / "empty.png").touch()
    (root / "red" / "bad.jpg").write_bytes(b"nothing")
    (root / "blue" / "cut.png").write_bytes((root / "blue" / "000.png").read_bytes()[:100])
    found = embed(ImageFolder(root), tiny(), batch_size=2)
    assert found.X.tobytes() == good.X.tobytes()
    assert found.ids == good.ids
    reasons = dict(found.failed)
    assert reasons["red/empty.png"] == "the file is empty"
    assert reasons["red/bad.jpg"] == "not a picture that can be read"
    assert reasons["blue/cut.png"].startswith("damaged")
    for path in root.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"nothing in .* could be encoded; first blue/000.png: the file is empty"):
        embed(ImageFolder(root), tiny())


def test_rows_without_a_label(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 2)
    (root / "green").rename(root / "unlabelled")
    found = embed(ImageFolder(root), tiny())
    assert found.y is not None
    assert found.y.tolist() == ["blue", "blue", "red", "red", None, None]
    with pytest.raises(ValueError, match="some rows have no label"):
        found.save(tmp_path / "x.npz")
    known, pool = found.labelled(), found.unlabelled()
    assert known.y is not None
    assert known.y.dtype.kind == "U"
    assert (pool.y, pool.ids) == (None, ("unlabelled/000.png", "unlabelled/001.png"))
    known.save(tmp_path / "x.npz")
    arrays = np.load(tmp_path / "x.npz")
    np.testing.assert_array_equal(arrays["X"], found.X[:4])
    assert arrays["ids"].tolist() == list(found.ids[:4])
    assert json.loads(str(arrays["encoder"])) == found.encoder


def test_texts_go_by_length_and_come_back_in_order(tmp_path: Path) -> None:
    texts = ["a" * n + "b" for n in (3, 9, 1, 7, 5)]
    (tmp_path / "t.csv").write_text("text\n" + "\n".join(texts) + "\n")
    encoder = Counting(letters())
    found = embed(Table(tmp_path / "t.csv"), encoder, batch_size=2)
    assert [len(text) for batch in encoder.batches for text in batch] == [10, 8, 6, 4, 2]
    np.testing.assert_allclose(found.X[:, 1], [1 / len(text) for text in texts], rtol=1e-6)


def test_short_memory_halves_the_batch(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 6)
    encoder = Counting(tiny(), most=3, error=RuntimeError("CUDA out of memory. Tried to allocate"))
    found = embed(ImageFolder(root), encoder, batch_size=16)
    assert found.X.tobytes() == embed(ImageFolder(root), tiny()).X.tobytes()
    assert max(map(len, encoder.batches)) == 2  # 16, 8, 4, 2
    with pytest.raises(ValueError, match="does not hold 'tiny/1' and one item"):
        embed(ImageFolder(root), Counting(tiny(), most=0))
    with pytest.raises(RuntimeError, match="broken"):
        embed(ImageFolder(root), Counting(tiny(), most=0, error=RuntimeError("broken")))


def test_what_was_encoded_before_an_error_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, store = photos(tmp_path / "p", 6), Store(tmp_path / "s")
    monkeypatch.setattr(encoding_module, "FLUSH_ROWS", 4)
    encoder, encode = Counting(tiny()), Counting.encode

    def interrupted(self: Counting, batch: Any) -> np.ndarray:
        if len(self.batches) == 3:
            raise KeyboardInterrupt
        return encode(self, batch)

    monkeypatch.setattr(Counting, "encode", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embed(ImageFolder(root), encoder, store=store, batch_size=2)
    assert embed(ImageFolder(root), tiny(), store=store).encoded == 12


def test_parts_of_several_machines_merge(tmp_path: Path) -> None:
    data = ImageFolder(photos(tmp_path / "p"))
    whole, stores = embed(data, tiny()), [Store(tmp_path / f"s{i}") for i in range(3)]
    for i, store in enumerate(stores):
        assert embed(data.part(i + 1, 3), tiny(), store=store).encoded == 4
    assert [stores[0].merge(other) for other in stores] == [0, 4, 4]
    merged = embed(data, tiny(), store=stores[0])
    assert merged.encoded == 0
    assert merged.X.tobytes() == whole.X.tobytes()


def test_vectors_that_are_none(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 2)
    nothing = Encoder.of(
        lambda x: x.mean((2, 3)) / (x[:, :1, 0, 0] > 0.5), name="nan/1", dimension=3, preprocessing=SMALL
    )
    found = embed(ImageFolder(root), nothing)
    assert found.ids == ("red/000.png", "red/001.png")
    assert {each.reason for each in found.failed} == {"the encoder gave numbers that are not finite"}
    wrong = Encoder.of(lambda x: x.mean((2, 3)), name="wide/1", dimension=4, preprocessing=SMALL)
    with pytest.raises(ValueError, match=r"gave an array of shape \(6, 3\) for 6 items"):
        embed(ImageFolder(root), wrong)


def test_a_file_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "p", 1)
    data, read = ImageFolder(root), encoding_module.content_key
    monkeypatch.setattr(encoding_module, "content_key", lambda content: read(content + b"!"))
    with pytest.raises(ValueError, match="it changed while it was read"):
        embed(data, tiny())


def test_arguments(tmp_path: Path) -> None:
    data = ImageFolder(photos(tmp_path / "p", 1))
    with pytest.raises(ValueError, match=r"holds items of kind 'image', .* takes 'text'"):
        embed(data, letters())
    with pytest.raises(ValueError, match="batch_size"):
        embed(data, tiny(), batch_size=0)
    assert isinstance(embed(data, tiny(), workers=1, progress=True), Embedding)
