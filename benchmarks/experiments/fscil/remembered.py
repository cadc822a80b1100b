"""Pictures by their numbers, for networks of which only the last block is trained.

What enters the last block depends on the picture alone, so that it is computed once, for the picture as it is, for its
mirror image and for each of a few random views of it, and looked up ever after. Inputs are then small: numbers of
pictures, in arrays (n, 1, 1, 2) that can be mirrored as pictures can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gptree.deep import Augmentation, Stages
from gptree.deep.data.augment import augmented

#: Pictures that go through the trunk together.
AT_ONCE = 512


def tokens(rows: np.ndarray) -> np.ndarray:
    """Inputs (n, 1, 1, 2) that stand for pictures: number + 1, and 0, which is first in a mirror image."""
    return np.stack([rows + 1, np.zeros_like(rows)], axis=-1).astype(np.float32)[:, None, None, :]


@dataclass(frozen=True)
class RandomView:
    """An augmentation of tokens: one of the random views of a picture.

    count : of the pictures.
    views : of each.
    """

    count: int
    views: int
    columns: ClassVar[int] = 1

    def __call__(self, x: Tensor, u: Tensor) -> Tensor:
        view = 1 + (u * self.views).floor().clamp(max=self.views - 1)
        return torch.where(x > 0, x + self.count * view[:, :, None, None].to(x), x)


class Memory:
    """What enters the last block for each picture and view; copies of a network share it.

    pictures : uint8 (n, 3, H, W), on the device.
    augment, views, seed : so many views of each picture, whose random numbers are drawn once.
    scale, shift : of pixels, (3, 1, 1).
    """

    def __init__(
        self,
        pictures: Tensor,
        augment: Sequence[Augmentation],
        views: int,
        scale: Tensor,
        shift: Tensor,
        seed: int = 0,
    ) -> None:
        self.pictures, self.augment, self.views = pictures, tuple(augment), views
        self.scale, self.shift = scale.to(pictures.device), shift.to(pictures.device)
        columns = sum(each.columns for each in self.augment)
        drawn = np.random.default_rng(seed).random((len(pictures), views, columns), dtype=np.float32)
        self.u = torch.from_numpy(drawn).to(pictures.device)
        kinds = 2 * (1 + views)
        self.place = torch.full((kinds * len(pictures),), -1, device=pictures.device)
        self.maps: Tensor | None = None
        self.count = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Memory:
        return self

    def keys(self, tokens: Tensor) -> Tensor:
        """(B,) numbers of picture, view and side together."""
        first, second = tokens.flatten(1).round().long().unbind(1)
        mirrored = first == 0
        return torch.where(mirrored, second, first) - 1 + mirrored * len(self.pictures) * (1 + self.views)

    @torch.no_grad()
    def __call__(self, tokens: Tensor, trunk: Any) -> Tensor:
        keys = self.keys(tokens)
        missing = keys[self.place[keys] < 0].unique()
        for first in range(0, len(missing), AT_ONCE):
            self._remember(missing[first : first + AT_ONCE], trunk)
        assert self.maps is not None
        return self.maps[self.place[keys]].float()

    def _remember(self, keys: Tensor, trunk: Any) -> None:
        device = keys.device
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            maps = trunk(self._inputs(keys))
        needed = self.count + len(maps)
        kept = maps.new_empty(0, *maps.shape[1:]) if self.maps is None else self.maps
        if needed > len(kept):
            larger = maps.new_empty(max(needed, 2 * self.count), *maps.shape[1:])
            larger[: self.count] = kept[: self.count]
            kept = larger
        kept[self.count : needed] = maps
        self.maps = kept
        self.place[keys] = torch.arange(self.count, needed, device=device)
        self.count = needed

    def _inputs(self, keys: Tensor) -> Tensor:
        count = len(self.pictures)
        side, rest = keys // (count * (1 + self.views)), keys % (count * (1 + self.views))
        rows, view = rest % count, rest // count
        x = self.pictures[rows]
        changed = view > 0
        if bool(changed.any()):
            x[changed] = augmented(x[changed], self.augment, self.u[rows[changed], view[changed] - 1])
        x = torch.where(side[:, None, None, None] == 1, x.flip(3), x)
        order = torch.channels_last if x.is_cuda else torch.contiguous_format
        return (x.float() * self.scale + self.shift).contiguous(memory_format=order)


class OfTokens(nn.Module):
    """A staged network that takes tokens instead of pictures, and looks up what enters its last block."""

    def __init__(self, network: Any, memory: Memory) -> None:
        super().__init__()
        self.network, self.memory = network, memory
        self.rectified, self.stage_count = network.rectified, network.stage_count

    def forward(self, tokens: Tensor) -> Tensor:
        return self.top(self.trunk(tokens)).features

    def trunk(self, tokens: Tensor) -> Tensor:
        return self.memory(tokens, self.network.trunk)

    def top(self, maps: Tensor) -> Stages:
        return self.network.top(maps)

    def top_modules(self) -> list[nn.Module]:
        return self.network.top_modules()

    def stages(self, tokens: Tensor) -> Stages:
        """The last stage alone: the others are those of a network that is not trained, the same for teacher and
        student."""
        return self.top(self.trunk(tokens))
