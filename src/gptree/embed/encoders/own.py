"""Encoders from a function or a network of the user's own; they are found by name as long as the process lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from gptree.embed.collection import Kind
from gptree.embed.encoders.base import Description, Encoder, PictureEncoder, Sources
from gptree.embed.encoders.weights import state_digest
from gptree.embed.pictures import Preprocessing
from gptree.settings import require, require_whole


class OwnEncoder(PictureEncoder):
    """See `Encoder.of`."""

    family = "own"
    known: ClassVar[dict[str, OwnEncoder]] = {}

    def __init__(
        self,
        function: Callable[[Any], Any],
        name: str,
        dimension: int,
        kind: Kind = "image",
        preprocessing: Preprocessing | None = None,
    ) -> None:
        require(callable(function), f"an encoder is made from a function or a network, not from {function!r:.80}.")
        require(isinstance(name, str) and 0 < len(name) <= 200, f"name is a text such as 'mine/1', not {name!r:.80}.")
        shipped = name == "minilm" or name.partition(":")[0] in Encoder.families
        require(not shipped, f"{name!r} is a name of an encoder that gptree has.")
        require_whole("dimension", dimension, 1)
        require(kind in ("image", "text"), f"kind is 'image' or 'text', not {kind!r:.80}.")
        require(kind == "image" or preprocessing is None, "preprocessing belongs to encoders of pictures.")
        self.function, self.name, self.dimension, self.kind = function, name, dimension, kind
        self.preprocessing = preprocessing or Preprocessing()
        parameters = function.parameters() if isinstance(function, nn.Module) else ()
        self.device = next((str(each.device) for each in parameters), "cpu")
        OwnEncoder.known[name] = self

    @classmethod
    def named(cls, rest: str, sources: Sources) -> Encoder:
        """The one that was made last under this name."""
        if rest not in cls.known:
            raise ValueError(
                f"the encoder {rest!r} is a function that somebody made: in Python, make it again with "
                "gptree.embed.Encoder.of. No command runs code that a model names."
            )
        return cls.known[rest]

    @classmethod
    def described(cls, description: Mapping[str, Any], sources: Sources) -> Encoder:
        return cls.named(str(description.get("name")), sources)

    def describe(self) -> Description:
        network = self.function if isinstance(self.function, nn.Module) else None
        return {
            "family": self.family,
            "name": self.name,
            "kind": self.kind,
            "dimension": self.dimension,
            "preprocessing": self.preprocessing.describe() if self.kind == "image" else None,
            "weights": None if network is None else state_digest(network.state_dict()),
        }

    def prepare(self, source: Any) -> Any:
        return super().prepare(source) if self.kind == "image" else source

    def encode(self, batch: Sequence[Any]) -> np.ndarray:
        if self.kind == "image":
            return super().encode(batch)
        with torch.inference_mode():
            return np.asarray(torch.as_tensor(self.embed(list(batch))).float().cpu())

    def embed(self, pixels: Any) -> Any:
        if not isinstance(self.function, nn.Module):
            return self.function(pixels)
        was_training = self.function.training
        self.function.eval()
        try:
            return self.function(pixels)
        finally:
            self.function.train(was_training)
