"""An inference of your own: a Laplace approximation at the nodes of a tree."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gptree import GPForestClassifier
from gptree.inference import Diagnostics, Inference, make_posterior
from gptree.settings import require


@dataclass(frozen=True)
class Laplace(Inference):
    """The Gaussian at the mode f̂ of p(f | y), with precision K⁻¹ + W, W = −∂² log p(y | f̂): Newton's method.

    log p(y | f) = Σ κ f − b log(2 cosh(f/2)), so its gradient is κ + b (½ − σ(f)) and W = b σ(f) (1 − σ(f)).
    """

    steps: int = 50
    tolerance: float = 1e-8

    name = "laplace"  # GPTreeClassifier(inference="laplace")

    def __post_init__(self):
        require(self.steps >= 1, f"Laplace needs at least one step, got steps={self.steps}.")

    def fit(self, batch, grams, work):
        space, root, jitter = grams.space(batch)  # a form of N(f | μ, K) that suits the kernel and the sizes
        b, kappa, mu = batch.b, batch.kappa, batch.mu

        def objective(f, weights):  # log p(y | f) − ½ (f − μ)ᵀ K⁻¹ (f − μ)
            return (kappa * f + b * (f / 2 - torch.nn.functional.softplus(f))).sum(-1) - space.squared_norm(weights) / 2

        def site(f):  # exp(κ f − ½ ω f²) touches the likelihood at f
            p = f.sigmoid()
            omega = b * p * (1 - p)
            return omega, omega * f + kappa + b * (0.5 - p)

        f, weights = mu[None], mu.new_zeros(1, len(batch), space.order)  # f = μ + space.mean(weights)
        value = objective(f, weights)
        change = torch.full_like(value, torch.inf)
        for _ in range(self.steps):
            if bool((change <= self.tolerance).all()):
                break
            omega, site_kappa = site(f)
            step = space.weights(space.factor(omega), omega, site_kappa - omega * mu) - weights
            size = torch.where(change > self.tolerance, 1.0, 0.0)  # a node that has settled stays
            for _ in range(40):  # the full step, or so many halves of it that the objective does not fall
                new_weights = weights + size[..., None] * step
                new_f = mu + space.mean(new_weights)
                worse = objective(new_f, new_weights) < value - 1e-12 * value.abs()
                if not bool(worse.any()):
                    break
                size = torch.where(worse, size / 2, size)
            moved = (new_f - f).abs().amax(-1)
            change = torch.where(change > self.tolerance, moved, change)
            f, weights, value = new_f, new_weights, objective(new_f, new_weights)
        omega, site_kappa = site(f)
        posterior = make_posterior(batch, space, omega, work, kappa=site_kappa, root=root)
        steps = torch.full((len(batch),), self.steps)
        return posterior, Diagnostics(
            batch.nodes, steps, change=change[0], converged=change[0] <= self.tolerance, jitter=jitter
        )


if __name__ == "__main__":
    X, X_new, y, y_new = train_test_split(*load_digits(return_X_y=True), train_size=200, random_state=0)
    for inference in (Laplace(), "coordinate-ascent"):
        model = GPForestClassifier(inference=inference, prior_mean=None, random_state=0).fit(X, y)
        print(f"{inference}: accuracy {model.score(X_new, y_new):.3f}")
