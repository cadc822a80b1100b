"""How much better a class that is not known yet explains a row than the best of those that are.

Classes are Gaussian, N(μ_c, W), and so are their means, N(μ, B). Then a class with n known rows of mean x̄ predicts

    x | class ~ N(μ + nB (nB + W)⁻¹ (x̄ − μ), W + B (nB + W)⁻¹ W),    x | new class ~ N(μ, W + B),

and the distance is log p(x | new class) − max_c log p(x | class c). It is a relative Mahalanobis distance whose two
covariances belong to one model: in every direction a new class is at least as wide as a known one, so that rows far
away are strange. Few rows tell neither matrix. With R the residuals, f their degrees of freedom and C classes,

    W = (k s I + RᵀR) / (k + f),    B = b ((1 − λ) M + λ W / d),    λ = 25 / (25 + C);

s is the mean variance of a feature in a class, k = 2d, M the covariance of the class means with
tr(W⁻¹M) = 1, and b the excess of tr(W⁻¹ cov(class means)) over what the rows' own spread W makes of it.

Where W is the identity, B has the class means' principal directions, and is isotropic outside of their span: there
the length of a row is all that counts, one more coordinate.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

#: So many rows a feature the isotropic part of W counts for.
PRIOR_ROWS = 2.0
#: So many class means that of B counts for.
PRIOR_CLASSES = 25.0
#: Least share of the spread of the class means that is not due to the rows', and least relative variances.
LEAST_SHARE, LEAST_VARIANCE = 0.1, 1e-9


class RelativeDistance:
    """Relative distances from the classes of some rows.

    Parameters
    ----------
    points : float64 tensor (m, d)
    y : int64 tensor (m,)
        Class numbers.
    """

    def __init__(self, points: Tensor, y: Tensor) -> None:
        _, self.y, self.counts = y.unique(return_inverse=True, return_counts=True)
        (m, d), y, n_classes = points.shape, self.y, len(self.counts)
        means = points.new_zeros(n_classes, d).index_add_(0, y, points) / self.counts[:, None]
        self.centre = means.mean(0)
        means = means - self.centre
        rows = points - self.centre
        residuals = rows - means[y]
        freedom, prior = m - n_classes, PRIOR_ROWS * d
        whole = float(rows.square().sum()) / (m * d)
        variance = float(residuals.square().sum()) / (freedom * d) if freedom else 0.5 * whole
        variance = max(variance, LEAST_VARIANCE * whole, torch.finfo(points.dtype).tiny)
        # W⁻¹ = scale · (I − FᵀF)
        self._scale, self._weight = (prior + freedom) / (prior * variance), 1.0 / (prior + freedom)
        R = residuals / (prior * variance) ** 0.5
        R = R if m <= d else torch.linalg.qr(R, mode="r").R
        gram = R @ R.T
        gram.diagonal().add_(1.0)
        self._factor = torch.linalg.solve_triangular(torch.linalg.cholesky(gram), R, upper=False)
        precision_means = self._scale * (means - (means @ self._factor.T) @ self._factor)
        values, vectors = torch.linalg.eigh(precision_means @ means.T)
        kept = values > LEAST_VARIANCE * values[-1]
        values, vectors = values[kept], vectors[:, kept]
        self._directions = precision_means.T @ (vectors / values.sqrt())
        spread = max(float(values.sum()) / max(n_classes - 1, 1), torch.finfo(points.dtype).tiny)
        within = float(self._factor.square().sum()) * (prior + freedom) / freedom if freedom else float(d)
        between = max(spread - within * float(self.counts.double().reciprocal().mean()), LEAST_SHARE * spread)
        isotropic = PRIOR_CLASSES / (PRIOR_CLASSES + n_classes)
        outside = isotropic * between / d
        #: With which weight the mean of each class is in B.
        self._mean_weight = (1.0 - isotropic) * between / spread / max(n_classes - 1, 1)
        along = outside + self._mean_weight * values
        #: B where W is the identity: along the directions, and outside; and how many dimensions each of them is.
        self._between = torch.cat([along, along.new_tensor([outside])])
        self._dimensions = torch.ones_like(self._between)
        self._dimensions[-1] = d - len(along)
        self._means = torch.cat([vectors * values.sqrt(), values.new_zeros(n_classes, 1)], 1)
        self._x = self._coordinates(points)

    def at(self, x: Tensor) -> Tensor:
        """Distances (T,) of new rows (T, d)."""
        return -self._log_ratios(self._coordinates(x)).amax(1)

    def left_out(self) -> Tensor:
        """Those of the points, each without itself, (m,)."""
        return -torch.maximum(self._best_other, self._of_own())

    def without_class(self) -> Tensor:
        """Those of the points where their class is not known, and its mean not in B, (m,)."""
        n_classes, (residuals, weight) = len(self.counts), self._taken_out()
        means, new = self._means[self.y], 1.0 / (1.0 + self._between)
        left = 1.0 - weight * (residuals.square() @ new)
        of_means = weight / left * ((residuals * means) @ new)
        cross = (self._x * means) @ new + of_means * ((self._x * residuals) @ new)
        square = means.square() @ new + of_means * ((residuals * means) @ new)
        weight = self._x.new_tensor(self._mean_weight * n_classes / max(n_classes - 1, 1))
        return -self._best_other - 0.5 * _change(cross, square, weight)

    def _coordinates(self, x: Tensor) -> Tensor:
        """Rows (T, d) where W is the identity: along the directions of the class means, and the length of the rest."""
        x = x - self.centre
        along = x @ self._directions
        length = self._scale * (x.square().sum(1) - (x @ self._factor.T).square().sum(1))
        rest = (length - along.square().sum(1)).clamp_min(0.0).sqrt()
        return torch.cat([along, rest[:, None]], 1)

    def _predictive(self, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of a class with so many rows: how much its mean counts, its precision and a new class's, log det / 2."""
        gain = count * self._between / (count * self._between + 1.0)
        known, new = 1.0 + self._between * (1.0 - gain), 1.0 + self._between
        return gain, 1.0 / known, 1.0 / new, 0.5 * (self._dimensions * torch.log(new / known)).sum()

    def _log_ratios(self, x: Tensor, out: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Log p(x | class) / p(x | new class) of coordinates x (T, r), (T, C).

        `out` are residuals (T, r), and weights (T,) with which their squares are taken out of the covariances.
        """
        found = x.new_empty(len(x), len(self.counts))
        for count in self.counts.unique().tolist():
            classes = (self.counts == count).nonzero()[:, 0]
            gain, known, new, constant = self._predictive(count)
            means = gain * self._means[classes]
            distance = (x.square() @ known)[:, None] - 2.0 * (x * known) @ means.T + means.square() @ known
            if out is not None:
                residuals, weight = out
                cross = ((x * residuals) @ known)[:, None] - (residuals * known) @ means.T
                distance += _change(cross.T, residuals.square() @ known, weight).T
            found[:, classes] = constant + 0.5 * (self._from_new(x, new, out)[:, None] - distance)
        return found

    @staticmethod
    def _from_new(x: Tensor, new: Tensor, out: tuple[Tensor, Tensor] | None) -> Tensor:
        """Squared distances (T,) from a new class, with log-determinants of what was taken out."""
        distance = x.square() @ new
        if out is None:
            return distance
        return distance + _change((x * out[0]) @ new, out[0].square() @ new, out[1])

    def _taken_out(self) -> tuple[Tensor, Tensor]:
        """Residuals of the points, and with which weight each is in W; n / (n − 1) is for the mean it has moved."""
        counts = self.counts[self.y].double()
        return self._x - self._means[self.y], self._weight * counts / (counts - 1.0).clamp_min(1.0)

    @cached_property
    def _best_other(self) -> Tensor:
        """The largest log-ratio (m,) of each point, its residual out of W, for a class that is not its own."""
        found = self._log_ratios(self._x, self._taken_out())
        return found.scatter_(1, self.y[:, None], -torch.inf).amax(1)

    def _of_own(self) -> Tensor:
        """Log-ratios (m,) of the points for their own classes without them; −∞ where nothing is left of these."""
        found = self._x.new_full((len(self.y),), -torch.inf)
        residuals, weight = self._taken_out()
        counts = self.counts[self.y]
        for count in counts.unique().tolist():
            rows = (counts == count).nonzero()[:, 0]
            if count == 1:
                continue
            gain, known, new, constant = self._predictive(count - 1)
            x, r, w = self._x[rows], residuals[rows], weight[rows]
            # the others' mean: outside of the directions, too, it is on the other side of the class's
            gap = x - gain * (self._means[self.y[rows]] - r / (count - 1))
            distance = gap.square() @ known + _change((gap * r) @ known, r.square() @ known, w)
            found[rows] = constant + 0.5 * (self._from_new(x, new, (r, w)) - distance)
        return found


def _change(cross: Tensor, square: Tensor, weight: Tensor) -> Tensor:
    """What δᵀA⁻¹δ + log det A gains when A becomes A − w r rᵀ: cross = δᵀA⁻¹r (…, T), square = rᵀA⁻¹r (T,), w (T,)."""
    left = 1.0 - weight * square
    return weight / left * cross.square() + torch.log(left)
