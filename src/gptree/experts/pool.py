"""The logarithmic opinion pool of experts: the weighted product of their probabilities."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from gptree.experts.base import Expert, Fit, FittedExpert, LeftOutAt, ScoreCache, require_expert
from gptree.experts.calibration import CalibrationRows, calibration_size, weighted_mean
from gptree.experts.density import KernelDensity
from gptree.experts.examples import MANY_CLASSES, Examples
from gptree.experts.kernel_ridge import KernelRidge
from gptree.experts.lda import LDA
from gptree.experts.scorers import PooledScores, easing, pooled_scores
from gptree.experts.wrong_labels import with_beliefs
from gptree.maths.frozen import Parts
from gptree.settings import require, require_whole
from gptree.storage import Array, Part

RIDGE = 1e-2  # of `fit_weights`; it pulls the weights to 1/K, which they are if there is nothing to learn from
PRIOR_ROWS = 10.0  # of `pool_weights`: how many rows the same pull is worth
MAX_STEPS = 50
STEP_SIZES = tuple(0.5**k for k in range(21))  # tried one after the other, until there is
DESCENT = 1e-4  # times what the slope promises
ROUNDING = 10.0  # units of it that a step may miss this by
LOGS_AT_A_TIME = 2**20  # what a cache holds
TOLERANCE = 1e-6  # of the weights, at which the steps end
SURER = 1.07  # with few examples a class: left-out predictions know one of two, those of new points both


@dataclass(frozen=True)
class Pool(Expert):
    """The logarithmic opinion pool of several experts, M(x) = log-softmax(Σ_k (w_k + v_k e_k(x)) log p_k(x)).

    e_k(x) = 4 / (1 + m) where the best class leads the mean of the next five by m nats. With one temperature for all
    rows experts are too sure where a class leads far, and not sure enough where none does, as with examples that are
    unlike all others; v makes up for it. The weights w ≥ 0 and v ≥ 0 are chosen by left-out NLL.

    Fit and predict, one thread, as many new points as examples or so: 385 examples of 77 classes in 384 dimensions
    0.25 s; 4,500 of 150 in 384 5 s; 6,000 of 200 in 1,280 17 s; 20,000 of 10,000 in 64 100 s and 4 GB.

    Parameters
    ----------
    experts : tuple of Expert
        The default pool is found by the name "experts". A pool may hold another one.
    shortlist : int, optional
        Kernel densities score so many classes, those that the first expert finds best, if the pool asks it and
        densities alone. By default they score all classes, and of more than 2,000 with more than 65,536 examples 300.
    eases : bool
        Whether there is a v; otherwise, and with more than 2,000 classes, it is 0.

    Examples
    --------
    >>> from gptree import GPTreeClassifier
    >>> from gptree.experts import LDA, KernelDensity, Pool
    >>> model = GPTreeClassifier(prior_mean=Pool((LDA(), KernelDensity())))
    """

    experts: tuple[Expert, ...] = (LDA(), KernelRidge(), KernelDensity())
    shortlist: int | None = None
    eases: bool = True

    name = "experts"

    def __post_init__(self) -> None:
        object.__setattr__(self, "experts", tuple(self.experts))
        require(bool(self.experts), "a pool needs at least one expert.")
        for expert in self.experts:
            require_expert(expert, "a pool")
        if self.shortlist is not None:
            require_whole("shortlist", self.shortlist, 1)

    @property
    def cannot_grow(self) -> str | None:
        return next((expert.cannot_grow for expert in self.experts if expert.cannot_grow is not None), None)

    def pays(self, n_classes: int) -> bool:
        return any(expert.pays(n_classes) for expert in self.experts)

    def asked(self, n_classes: int) -> tuple[Expert, ...]:
        """The experts that it asks where there are so many classes: those that pay, or all if none does."""
        return tuple(expert for expert in self.experts if expert.pays(n_classes)) or self.experts

    def settled(self, fitted: FittedExpert) -> Pool:
        assert isinstance(fitted, FittedPool)
        few = len(fitted.experts) == len(self.experts)
        asked = self.experts if few else self.asked(sys.maxsize)
        settled = tuple(expert.settled(each) for expert, each in zip(asked, fitted.experts, strict=True))
        return replace(self, experts=settled)

    def on_exemplars(self, rows: Tensor, weights: Tensor) -> Pool:
        return replace(self, experts=tuple(expert.on_exemplars(rows, weights) for expert in self.experts))

    def fit_bytes(self, rows: int, columns: int, classes: int, itemsize: int) -> int:
        chosen_on = min(rows, calibration_size(classes))
        asked = self.asked(classes)
        each = 6 if self._eases(classes) else 3  # and two of their size for the weights
        logs = each * itemsize * chosen_on * classes * len(asked)
        held = itemsize * rows * columns * len(asked)  # features, as each expert sees them
        return logs + held + max(expert.fit_bytes(rows, columns, classes, itemsize) for expert in asked)

    def fit(self, examples: Examples) -> Fit:
        from gptree.experts.shortlist import fit_shortlist, shortlist_size  # which builds on this module

        asked = self.asked(examples.n_classes)
        if (size := shortlist_size(asked, examples, self.shortlist)) is not None:
            return fit_shortlist(asked, examples, size)
        fits = [expert.fit(examples) for expert in asked]
        calibration, eases = CalibrationRows.of(examples), self._eases(examples.n_classes)
        dtype = torch.float32 if examples.n_classes > MANY_CLASSES else examples.X.dtype
        logs = torch.stack([fit.at(calibration.rows).to(dtype).log_softmax(1) for fit in fits])
        logs = torch.cat([logs, logs * easing(logs)]) if eases else logs
        seen, balanced = calibration.see(logs), calibration.balanced.to(logs)
        about = calibration.labels, balanced, examples.few, eases, examples.more_to_come
        weights = robust_weights(seen, *about).to(examples.X)
        weights, eased = weights[: len(fits)], weights[len(fits) :]
        eased = eased if bool((eased > 0).any()) else None
        fitted = FittedPool(tuple(fit.expert for fit in fits), weights, eased=eased)
        return Fit(fitted, fitted.pooled_at([fits[k].at for k in fitted.heard]), examples.usable)

    def _eases(self, n_classes: int) -> bool:
        return self.eases and n_classes <= MANY_CLASSES


@dataclass(frozen=True, eq=False)
class FittedPool(FittedExpert):
    """A fitted `Pool`.

    Attributes
    ----------
    experts : tuple[FittedExpert, ...]
    weights : tensor (K,)
        w.
    eased : tensor (K,) or None
        v; None is 0.
    """

    experts: Annotated[tuple[FittedExpert, ...], Part(count="K")]
    weights: Annotated[Tensor, Array("K", least=0)]
    eased: Annotated[Tensor | None, Array("K", least=0)] = field(default=None, kw_only=True)

    def log_probabilities(self, X: Tensor, raw: Any = None, cache: ScoreCache | None = None) -> Tensor:
        cache = {} if cache is None else cache
        logs = [expert.log_probabilities(X, raw, cache) for expert in self.experts]
        return pooled_scores(logs, *self._said()).log_softmax(1)

    def frozen(self, parts: Parts) -> PooledScores:
        return PooledScores([expert.frozen(parts) for expert in self.experts], *self._said())

    def knows_left_out(self, X: Tensor, y: Tensor) -> bool:
        return all(expert.knows_left_out(X, y) for expert in self.experts)

    def left_out_at(self, examples: Examples) -> LeftOutAt:
        return self.pooled_at([self.experts[k].left_out_at(examples) for k in self.heard])

    def at_exemplars(self, exemplars: Examples) -> LeftOutAt | None:
        found = [at for k in self.heard if (at := self.experts[k].at_exemplars(exemplars)) is not None]
        return self.pooled_at(found) if len(found) == len(self.heard) else None

    @property
    def heard(self) -> list[int]:
        """Numbers of the experts that have a say, so that others need not be asked; the first if none has."""
        say = self.weights if self.eased is None else self.weights + self.eased
        return (say > 0).nonzero()[:, 0].tolist() or [0]

    def pooled_at(self, scores: Sequence[LeftOutAt]) -> LeftOutAt:
        """Left-out scores of the pool from those of the experts that are heard."""
        said = self._said(self.heard)
        return lambda rows: pooled_scores((score(rows) for score in scores), *said)

    def _said(self, experts: slice | list[int] = slice(None)) -> tuple[list[float], list[float] | None]:
        """The weights of some experts, all by default."""
        return self.weights[experts].tolist(), None if self.eased is None else self.eased[experts].tolist()

    def grown(self, X: Tensor, y: Tensor, n_classes: int, weights: Tensor | None = None) -> FittedPool:
        return replace(self, experts=tuple(expert.grown(X, y, n_classes, weights) for expert in self.experts))


def pooled(weights: Tensor, logs: list[Tensor]) -> Tensor:
    """log-softmax(Σ_k w_k log p_k), (T, C).

    Parameters
    ----------
    weights : tensor (K,)
    logs : list of K tensors (T, C)

    Returns
    -------
    tensor (T, C)
    """
    total = torch.zeros_like(logs[0])
    for weight, log in zip(weights.tolist(), logs, strict=True):
        total.add_(log, alpha=weight)
    return total.log_softmax(1)


def robust_weights(
    logs: Tensor,
    labels: Tensor,
    counts: Tensor | None = None,
    few: bool = False,
    eased: bool = False,
    more_to_come: bool = False,
) -> Tensor:
    """`pool_weights` if labels can be trusted; otherwise those that count rows by the belief in their labels.

    Weights, the share of wrong labels and beliefs are found in turn, by expectation maximisation (see
    `gptree.experts.wrong_labels`). Experts whose temperatures reckon with wrong labels are not sure enough of right
    ones; the weights make up for it. They are taken if they explain the labels clearly better. Where classes have few
    examples, left-out predictions know much less of a class than those of new points do, and all weights are larger.

    Scores that are eased get their weights in the end, with those beliefs: they could explain wrong labels, too.

    Parameters
    ----------
    logs : tensor (K, r, k)
        Log-probabilities that K experts give k classes at r rows.
    labels : int64 tensor (r,)
    counts : tensor (r,), optional
        How many times each row counts.
    few : bool
        Whether the classes have few examples, see `Examples.few`.
    eased : bool
        Whether the second half of the experts are those of the first half, eased (see `easing`).
    more_to_come : bool
        Whether wrong labels may be of rows whose classes are not there, see `Examples`.

    Returns
    -------
    tensor (K,)
    """
    plain = logs[: len(logs) // 2] if eased else logs
    weights, believed = _weights(plain, labels, counts, few, more_to_come)
    if eased:
        none = torch.zeros_like(weights)
        start, centre = torch.cat([weights, none]), torch.cat([none + 1 / len(none), none])
        weights = pool_weights(logs, labels, counts=believed, start=start, centre=centre)
    return SURER * weights if few and len(labels) else weights


def _weights(
    logs: Tensor, labels: Tensor, counts: Tensor | None, few: bool, more_to_come: bool
) -> tuple[Tensor, Tensor | None]:
    """`robust_weights` for points that experts know as well as left-out ones, and how much rows count by beliefs."""
    k, of_labels = logs.shape[2], _of_labels(logs, labels)

    def own(weights: Tensor) -> Tensor:
        return (weights @ of_labels - _log_sums(logs, weights)).exp()

    def unsure(weights: Tensor) -> Tensor:
        return -torch.einsum("k,krc->rc", weights, logs).log_softmax(1).amax(1)

    def best(believed: Tensor | None, start: Tensor | None) -> Tensor:
        return pool_weights(logs, labels, counts=believed, start=start)

    if len(labels) == 0:
        return best(counts, None), counts
    return with_beliefs(best, own, k, counts, few, unsure if more_to_come else None)


def pool_weights(
    logs: Tensor,
    labels: Tensor,
    prior: float = PRIOR_ROWS,
    counts: Tensor | None = None,
    start: Tensor | None = None,
    centre: Tensor | None = None,
) -> Tensor:
    """The weights w ≥ 0 of a pool, which minimise mean NLL + prior/r·|w − centre|², the labels smoothed by 1/(2r).

    The problem is convex, and solved by projected Newton steps to 1e-6.

    Parameters
    ----------
    logs : tensor (K, r, k)
        Log-probabilities that K experts give k classes at r rows.
    labels : int64 tensor (r,)
    prior : float
        Of so many rows.
    counts : tensor (r,), optional
        How many times each row counts; their sum takes the place of r, at least one.
    start : tensor (K,), optional
        Where the search begins, if not at the centre.
    centre : tensor (K,), optional
        1/K each by default.

    Returns
    -------
    tensor (K,)
        The centre where there are no rows.
    """
    K, r, _ = logs.shape
    centre = logs.new_full((K,), 1 / K) if centre is None else centre
    if r == 0:
        return centre
    w = centre if start is None else start
    total = r if counts is None else float(counts.sum())
    smooth, ridge = 1 / (2 * max(total, 1)), prior / max(total, 1)
    target = ((1 - smooth) * _of_labels(logs, labels) + smooth * logs.mean(2)).T
    target = weighted_mean(target, counts)
    curvature = 2 * ridge * torch.eye(K, dtype=w.dtype, device=w.device)

    def objective(w: Tensor) -> float:
        nll = weighted_mean(_log_sums(logs, w), counts) - w @ target
        return float(nll + ridge * (w - centre).square().sum())

    value = objective(w)
    for _ in range(MAX_STEPS):
        means, squares = _moments(logs, w, counts)
        gradient = weighted_mean(means.T, counts) - target + 2 * ridge * (w - centre)
        means = means if counts is None else means * counts.sqrt()
        hessian = (squares - means @ means.T) / total + curvature
        free = (w > 0) | (gradient < 0)
        step = torch.zeros_like(w)
        step[free] = torch.linalg.solve(hessian[free][:, free], -gradient[free])
        # rounding must not decide whether the last step is taken
        bound = value + ROUNDING * torch.finfo(w.dtype).eps * abs(value)
        for size in STEP_SIZES:
            proposal = (w + size * step).clamp(min=0)
            new = objective(proposal)
            if new <= bound + DESCENT * float(gradient @ (proposal - w)):
                break
        previous, w, value = w, proposal, new
        if torch.allclose(w, previous, rtol=0, atol=TOLERANCE):
            break
    return w


def _of_labels(logs: Tensor, labels: Tensor) -> Tensor:
    """What each expert says of the rows' own classes, (K, r)."""
    return logs.gather(2, labels.expand(len(logs), -1)[:, :, None])[:, :, 0]


