"""Pieces that a prediction is made of: modules that are built once and then only computed.

`Parts` builds them, so that what several pieces need (inner products with the same points) is computed once a call. Of
a frozen prediction all state is in buffers, and every operation is one that torch.export knows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

#: Sums over few rows each are taken so many at a time, as one product with a dense matrix of all rows they need.
SUMS_A_GROUP = 128


class NotFrozenError(TypeError):
    """A part of a model is code that cannot leave it."""


class Rows:
    """Rows x (T, d) that are asked about, and what was computed of them.

    Parameters
    ----------
    x : tensor (T, d)
    raw : optional
        What they were computed from.
    """

    def __init__(self, x: Tensor, raw: Any = None) -> None:
        self.x, self.raw = x, raw
        self._known: dict[nn.Module, Any] = {}

    def of(self, piece: nn.Module) -> Any:
        """What a piece gives for these rows; computed once."""
        if piece not in self._known:
            self._known[piece] = piece(self)
        return self._known[piece]

    def tell(self, piece: nn.Module, value: Any) -> None:
        """What a piece would give, from somebody who knows."""
        self._known[piece] = value

    def split(self, n_rows: int) -> Iterator[Rows]:
        """So many rows at a time, with what they were computed from."""
        for i, x in enumerate(self.x.split(n_rows)):
            yield Rows(x, None if self.raw is None else self.raw[i * n_rows : (i + 1) * n_rows])


class Products(nn.Module):
    """Inner products (N, T) of points with rows, both less a centre if there is one.

    Parameters
    ----------
    points : tensor (N, d)
    centre : tensor (d,), optional
    """

    points: Tensor
    centre: Tensor | None

    def __init__(self, points: Tensor, centre: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("points", points if centre is None else points - centre)
        self.register_buffer("centre", centre)

    def forward(self, rows: Rows) -> Tensor:
        return self.points @ self.centred(rows).mT

    def centred(self, rows: Rows) -> Tensor:
        """(T, d), in the precision of the points."""
        x = rows.x.to(self.points.dtype)
        return x if self.centre is None else x - self.centre


class Chosen(nn.Module):
    """Inner products (n, T) with some of the points that all share."""

    index: Tensor | None

    def __init__(self, shared: Products, index: Tensor | None) -> None:
        super().__init__()
        self._shared = (shared,)  # registered where it is owned
        self.register_buffer("index", index)

    @property
    def products(self) -> Products:
        return self._shared[0]

    def forward(self, rows: Rows) -> Tensor:
        g = rows.of(self.products)
        return g if self.index is None else g.index_select(0, self.index)


class Sums(nn.Module):
    """Weighted sums of rows (n, T): a sparse matrix (R, n), given by its entries, times what is given."""

    ends: Tensor
    rows: Tensor
    weights: Tensor

    def __init__(self, sums: Tensor, rows: Tensor, weights: Tensor, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shape = shape
        ends = torch.searchsorted(sums, torch.arange(shape[0] + 1, device=sums.device))
        few = max(len(rows), *shape) < 2**31
        for name, values in (("ends", ends), ("rows", rows)):
            self.register_buffer(name, values.int() if few else values)  # as the library of sparse matrices has them
        self.register_buffer("weights", weights)
        with warnings.catch_warnings():
            for said in ("Sparse CSR tensor support is in beta state", "Sparse invariant checks are implicitly"):
                warnings.filterwarnings("ignore", said)
            self._matrix(check=True)  # which says both once

    def forward(self, values: Tensor) -> Tensor:
        return self._matrix() @ values

    def _matrix(self, check: bool = False) -> Tensor:
        """It shares the memory of its entries."""
        return torch.sparse_csr_tensor(self.ends, self.rows, self.weights, self.shape, check_invariants=check)


class DenseSums(nn.Module):
    """The same by dense matrices, each of a group of neighbouring sums and the rows that they need."""

    def __init__(self, sums: Tensor, rows: Tensor, weights: Tensor, shape: tuple[int, int]) -> None:
        super().__init__()
        self.groups = -(-shape[0] // SUMS_A_GROUP)
        for k in range(self.groups):
            start, stop = k * SUMS_A_GROUP, min((k + 1) * SUMS_A_GROUP, shape[0])
            here = (sums >= start) & (sums < stop)
            needed, place = rows[here].unique(return_inverse=True)
            block = weights.new_zeros(stop - start, len(needed))
            block[sums[here] - start, place] = weights[here]
            self.register_buffer(f"rows_{k}", None if len(needed) == shape[1] else needed)
            self.register_buffer(f"weights_{k}", block)

    def forward(self, values: Tensor) -> Tensor:
        parts = []
        for k in range(self.groups):
            rows: Any = getattr(self, f"rows_{k}")
            some = values if rows is None else values.index_select(0, rows)
            parts.append(self.get_buffer(f"weights_{k}") @ some)
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class FrozenSums(nn.Module):
    """The same: as a sparse matrix where they are computed, as dense ones where they are exported."""

    def __init__(self, sums: Tensor, rows: Tensor, weights: Tensor, shape: tuple[int, int]) -> None:
        super().__init__()
        self.sparse, self.dense = Sums(sums, rows, weights, shape), DenseSums(sums, rows, weights, shape)

    def forward(self, values: Tensor) -> Tensor:
        known = values.device.type in ("cpu", "cuda") and not torch.compiler.is_compiling()
        return (self.sparse if known else self.dense)(values)


class Parts:
    """Builds the pieces of a prediction for one kind of rows.

    Parameters
    ----------
    frozen : bool
        Whether all of it must be tensors and operations that torch.export knows; a piece that cannot be raises
        `NotFrozenError`.
    centre : tensor (d,), optional
        Taken off points and rows before their inner products, where only distances count: they are then more exact.
    """

    def __init__(self, frozen: bool = False, centre: Tensor | None = None) -> None:
        self.frozen, self.centre = frozen, centre
        self._points: list[Tensor] = []
        self._wide: dict[bytes, int] = {}
        self._narrow: dict[bytes, int] = {}
        self._chosen: list[tuple[Chosen, Tensor]] = []
        self._pieces: dict[Any, nn.Module] = {}
        self._within: dict[Any, Parts] = {}
        self._products = Products(torch.tensor([]))

    def products(self, points: Tensor) -> Chosen:
        """Inner products with points (n, d); points in single precision may stand for equal ones in double."""
        chosen = Chosen(self._products, None)
        self._chosen.append((chosen, self._places(points)))
        return chosen

    def piece(self, key: Any, make: Callable[[], nn.Module]) -> nn.Module:
        """A piece that several others share, made when it is first asked for."""
        if key not in self._pieces:
            self._pieces[key] = make()
        return self._pieces[key]

    def within(self, key: Any) -> Parts:
        """The builder for rows that the piece with this key gives."""
        if key not in self._within:
            self._within[key] = Parts(self.frozen)
        return self._within[key]

    def sums(self, sums: Tensor, rows: Tensor, weights: Tensor, shape: tuple[int, int]) -> nn.Module:
        """Weighted sums of rows: `weights` (k,) times the `rows` (k,), added up in `sums` (k,)."""
        cells, cell = (sums * shape[1] + rows).unique(return_inverse=True)
        added = weights.new_zeros(len(cells)).index_add_(0, cell, weights)
        kind = FrozenSums if self.frozen else Sums
        return kind(cells // shape[1], cells % shape[1], added, shape)

    def shared(self) -> nn.ModuleList:
        """The pieces that others refer to, once all are built."""
        if self._points:
            points = self._points[0] if len(self._points) == 1 else torch.cat(self._points)
            self._products.__init__(points, self.centre)
            everybody = torch.arange(len(points))
            for chosen, index in self._chosen:
                same = torch.equal(index, everybody)
                chosen.register_buffer("index", None if same else index.to(points.device))
        deeper = [parts.shared() for parts in self._within.values()]
        return nn.ModuleList([self._products, *self._pieces.values(), *deeper])

    def _places(self, points: Tensor) -> Tensor:
        """Where points stand among those that are shared; those that are new are added."""
        if not self._points:
            self._points.append(points)
            return torch.arange(len(points))
        first = self._points[0]
        if torch.equal(points, first.to(points.dtype)):
            return torch.arange(len(points))
        if not self._wide:
            self._remember(first, 0)
        known = self._narrow if points.dtype == torch.float32 else self._wide
        keys = _keys(points, points.dtype)
        new = [i for i, key in enumerate(keys) if key not in known]
        if new:
            total = sum(map(len, self._points))
            fresh = points[new].to(first.dtype)
            self._points.append(fresh)
            self._remember(fresh, total)
        return torch.tensor([known[key] for key in keys])

    def _remember(self, points: Tensor, start: int) -> None:
        for known, dtype in ((self._wide, points.dtype), (self._narrow, torch.float32)):
            for place, key in enumerate(_keys(points, dtype), start):
                known.setdefault(key, place)


def _keys(points: Tensor, dtype: torch.dtype) -> list[bytes]:
    rows = points.to(dtype).cpu().contiguous().numpy()
    return [row.tobytes() for row in rows]


def log_sigmoids(f: Tensor) -> tuple[Tensor, Tensor]:
    """log σ(f) and log σ(−f).

    Written out: an exporter may turn torch's own into the logarithm of a number that has underflowed.
    """
    tail = torch.log1p(torch.exp(-f.abs()))
    return f.clamp(max=0.0) - tail, (-f).clamp(max=0.0) - tail


def log_add_exp(a: Tensor, b: Tensor) -> Tensor:
    """log(e^a + e^b); written out where it is exported, as in `log_sigmoids`."""
    if torch.compiler.is_exporting():
        apart = torch.where(a == b, 0.0, a - b).abs()  # −∞ on both sides
        return torch.maximum(a, b) + torch.log1p(torch.exp(-apart))
    return torch.logaddexp(a, b)
