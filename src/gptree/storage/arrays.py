"""Tensors as the parts of a safetensors file, without a copy of what they hold."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from gptree.storage.errors import ensure

#: What they are called there, in the order in which they stand there.
_TYPES = {
    **{torch.int64: "I64", torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"},
    **{torch.bfloat16: "BF16", torch.float16: "F16", torch.int16: "I16"},
    **{torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"},
}


class TensorFile:
    """What a safetensors file of tensors holds, part after part: byte for byte as the package itself writes it.

    Parameters
    ----------
    tensors : dict of tensors
        On any device; each is brought to the processor when its turn comes.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in tensors.items():
            ensure(value.dtype in _TYPES, f"{name} is of {value.dtype}, which no file holds.")
        order = list(_TYPES)
        names = sorted(tensors, key=lambda name: (order.index(tensors[name].dtype), name))
        self._tensors = {name: tensors[name] for name in names}
        header: dict[str, Any] = {}
        end = 0
        for name, value in self._tensors.items():
            start, end = end, end + value.numel() * value.element_size()
            header[name] = {"dtype": _TYPES[value.dtype], "shape": list(value.shape), "data_offsets": [start, end]}
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        self._header = len(text).to_bytes(8, "little") + text

    def __iter__(self) -> Iterator[bytes | memoryview]:
        yield self._header
        for value in self._tensors.values():
            # an expanded tensor of one element is contiguous with a stride of 0, and `view` asks for 1
            flat = value.cpu().contiguous().flatten()
            yield flat.as_strided((flat.numel(),), (1,)).view(torch.uint8).numpy().data
