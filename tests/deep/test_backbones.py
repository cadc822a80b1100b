"""Backbones: torchvision's names, shapes for pictures of several sizes, and networks made again from their recipes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest
import torch
from torch import nn

from gptree.deep import Backbone, StagedBackbone, build_backbone, convnet, mlp, resnet18

SMALL: list[Callable[[], Backbone]] = [
    lambda: convnet(channels=1, width=8, embedding=5),
    lambda: convnet(channels=1, width=8, depth=2, normalise=False, seed=3),
    lambda: mlp(64, hidden=(9, 7), embedding=5),
    lambda: mlp(64, hidden=(9,), normalise=False, seed=3),
]


def torchvision_names() -> set[str]:
    """The names in torchvision's ResNet-18 state dict, from its structure: 4 layers of 2 blocks of 2 convolutions."""

    def normalisation(name: str) -> list[str]:
        parts = ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
        return [f"{name}.{part}" for part in parts]

    names = ["conv1.weight", *normalisation("bn1"), "fc.weight", "fc.bias"]
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            for i in (1, 2):
                names += [f"layer{layer}.{block}.conv{i}.weight", *normalisation(f"layer{layer}.{block}.bn{i}")]
        if layer > 1:
            names += [f"layer{layer}.0.downsample.0.weight", *normalisation(f"layer{layer}.0.downsample.1")]
    return set(names)


def test_resnet_has_the_names_and_sizes_of_torchvision() -> None:
    names = torchvision_names()
    assert len(names) == 122
    network = resnet18()
    assert set(network.state_dict()) == names - {"fc.weight", "fc.bias"}
    assert sum(p.numel() for p in network.parameters()) == 11_176_512
    sizes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    assert sizes["conv1.weight"] == (64, 3, 7, 7)
    assert sizes["layer2.0.conv1.weight"] == (128, 64, 3, 3)
    assert sizes["layer4.0.downsample.0.weight"] == (512, 256, 1, 1)
    assert sizes["layer4.1.bn2.running_mean"] == (512,)


def test_resnet_takes_weights_with_a_classification_layer() -> None:
    weights = {**resnet18(seed=1).state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    network = resnet18(embedding=10)
    result = network.load_state_dict(weights, strict=False)
    assert sorted(result.unexpected_keys) == ["fc.bias", "fc.weight"]
    assert sorted(result.missing_keys) == ["embedding.bias", "embedding.weight"]
    assert torch.equal(network.conv1.weight, weights["conv1.weight"])
    cifar = resnet18(stem="cifar")
    del weights["conv1.weight"]
    assert cifar.load_state_dict(weights, strict=False).missing_keys == ["conv1.weight"]


@pytest.mark.parametrize(
    ("stem", "pixels", "maps"),
    [("cifar", 32, 4), ("small", 84, 6), ("imagenet", 224, 7), ("imagenet", 84, 3), ("cifar", 28, 4)],
)
def test_resnet_shapes(stem, pixels: int, maps: int) -> None:
    network = resnet18(stem=stem).eval()
    seen: list[torch.Size] = []
    network.layer4.register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape))
    with torch.no_grad():
        features = network(torch.randn(1, 3, pixels, pixels, generator=torch.Generator().manual_seed(0)))
    assert features.shape == (1, 512)
    assert seen == [(1, 512, maps, maps)]


