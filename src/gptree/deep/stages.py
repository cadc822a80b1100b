"""`StagedBackbone`: networks that can be cut before their last block, and show the maps of their stages."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn


class Stages(NamedTuple):
    """What a network computes on its way."""

    maps: tuple[Tensor, ...]
    """(B, c, h, w) of the stages, each before its last rectifier."""
    features: Tensor
    """(B, d), the embeddings."""


@runtime_checkable
class StagedBackbone(Protocol):
    """A network that can be cut before its last block, and shows the maps of its stages.

    `resnet18` and `convnet` are; so is any `nn.Module` with these. With the weights as they are,
    ``network(x) == network.top(network.trunk(x)).features == network.stages(x).features``.

    Attributes
    ----------
    rectified : bool
        Whether the embeddings come from a rectifier. Methods that compare features of both signs need False.
    stage_count : int
    """

    rectified: bool
    stage_count: int

    def trunk(self, x: Tensor) -> Tensor:
        """What enters the last block."""
        ...

    def top(self, maps: Tensor) -> Stages:
        """The last block and all behind it: one map, and the features."""
        ...

    def top_modules(self) -> list[nn.Module]:
        """The modules that `top` goes through."""
        ...

    def stages(self, x: Tensor) -> Stages:
        """All maps, first stage first, and the features."""
        ...
