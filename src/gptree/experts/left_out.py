"""Left-out scores of a fitted model's experts at its own rows, computed again when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gptree.experts.base import MOST_KEPT, Fit, FittedExpert, LeftOutAt, dense_left_out
from gptree.experts.examples import ALONE, Examples, row_chunks


@dataclass(frozen=True, eq=False)
class LeftOutScores:
    """Left-out class log-probabilities (n, C) of an expert at the examples that it was fitted to, by rows.

    ``scores[rows]`` computes those of some rows: an array of n × C is not in files, and kept in memory only if small.

    Attributes
    ----------
    expert : FittedExpert
        That knows them, see `FittedExpert.knows_left_out`.
    X : tensor (n, d)
        Features, as the expert saw them.
    y : int64 tensor (n,)
        Class numbers.
    n_classes : int
    weights : tensor (n,) or None
        How many times each example counts; None is once.
    log_prior : tensor (1, C) or None
        Added to the log-probabilities.
    """

    expert: FittedExpert
    X: Tensor
    y: Tensor
    n_classes: int
    weights: Tensor | None = None
    log_prior: Tensor | None = None

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def _examples(self) -> Examples:
        return Examples.of(self.X, self.y, self.n_classes, weights=self.weights)

    @cached_property
    def _at(self) -> LeftOutAt:
        return self.expert.left_out_at(self._examples)

    def __getitem__(self, rows: Any) -> Tensor:
        """Those of some rows (r,): a slice, numbers, or as marked; (r, C). Of one row, (C,)."""
        if self._kept is not None:
            log_p = self._kept[rows]
        else:
            asked = torch.arange(len(self.X), device=self.X.device)[rows]
            log_p = self._computed(asked.reshape(-1)).view(*asked.shape, self.n_classes)
        return log_p if self.log_prior is None else log_p + self.log_prior.view(-1)

    @cached_property
    def _kept(self) -> Tensor | None:
        """Those of all rows without the prior, unless they are many."""
        everyone = torch.arange(len(self.X), device=self.X.device)
        return self._computed(everyone) if len(everyone) * self.n_classes <= MOST_KEPT else None

    def _computed(self, rows: Tensor) -> Tensor:
        return self._at(rows).log_softmax(1)

    def knowing(self, log_p: Tensor | None) -> LeftOutScores:
        """Itself, given what it would compute for all rows (n, C) without the prior."""
        if log_p is not None and log_p.numel() <= MOST_KEPT:
            self.__dict__["_kept"] = log_p
        return self

    def knowing_rows(self, other: LeftOutScores, rows: Tensor) -> LeftOutScores:
        """Itself, given that its rows are those of another one, which says the same of them; if that has kept it."""
        return self.knowing(None if other._kept is None else other._kept[rows])

    def with_prior(self, log_prior: Tensor) -> LeftOutScores:
        """The same with this prior (1, C); what has been computed is known."""
        return replace(self, log_prior=log_prior).knowing(self._kept)

    def chunks(self) -> tuple[Tensor, ...]:
        """All rows in pieces that are computed at a time."""
        return self._examples.chunks()

    def dense(self) -> Tensor:
        """Those of all rows."""
        return dense_left_out(self.__getitem__, len(self), self.X.device)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}


@dataclass(frozen=True, eq=False)
class ExemplarScores(LeftOutScores):
    """The same at the exemplars of a base session, each left out for itself; see `FittedExpert.at_exemplars`.

    Attributes
    ----------
    sizes : int64 tensor (C,)
        Examples of each class in the base session, if not of all, at least whether there was more than one.
    """

    sizes: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    @cached_property
    def _examples(self) -> Examples:
        alone = torch.full_like(self.y, ALONE)
        examples = Examples.of(self.X, self.y, self.n_classes, folds=alone, weights=self.weights)
        return replace(examples, sizes=self.sizes)

    @property
    def known(self) -> bool:
        """Whether the expert has them."""
        return self.expert.at_exemplars(self._examples) is not None

    @cached_property
    def _at(self) -> LeftOutAt:
        at = self.expert.at_exemplars(self._examples)
        assert at is not None
        return at


@dataclass(frozen=True, eq=False)
class FitScores(LeftOutScores):
    """The same of a fit that is still there.

    Attributes
    ----------
    fit : Fit
    """

    fit: Fit | None = None

    @cached_property
    def _at(self) -> LeftOutAt:
        assert self.fit is not None
        return self.fit.at

    def chunks(self) -> tuple[Tensor, ...]:
        return row_chunks(torch.arange(len(self), device=self.y.device), self.n_classes)


def in_chunks(scores: Tensor | LeftOutScores) -> Iterator[tuple[Tensor, Tensor]]:
    """Left-out scores (n, C) in pieces: rows (r,), and theirs (r, C)."""
    if isinstance(scores, Tensor):
        chunks = row_chunks(torch.arange(len(scores), device=scores.device), scores.shape[1])
    else:
        chunks = scores.chunks()
    for rows in chunks:
        yield rows, scores[rows]
