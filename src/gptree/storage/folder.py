"""Models on disk: one folder, one versioned JSON document, one safetensors file. No code is stored, none is run.

The arrays are written first, under a name made of their content; then the document that names them is written under a
temporary name and renamed over the old one. Whatever is interrupted, the folder holds the old model or the new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from gptree.storage.document import inside, parse_document
from gptree.storage.errors import StorageError, ensure
from gptree.storage.files import write_atomically
from gptree.storage.version2 import upgraded

FORMAT = "gptree"
VERSION = 3
DOCUMENT = "model.json"
_OWN_FILES = re.compile(r"arrays-\w+\.safetensors|\.(arrays|model\.json)-\d+\.tmp")  # beside the document


def write_folder(folder: str | Path, document: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write document and tensors; an interrupted write leaves what was there before."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if not _is_ours(folder):
        raise StorageError(f"{folder} holds other files: save a model into an empty or a new folder.")
    temporary = folder / f".arrays-{os.getpid()}.tmp"
    stored, aliases = _without_copies(tensors)
    save_file(stored, temporary)
    digest = _digest(temporary)
    arrays = folder / f"arrays-{digest[:16]}.safetensors"
    _sync(temporary)
    os.replace(temporary, arrays)
    arrays_document = {"arrays": arrays.name, "sha256": digest, "aliases": aliases}
    complete = {"format": FORMAT, "version": VERSION, **arrays_document, **document}
    complete["checksum"] = _checksum(complete)
    write_atomically(folder / DOCUMENT, json.dumps(complete, indent=1, allow_nan=False) + "\n")
    for stale in folder.iterdir():
        if stale != arrays and _OWN_FILES.fullmatch(stale.name):
            stale.unlink()


def _is_ours(folder: Path) -> bool:
    """A folder with a model of ours, with what an interrupted write left, or with nothing."""
    if (folder / DOCUMENT).exists():
        try:
            return json.loads((folder / DOCUMENT).read_text(encoding="utf-8"))["format"] == FORMAT
        except (ValueError, LookupError, TypeError):
            return False
    return all(_OWN_FILES.fullmatch(file.name) for file in folder.iterdir())


def read_folder(folder: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Document and tensors, checked; `StorageError` says what is wrong with a folder."""
    folder = Path(folder)
    path = folder / DOCUMENT
    if not path.is_file():
        raise StorageError(f"{folder} holds no gptree model: there is no {DOCUMENT} in it.")
    document = parse_document(path.read_bytes(), path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StorageError(f"{path} was not written by gptree.")
    version = document.get("version")
    if version not in (2, VERSION) or not isinstance(version, int):
        raise StorageError(
            f"{folder} holds a model of format version {version}; this gptree reads versions 2 to {VERSION}. "
            "Load it with the gptree that wrote it, or install a newer gptree."
        )
    if document.pop("checksum", None) != _checksum(document):
        raise StorageError(f"{path} is damaged: its content differs from what was written.")
    arrays = inside(folder, document.get("arrays"), ".safetensors")
    if not arrays.is_file():
        raise StorageError(f"{folder} is damaged: {arrays.name} is missing.")
    if _digest(arrays) != document.get("sha256"):
        raise StorageError(f"{arrays} is damaged: its checksum differs from the one in {DOCUMENT}.")
    try:
        # copied, so that they start where new arrays do: products may differ in the last bit by alignment
        tensors = {name: value.clone() for name, value in load_file(arrays).items()}
        aliases = document.get("aliases")
        ensure(isinstance(aliases, dict), f"{folder} is damaged: aliases is no table of names.")
        tensors |= {name: tensors[other] for name, other in aliases.items()}
    except (SafetensorError, KeyError, TypeError) as error:
        raise StorageError(f"{folder} is damaged: {error}.") from None
    return upgraded(document, tensors) if version == 2 else (document, tensors)


def _without_copies(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor once, and the names under which some appear again: experts share the features of the model."""
    stored: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    for name, value in tensors.items():
        value = value.detach()
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if value.numel() > 0 and place in known:
            aliases[name] = known[place]
        else:
            known[place] = name
            stored[name] = value.cpu().clone(memory_format=torch.contiguous_format)
    return stored, aliases


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
