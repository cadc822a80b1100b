"""CUDA streams for independent tasks, recorded CUDA graphs, and products that keep all digits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")

#: A factorisation leaves most of a GPU idle; many together fill it.
STREAMS = 24


class Started(Generic[Result]):
    """A task that was started; on a GPU it runs on a stream of its own, and whoever wants its result waits there.

    Keep it until the stream that it was started from has waited for all who use it: memory that is free may be written
    to by the next task of its stream.

    Parameters
    ----------
    task : function
    device : torch.device
    place : int
        Number of the stream.
    """

    def __init__(self, task: Callable[[], Result], device: torch.device, place: int = 0) -> None:
        self._done: Any = None
        if device.type != "cuda":
            self._result = task()
            return
        stream = _streams(device)[place % STREAMS]
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            self._result = task()
        self._done = stream.record_event()
        self._device = device

    def result(self) -> Result:
        """What the task gave; what is started next on this stream waits for it."""
        if self._done is not None:
            torch.cuda.current_stream(self._device).wait_event(self._done)
        return self._result


def concurrently(tasks: Sequence[Callable[[], Result]], device: torch.device) -> list[Result]:
    """The results of independent tasks. On a GPU they run on several streams; the largest should come first."""
    started = [Started(task, device, place) for place, task in enumerate(tasks)]
    return [each.result() for each in started]


@lru_cache
def _streams(device: torch.device) -> tuple[torch.cuda.Stream, ...]:
    return tuple(torch.cuda.Stream(device) for _ in range(STREAMS))


class Recorded:
    """A function of tensors of fixed shapes, recorded once on a GPU and then replayed with new values.

    What it returns is overwritten by the next call.
    """

    def __init__(self, function: Callable[..., Any], *like: Tensor) -> None:
        self.inputs = [torch.empty_like(each, memory_format=torch.contiguous_format).copy_(each) for each in like]
        device = like[0].device
        warm_up = torch.cuda.Stream(device)
        warm_up.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(warm_up):  # libraries make their workspaces now, outside of the recording
            for _ in range(2):
                function(*self.inputs)
        torch.cuda.current_stream(device).wait_stream(warm_up)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self.outputs = function(*self.inputs)

    def __call__(self, *values: Tensor) -> Any:
        for place, value in zip(self.inputs, values, strict=True):
            place.copy_(value)
        self._graph.replay()
        return self.outputs


@contextmanager
def without_tf32() -> Iterator[None]:
    """Products in single precision keep all of their digits, also where TF32 is switched on; afterwards it is again.

    A function that it decorates records its products so, too.
    """
    before = torch.get_float32_matmul_precision()
    if before == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
