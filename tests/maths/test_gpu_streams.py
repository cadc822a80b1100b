"""Independent tasks, and recorded functions: on a GPU the same numbers as one after the other, started one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch import Tensor

from gptree.maths import cuda
from gptree.maths.cuda import STREAMS, Recorded, Started, concurrently, without_tf32

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def spd(n: int, seed: int, device: str = "cpu") -> Tensor:
    factor = torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (factor @ factor.T + n * torch.eye(n, dtype=torch.float64)).to(device)


def test_results_come_in_the_order_of_the_tasks() -> None:
    started: list[int] = []

    def task(i: int) -> int:
        started.append(i)
        return i * i

    found = concurrently([partial(task, i) for i in range(7)], torch.device("cpu"))
    assert found == [i * i for i in range(7)]
    assert started == list(range(7))
    assert concurrently([], torch.device("cpu")) == []


@pytest.mark.parametrize("setting", ["highest", "high", "medium"])
def test_without_tf32_and_back_again(setting: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(setting)
    try:
        with without_tf32():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == setting
        with pytest.raises(KeyError), without_tf32():
            raise KeyError
        assert torch.get_float32_matmul_precision() == setting
    finally:
        torch.set_float32_matmul_precision(before)


@on_cuda
@pytest.mark.parametrize("count", [1, 5, 2 * STREAMS + 3])
def test_side_by_side_equals_one_after_the_other(count: int) -> None:
    """More tasks than streams; inputs made just before, results used at once, over and over in the same memory."""
    device = torch.device("cuda")
    for attempt in range(5):
        matrices = [spd(40 + 16 * (i % 7), 10 * attempt + i, "cuda") * 1.0 for i in range(count)]
        roots = concurrently([partial(torch.linalg.cholesky, m) for m in matrices], device)
        total = torch.stack([root.sum() for root in roots])
        expected = torch.stack([torch.linalg.cholesky(m).sum() for m in matrices])
        torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    assert concurrently([], device) == []


@on_cuda
def test_a_recording_repeats_the_function_with_new_values() -> None:
    """Inputs in any layout; what the function reads besides them is read anew; a result lives until the next call."""
    factor = torch.ones((), dtype=torch.float64, device="cuda")

    def function(matrix: Tensor, rhs: Tensor) -> dict[str, Tensor]:
        tasks = [partial(torch.linalg.cholesky_ex, matrix), partial(torch.linalg.cholesky_ex, 2 * matrix)]
        first, second = (found[0] for found in concurrently(tasks, matrix.device))
        return {"x": factor * (first @ rhs), "y": second @ rhs}

    rhs = torch.arange(50, dtype=torch.float64, device="cuda")
    recorded = Recorded(function, spd(50, 0, "cuda"), rhs)
    for seed in range(1, 4):
        factor.fill_(seed)
        matrix = spd(50, seed, "cuda")
        found, expected = recorded(matrix.mT, rhs + seed), function(matrix, rhs + seed)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-12, atol=1e-12)
    assert recorded(spd(50, 9, "cuda"), rhs)["x"] is found["x"]


# ------------------------------------------------------------------------------------------------ without a GPU


class Stream:
    """Writes down what it is told to wait for."""

    def __init__(self, name: object) -> None:
        self.name, self.waits = name, list[object]()

    def wait_stream(self, other: Stream) -> None:
        self.waits.append(other.name)

    def record_event(self) -> object:
        return self.name

    def wait_event(self, event: object) -> None:
        self.waits.append(event)


class Streams:
    """Stands in for `torch.cuda`: streams are numbered, and tasks are done at once."""

    def __init__(self) -> None:
        self.main, self.made, self.using = Stream("main"), list[Stream](), list[object]()
        self.replays = 0

    def Stream(self, device: torch.device) -> Stream:
        self.made.append(Stream(len(self.made)))
        return self.made[-1]

    def current_stream(self, device: torch.device) -> Stream:
        return self.made[self.using[-1]] if self.using and isinstance(self.using[-1], int) else self.main

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        self.using.append(stream.name)
        yield
        self.using.pop()

    @contextmanager
    def graph(self, graph: object, capture_error_mode: str) -> Iterator[None]:
        self.using.append("graph")
        yield
        self.using.pop()

    def CUDAGraph(self) -> Streams:
        return self

    def replay(self) -> None:
        self.replays += 1


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[Streams]:
    fake = Streams()
    monkeypatch.setattr(torch, "cuda", fake)
    cuda._streams.cache_clear()
    yield fake
    cuda._streams.cache_clear()


@pytest.mark.parametrize("count", [1, 5, 2 * STREAMS + 3])
def test_tasks_take_the_streams_in_turn(count: int, streams: Streams) -> None:
    """Every stream that is used waits for what was begun before, and what comes after waits for every one of them."""
    assert concurrently([], torch.device("cuda")) == []
    found = concurrently([lambda: streams.using[-1] for _ in range(count)], torch.device("cuda"))
    used = min(count, STREAMS)
    assert found == [i % used for i in range(count)]
    assert len(streams.made) == STREAMS
    turns = [len(range(place, count, STREAMS)) for place in range(STREAMS)]
    assert [stream.waits for stream in streams.made] == [["main"] * many for many in turns]
    assert streams.main.waits == [i % STREAMS for i in range(count)]


def test_a_task_that_wants_another_s_result_waits_where_it_runs(streams: Streams) -> None:
    first = Started(lambda: 3, torch.device("cuda"), 5)
    second = Started(lambda: 2 * first.result(), torch.device("cuda"), 7)
    assert streams.main.waits == []
    assert streams.made[7].waits == ["main", 5]
    assert second.result() == 6
    assert streams.main.waits == [7]


def test_a_function_is_done_twice_before_it_is_recorded(streams: Streams) -> None:
    seen: list[object] = []

    def function(x: Tensor) -> Tensor:
        seen.append(streams.using[-1])
        return x

    recorded = Recorded(function, torch.zeros(2))
    assert seen == [0, 0, "graph"]
    assert streams.made[0].waits == ["main"]
    assert streams.main.waits == [0]
    assert recorded(torch.ones(2)).tolist() == [1.0, 1.0]
    assert streams.replays == 1