def test_resnet_is_the_function_written_out() -> None:
    """Two blocks a layer, shortcut added before the last ReLU; with random normalisation so that every part counts."""
    generator = torch.Generator().manual_seed(0)
    network = resnet18(embedding=7, stem="small", channels=1).double().eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.weight, module.bias, module.running_mean):
                assert value is not None
                value.data = 0.5 * torch.randn(value.shape, generator=generator, dtype=torch.float64)
    state, f = network.state_dict(), nn.functional

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        mean, var, weight, bias = (
            state[f"{name}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    x = torch.randn(2, 1, 20, 20, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        found = network(x)
    x = f.max_pool2d(norm(f.conv2d(x, state["conv1.weight"], padding=1), "bn1").relu(), 3, 2, 1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = norm(f.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.bn1").relu()
            y = norm(f.conv2d(y, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
            if stride == 2:
                x = norm(f.conv2d(x, state[f"{name}.downsample.0.weight"], stride=2), f"{name}.downsample.1")
            x = (x + y).relu()
    expected = x.mean((2, 3)) @ state["embedding.weight"].T + state["embedding.bias"]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_resnet_starts_from_identity_blocks_and_he_weights() -> None:
    network = resnet18(embedding=1024, stem="cifar")
    assert network.embedding.weight.shape == (1024, 512)
    assert not network.layer3[1].bn2.weight.any()
    assert (network.layer3[1].bn1.weight == 1).all()
    # variance 2/fan_out, fan_out = 512 · 9; over 2.4 million weights the deviation is within 0.3 % for certain
    assert abs(network.layer4[1].conv1.weight.std() / (2 / (512 * 9)) ** 0.5 - 1) < 0.003


@pytest.mark.parametrize("pixels", [1, 8, 32, 45])
@pytest.mark.parametrize("normalise", [True, False])
def test_convnet_takes_any_size(pixels: int, normalise: bool) -> None:
    x = torch.zeros(2, 3, pixels, pixels)
    assert convnet(width=6, normalise=normalise)(x).shape == (2, 6)
    assert convnet(width=6, embedding=11, normalise=normalise)(x).shape == (2, 11)


def test_mlp_shapes() -> None:
    x = torch.zeros(2, 3, 4, 5)
    assert mlp(60)(x).shape == (2, 256)
    assert mlp(60, hidden=[7], embedding=3)(x.flatten(1)).shape == (2, 3)


@pytest.mark.parametrize("make", [SMALL[1], SMALL[3]])
def test_without_normalisation_rows_are_alone(make: Callable[[], Backbone]) -> None:
    network = make().double().train()
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(network(x)[:2], network(x[:2]), rtol=1e-12, atol=1e-12)
    assert not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in network.modules())


@pytest.mark.parametrize(
    "make", [*SMALL, lambda: resnet18(embedding=16, stem="small", channels=1, seed=2, last_relu=False)]
)
def test_recipes_rebuild_networks(make: Callable[[], Backbone]) -> None:
    network = make()
    again = build_backbone(json.loads(json.dumps(network.recipe)))
    assert type(again) is type(network)
    assert again.recipe == network.recipe == copy.deepcopy(network).recipe
    for (name, value), (other_name, other) in zip(
        network.state_dict().items(), again.state_dict().items(), strict=True
    ):
        assert name == other_name
        assert torch.equal(value, other)


def test_weights_come_from_the_seed_alone() -> None:
    before = torch.get_rng_state()
    first, other = mlp(4, seed=0), mlp(4, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first.layers[0].weight, other.layers[0].weight)


@pytest.mark.parametrize("make", SMALL)
def test_every_parameter_learns(make: Callable[[], Backbone]) -> None:
    network = make()
    x = torch.randn(12, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    network(x).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for name, p in network.named_parameters())


STAGED: list[Callable[[], Backbone]] = [
    lambda: resnet18(stem="cifar", channels=1),
    lambda: resnet18(stem="cifar", channels=1, last_relu=False),
    SMALL[0],
    SMALL[1],
]


def awake(network: Backbone) -> Backbone:
    """In eval mode, with no block that is the identity."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    return network.eval()


@pytest.mark.parametrize("make", STAGED)
def test_cut_before_the_last_block_a_network_is_the_same(make: Callable[[], Backbone]) -> None:
    network = awake(make())
    assert isinstance(network, StagedBackbone)
    x = torch.randn(3, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        features, entered, staged = network(x), network.trunk(x), network.stages(x)
        top = network.top(entered)
    assert torch.equal(top.features, features)
    assert torch.equal(staged.features, features)
    assert len(staged.maps) == network.stage_count
    assert torch.equal(staged.maps[-1], top.maps[0])
    assert all(bool((maps < 0).any()) for maps in staged.maps)  # before the rectifier
    assert network.rectified == (not (features < 0).any())
    last = {id(p) for module in network.top_modules() for p in module.parameters()}
    network.zero_grad()
    network.top(entered).features.square().sum().backward()
    assert last == {id(p) for p in network.parameters() if p.grad is not None}


def test_without_its_last_rectifier_a_resnet_has_the_mean_of_its_last_map() -> None:
    plain, signed = (awake(resnet18(stem="cifar", channels=1, last_relu=last)) for last in (True, False))
    x = torch.randn(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    assert isinstance(plain, StagedBackbone)
    assert isinstance(signed, StagedBackbone)
    with torch.no_grad():
        (*_, maps), features = signed.stages(x)
        torch.testing.assert_close(features, maps.mean((2, 3)))
        torch.testing.assert_close(plain(x), maps.relu().mean((2, 3)))
        for before, after in zip(plain.stages(x).maps, signed.stages(x).maps, strict=True):
            assert torch.equal(before, after)
    assert set(plain.state_dict()) == set(signed.state_dict())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: resnet18(stem="large"), "unknown stem 'large'"),
        (lambda: resnet18(embedding=0), "embedding must be at least 1"),
        (lambda: convnet(depth=0), "depth"),
        (lambda: mlp(0), "features"),
        (lambda: mlp(3, hidden=()), "hidden"),
        (lambda: mlp(3, hidden=(4, 0)), r"hidden\[1\]"),
        (lambda: build_backbone({"name": "vgg"}), "no backbone is named 'vgg'"),
        (lambda: build_backbone({}), "recipes name one of"),
        (lambda: convnet()(torch.zeros(2, 1, 8, 8)), r"takes pictures \(B, 3, H, W\)"),
        (lambda: resnet18(channels=1)(torch.zeros(2, 3, 8, 8)), r"takes pictures \(B, 1, H, W\)"),
        (lambda: mlp(5)(torch.zeros(2, 8)), "takes 5 features, the inputs have 8"),
    ],
)
def test_bad_input(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
