"""Weights from files: read without running code, and identified by their SHA-256."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def package_folder(package: str) -> Path | None:
    """The folder of an installed package, which is not imported; None where it is not installed."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def state_digest(state: Mapping[str, Any]) -> str:
    """The SHA-256 of the tensors of a network, by name."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(-1).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()


def read_state(path: Path) -> dict[str, Any]:
    """The tensors of a .safetensors file, or of a file of torch that holds nothing but tensors."""
    import torch
    from safetensors.torch import load_file

    if not path.is_file():
        raise ValueError(f"{path}: there is no such file of weights.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"{path} cannot be read as weights alone ({reason}). Files that run code are never loaded: save the "
            "state_dict of the network, best as .safetensors."
        ) from None
    for key in ("state_dict", "model"):  # as training scripts wrap it
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ValueError(f"{path} holds something else than the weights of a network: save its state_dict.")
    return state


def load_into(network: Any, state: Mapping[str, Any], path: Path) -> None:
    """Set the weights of a network; those of layers that it lacks, such as its classifier, are not used."""
    own = network.state_dict()
    missing = sorted(own.keys() - state.keys())
    if missing:
        raise ValueError(f"{path} is of another network: it lacks {missing[0]!r} and {len(missing) - 1} more.")
    wrong = next((name for name in own if own[name].shape != state[name].shape), None)
    if wrong is not None:
        raise ValueError(f"{path} is of another network: {wrong!r} has the shape {tuple(state[wrong].shape)}.")
    network.load_state_dict({name: state[name] for name in own})


def downloaded(repository: str, patterns: list[str]) -> Path:
    """The folder of a repository of the Hugging Face hub, with files of these patterns alone."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ValueError("downloading needs huggingface_hub: pip install huggingface_hub") from None
    try:
        return Path(snapshot_download(repository, allow_patterns=patterns))
    except Exception as error:
        raise ValueError(f"{repository} was not downloaded ({' '.join(str(error).split())[:200]}).") from None
