"""Backbones: networks that turn inputs into embeddings.

Any `nn.Module` that maps a batch of inputs to a matrix (B, d) serves as a backbone; those here need nothing beside
torch. Other collections are used as they are, without their classification layer::

    timm.create_model("efficientnet_lite0", pretrained=True, num_classes=0)

    network = torchvision.models.resnet50(weights="DEFAULT")
    network.fc = torch.nn.Identity()

Sentences: encode them once and give the vectors to `mlp`; an encoder that is to be trained takes token numbers, for
which you write a source of your own (`gptree.deep.Source`).

The functions `resnet18`, `convnet` and `mlp` write their arguments into the `recipe` of the network, from which
`build_backbone` makes the same network again. Weights are drawn from `seed`; global random numbers are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from gptree.deep.stages import Stages
from gptree.settings import require

Stem = Literal["imagenet", "cifar", "small"]


class Backbone(nn.Module):
    """A network with its recipe: its name and arguments, plain values that JSON can hold.

    Attributes
    ----------
    recipe : dict
    rectified : bool
        Whether its embeddings come from a rectifier, and so have no negative entries.
    """

    recipe: dict[str, Any]
    rectified: bool


class BasicBlock(nn.Module):
    """x + two 3 × 3 convolutions of x; x itself is brought to size by a 1 × 1 convolution where needed."""

    def __init__(self, inputs: int, outputs: int, stride: int, rectified: bool = True) -> None:
        super().__init__()
        self.rectified = rectified
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        sums = self.before_rectifier(x)
        return self.relu(sums) if self.rectified else sums

    def before_rectifier(self, x: Tensor) -> Tensor:
        """The sum, before the rectifier at the end."""
        y = self.relu(self.bn1(self.conv1(x)))
        return self.downsample(x) + self.bn2(self.conv2(y))


class ResNet18(Backbone):
    """See `resnet18`."""

    stage_count = 4

    def __init__(self, embedding: int | None, stem: Stem, channels: int, last_relu: bool) -> None:
        super().__init__()
        self.channels = channels
        self.rectified = last_relu and embedding is None
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
        self.conv1 = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if stem == "cifar" else nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1, last_relu))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.embedding = _embedding(512, embedding)
        _initialise(self)
        for block in self.modules():
            if isinstance(block, BasicBlock):
                nn.init.zeros_(block.bn2.weight)  # every block starts as the identity, which trains better

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self._stem(x)))))
        return self.embedding(self.avgpool(x).flatten(1))

    def trunk(self, x: Tensor) -> Tensor:
        return self.layer4[0](self.layer3(self.layer2(self.layer1(self._stem(x)))))

    def top(self, maps: Tensor) -> Stages:
        block: Any = self.layer4[1]
        before = block.before_rectifier(maps)
        after = torch.relu(before) if block.rectified else before
        return Stages((before,), self.embedding(self.avgpool(after).flatten(1)))

    def top_modules(self) -> list[nn.Module]:
        return [self.layer4[1], self.embedding]

    def stages(self, x: Tensor) -> Stages:
        maps, x = [], self._stem(x)
        blocks: Any = (self.layer1, self.layer2, self.layer3)
        for first, second in blocks:
            maps.append(second.before_rectifier(first(x)))
            x = torch.relu(maps[-1])
        last = self.top(self.layer4[0](x))
        return Stages((*maps, *last.maps), last.features)

    def _stem(self, x: Tensor) -> Tensor:
        _require_pictures(x, self.channels)
        return self.maxpool(self.relu(self.bn1(self.conv1(x))))


class ConvNet(Backbone):
    """See `convnet`."""

    def __init__(self, channels: int, width: int, depth: int, embedding: int | None, normalise: bool) -> None:
        super().__init__()
        self.channels, self.stage_count, self.rectified = channels, depth, embedding is None
        layers: list[nn.Module] = []
        for inputs in [channels, *[width] * (depth - 1)]:
            layers.append(nn.Conv2d(inputs, width, 3, padding=1, bias=not normalise))
            layers.extend([nn.BatchNorm2d(width)] if normalise else [])
            # rounding sizes up, a picture of any size can be halved any number of times
            layers.extend([nn.ReLU(inplace=True), nn.MaxPool2d(2, ceil_mode=True)])
        self.layers = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.embedding = _embedding(width, embedding)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        _require_pictures(x, self.channels)
        return self.embedding(self.avgpool(self.layers(x)).flatten(1))

    def trunk(self, x: Tensor) -> Tensor:
        _require_pictures(x, self.channels)
        return self.layers[: -self._layers_a_stage](x)

    def top(self, maps: Tensor) -> Stages:
        before, after = self._stage(maps, self.stage_count - 1)
        return Stages((before,), self.embedding(self.avgpool(after).flatten(1)))

    def top_modules(self) -> list[nn.Module]:
        return [self.layers[-self._layers_a_stage :], self.embedding]

    def stages(self, x: Tensor) -> Stages:
        _require_pictures(x, self.channels)
        maps = []
        for number in range(self.stage_count):
            before, x = self._stage(x, number)
            maps.append(before)
        return Stages(tuple(maps), self.embedding(self.avgpool(x).flatten(1)))

    @property
    def _layers_a_stage(self) -> int:
        return len(self.layers) // self.stage_count

    def _stage(self, x: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """The map before the rectifier, and what enters the next stage."""
        first = number * self._layers_a_stage
        layers: Any = self.layers[first : first + self._layers_a_stage]
        *before, _, pool = layers
        for layer in before:
            x = layer(x)
        return x, pool(torch.relu(x))


class MLP(Backbone):
    """See `mlp`."""

    def __init__(self, features: int, hidden: Sequence[int], embedding: int | None, normalise: bool) -> None:
        super().__init__()
        self.features, self.rectified = features, embedding is None
        layers: list[nn.Module] = []
        for inputs, outputs in zip([features, *hidden[:-1]], hidden, strict=True):
            layers.append(nn.Linear(inputs, outputs, bias=not normalise))
            layers.extend([nn.BatchNorm1d(outputs)] if normalise else [])
            layers.append(nn.ReLU(inplace=True))
        self.layers = nn.Sequential(*layers)
        self.embedding = _embedding(hidden[-1], embedding)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        if x.shape[1] != self.features:
            raise ValueError(f"the network takes {self.features} features, the inputs have {x.shape[1]}.")
        return self.embedding(self.layers(x))


def resnet18(
    embedding: int | None = None,
    stem: Stem = "imagenet",
    channels: int = 3,
    seed: int = 0,
    last_relu: bool = True,
) -> ResNet18:
    """ResNet-18 (He et al., 2016): 512 pooled features, or a linear layer of them.

    stem        for          first convolution    max-pooling    last map
    "imagenet"  ≥ 128 px     7 × 7, stride 2      3 × 3 by 2     1/32 of the picture
    "small"     64 … 128 px  3 × 3, stride 1      3 × 3 by 2     1/16
    "cifar"     ≤ 64 px      3 × 3, stride 1      none           1/8

    Parameters have torchvision's names, so `load_state_dict(weights, strict=False)` takes its weights and leaves out
    `fc` only; for another stem or number of channels remove `conv1.weight` from them first. Convolutions start from
    He's normal distribution, and the last batch normalisation of every block from zero.

    Parameters
    ----------
    embedding : int or None
        Width of a linear layer on the pooled features; None for no such layer.
    stem : "imagenet", "small" or "cifar"
        By the size of the pictures, see above.
    channels : int
    seed : int
        Of the weights.
    last_relu : bool
        Whether the last block ends in a rectifier; without it features have both signs, as cosine classifiers of
        incremental learning want them.

    Examples
    --------
    >>> from gptree.deep import resnet18
    >>> network = resnet18(embedding=128, stem="cifar")
    """
    require(stem in get_args(Stem), f"unknown stem {stem!r}: choose one of {get_args(Stem)}.")
    _require_counts(embedding=embedding, channels=channels)
    with _drawing_from(seed):
        network = ResNet18(embedding, stem, channels, last_relu)
    shape = {"embedding": embedding, "stem": stem, "channels": channels}
    network.recipe = {"name": "resnet18", **shape, "seed": seed, "last_relu": last_relu}
    return network


def convnet(
    channels: int = 3,
    width: int = 64,
    depth: int = 4,
    embedding: int | None = None,
    normalise: bool = True,
    seed: int = 0,
) -> ConvNet:
    """`depth` times 3 × 3 convolution, batch normalisation, ReLU, max-pooling by 2; then the mean over the picture.

    Parameters
    ----------
    channels : int
        Of the pictures, which may have any size.
    width : int
        Features of every layer.
    depth : int
        Number of layers.
    embedding : int or None
        Width of a linear layer on the features; None for no such layer.
    normalise : bool
        Without it, biases take the place of batch normalisation, and the embedding of a row does not depend on the rest
        of its batch.
    seed : int
        Of the weights.

    Examples
    --------
    >>> from gptree.deep import convnet
    >>> network = convnet(channels=1, width=32, embedding=16)
    """
    _require_counts(channels=channels, width=width, depth=depth, embedding=embedding)
    with _drawing_from(seed):
        network = ConvNet(channels, width, depth, embedding, normalise)
    shape = {"channels": channels, "width": width, "depth": depth, "embedding": embedding}
    network.recipe = {"name": "convnet", **shape, "normalise": normalise, "seed": seed}
    return network


def mlp(
    features: int,
    hidden: Sequence[int] = (256, 256),
    embedding: int | None = None,
    normalise: bool = True,
    seed: int = 0,
) -> MLP:
    """Linear layers of the `hidden` widths, each with batch normalisation and ReLU, and a linear `embedding` layer.

    Parameters
    ----------
    features : int
        Numbers of an input, a vector or an array of any shape.
    hidden : sequence of int
        Widths of the hidden layers.
    embedding : int or None
        Width of a linear layer at the end; None gives the last hidden layer.
    normalise : bool
        Whether there is batch normalisation.
    seed : int
        Of the weights.

    Examples
    --------
    >>> from gptree.deep import mlp
    >>> network = mlp(384, hidden=(128,), embedding=32)
    """
    require(len(hidden) > 0, "hidden must hold the width of at least one layer.")
    _require_counts(features=features, embedding=embedding, **{f"hidden[{i}]": width for i, width in enumerate(hidden)})
    with _drawing_from(seed):
        network = MLP(features, hidden, embedding, normalise)
    shape = {"features": features, "hidden": list(hidden), "embedding": embedding}
    network.recipe = {"name": "mlp", **shape, "normalise": normalise, "seed": seed}
    return network


BACKBONES: dict[str, Callable[..., Backbone]] = {"resnet18": resnet18, "convnet": convnet, "mlp": mlp}


def build_backbone(recipe: Mapping[str, Any]) -> Backbone:
    """The network that a recipe describes, as it was before training.

    Parameters
    ----------
    recipe : Mapping
        The `recipe` of a `Backbone`.

    Returns
    -------
    Backbone
    """
    name = recipe.get("name")
    if name not in BACKBONES:
        raise ValueError(f"no backbone is named {name!r}; recipes name one of {sorted(BACKBONES)}.")
    return BACKBONES[name](**{key: value for key, value in recipe.items() if key != "name"})


@contextmanager
def _drawing_from(seed: int) -> Iterator[None]:
    """New layers draw their weights from torch's global generator: seed it, and put it back as it was."""
    state = torch.default_generator.get_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


def _embedding(features: int, embedding: int | None) -> nn.Module:
    return nn.Identity() if embedding is None else nn.Linear(features, embedding)


def _initialise(network: Backbone) -> None:
    """He's normal distribution for layers before a ReLU, zero biases; the embedding layer keeps torch's default."""
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and name != "embedding":
            # fan_out keeps the size of gradients, as is usual before batch normalisation of convolutions
            mode = "fan_out" if isinstance(layer, nn.Conv2d) else "fan_in"
            nn.init.kaiming_normal_(layer.weight, mode=mode, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def _require_counts(**counts: int | None) -> None:
    for name, count in counts.items():
        require(count is None or count >= 1, f"{name} must be at least 1, not {count}.")


def _require_pictures(x: Tensor, channels: int) -> None:
    if x.dim() != 4 or x.shape[1] != channels:
        raise ValueError(
            f"the network takes pictures (B, {channels}, H, W), not a tensor of shape {tuple(x.shape)}: give it "
            f"{channels} channels, or build the network for another number of them."
        )
