"""The store: what is put in comes out, to the last bit, whatever happens in between."""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embed_cases import letters, tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from gptree.embed import Store
from gptree.embed import shards as shards_module
from gptree.embed import store as module
from gptree.embed.store import content_key
from gptree.storage import StorageError

ENCODER = tiny().describe()


def rows(numbers: range) -> tuple[list[bytes], np.ndarray]:
    keys = [content_key(str(i)) for i in numbers]
    return keys, np.array([[i, -i, 0.1 * i, 0, 1, 2] for i in numbers], dtype=np.float32)


def put(store: Store, numbers: range) -> None:
    store.add(ENCODER, *rows(numbers))


def check(store: Store, numbers: range) -> None:
    keys, X = rows(numbers)
    found = store.find(ENCODER, keys)
    assert np.array([found[key] for key in keys]).tobytes() == X.tobytes()


def shards(store: Store) -> list[Path]:
    return sorted(store.folder.rglob("*.safetensors"))


def hide(monkeypatch: pytest.MonkeyPatch, path: Path, number: int = errno.EIO) -> None:
    """A shard cannot be read, though nothing is wrong with it."""
    whole = shards_module.safe_open

    def refuse(asked: Path, *how: Any) -> Any:
        if asked == path:
            raise OSError(number, os.strerror(number), str(path))
        return whole(asked, *how)

    monkeypatch.setattr(shards_module, "safe_open", refuse)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), min_size=1, max_size=8))
@settings(max_examples=10, deadline=None)
def test_it_is_a_dictionary(tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[int, int]]) -> None:
    store, numbers = Store(tmp_path_factory.mktemp("s")), set()
    for start, count in parts:
        put(store, range(start, start + count))
        numbers |= set(range(start, start + count))
    for i in numbers:
        check(store, range(i, i + 1))
    everything = [content_key(str(i)) for i in range(100)]
    assert store.find(ENCODER, everything).keys() == {content_key(str(i)) for i in numbers}
    assert store.shelves()[0].rows >= len(numbers)


def test_small_shards_are_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    for i in range(32):
        put(store, range(i, i + 1))
    assert len(shards(store)) <= 6  # a binary counter
    check(store, range(32))
    monkeypatch.setattr(module, "FULL", 32)
    put(store, range(100, 125))
    assert len(shards(store)) > 1  # full ones stay as they are
    check(store, range(32))


def test_encoders_do_not_meet(tmp_path: Path) -> None:
    store, (keys, X) = Store(tmp_path), rows(range(3))
    store.add(ENCODER, keys, X)
    assert store.find(tiny("tiny/2").describe(), keys) == {}
    store.add(letters().describe(), keys, np.zeros((3, 10)))
    assert sorted(shelf.rows for shelf in store.shelves()) == [3, 3]
    store.clear(tiny().key)
    assert [shelf.description["name"] for shelf in store.shelves()] == ["letters/1"]
    store.clear()
    assert store.shelves() == []
    assert Store(tmp_path / "nowhere").shelves() == []


def test_a_folder_under_another_name_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, range(2))
    (tmp_path / tiny().key).rename(tmp_path / tiny("tiny/2").key)
    for call in (lambda: store.find(tiny("tiny/2").describe(), []), store.shelves):
        with pytest.raises(StorageError, match="vectors of another encoder than its name says"):
            call()
    (tmp_path / tiny("tiny/2").key / "encoder.json").unlink()
    with pytest.raises(StorageError, match="of an unknown encoder"):
        store.add(tiny("tiny/2").describe(), *rows(range(2)))
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="is a file"):
        put(Store(tmp_path / "file"), range(1))


@pytest.mark.parametrize("place", [0.1, 0.5, 0.95])
def test_damage_costs_rows_and_never_gives_wrong_ones(tmp_path: Path, place: float) -> None:
    store = Store(tmp_path)
    put(store, range(40))
    (path,) = shards(store)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0xFF
    path.write_bytes(content)
    keys, X = rows(range(40))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = store.find(ENCODER, keys)
    assert len(found) < 40
    assert all((found[key] == x).all() for key, x in zip(keys, X, strict=True) if key in found)
    assert bool(told) == (place < 0.9)  # a key that nobody asked for is not looked at
    with pytest.warns(RuntimeWarning, match="damaged"):
        put(store, range(40))
    check(store, range(40))  # and it is whole again


