"""How much the Gaussian processes may say: the output scale of the kernel, chosen by left-out evidence.

With prior s k the latent function is a = √(s / s₀) times one with prior s₀ k. So nodes are fitted at s₀ only, without
one fold of rows, and f = μ + a g is tried at the rows of the fold for the a of every scale. Nothing that is asked about
them has seen them: experts are fitted to the other rows, with the settings that all rows chose, and so are prior
means and the tree. Left-out predictions without new fits (`gptree.model.cavities`) would not do with few rows a class:
the prior means of the other rows contain the row that is left out, and are wrong on the other side of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.estimators.prior import Rows
from gptree.experts import shot_folds
from gptree.experts.calibration import balanced
from gptree.experts.wrong_labels import likelihood
from gptree.model import ForestModel

#: Scales to choose from, and the one that is kept unless the evidence speaks clearly against it.
SCALES = (0.05, 0.5, 1.25, 2.5, 5.0, 10.0)
DEFAULT_SCALE = 5.0
#: With few rows a class the experts err more at left-out rows than they will with all rows: the default factor a is the
#: number of rows a class divided by this, at most 1.
FULL_SHOTS = 4.0
#: With few rows a class nothing tells how much the processes may say but how much the experts do: where their left-out
#: scores spread over the classes by fewer nats than this, the smallest scale is taken. A row that is alone in its part
#: of a class looks like an error of the experts, who know it once it is not left out.
LEAST_SPREAD = 1.3
#: The rows of a class are dealt into so many folds, or into more where one would hold more rows than enough; one of
#: them is asked. Where it holds fewer rows than the last number nothing is asked: these could not speak clearly.
FOLDS = 4
ENOUGH_ROWS = 500
LEAST_ROWS = 30
#: A class that has a row left out must have so many, so that two are left. And such classes must be this share of all:
#: where most have two rows, the others have theirs by wrong labels.
FEWEST_SHOTS = 3
LEAST_CLASSES = 0.5

Fitter = Callable[[Rows], tuple[ForestModel, Callable[[Rows], Tensor]]]


@dataclass(frozen=True, eq=False)
class ScaleEvidence:
    """What left-out rows say about the output scale.

    Attributes
    ----------
    scale : float
        The one chosen.
    default : float
        The one taken without evidence.
    rows : int
        Left-out rows that were asked.
    nll : ndarray (scales,)
        Their mean NLL at each of `SCALES`; NaN without rows.
    error : ndarray (scales,)
        Standard error of its difference from the lowest.
    """

    scale: float
    default: float
    rows: int
    nll: np.ndarray
    error: np.ndarray


def default_factor(n_rows: int, n_classes: int) -> float:
    """The factor a that is taken without evidence, by the mean number of rows a class."""
    return min(1.0, n_rows / n_classes / FULL_SHOTS)


def default_scale(n_rows: int, n_classes: int, spread: float = math.inf) -> float:
    """The scale of `SCALES` that is nearest to it, or the smallest where experts tell classes little apart."""
    if spread < LEAST_SPREAD:
        return SCALES[0]
    root = default_factor(n_rows, n_classes) * DEFAULT_SCALE**0.5
    return min(SCALES, key=lambda scale: abs(scale**0.5 - root))


def choose(losses: np.ndarray, counts: np.ndarray | None = None, *, default: float) -> ScaleEvidence:
    """The scale nearest to the default whose NLL is within one standard error of the lowest.

    Parameters
    ----------
    losses : ndarray (rows, scales)
        NLL of left-out rows at each of `SCALES`.
    counts : ndarray (rows,), optional
        How many times each row counts; for the error it is one row all the same.
    default : float
    """
    n = len(losses)
    if n < 2:
        nothing = np.full(len(SCALES), np.nan)
        return ScaleEvidence(default, default, n, nothing, nothing)
    shares = np.full(n, 1 / n) if counts is None else counts / counts.sum()
    nll = shares @ losses
    best = int(nll.argmin())
    gaps = losses - losses[:, [best]]
    error = np.sqrt(n / (n - 1) * np.square(shares[:, None] * (gaps - shares @ gaps)).sum(0))
    near = [k for k in range(len(SCALES)) if nll[k] - nll[best] <= error[k]]
    at = SCALES.index(default)
    chosen = min(near, key=lambda k: (abs(k - at), nll[k]))
    return ScaleEvidence(SCALES[chosen], default, n, nll, error)


def left_out_losses(rows: Rows, n_classes: int, fit: Fitter, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """NLL (rows, scales) of the rows of one fold, which is left out, and how much each counts (rows,).

    Classes count equally, as they do where experts' temperatures are chosen.

    Parameters
    ----------
    rows : Rows
    n_classes : int
    fit : function from `Rows`
        A tree at `DEFAULT_SCALE`, and the source of its class scores.
    noise : float
        The share of wrong labels.
    """
    eligible = np.ones(len(rows.codes), dtype=bool) if rows.held_out is None else rows.held_out
    sizes = np.bincount(rows.codes[eligible], minlength=n_classes)
    able = np.flatnonzero(eligible & (sizes[rows.codes] >= FEWEST_SHOTS))
    folds = max(FOLDS, -(-len(able) // ENOUGH_ROWS))
    fold = able[shot_folds(torch.as_tensor(rows.codes[able]), folds).numpy() == 0]
    if len(fold) < LEAST_ROWS or (sizes >= FEWEST_SHOTS).mean() < LEAST_CLASSES:
        return np.zeros((0, len(SCALES))), np.zeros(0)
    left_out = np.isin(np.arange(len(rows.codes)), fold)
    kept, out = rows.some(~left_out), rows.some(left_out)
    model, scores = fit(kept)
    fewer = default_factor(len(kept.codes), n_classes) / default_factor(len(rows.codes), n_classes)
    y = torch.as_tensor(out.codes, device=out.features.device)
    own = own_probabilities(model, out.features, scores(out), y, fewer)
    counted = torch.ones(len(y)) if out.counted is None else out.counted.cpu()
    losses = -likelihood(own, noise, n_classes).cpu().numpy().T
    return losses, balanced(counted.double(), y.cpu()).numpy()


def own_probabilities(model: ForestModel, x: Tensor, scores: Tensor, y: Tensor, fewer: float = 1.0) -> Tensor:
    """The probability of class y at each row of x, at each of `SCALES`, (scales, T), from a tree at `DEFAULT_SCALE`.

    All factors a are multiplied by `fewer`: a tree of fewer rows may say less.
    """
    mean = model.prior_means(scores)
    assert mean is not None
    left, right = model.predictor.log_probabilities(x, mean)
    correction = left - right - mean
    own = []
    for scale in SCALES:
        f = mean + fewer * (scale / DEFAULT_SCALE) ** 0.5 * correction
        log_p = model.paths.class_log_probabilities(logsigmoid(f), logsigmoid(-f))
        own.append(log_p.gather(1, y[:, None])[:, 0].exp())
    return torch.stack(own).clamp_min(torch.finfo(x.dtype).tiny)
