"""Parts of PODNet: the classifier of several proxies a class, its loss, and the distillation of pooled outputs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize, one_hot, relu

from gptree.deep import Objective, ObjectiveLayer
from gptree.rivals.networks.blocks import precise, unit
from gptree.rivals.networks.classifiers import ScaledLayer, SessionClassifier
from gptree.settings import require, require_whole

NCA = Literal["paper", "code"]


@dataclass(frozen=True, kw_only=True)
class ProxyNCA(Objective):
    """PODNet's loss of several proxies a class, η learned from 1 on; `Objective` has more parameters.

    Parameters
    ----------
    proxies : int
        K, of a class.
    margin : float
        δ.
    form : "paper" or "code"
        See `nca_loss`.
    """

    name: ClassVar[str] = "proxy-nca"

    proxies: int = 10
    margin: float = 0.6
    form: NCA = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("proxies", self.proxies, 1)
        require(self.margin >= 0, f"margin must not be negative, got {self.margin}.")
        require(self.form in ("paper", "code"), f'form is "paper" or "code", not {self.form!r}.')

    def layer(self, width: int, n_classes: int, seed: int, dtype: torch.dtype) -> ProxyLayer:
        return ProxyLayer(self, width, n_classes, seed, dtype)

    def logits(self, layer: ObjectiveLayer, embeddings: Tensor) -> Tensor:
        assert isinstance(layer, ProxyLayer)
        return layer.scale * proxy_scores(embeddings, layer.weight)

    def cost(self, logits: Tensor, y: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        """The mean loss of rows with logits (B, C) and classes y (B,); the scale is the η in the logits.

        The margin has no part in the gradient of η: before classes are δ apart it would drive η below zero, where the
        order of the classes is the wrong one.
        """
        return nca_loss(logits, y, torch.as_tensor(scale).detach() * self.margin, self.form)


class ProxyLayer(ScaledLayer):
    """Its weight is (C, K, d)."""

    objective: ProxyNCA

    def __init__(self, objective: ProxyNCA, width: int, n_classes: int, seed: int, dtype: torch.dtype) -> None:
        super().__init__(objective, width, n_classes, seed, dtype)
        random = torch.Generator().manual_seed(seed)
        shape = (len(self.weight), objective.proxies, width)
        self.weight = nn.Parameter(torch.empty(shape, dtype=dtype).uniform_(-1, 1, generator=random) / width**0.5)

    def loss(self, embeddings: Tensor, y: Tensor, seed: int) -> Tensor:
        logits = self.objective.logits(self, embeddings)
        targets = self.objective.targets(y, self.n_classes, seed)
        costs = [weight * self.objective.cost(logits, t, self.scale) for weight, t in targets]
        return torch.stack(costs).sum()

    def plain_loss(self, embeddings: Tensor, y: Tensor) -> Tensor:
        return self.objective.cost(self.scores(embeddings), y, self.scale)


class ProxyClassifier(SessionClassifier):
    """A `SessionClassifier` whose rows are proxies (k, K, d), and which has a scale."""

    def forward(self, features: Tensor) -> Tensor:
        assert self.scale is not None
        return self.scale * proxy_scores(features, self.weight)


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
    s = 2 * (unit(features) @ unit(proxies).flatten(0, 1).T).unflatten(1, proxies.shape[:2]) - 2
    return (s.softmax(-1) * s).sum(-1)


def nca_loss(logits: Tensor, y: Tensor, margin: Tensor | float, form: NCA = "paper") -> Tensor:
    """The loss of PODNet's classifier.

    Paper: mean_i [−(s_y − margin) + log Σ_{c≠y} exp s_c]₊. Released code: the margin is taken from every score and so
    has no effect, there is no hinge, and the denominator has a 1 for the class itself: mean_i [−s_y + log(1 + Σ_{c≠y}
    exp s_c)], where the largest s of the row is taken from all.

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
    s = logits - logits.amax(1, keepdim=True) if form == "code" else logits
    own = s.gather(1, y[:, None])[:, 0]
    if form == "code":
        return (s.masked_fill(true, 0.0).logsumexp(1) - own).mean()
    return relu(s.masked_fill(true, -torch.inf).logsumexp(1) - own + margin).mean()


def pod_spatial(old: Sequence[Tensor], new: Sequence[Tensor]) -> Tensor:
    """Distance between the maps (B, C, H, W) of two networks, mean over rows and stages.

    A map is squared, summed over its width and over its height, both sums are concatenated and scaled to unit length;
    the distance is Euclidean.
    """
    gaps = [(_profiles(a) - _profiles(b)).square().sum(1) for a, b in zip(old, new, strict=True)]
    return torch.stack([_safe_root(gap).mean() for gap in gaps]).mean()


def _profiles(x: Tensor) -> Tensor:
    squares = precise(x).square()
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
    return math.sqrt(seen / new)


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
    rows = unit(features)
    if count == 1:
        centres = rows.mean(0, keepdim=True)
    elif len(rows) <= count:
        centres = rows
    else:
        with warnings.catch_warnings():  # fewer distinct rows than centres: some centres coincide
            warnings.simplefilter("ignore", ConvergenceWarning)
            clusters: Any = KMeans(count, n_init=1, random_state=seed)  # pyright: ignore[reportArgumentType]
            centres = torch.from_numpy(clusters.fit(rows.cpu().numpy()).cluster_centers_).to(rows)
    repeated = normalize(centres, dim=1).repeat(-(-count // len(centres)), 1)[:count]
    random = torch.Generator().manual_seed(seed)
    moves = torch.randn(repeated.shape, generator=random) * noise / repeated.shape[1] ** 0.5
    moves[: len(centres)] = 0
    return norm * normalize(repeated + moves.to(repeated), dim=1)
