"""One node by hand: Gibbs sampling and coordinate ascent beside exact integration.

Three points on a line are few enough to integrate over all their latent values on a grid, so one can see what either
method of inference gets right.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from gptree.inference import CoordinateAscent, Gibbs, Inference, NodePredictor, NodeProblem, fit_nodes
from gptree.maths import covariance_root, gram, log_sigmoid_expectation, make_kernel

KERNEL = make_kernel("rbf", output_scale=4.0, length_scale=1.0).double().requires_grad_(False)
X = torch.tensor([[-1.0], [0.2], [1.0]], dtype=torch.float64)
GOES_LEFT = torch.tensor([True, True, False])
X_NEW = torch.tensor([[-2.0], [-1.0], [0.6], [1.0], [3.0]], dtype=torch.float64)
BUDGET = 2**28  # bytes


def exact() -> tuple[float, Tensor]:
    """log p(y), and p(left) at the new points, by a sum over a grid of whitened latent values f = R z."""
    K, K_new = gram(KERNEL, X), gram(KERNEL, X, X_NEW)
    z = torch.linspace(-6.0, 6.0, 61, dtype=torch.float64)
    z = torch.cartesian_prod(z, z, z)
    f = z @ covariance_root(K)[0].mT
    prior = (-0.5 * z.square().sum(1)).log_softmax(0)
    log_joint = prior + logsigmoid(torch.where(GOES_LEFT, f, -f)).sum(1)
    a = torch.linalg.solve(K, K_new)  # f⋆ | f ~ N(aᵀ f, k⋆⋆ − aᵀ k⋆)
    variance = gram(KERNEL, X_NEW).diagonal() - (a * K_new).sum(0)
    log_left, _ = log_sigmoid_expectation(f @ a, variance)
    log_evidence = log_joint.logsumexp(0)
    return float(log_evidence), (log_joint.softmax(0) @ log_left.exp())


def inferred(inference: Inference) -> tuple[float | None, Tensor]:
    """The bound on log p(y) where there is one, and p(left) at the new points, by quadrature."""
    node = NodeProblem(rows=torch.arange(len(X)), left=GOES_LEFT, seed=0)
    fits = fit_nodes([node], KERNEL, X, inference, memory_budget=BUDGET)
    predictor = NodePredictor(fits.grams, fits.posteriors, BUDGET)
    log_left, _ = predictor.log_probabilities(X_NEW, predict_at="quadrature")
    bound = fits.diagnostics.bound
    return None if bound is None else float(bound[0]), log_left[0].exp()


def main() -> None:
    methods = {
        "exact": exact(),
        "Gibbs, 1 sweep × 1,000 chains": inferred(Gibbs(chains=1_000)),
        "Gibbs, 20 sweeps × 1,000 chains": inferred(Gibbs(chains=1_000, steps=20)),
        "coordinate ascent": inferred(CoordinateAscent(sweeps=200, tolerance=1e-8)),
    }
    print(f"{'p(left) at x =':34s}" + "".join(f"{float(x):7.1f}" for x in X_NEW) + "   log p(y)")
    for name, (evidence, p) in methods.items():
        last = "" if evidence is None else f"{evidence:11.3f}"
        print(f"{name:34s}" + "".join(f"{float(value):7.3f}" for value in p) + last)


if __name__ == "__main__":
    main()