def _pieces(logs: Tensor) -> list[slice]:
    """Some rows after the other, where logs (K, r, k) are many."""
    step = max(1, LOGS_AT_A_TIME * logs.shape[1] // max(1, logs.numel()))
    return [slice(start, start + step) for start in range(0, logs.shape[1], step)]


def _log_sums(logs: Tensor, weights: Tensor) -> Tensor:
    """log Σ_c exp(Σ_k w_k log p_kc), (r,)."""
    said = weights.tolist()
    return torch.cat([pooled_scores(logs[:, some], said).logsumexp(1) for some in _pieces(logs)])


def _moments(logs: Tensor, weights: Tensor, counts: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of the logs that experts give a class drawn from the pool: their means (K, r), and Σ_r of products (K, K)."""
    said, means, squares = weights.tolist(), [], logs.new_zeros(len(logs), len(logs))
    for some in _pieces(logs):
        weighted = pooled_scores(logs[:, some], said).softmax(1) * logs[:, some]  # p_c log p_kc
        means.append(weighted.sum(2))
        weighted = weighted if counts is None else weighted.mul_(counts[some, None])
        squares += weighted.flatten(1) @ logs[:, some].flatten(1).T
    return torch.cat(means, 1), squares


def fit_weights(loss: Callable[[Tensor], Tensor], weights: int, free: int, like: Tensor, empty: bool) -> Tensor:
    """Weights ≥ 0 and further free parameters that minimise any differentiable loss + RIDGE·|w − 1/K|², by L-BFGS.

    For pools whose loss is not the NLL of one set of classes, which `pool_weights` is faster and more exact for.

    Parameters
    ----------
    loss : function from parameters (weights + free,) to a scalar tensor
    weights, free : int
        How many weights there are, and how many parameters after them.
    like : tensor
        Of the dtype and device wanted.
    empty : bool
        Whether there is nothing to learn from: the weights are then 1/K and the others 0.

    Returns
    -------
    tensor (weights + free,)
    """
    start = np.concatenate([np.full(weights, 1 / weights), np.zeros(free)])
    if empty:
        return torch.as_tensor(start).to(like)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        with torch.enable_grad():
            parameters = torch.as_tensor(values).to(like).requires_grad_()
            value = loss(parameters) + RIDGE * (parameters[:weights] - 1 / weights).square().sum()
            value.backward()
        assert parameters.grad is not None
        return float(value.detach()), parameters.grad.double().cpu().numpy()

    bounds = [(0, None)] * weights + [(None, None)] * free
    result: Any = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return torch.as_tensor(result.x).to(like)
