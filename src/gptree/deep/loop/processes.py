"""`Processes`: devices, mixed precision and several processes, by accelerate.

All processes hold the same network, layer and head. Each computes the embeddings of its part of a batch; all parts are
then gathered, and every process computes the loss of the whole batch alike, so that it is the loss that one process
would find. Through the gathered embeddings the gradient flows to a process's own rows only, times the number of
processes, because the network's gradients are averaged over the processes afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn

from gptree.settings import require

#: How accelerate marks a network that it has prepared.
_PREPARED = "_is_accelerate_prepared"


class Processes:
    """The processes that train together, seen from one of them."""

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator
        self.device: torch.device = accelerator.device
        self.count: int = accelerator.num_processes
        self.index: int = accelerator.process_index
        self.is_main: bool = accelerator.is_main_process
        self.scaler: Any = accelerator.scaler
        """Of the loss, with fp16; else None."""
        self._own_forward: Any = None

    def part(self, rows: int) -> slice:
        """This process's part of so many rows: equal parts, smaller ones last.

        Where nothing is left it is the first row, which `gather` leaves out: networks do not take empty batches.
        """
        size = -(-rows // self.count)
        first = self.index * size
        return slice(first, min(first + size, rows)) if first < rows else slice(0, min(1, rows))

    def wrapped(self, network: nn.Module) -> Callable[[Tensor], Tensor]:
        """The network on the device, in mixed precision, its gradients averaged over the processes."""
        vars(network).pop(_PREPARED, None)  # of an earlier training, which accelerate would take for this one's
        self._own_forward = vars(network).get("forward")
        prepared = self._accelerator.prepare_model(network)
        return _Recorded(prepared) if self.device.type == "cuda" and self.count == 1 else prepared

    def step(self, loss: Tensor, optimiser: torch.optim.Optimizer) -> None:
        """Gradients of the loss, and a step along them."""
        optimiser.zero_grad(set_to_none=True)
        self._accelerator.backward(loss)
        if self.scaler is None:
            optimiser.step()
        else:
            self.scaler.step(optimiser)
            self.scaler.update()

    def gather(self, values: Tensor, rows: int | None = None) -> Tensor:
        """(rows, …) of all processes, in order, from this process's part; without `rows` all parts are equal."""
        if self.count == 1:
            return values
        rows = self.count * len(values) if rows is None else rows
        return _Gather.apply(values, self, rows)  # pyright: ignore[reportReturnType]

    def hold_together(self, *tensors: Tensor) -> None:
        """The values of the first process in all: rounding on GPUs, or batch normalisation, may have parted them."""
        if self.count > 1:
            for tensor in tensors:
                distributed.broadcast(tensor.detach(), 0)

    def wait_for_all(self) -> None:
        """Return when every process has come here."""
        self._accelerator.wait_for_everyone()

    def unwrap(self, network: nn.Module) -> None:
        """Take away what `wrapped` has added to the network itself."""
        for name in ("forward", "_original_forward", _PREPARED):
            vars(network).pop(name, None)
        if self._own_forward is not None:
            network.forward = self._own_forward


class _Recorded:
    """A network in training on a GPU, forward and backward recorded once for each shape of its input and replayed.

    A small network's kernels are done sooner than Python can start them; replaying has no such limit. A network that
    cannot be recorded, since it looks at values on their way or has hooks, runs as it is.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network, self._shape, self._plain = network, None, vars(network).get("forward")
        self._recordable = True

    def __call__(self, x: Tensor) -> Tensor:
        if self._recordable and x.shape != self._shape:
            self._record(x)
        return self._network(x)

    def _record(self, x: Tensor) -> None:
        self._restore_forward()
        before = [buffer.clone() for buffer in self._network.buffers()]
        try:
            example = (torch.empty_like(x).copy_(x),)
            torch.cuda.make_graphed_callables(self._network, example, allow_unused_input=True)
        except (RuntimeError, AssertionError) as error:
            self._recordable = False
            self._restore_forward()
            warnings.warn(
                f"the network cannot be recorded ({str(error).splitlines()[0]}): it trains as it is, a little slower.",
                RuntimeWarning,
                stacklevel=3,
            )
        with torch.no_grad():  # the passes that warm up count for nothing
            for buffer, value in zip(self._network.buffers(), before, strict=True):
                buffer.copy_(value)
        self._shape = x.shape

    def _restore_forward(self) -> None:
        vars(self._network).pop("forward", None)
        if self._plain is not None:
            self._network.forward = self._plain


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Processes, rows: int) -> Tensor:
        ctx.part, ctx.count = group.part(rows), group.count
        size = -(-rows // group.count)
        padded = values.new_zeros(size, *values.shape[1:])
        padded[: len(values)] = values
        parts = [torch.empty_like(padded) for _ in range(group.count)]
        distributed.all_gather(parts, padded)
        return torch.cat(parts)[:rows]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        return gradient[ctx.part] * ctx.count, None, None


@contextmanager
def processes(device: str, mixed_precision: str) -> Iterator[Processes]:
    """The processes of this run on "auto", "cpu" or "cuda"; accelerate's global state is as before afterwards."""
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState, GradientState, PartialState
    except ImportError as error:
        raise ImportError("training networks needs accelerate: pip install gptree[deep]") from error
    require(device in ("auto", "cpu", "cuda"), f'device must be "auto", "cpu" or "cuda", not {device!r}.')
    has_cuda = torch.cuda.is_available()
    require(device != "cuda" or has_cuda, 'there is no CUDA device: use device="auto" or "cpu".')
    cpu = device == "cpu" or not has_cuda
    require(not (cpu and mixed_precision == "fp16"), 'fp16 needs a CUDA device: use mixed_precision="bf16" or "no".')
    shared: list[dict] = [state._shared_state for state in (AcceleratorState, PartialState, GradientState)]
    before = [dict(state) for state in shared]
    for state in shared:
        state.clear()
    try:
        yield Processes(Accelerator(mixed_precision=mixed_precision, cpu=cpu))
    finally:
        for state, old in zip(shared, before, strict=True):
            state.clear()
            state.update(old)


@contextmanager
def tuned(device: torch.device) -> Iterator[None]:
    """Fast convolutions and TF32 matrix products on a GPU; random numbers that may be re-seeded.

    Everything global is as before afterwards.
    """
    benchmark, precision = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    cuda = device.type == "cuda"
    try:
        if cuda:
            torch.backends.cudnn.benchmark = True
            torch.set_float32_matmul_precision("high")
        with torch.random.fork_rng(devices=[device] if cuda else []):
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.set_float32_matmul_precision(precision)
