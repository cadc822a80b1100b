"""TOPIC (Tao et al. 2020)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import relu

#: Of the variances in the Mahalanobis form: a cell of one row has none.
SMALLEST_VARIANCE = 1e-4


def anchor_loss(features: Tensor, targets: Tensor, weights: Tensor | float = 1.0) -> Tensor:
    """mean_{j,d} v_jd (f_jd − t_jd)²: how far the anchors have moved.

    Parameters
    ----------
    features : Tensor (N, d)
        Unit features of the anchors under the network that is trained.
    targets : Tensor (N, d)
        Released code: the same under the network before the session. Paper: centroids of the nodes.
    weights : Tensor (N, d) or float
        v. Released code: 1 (see `code_weights`). Paper: inverse variances of the cells, the Mahalanobis distance.
    """
    return (weights * (features - targets).square()).mean()


def code_weights(variances: Tensor, reduced: float) -> Tensor:
    """v of the released code: `reduced` where a variance exceeds ½, else 1. On unit features none does."""
    return torch.where(variances > 0.5, reduced, 1.0)


def centre_loss(features: Tensor, centres: Tensor, y: Tensor) -> Tensor:
    """½ mean_i ‖f_i − c_{y_i}‖², the min term: rows are drawn to the centre of their class.

    Parameters
    ----------
    features : Tensor (B, d)
    centres : Tensor (C, d)
    y : Tensor (B,)
        Rows of `centres`.
    """
    return 0.5 * (features - centres[y]).square().sum(1).mean()


def margin_loss(new: Tensor, old: Tensor, margin: float) -> Tensor:
    """Σ [margin − ‖c_i − c_j‖]₊ over pairs of centres with at least one new class: the max term.

    Parameters
    ----------
    new, old : Tensor (C_new, d), (C_old, d)
    margin : float
    """
    first, second = torch.triu_indices(len(new), len(new), 1, device=new.device)
    return relu(margin - _gaps(new[first], new[second])).sum() + relu(margin - _gaps(new[:, None], old)).sum()


def _gaps(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).square().sum(-1).clamp_min(1e-12).sqrt()
