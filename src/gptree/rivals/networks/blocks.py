"""What several methods are built from: herding, exemplar means, imprinting, distillation."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import normalize

from gptree.incremental import Herding


def precise(x: Tensor) -> Tensor:
    """Numbers of half precision in single; others as they are."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def unit(x: Tensor) -> Tensor:
    """Rows of unit length, in single precision at least."""
    return normalize(precise(x), dim=-1)


def herded(features: Tensor, count: int) -> np.ndarray:
    """At most `count` rows of one class whose mean stays nearest to that of all; (count,), in order of choice.

    Row k minimises ‖μ − (φ_i + Σ_{j<k} φ_j)/k‖ among those not taken, with φ the unit features (n, d) and μ their
    mean. Fewer rows are the first of more.
    """
    rows = unit(features).double().cpu().numpy()
    return Herding().choose(rows, min(count, len(rows)), np.random.default_rng(0)).astype(np.int64)


def class_means(features: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """(C, d) means of the rows (n, d) of each class; zero for a class without rows."""
    sums = features.new_zeros(n_classes, features.shape[1]).index_add_(0, y, features)
    return sums / torch.bincount(y, minlength=n_classes).clamp(min=1)[:, None].to(features)


def exemplar_means(features: Tensor, mirrored: Tensor | None, y: Tensor, n_classes: int) -> Tensor:
    """(C, d) unit means of the unit features of exemplars (m, d) and of their mirror images, each half."""
    means = class_means(unit(features), y, n_classes)
    if mirrored is not None:
        means = (means + class_means(unit(mirrored), y, n_classes)) / 2
    return unit(means)


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """(B, C) minus the squared distances of unit features from unit means."""
    return 2 * unit(features) @ means.to(precise(features)).T - 2


def imprinted(features: Tensor, y: Tensor, n_classes: int, old_rows: Tensor) -> Tensor:
    """(k, d) class rows: the direction of the mean unit feature of each class, with the mean length of the old rows."""
    return unit(class_means(unit(features), y, n_classes)) * old_rows.norm(dim=1).mean()


def mean_over(values: Tensor, rows: Tensor | None = None) -> Tensor:
    """The mean of values (B,) over some rows, booleans (B,), without waiting for the device; 0 where there are none."""
    return values.mean() if rows is None else (values * rows).sum() / rows.sum().clamp(min=1)


def cross_entropy(logits: Tensor, y: Tensor, rows: Tensor | None = None) -> Tensor:
    """Of logits (B, C) and classes y (B,), mean over some rows or all."""
    return mean_over(functional.cross_entropy(precise(logits), y, reduction="none"), rows)


def distillation(logits: Tensor, teacher: Tensor, temperature: float, rows: Tensor | None = None) -> Tensor:
    """−mean over rows of Σ_c softmax(teacher/T)_c log softmax(logits/T)_c, of logits (B, C) each.

    Its gradient is zero where the two agree; its value there is the teacher's entropy.
    """
    target = (precise(teacher) / temperature).softmax(1)
    return mean_over(-(target * (precise(logits) / temperature).log_softmax(1)).sum(1), rows)