def test_a_cut_shard_is_not_used(tmp_path: Path) -> None:
    store = Store(tmp_path)
    put(store, range(40))
    (path,) = shards(store)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.warns(RuntimeWarning, match="was not used"):
        assert store.find(ENCODER, rows(range(40))[0]) == {}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ESTALE, errno.EIO, errno.EACCES])
def test_a_shard_that_cannot_be_read_now_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    store = Store(tmp_path / "s")
    put(store, range(4))
    (path,) = shards(store)
    put(store, range(4, 5))
    hide(monkeypatch, path, number)
    put(store, range(5, 10))  # the smaller one that can be read is taken in
    assert len(shards(store)) == 2
    assert store.shelves()[0].rows == 6
    with pytest.warns(RuntimeWarning, match="cannot be read now"):
        assert len(store.find(ENCODER, rows(range(10))[0])) == 6
    for call in (
        lambda: store.drop(rows(range(1))[0]),
        lambda: store.remove(ENCODER, lambda X: X[:, 0] == 0),
        lambda: Store(tmp_path / "other").merge(store),
    ):
        with pytest.raises(OSError, match=path.name):
            call()
    monkeypatch.undo()
    check(store, range(10))
    assert store.drop(rows(range(1))[0]) == 1


def test_too_many_open_files_are_no_missing_file(tmp_path: Path) -> None:
    """safetensors says "no such file" then, and a missing shard is passed over."""
    resource = pytest.importorskip("resource")
    put(Store(tmp_path), range(3))
    (path,) = shards(Store(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.open(tmp_path, os.O_RDONLY)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))  # not one more
    try:
        for read in (shards_module.shard_size, lambda path: shards_module.read_shard(path, None, 6)):
            with pytest.raises(OSError, match="Too many open files"):
                read(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_readers_and_writers_at_once(tmp_path: Path) -> None:
    """While shards are put into larger ones, whoever reads finds all that had been written."""
    store = Store(tmp_path)
    put(store, range(10))

    def write(start: int) -> None:
        for i in range(start, start + 10):
            put(Store(tmp_path), range(i, i + 1))

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, start) for start in (100, 200)]
        while not all(writer.done() for writer in writers):
            check(store, range(10))
        for writer in writers:
            writer.result()
    check(store, range(100, 110))
    check(store, range(200, 210))


def test_a_list_without_a_shard_that_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is not listed at one moment: the list may have neither a shard nor the one that it was put into."""
    put(Store(tmp_path / "from"), range(5))
    whole = module.shards_in

    def listed(*first: list[Path]) -> Store:
        """A store of which the first lists are these."""
        store, lists = Store(tmp_path / "from"), [*first]
        monkeypatch.setattr(
            module, "shards_in", lambda f: lists.pop(0) if lists and f.parent == store.folder else whole(f)
        )
        return store

    gone = [tmp_path / "from" / tiny().key / f"{'0' * 16}.safetensors"]
    for lists in ([[]], [gone], [gone, []]):
        check(listed(*lists), range(5))
        assert Store(tmp_path / str(len(list(tmp_path.iterdir())))).merge(listed(*lists)) == 5
        assert listed(*lists).remove(ENCODER, lambda X: X[:, 0] == 4) == 1
        put(listed(), range(5))


@pytest.mark.parametrize("moment", ["read_bytes", "iterdir"])
def test_a_store_that_is_cleared_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Just before a description is read, or shards are listed, nothing is there any more."""
    store, keys = Store(tmp_path / "s"), rows(range(3))[0]
    whole = getattr(Path, moment)

    def cleared(path: Path) -> Any:
        if path.is_relative_to(store.folder / tiny().key):
            monkeypatch.undo()
            store.clear()
        return whole(path)

    calls: list[tuple[Callable[[], object], object]] = [
        (lambda: store.find(ENCODER, keys), {}),
        (lambda: [shelf.rows for shelf in store.shelves()], [] if moment == "read_bytes" else [0]),
        (lambda: Store(tmp_path / "other").merge(store), 0),
        (lambda: store.remove(ENCODER, lambda X: X[:, 0] == 0), 0),
        (lambda: store.drop(keys), 0),
        (lambda: put(store, range(3)), None),
    ]
    for call, expected in calls:
        put(store, range(3))
        monkeypatch.setattr(Path, moment, cleared)
        assert call() == expected
    check(store, range(3))


