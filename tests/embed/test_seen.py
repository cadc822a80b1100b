"""Notes of files that were seen: several processes change them, and what is forgotten stays forgotten."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from embed_cases import photos

from gptree.embed import Store
from gptree.embed.seen import SeenFiles
from gptree.embed.store import content_key
from gptree.storage import locked, locks


@pytest.fixture(autouse=True)
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are no longer new, so that they are noted."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**10)


def note(seen: SeenFiles, *paths: Path) -> None:
    for path in paths:
        seen.note(path, seen.key(path)[1], content_key(path.read_bytes()))


def noted(store: Store) -> set[str]:
    (path,) = (store.folder / "seen").iterdir()
    return {Path(name).name for name in json.loads(path.read_text())}


def test_what_was_forgotten_meanwhile_is_not_written_again(tmp_path: Path) -> None:
    store, root = Store(tmp_path / "s"), photos(tmp_path / "p", 3, ("red",))
    paths = sorted(root.rglob("*.png"))
    before = SeenFiles(store.folder, root)
    note(before, *paths[:2])
    before.save()
    running = SeenFiles(store.folder, root)
    assert running.key(paths[0])[0] == content_key(paths[0].read_bytes())
    store.drop([content_key(paths[0].read_bytes())])
    note(running, paths[2])
    running.save()
    assert noted(store) == {"001.png", "002.png"}


def test_two_runs_keep_each_others_notes(tmp_path: Path) -> None:
    store, root = Store(tmp_path / "s"), photos(tmp_path / "p", 2, ("red",))
    runs = [SeenFiles(store.folder, root) for _ in range(2)]
    for run, path in zip(runs, sorted(root.rglob("*.png")), strict=True):
        note(run, path)
        run.save()
    assert noted(store) == {"000.png", "001.png"}


def test_notes_are_changed_under_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody else changes them: a run goes on without its notes, and who is to forget says so."""
    store, root = Store(tmp_path / "s"), photos(tmp_path / "p", 2, ("red",))
    first, second = sorted(root.rglob("*.png"))
    seen = SeenFiles(store.folder, root)
    note(seen, first)
    seen.save()
    note(seen, second)
    monkeypatch.setattr(locks, "WAIT", 0.05)
    with ThreadPoolExecutor(1) as other, locked(store.folder / "seen"):
        other.submit(seen.save).result()
        forget: list[Callable[[], object]] = [lambda: store.drop([content_key(first.read_bytes())]), store.clear]
        for call in forget:
            with pytest.raises(TimeoutError, match="is being changed by another process"):
                other.submit(call).result()
    assert noted(store) == {"000.png"}
    store.clear()
    assert not (store.folder / "seen").exists()


@pytest.mark.parametrize("damage", ["[]", "{"])
def test_damaged_notes_stop_no_forgetting(tmp_path: Path, damage: str) -> None:
    """Nor does what a killed writer left keep what was forgotten."""
    folder = tmp_path / "seen"
    folder.mkdir()
    (folder / "x.json").write_text(damage)
    (folder / ".gptree-0123456789ab.tmp").write_text(content_key("a").hex())
    assert Store(tmp_path).drop([content_key("a")]) == 0
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("x.json", "{}")]
