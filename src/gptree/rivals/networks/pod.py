"""Parts of PODNet: the classifier of several proxies a class, its loss, and the distillation of pooled outputs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize, one_hot, relu

NCA = Literal["paper", "code"]


def proxy_scores(features: Tensor, proxies: Tensor) -> Tensor:
    """y_c = Σ_k softmax_k(s_ck) s_ck with s_ck = −‖h̄ − θ̄_ck‖², h̄ and θ̄ of unit length.

    Parameters
    ----------
    features : Tensor (B, d)
    proxies : Tensor (C, K, d)

    Returns
    -------
    Tensor (B, C)
        With one proxy a class, or equal ones, 2 cos(h, θ_c) − 2.
    """
    h, theta = normalize(features, dim=-1), normalize(proxies, dim=-1)
    s = 2 * (h @ theta.flatten(0, 1).T).unflatten(1, proxies.shape[:2]) - 2
    return (s.softmax(-1) * s).sum(-1)


def nca_loss(logits: Tensor, y: Tensor, margin: Tensor | float, form: NCA = "paper") -> Tensor:
    """The loss of PODNet's classifier.

    Paper: mean_i [−(s_y − margin) + log Σ_{c≠y} exp s_c]₊. Released code: the margin is taken from every score and so has
    no effect, there is no hinge, and the denominator has a 1 for the class itself: mean_i [−s_y + log(1 + Σ_{c≠y} exp
    s_c)], where the largest s of the row is taken from all.

    Parameters
    ----------
    logits : Tensor (B, C)
        s = η y with y of `proxy_scores`.
    y : Tensor (B,)
        Classes.
    margin : Tensor or float
        η δ.
    form : "paper" or "code"
    """
    true = one_hot(y, logits.shape[1]).bool()
    if form == "code":
        s = logits - logits.amax(1, keepdim=True)
        return (s.masked_fill(true, 0.0).logsumexp(1) - s[true]).mean()
    others = logits.masked_fill(true, -torch.inf).logsumexp(1)
    return relu(others - logits[true] + margin).mean()


def pod_spatial(old: Sequence[Tensor], new: Sequence[Tensor]) -> Tensor:
    """Distance between the maps (B, C, H, W) of two networks, mean over rows and stages.

    A map is squared, summed over its width and over its height, both sums are concatenated and scaled to unit length;
    the distance is Euclidean.
    """
    gaps = [(_profiles(a) - _profiles(b)).square().sum(1) for a, b in zip(old, new, strict=True)]
    return torch.stack([_safe_root(gap).mean() for gap in gaps]).mean()


def _profiles(x: Tensor) -> Tensor:
    squares = x.square()
    return normalize(torch.cat([squares.sum(3).flatten(1), squares.sum(2).flatten(1)], 1), dim=1)


def _safe_root(squares: Tensor) -> Tensor:
    """√x with gradient 0 at 0, where the two networks agree."""
    zero = squares == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squares).sqrt())


def pod_flat(old: Tensor, new: Tensor) -> Tensor:
    """mean_i [1 − cos(f_old, f_new)] of features (B, d)."""
    return (1 - cosine_similarity(old, new, dim=1)).mean()


def adaptive_factor(seen: int, new: int) -> float:
    """√(N_seen / N_new), the new classes counted among those seen."""
    return float(np.sqrt(seen / new))


def imprinted_proxies(features: Tensor, count: int, norm: float, noise: float, seed: int) -> Tensor:
    """Proxies (K, d) of one class: k-means centres of its unit features, each of length `norm`.

    A class of n ≤ K rows has its rows for centres. They are repeated until there are K; a repeated one is moved by
    noise, else it would get the same gradient as its twin for ever.

    Parameters
    ----------
    features : Tensor (n, d)
        All rows of the class.
    count : int
        K.
    norm : float
        Of each proxy, the mean of the old ones.
    noise : float
        Relative length of the noise on repeated proxies.
    seed : int
        Of the k-means and of the noise.
    """
    unit = normalize(features, dim=1)
    if count == 1:
        centres = unit.mean(0, keepdim=True)
    elif len(unit) <= count:
        centres = unit
    else:
        with warnings.catch_warnings():  # fewer distinct rows than centres: some centres coincide
            warnings.simplefilter("ignore", ConvergenceWarning)
            clusters: Any = KMeans(count, n_init=1, random_state=seed)  # pyright: ignore[reportArgumentType]
            centres = torch.from_numpy(clusters.fit(unit.cpu().numpy()).cluster_centers_).to(unit)
    repeated = normalize(centres, dim=1).repeat(-(-count // len(centres)), 1)[:count]
    random = torch.Generator().manual_seed(seed)
    moves = torch.randn(repeated.shape, generator=random) * noise / repeated.shape[1] ** 0.5
    moves[: len(centres)] = 0
    return norm * normalize(repeated + moves.to(repeated), dim=1)
