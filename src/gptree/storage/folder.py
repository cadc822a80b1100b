"""Models on disk: one folder, one versioned JSON document, one safetensors file. No code is stored, none is run.

The arrays are written first, under a name made of their content; then the document that names them is written under a
temporary name and renamed over the old one. Whatever is interrupted, the folder holds the old model or the new one.
One process writes at a time (`locked`). Readers do not wait: one whose arrays were removed while it read finds a new
document, and begins again (`settled`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from gptree.storage import version2, version3, version4, version5, version6
from gptree.storage.arrays import TensorFile
from gptree.storage.document import inside, parse_document
from gptree.storage.errors import StorageError
from gptree.storage.files import LEFT_OVERS, write_atomically
from gptree.storage.locks import LOCK, locked

FORMAT = "gptree"
VERSION = 7
SINGLE = " in single precision"  # after the name of an array in double precision: an alias of it, rounded
DOCUMENT = "model.json"
_BLOCK = 2**14  # rows that are compared at a time
_ARRAYS = re.compile(r"arrays-[0-9a-f]{16}\.safetensors")
_SAFETENSORS_LEFT_OVERS = re.compile(r"\.tmp\w{6}")  # where safetensors itself wrote the file, as it did before

Read = TypeVar("Read")


# ---------------------------------------------------------------------------------------------------------- writing


def write_folder(folder: str | Path, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write document and tensors under the folder's lock; a write that fails leaves what was there before."""
    folder = Path(folder)
    check_free(folder)
    stored, aliases = _without_copies(tensors)
    content, checksum = TensorFile(stored), hashlib.sha256()
    for part in content:
        checksum.update(part)
    digest = checksum.hexdigest()
    arrays_document = {"arrays": f"arrays-{digest[:16]}.safetensors", "sha256": digest, "aliases": aliases}
    complete = {"format": FORMAT, "version": VERSION, **arrays_document, **document}
    complete["checksum"] = _checksum(complete)
    text = json.dumps(complete, indent=1, allow_nan=False) + "\n"
    with locked(folder):
        try:
            write_atomically(folder / complete["arrays"], content)
            write_atomically(folder / DOCUMENT, text)
        finally:
            clear_spare(folder)


def check_free(folder: Path) -> None:
    """Complain of a folder with other files than those of a model, or of a save that was interrupted."""
    if holds_nothing(folder):
        return
    try:
        ours = json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))["format"] == FORMAT
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        ours = False
    if not ours:
        raise StorageError(f"{folder} holds other files: save a model into an empty or a new folder.")


def holds_nothing(folder: Path) -> bool:
    """Whether a folder is not there, or holds no files but what an interrupted save left."""
    try:
        return all(path.name == LOCK or _is_spare(path.name) for path in folder.iterdir())
    except FileNotFoundError:
        return True


def _is_spare(name: str) -> bool:
    """The name of a file of ours that no model needs, unless its document says so."""
    return any(kind.fullmatch(name) for kind in (_ARRAYS, LEFT_OVERS, _SAFETENSORS_LEFT_OVERS))


def clear_spare(folder: Path) -> None:
    """Remove files of ours that the document does not name. Readers that had begun with them begin again."""
    with suppress(OSError, ValueError, LookupError, TypeError):
        path = folder / DOCUMENT
        used = json.loads(path.read_text(encoding="utf-8"))["arrays"] if path.exists() else None
        for path in folder.iterdir():
            if path.name != used and _is_spare(path.name):
                with suppress(OSError):
                    path.unlink()


# ---------------------------------------------------------------------------------------------------------- reading


def settled(folder: str | Path, read: Callable[[], Read]) -> Read:
    """What `read` makes of a folder; it reads again where a writer replaced the model while it was reading."""
    while True:
        before = _stamp(Path(folder))
        try:
            return read()
        except (StorageError, FileNotFoundError):
            if _stamp(Path(folder)) == before:
                raise


def _stamp(folder: Path) -> tuple[int, int] | None:
    """Another one for every document that was ever in the folder: equal content may come back."""
    try:
        found = (folder / DOCUMENT).stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def read_folder(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Document and tensors, checked; `StorageError` says what is wrong with a folder."""
    return settled(folder, lambda: _read(Path(folder)))


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    path = folder / DOCUMENT
    if not path.is_file():
        raise StorageError(f"{folder} holds no gptree model: there is no {DOCUMENT} in it.")
    document = parse_document(path.read_bytes(), path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StorageError(f"{path} was not written by gptree.")
    version = document.get("version")
    if version not in range(2, VERSION + 1) or not isinstance(version, int):
        raise StorageError(
            f"{folder} holds a model of format version {version}; this gptree reads versions 2 to {VERSION}. "
            "Load it with the gptree that wrote it, or install a newer gptree."
        )
    if document.pop("checksum", None) != _checksum(document):
        raise StorageError(f"{path} is damaged: its content differs from what was written.")
    arrays = inside(folder, document.get("arrays"), ".safetensors")
    if not arrays.is_file():
        raise StorageError(f"{folder} is damaged: {arrays.name} is missing.")
    content = arrays.read_bytes()  # once: a writer may remove the file at any time
    if hashlib.sha256(content).hexdigest() != document.get("sha256"):
        raise StorageError(f"{arrays} is damaged: its checksum differs from the one in {DOCUMENT}.")
    try:
        # copied, so that they start where new arrays do: products may differ in the last bit by alignment
        tensors = {name: value.clone() for name, value in load(content).items()}
        aliases = document.get("aliases")
        if not isinstance(aliases, dict):
            raise StorageError(f"{folder} is damaged: aliases is no table of names.")
        tensors |= _named_again(tensors, aliases)
    except (SafetensorError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{folder} is damaged: {error}.") from None
    if version == 2:
        document, tensors = version2.upgraded(document, tensors)
    if version <= 3:
        document = version3.upgraded(document)
    if version <= 4:
        document = version4.upgraded(document)
    if version <= 5:
        document = version5.upgraded(document)
    return (version6.upgraded(document) if version <= 6 else document), tensors


def _without_copies(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor once, and the names under which some appear again: experts share the features of the model.

    Some have them in single precision, where the model has them in double.
    """
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    for name, value in tensors.items():
        value = value.detach()
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if value.numel() > 0 and place in known:
            aliases[name] = known[place]
        elif (alias := _alias(value, stored)) is not None:
            aliases[name] = alias
        else:
            known[place], stored[name] = name, value
    return stored, aliases


def _alias(value: Tensor, stored: Mapping[str, Tensor]) -> str | None:
    """What names a matrix that equals one which is stored, or one in double precision after rounding."""
    if value.ndim != 2 or value.numel() == 0 or not value.is_floating_point():
        return None
    for name, each in stored.items():
        alike = each.shape == value.shape and each.dtype in (value.dtype, torch.float64)
        blocks = zip(each.split(_BLOCK), value.split(_BLOCK), strict=True) if alike else ()
        if alike and all(torch.equal(wide.to(narrow), narrow) for wide, narrow in blocks):
            return name if each.dtype == value.dtype else name + SINGLE
    return None


def _named_again(tensors: Mapping[str, Tensor], aliases: Mapping[str, str]) -> dict[str, Tensor]:
    """Further names of tensors, in single precision where the alias says so."""
    singles: dict[str, Tensor] = {}
    found = {}
    for name, other in aliases.items():
        if other.endswith(SINGLE):
            found[name] = singles.setdefault(other, tensors[other.removesuffix(SINGLE)].float())
        else:
            found[name] = tensors[other]
    return found


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