def test_two_are_the_first_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one has seen that there is no description yet, the other writes it, and vectors."""
    store = Store(tmp_path)

    def looked(whole: Callable[[Path], Any], path: Path) -> Any:
        try:
            return whole(path)
        finally:
            if path.name == "encoder.json":
                monkeypatch.undo()
                put(store, range(3))

    for look in ("exists", "read_bytes"):
        whole = getattr(Path, look)
        monkeypatch.setattr(Path, look, lambda path, whole=whole: looked(whole, path))
    put(store, range(3, 5))
    check(store, range(5))


def test_a_disk_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    put(store, range(5))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="was not written"):
        put(store, range(5, 20))
    monkeypatch.undo()
    check(store, range(5))
    assert not list(tmp_path.rglob(".*"))
    put(store, range(5, 20))
    check(store, range(20))


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPTREE_CACHE", "/somewhere")
    assert Store().folder == Path("/somewhere")
    monkeypatch.delenv("GPTREE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert Store().folder == Path("/caches/gptree")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    assert Store().folder == Path.home() / ".cache" / "gptree"


def test_what_is_removed_is_gone_for_all_encoders(tmp_path: Path) -> None:
    store, keys = Store(tmp_path), rows(range(6))[0]
    put(store, range(6))
    store.add(letters().describe(), keys, np.zeros((6, 10)))
    (tmp_path / "seen").mkdir()
    entries = {name: [1, 2, 3, 4, key.hex()] for name, key in zip("abcdef", keys, strict=True)}
    (tmp_path / "seen" / "x.json").write_text(json.dumps(entries))
    assert store.remove(ENCODER, lambda X: np.isin(X[:, 0], [2, 4])) == 2
    left = [keys[i] for i in (0, 1, 3, 5)]
    for encoder in (tiny(), letters()):
        assert store.find(encoder.describe(), keys).keys() == set(left)
    assert list(json.loads((tmp_path / "seen" / "x.json").read_text())) == list("abdf")
    assert not any(keys[2] in path.read_bytes() for path in shards(store))
    assert store.remove(ENCODER, lambda X: np.zeros(len(X), dtype=bool)) == 0
    assert Store(tmp_path / "no").remove(ENCODER, lambda X: X[:, 0] == 0) == 0


@pytest.mark.parametrize("chosen_by", [tiny, letters])
def test_a_removal_that_failed_is_done_by_the_same_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen_by: Any
) -> None:
    """Vectors are chosen by one encoder: they are there until those of the others are gone."""
    store, keys = Store(tmp_path), rows(range(3))[0]
    for each in (tiny(), letters()):
        store.add(each.describe(), keys, np.tile(np.arange(3.0)[:, None], each.dimension))
    (own,), (other,) = (
        [p for p in shards(store) if (p.parent.name == chosen_by().key) == mine] for mine in (True, False)
    )
    choose = lambda X: X[:, 0] == 1  # noqa: E731
    for path in (other, own):
        hide(monkeypatch, path)
        with pytest.raises(OSError, match=path.name):
            store.remove(chosen_by().describe(), choose)
        monkeypatch.undo()
    assert store.remove(chosen_by().describe(), choose) == 1
    assert not any(keys[1] in path.read_bytes() for path in shards(store))


def test_damaged_rows_go_with_those_that_are_dropped(tmp_path: Path) -> None:
    """Whose vector a damaged row is cannot be told from it."""
    store, keys = Store(tmp_path), rows(range(3))[0]
    put(store, range(3))
    (path,) = shards(store)
    content, row = path.read_bytes(), rows(range(3))[1][1].tobytes()
    path.write_bytes(content.replace(row, bytes([row[0] ^ 1]) + row[1:]))
    with pytest.warns(RuntimeWarning, match="damaged"):
        store.drop(keys[1:2])
    assert not any(keys[1] in path.read_bytes() for path in shards(store))
    check(store, range(0, 3, 2))
