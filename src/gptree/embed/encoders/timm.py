"""Networks of timm with weights from a file; the user installs timm."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gptree.embed.encoders.base import Description, Encoder, PictureEncoder, Sources, place
from gptree.embed.encoders.weights import downloaded, file_digest, load_into, package_folder, read_state
from gptree.embed.pictures import Preprocessing


class TimmEncoder(PictureEncoder):
    """Pooled features of a network of timm.

    Parameters
    ----------
    architecture : str
        Its name in timm, such as "resnet18.a1_in1k".
    weights : path
        A .safetensors file, or a state_dict of torch.
    device : str
    """

    family = "timm"

    def __init__(self, architecture: str, weights: Path, device: str = "auto") -> None:
        _check_installed()
        self.architecture, self.weights, self.device = architecture, weights, place(device)
        self.name = f"timm:{architecture}"
        self.preprocessing = _preprocessing(architecture)
        if not weights.is_file():
            raise ValueError(f"{weights}: there is no such file of weights.")
        self.digest = file_digest(weights)

    @classmethod
    def named(cls, rest: str, sources: Sources) -> Encoder:
        architecture, _, file = rest.partition("@")
        weights = Path(file).expanduser() if file else sources.weights
        if weights is None and sources.download:
            weights = downloaded(f"timm/{architecture}", ["model.safetensors"]) / "model.safetensors"
        if weights is None:
            raise ValueError(
                f"the encoder timm:{architecture} needs a file of weights: timm:{architecture}@FILE, or let it be "
                "downloaded with --download."
            )
        return cls(architecture, weights, sources.device)

    @classmethod
    def described(cls, description: Mapping[str, Any], sources: Sources) -> Encoder:
        return cls.named(str(description.get("architecture")), sources)

    def describe(self) -> Description:
        return {
            "family": self.family,
            "kind": self.kind,
            "dimension": self.dimension,
            "architecture": self.architecture,
            "preprocessing": self.preprocessing.describe(),
            "weights": self.digest,
        }

    @cached_property
    def _empty(self) -> Any:
        import timm  # pyright: ignore[reportMissingImports]

        return timm.create_model(self.architecture, pretrained=False, num_classes=0)

    @cached_property
    def dimension(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The length of its vectors."""
        return int(self._empty.num_features)

    @cached_property
    def network(self) -> Any:
        """The network, which is loaded when it is first needed."""
        load_into(self._empty, read_state(self.weights), self.weights)
        return self._empty.eval().to(self.device)

    def embed(self, pixels: Any) -> Any:
        return self.network(pixels)


def _check_installed() -> None:
    if package_folder("timm") is None:
        raise ValueError("encoders of timm need it: pip install timm")


def _preprocessing(architecture: str) -> Preprocessing:
    """What timm says about the input of a network."""
    import timm  # pyright: ignore[reportMissingImports]

    if not timm.is_model(architecture.partition(".")[0]):
        raise ValueError(f"timm has no network {architecture!r}; timm.list_models() lists those that it has.")
    config = timm.models.get_pretrained_cfg(architecture)
    data = timm.data.resolve_data_config({}, pretrained_cfg=config.to_dict() if config is not None else {})
    channels, height, width = data["input_size"]
    if channels != 3 or height != width or data.get("crop_mode", "center") not in ("center", "squash"):
        raise ValueError(
            f"{architecture} takes other pictures than squares of three channels; use a function of yours."
        )
    return Preprocessing(
        height, float(data["crop_pct"]), tuple(data["mean"]), tuple(data["std"]), data["interpolation"]
    )
