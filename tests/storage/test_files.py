"""Files written as wholes: what is there after a failure, whom they belong to, and what is left behind."""

from __future__ import annotations

import errno
import os
import resource
import stat
import tracemalloc
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import save

from gptree.storage import StorageError, clear_left_overs, read_folder, write_atomically, write_figure, write_folder
from gptree.storage.arrays import TensorFile

TENSORS = {"x": torch.arange(4.0)}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail(monkeypatch: pytest.MonkeyPatch, name: str, number: int) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, name, failing)


@pytest.mark.parametrize("name", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EROFS])
def test_a_failed_write_leaves_the_old_content(
    tmp_path: Path, name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    with monkeypatch.context() as patch:
        fail(patch, name, number)
        with pytest.raises(OSError, match=r"a\.txt was not written \(.+\); what was there before is unchanged\.") as e:
            write_atomically(path, "new")
    assert e.value.errno == number
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_missing_folder_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_atomically(tmp_path / "no" / "a.txt", "text")
    assert names(tmp_path) == []


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    write_atomically(tmp_path / "link", "through")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "through"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(tmp_path / "pipe", "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert names(tmp_path) == ["link", "pipe", "there"]
    with pytest.raises(IsADirectoryError, match="was not written"):
        write_atomically(tmp_path / "there", "text")


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_all_files_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_folder(tmp_path / "m", {}, TENSORS)
        write_figure(tmp_path / "m" / "f.png", Figure(figsize=(1, 1)))
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "m").iterdir()}
    assert modes == {0o666 & ~mask}
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o777 & ~mask


def test_left_overs_are_known_by_name(tmp_path: Path) -> None:
    ours = [".gptree-0123456789ab.tmp", ".arrays-12.tmp", ".model.json-12.tmp", ".rows.jsonl-7.tmp", ".log.jsonl-7.tmp"]
    others = [".gptree-x.tmp", "notes.tmp", ".tmpAbC123", ".mine-12.tmp"]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    clear_left_overs(tmp_path)
    assert names(tmp_path) == sorted(others)


@pytest.mark.parametrize(
    "left", [".tmpAbC12z", ".gptree-0123456789ab.tmp", ".gptree-lock", "arrays-0123456789abcdef.safetensors"]
)
def test_a_kill_in_the_first_save_does_not_lock_the_folder(tmp_path: Path, left: str) -> None:
    """`.tmpAbC12z` is what safetensors left, in whose hands earlier versions were."""
    (tmp_path / left).write_bytes(b"half")
    write_folder(tmp_path, {"a": 1}, TENSORS)
    assert read_folder(tmp_path)[0]["a"] == 1
    assert len(names(tmp_path)) == 2


def test_a_file_that_grows_too_large(tmp_path: Path) -> None:
    """The system's own limit, not a made-up one."""
    write_folder(tmp_path, {"a": 1}, TENSORS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"was not written \(File too large\); what was there before is unchanged"):
            write_folder(tmp_path, {"a": 2}, {"x": torch.arange(9000.0)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    document, tensors = read_folder(tmp_path)
    assert document["a"] == 1
    assert torch.equal(tensors["x"], TENSORS["x"])
    assert len(names(tmp_path)) == 2


def test_a_failed_first_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        fail(patch, "replace", errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            write_folder(tmp_path / "m", {}, TENSORS)
    assert names(tmp_path) == []


def test_a_reader_that_lost_the_race_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arrays of its document are gone when it opens them; and once the same document has come back since."""
    first, second, third = (({"a": number}, {"x": torch.full((number,), 0.5)}) for number in (1, 2, 3))
    write_folder(tmp_path, *first)
    read_bytes, races = Path.read_bytes, [(second, first), (third,)]

    def overtaken(path: Path) -> bytes:
        if not races:
            return read_bytes(path)
        for written in races.pop(0):
            write_folder(tmp_path, *written)
        raise FileNotFoundError(errno.ENOENT, "gone", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", overtaken)
        document, tensors = read_folder(tmp_path)
    assert not races
    assert document["a"] == 3
    assert len(tensors["x"]) == 3
    next(tmp_path.glob("arrays-*")).unlink()
    with pytest.raises(StorageError, match="is missing"):  # and nobody has written since
        read_folder(tmp_path)


def test_arrays_are_written_as_safetensors_does_and_without_copies(tmp_path: Path) -> None:
    kinds = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    tensors = {f"{'ba'[i % 2]}.{kind}": torch.arange(i).to(getattr(torch, kind)) for i, kind in enumerate(kinds)}
    tensors |= {"scalar": torch.tensor(1.5), 'ä"\\': torch.ones(2, 3).mT, "part": torch.arange(6.0)[2:4]}
    tensors |= {"one": torch.ones(1, 1, dtype=torch.int64).expand(1, 1), "none": torch.zeros(1).expand(0)}
    tensors["repeated"] = torch.tensor(7).expand(1)
    content = b"".join(TensorFile(tensors))
    assert content == save({name: value.contiguous() for name, value in tensors.items()})
    with pytest.raises(StorageError, match=r"z is of torch\.complex64, which no file holds"):
        write_folder(tmp_path / "none", {}, {"z": torch.zeros(1, dtype=torch.complex64)})
    large = {"a": torch.ones(2**16, 16), "b": torch.arange(2**20)}
    tracemalloc.start()
    write_folder(tmp_path / "large", {}, large)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**20  # of 12 MB
    _, again = read_folder(tmp_path / "large")
    assert all(torch.equal(again[name], value) for name, value in large.items())
