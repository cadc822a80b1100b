"""GPDNN and SV-DKL: their mathematics against slow twins, and their training by the loop of the deep GP-Tree."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.datasets import load_digits
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn.functional import normalize

from gptree.deep import Arrays, Batch, Trained, Training, WeightedEnsemble, convnet, embed, measure, mlp, train, whole
from gptree.deep.heads.base import Problem
from gptree.maths.kernels import make_kernel
from gptree.rivals import GPDNN, SVDKL, DeepRival
from gptree.rivals.deep import sv_dkl
from gptree.rivals.deep.base import FIRST_NOISE, JITTER, VariationalHead, WhitenedPosterior
from gptree.rivals.deep.gpdnn import argmax_probability

SETTINGS = {
    "gpdnn": GPDNN(inducing=2),
    "gpdnn diagonal": GPDNN(inducing=2, covariance="diagonal"),
    "sv-dkl": SVDKL(grid_size=12, features=3),
}
SETTINGS |= {name: DeepRival.of(name) for name in DeepRival.names() if name not in SETTINGS}
every_head = pytest.mark.parametrize("name", SETTINGS)


def problem(n: int = 30, classes: int = 3, width: int = 4, seed: int = 0) -> tuple[Tensor, Problem]:
    """Embeddings around a centre for each class."""
    random = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % classes
    centres = torch.randn(classes, width, generator=random, dtype=torch.float64)
    embeddings = 2 * centres[y] + torch.randn(n, width, generator=random, dtype=torch.float64)
    return embeddings, Problem(y.numpy(), list(range(classes)), make_kernel("rbf", 4.0), None, seed)


def walked(name: str, **others: Any) -> tuple[Any, Tensor, Tensor]:
    """A head after some steps at a rate that takes it away from its start, with embeddings and classes."""
    embeddings, about = problem(**others)
    head, y = SETTINGS[name].new_head(embeddings, about), torch.as_tensor(about.y)
    optimiser = torch.optim.SGD(head.parameters(), lr=0.1)
    for _ in range(10):
        optimiser.zero_grad()
        head.loss(embeddings, y).backward()
        optimiser.step()
        head.update()
    return head, embeddings, y


# ------------------------------------------------------------------------------------------------------- Robust-Max


def latents(classes: int, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    mean = torch.randn(classes, rows, generator=random, dtype=torch.float64)
    return mean, 0.3 + 0.7 * torch.rand(classes, rows, generator=random, dtype=torch.float64)


def test_of_two_classes_the_larger_is_known_in_closed_form() -> None:
    mean, variance = latents(2, 20, 0)
    found = argmax_probability(mean, variance, torch.zeros(20, dtype=torch.long))
    expected = torch.special.ndtr((mean[0] - mean[1]) / variance.sum(0).sqrt())
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)


def test_argmax_probability_equals_adaptive_integration() -> None:
    mean, variance = latents(4, 5, 1)
    total = 0.0
    for y in range(4):
        found = argmax_probability(mean, variance, torch.full((5,), y))
        for row in range(5):
            m, s = mean[:, row].numpy(), variance[:, row].sqrt().numpy()

            def integrand(f: float, m: np.ndarray = m, s: np.ndarray = s, y: int = y) -> float:
                others = [norm.cdf(f, m[c], s[c]) for c in range(4) if c != y]
                return norm.pdf(f, m[y], s[y]) * math.prod(others)

            assert float(found[row]) == pytest.approx(quad(integrand, -12, 12, limit=200)[0], abs=1e-5)
        total = total + found
    torch.testing.assert_close(total, torch.ones(5, dtype=torch.float64), rtol=0.0, atol=1e-5)


def test_far_classes_give_finite_gradients() -> None:
    mean = torch.tensor([[0.0, -60.0], [50.0, 60.0], [0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    variance = torch.full_like(mean, 1e-6, requires_grad=True)
    argmax_probability(mean, variance, torch.tensor([0, 1])).sum().backward()
    for tensor in (mean, variance):
        assert tensor.grad is not None
        assert bool(tensor.grad.isfinite().all())


def test_expected_robust_max_log_likelihood_by_drawing() -> None:
    """200,000 draws, within 5 standard errors: a false alarm about once in a million rows."""
    head, _, y = walked("gpdnn")
    mean, variance = latents(3, 6, 2)
    found = head._expected_log_likelihood(mean, variance, y[:6])
    epsilon, random = head.settings.epsilon, torch.Generator().manual_seed(3)
    f = mean + variance.sqrt() * torch.randn(200_000, 3, 6, generator=random, dtype=torch.float64)
    log_p = torch.where(f.argmax(1) == y[:6], math.log(1 - epsilon), math.log(epsilon / 2)).double()
    error = log_p.std(0) / math.sqrt(len(log_p))
    assert bool(((found - log_p.mean(0)).abs() < 5 * error).all())


# -------------------------------------------------------------------------------------------- posteriors and kernels


@pytest.mark.parametrize("diagonal", [False, True])
def test_moments_and_kl_equal_those_of_torch(diagonal: bool) -> None:
    random = torch.Generator().manual_seed(0)
    q = WhitenedPosterior(2, 4, diagonal)
    assert float(q.kl().detach()) == 0.0
    with torch.no_grad():
        q.mean.normal_(generator=random)
        q.root.copy_(torch.randn(q.root.shape, generator=random, dtype=torch.float64))
        q.root.copy_(q.root if diagonal else q.root.tril())
    a, shared = (torch.randn(shape, generator=random, dtype=torch.float64) for shape in ((2, 4, 5), (4, 5)))
    kl = 0.0
    for j, (m, root) in enumerate(zip(q.mean, q.root, strict=True)):
        S = root.square().diag() if diagonal else root.T @ root
        kl += kl_divergence(MultivariateNormal(m, S), MultivariateNormal(torch.zeros_like(m), torch.eye(4).to(m)))
        for rows, found in ((a[j], q.moments(a)), (shared, q.moments(shared))):
            torch.testing.assert_close(found[0][j], rows.T @ m)
            torch.testing.assert_close(found[1][j], (rows.T @ S @ rows).diagonal())
    torch.testing.assert_close(q.kl(), torch.as_tensor(kl))


@pytest.mark.parametrize("name", ["gpdnn", "gpdnn diagonal"])
def test_gpdnn_latents_equal_the_textbook_ones(name: str) -> None:
    """mean = k Kmm⁻¹ m_u, var = k⋆⋆ + k Kmm⁻¹ (S_u Kmm⁻¹ − I) kᵀ, with explicit inverses, class by class."""
    head, embeddings, _ = walked(name)
    x, z = normalize(embeddings, dim=-1), normalize(head.points.detach(), dim=-1)
    scale, length = head.kernel.outputscale.item(), head.kernel.base_kernel.lengthscale.item()
    K = scale * torch.exp(-0.5 * torch.cdist(z, z).square() / length**2)
    K = K + JITTER * scale * torch.eye(len(z))
    k = scale * torch.exp(-0.5 * torch.cdist(x, z).square() / length**2)
    mean, variance = head.latents(x)
    L, inverse = torch.linalg.cholesky(K), torch.linalg.inv(K)
    for c, (m, root) in enumerate(zip(head.q.mean, head.q.root, strict=True)):
        S = root.square().diag() if "diagonal" in name else root.T @ root
        m_u, S_u = L @ m, L @ S @ L.T
        expected = scale + (k @ inverse @ (S_u @ inverse - torch.eye(len(z))) @ k.T).diagonal()
        torch.testing.assert_close(mean[c], k @ inverse @ m_u, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(variance[c], expected, rtol=1e-7, atol=1e-9)


class GridGP(gpytorch.models.ApproximateGP):
    """One feature's GP as GPyTorch has it, not whitened."""

    def __init__(self, head: Any, j: int) -> None:
        size, reach = head.settings.grid_size, float(head.grid[-2])
        q = gpytorch.variational.CholeskyVariationalDistribution(size)
        super().__init__(gpytorch.variational.GridInterpolationVariationalStrategy(self, size, [(-reach, reach)], q))
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), make_kernel("rbf")
        self.double()
        self.variational_strategy.grid.copy_(head.grid[:, None])
        kernel = head.kernel
        self.covar_module.outputscale = kernel.outputscale[j].detach()
        self.covar_module.base_kernel.lengthscale = kernel.base_kernel.lengthscale[j].detach()

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_sv_dkl_latents_and_kl_equal_those_of_gpytorch() -> None:
    head, embeddings, _ = walked("sv-dkl")
    x = normalize(embeddings, dim=-1)
    mean, variance = head.latents(x)
    z, grid, kl = head.features(x).detach(), head.grid[:, None], 0.0
    assert float(z.abs().max()) < sv_dkl.REACH
    for j, (m, root) in enumerate(zip(head.q.mean.detach(), head.q.root.detach(), strict=True)):
        model = GridGP(head, j).eval()
        K = model.covar_module(grid).to_dense().detach()
        K = K + JITTER * K.diagonal().diag()
        L = torch.linalg.cholesky(K)
        S_u = L @ root.T @ root @ L.T
        q = model.variational_strategy._variational_distribution
        q.variational_mean.data = L @ m
        q.chol_variational_covar.data = torch.linalg.cholesky(S_u + 1e-14 * torch.eye(len(L)))
        model.variational_strategy.variational_params_initialized.fill_(1)
        found = model(z[:, j : j + 1])
        torch.testing.assert_close(mean[j], found.mean, rtol=1e-7, atol=1e-8)
        torch.testing.assert_close(variance[j], found.variance, rtol=1e-6, atol=1e-8)
        # the prior of v under u = L v, in the coordinates of u
        kl += kl_divergence(
            MultivariateNormal(L @ m, scale_tril=L @ torch.linalg.cholesky(root.T @ root)),
            MultivariateNormal(torch.zeros_like(m), scale_tril=L),
        )
    torch.testing.assert_close(head.q.kl(), torch.as_tensor(kl), rtol=1e-7, atol=1e-8)


def test_features_at_the_very_ends_are_interpolated() -> None:
    head, embeddings, _ = walked("sv-dkl")
    with torch.no_grad():
        head.weight.mul_(1e6)
    x = normalize(embeddings, dim=-1)
    assert float(head.features(x).detach().abs().max()) == sv_dkl.REACH
    w = sv_dkl.cubic_weights(head.features(x).T, head.grid)
    torch.testing.assert_close(w.sum(-1), torch.ones_like(w[..., 0]))  # all four points are there
    assert bool(sv_dkl.cubic_weights(torch.tensor([math.nan]), head.grid).isnan().any())  # and trouble shows


# ----------------------------------------------------------------------------------------------------------- softmax


def two_dimensional(head: Any, mean: Tensor, variance: Tensor) -> Iterator[tuple[float, Tensor]]:
    """Weights of a product of Gauss-Hermite rules in two features, and log softmax(A f) (B, C) at its points."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    for (a, w), (b, v) in itertools.product(zip(nodes, weights, strict=True), repeat=2):
        f = mean + variance.sqrt() * torch.tensor([[a], [b]])
        yield w * v / (2 * math.pi), (head.mixing.detach() @ f).T.log_softmax(-1)


def test_expected_softmax_by_quadrature(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 draws, within 5 standard errors."""
    count = 20_000
    monkeypatch.setattr(sv_dkl, "PREDICTION_SAMPLES", count)
    embeddings, about = problem()
    head = SVDKL(grid_size=8, features=2, samples=count).new_head(embeddings, about)
    y = torch.as_tensor(about.y[:6])
    mean, variance = latents(2, 6, 4)
    rule = [(weight, log_p) for weight, log_p in two_dimensional(head, mean, variance)]
    assert sum(weight for weight, _ in rule) == pytest.approx(1.0)
    own = [log_p.gather(1, y[:, None])[:, 0] for _, log_p in rule]
    expected = sum((w * v for (w, _), v in zip(rule, own, strict=True)), torch.zeros(6))
    spread = sum((w * (v - expected).square() for (w, _), v in zip(rule, own, strict=True)), torch.zeros(6)).sqrt()
    found = head._expected_log_likelihood(mean, variance, y)
    assert bool(((found - expected).abs() < 5 * spread / math.sqrt(count)).all())

    probability = sum((w * log_p.exp() for w, log_p in rule), torch.zeros(6, 3))
    second = sum((w * log_p.exp().square() for w, log_p in rule), torch.zeros(6, 3))
    found = head._class_log_probabilities(mean, variance).exp()
    error = (second - probability.square()).sqrt() / math.sqrt(count)
    assert bool(((found - probability).abs() < 5 * error).all())


def test_draws_change_with_every_update_and_are_a_part_of_the_state() -> None:
    head, embeddings, y = walked("sv-dkl")
    twin = copy.deepcopy(head)
    assert torch.equal(head.loss(embeddings, y), head.loss(embeddings, y))
    head.update()
    assert not torch.equal(head.loss(embeddings, y), twin.loss(embeddings, y))
    twin.load_state_dict(head.state_dict())
    assert torch.equal(head.loss(embeddings, y), twin.loss(embeddings, y))


# --------------------------------------------------------------------------------------------------- loss and start


@every_head
def test_loss_is_minus_the_bound_a_row_and_reported_so(name: str) -> None:
    head, embeddings, y = walked(name)
    expected = head._expected_log_likelihood(*head.latents(normalize(embeddings, dim=-1)), y)
    loss = head.loss(embeddings, y)
    torch.testing.assert_close(loss, (head.q.kl() - expected.sum()) / len(y))
    row = head.report(loss.detach())
    torch.testing.assert_close(row["expected_log_likelihood"], expected.mean())
    torch.testing.assert_close(row["bound"], row["expected_log_likelihood"] - row["kl"])


@every_head
def test_gradients_equal_finite_differences(name: str) -> None:
    head, embeddings, y = walked(name, n=9)
    embeddings.requires_grad_()
    at = [embeddings, *head.parameters()]
    gradients = torch.autograd.grad(head.loss(embeddings, y), at)
    random, step = torch.Generator().manual_seed(0), 1e-6
    for tensor, gradient in zip(at, gradients, strict=True):
        direction = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
        if tensor is head.q.root and tensor.dim() == 3:
            assert not bool(gradient.triu(1).any())  # of the triangle that is no part of U
            direction = direction.tril()
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                tensor.add_(direction, alpha=sign * step)
                values.append(float(head.loss(embeddings, y)))
                tensor.add_(direction, alpha=-sign * step)
        slope = float((gradient * direction).sum())
        assert slope == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-4, abs=1e-7)


def test_the_bound_of_gpdnn_is_below_the_marginal_likelihood() -> None:
    """log p(y) of five rows, from 400,000 draws of the prior at the rows; its standard error is below 0.02."""
    embeddings, about = problem(n=5, classes=3)
    head = GPDNN(inducing=2, epsilon=0.05).new_head(embeddings, about)
    y = torch.as_tensor(about.y)
    x = normalize(embeddings, dim=-1)
    K = 4.0 * torch.exp(-0.5 * torch.cdist(x, x).square())
    random = torch.Generator().manual_seed(0)
    f = torch.linalg.cholesky(K) @ torch.randn(400_000, 3, 5, 1, generator=random, dtype=torch.float64)
    right = f[..., 0].argmax(1) == y
    marginal = torch.where(right, 0.95, 0.025).log().double().sum(-1).logsumexp(0) - math.log(400_000)
    optimiser, bounds = torch.optim.Adam(head.q.parameters(), lr=0.05), []
    for _ in range(300):
        optimiser.zero_grad()
        loss = head.loss(embeddings, y)
        loss.backward()
        optimiser.step()
        bounds.append(-5 * float(loss.detach()))
    assert max(bounds) < float(marginal) + 0.05
    assert max(bounds) > float(marginal) - 2.0  # and close
    assert bounds[-1] > bounds[0]


@every_head
def test_regression_is_exact(name: str) -> None:
    embeddings, about = problem()
    head = SETTINGS[name].new_head(embeddings, about)
    x = normalize(embeddings, dim=-1)
    if isinstance(head, sv_dkl.SoftmaxMixtureHead):
        targets = head.features(x).T
    else:
        targets = torch.stack([torch.as_tensor(about.y == c).double() for c in range(3)])
    a, _ = head._seen(x)
    for j, t in enumerate(targets):
        A = a[j] if a.dim() == 3 else a
        precision = torch.eye(len(A)) + A @ A.T / FIRST_NOISE
        torch.testing.assert_close(head.q.mean[j], torch.linalg.inv(precision) @ A @ t / FIRST_NOISE)
        root = head.q.root[j]
        if root.dim() == 1:
            torch.testing.assert_close(root.square(), 1 / precision.diagonal())
        else:
            torch.testing.assert_close(root.T @ root, torch.linalg.inv(precision))


def test_gpdnn_may_start_from_the_prior() -> None:
    head = GPDNN(inducing=2, start="prior").new_head(*problem())
    assert float(head.q.kl().detach()) == 0.0
    torch.testing.assert_close(head.log_probabilities(problem()[0]).exp(), torch.full((30, 3), 1 / 3).double())


# ---------------------------------------------------------------------------------------------------------- predictions


@every_head
def test_probabilities_sum_to_one_and_do_not_depend_on_other_rows(name: str) -> None:
    head, embeddings, y = walked(name)
    log_p = head.log_probabilities(embeddings)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(30, dtype=torch.float64))
    torch.testing.assert_close(head.log_probabilities(embeddings[7:9]), log_p[7:9])
    assert float((log_p.argmax(1) == y).double().mean()) > 0.6


@every_head
def test_a_vote_of_one_keeps_the_order(name: str) -> None:
    head, embeddings, y = walked(name)
    wrong = torch.where(torch.arange(30) < 6, (y + 1) % 3, y)  # a fifth of the labels: less sure is better
    before = head.log_probabilities(embeddings)
    ensemble = WeightedEnsemble(head)
    ensemble.choose(embeddings, wrong)
    after = ensemble.log_probabilities(embeddings)
    assert float(ensemble.weights) != 1.0
    assert measure(after, wrong)["nll"] < measure(before, wrong)["nll"]
    assert torch.equal(before.argsort(1), after.argsort(1))


# ------------------------------------------------------------------------------------------------------------ training

DIGITS = load_digits()
X, Y = (DIGITS.images[:, None] / 16).astype(np.float32), DIGITS.target
LABELS = list(range(10))
TRAINED = {
    "gpdnn": GPDNN(inducing=5),
    "gpdnn diagonal": GPDNN(inducing=5, covariance="diagonal"),
    "sv-dkl": SVDKL(grid_size=32, features=12),
}


@pytest.mark.parametrize("name", TRAINED)
def test_digits_are_learned(name: str) -> None:
    training = Training(epochs=8, cross_entropy_epochs=3, batch_size=64, learning_rate=0.05, validation=0.3)
    network = mlp(64, hidden=(48,), embedding=16)
    found = train(network, Arrays(X), Y, LABELS, training=training, head=TRAINED[name], device="cpu")
    assert found.log[-1]["accuracy"] > 0.93
    assert [row["stage"] for row in found.log] == ["pre-training"] * 3 + ["joint"] * 5
    assert found.log[-1]["bound"] > found.log[3]["bound"]
    assert found.log[-1]["kl"] > 0.01
    held_out = np.setdiff1d(np.arange(len(X)), found.rows)
    log_p = found.log_probabilities(embed(found.network, Arrays(X), held_out, torch.device("cpu")))
    calibrated = measure(log_p, torch.as_tensor(Y[held_out]))
    assert calibrated["nll"] <= found.log[-1]["nll"] + 1e-6
    assert calibrated["ece"] < 0.06


class Interrupted(Exception):
    pass


class Interrupting(Arrays):
    """A source that fails after so many batches."""

    left = math.inf

    def batches(
        self, plan: Sequence[Batch], device: torch.device, part: Callable[[int], slice] = whole
    ) -> Iterator[Tensor]:
        for x in super().batches(plan, device, part):
            if self.left == 0:
                raise Interrupted
            self.left -= 1
            yield x


def run(name: str, folder: Path | None, after: float = math.inf, **how: Any) -> Trained[VariationalHead]:
    few = np.flatnonzero(Y < 3)[:120]
    source = Interrupting(X[few])
    source.left = after
    settings = {"epochs": 4, "cross_entropy_epochs": 2, "batch_size": 32, "learning_rate": 0.05, "best": "nll"}
    return train(
        convnet(1, width=4, depth=2, embedding=6),
        source,
        Y[few],
        LABELS[:3],
        training=Training(**{**settings, **how}),
        head=SETTINGS[name],
        seed=3,
        device="cpu",
        folder=folder,
    )


@every_head
def test_resumed_is_the_same_to_the_bit(tmp_path: Path, name: str) -> None:
    """3 batches are for checks, 4 for each of 2 epochs before the head, 1 for the head, 4 for each of 2 with it."""
    expected = run(name, None)
    for number, after in enumerate((9, 18)):
        folder = tmp_path / str(number)
        with pytest.raises(Interrupted):
            run(name, folder, after, checkpoint_steps=1)
        found = run(name, folder)
        for mine, theirs in ((found.head, expected.head), (found.network, expected.network)):
            assert mine is not None
            assert theirs is not None
            first, second = mine.state_dict(), theirs.state_dict()
            assert first.keys() == second.keys()
            assert [key for key in first if not torch.equal(first[key], second[key])] == []
        for mine, theirs in zip(found.log, expected.log, strict=True):
            assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}
        assert found.best_epoch == expected.best_epoch
    assert all(path.suffix in (".json", ".jsonl", ".safetensors", ".png", "") for path in tmp_path.rglob("*"))


def test_a_folder_belongs_to_one_head(tmp_path: Path) -> None:
    run("gpdnn", tmp_path, epochs=1, cross_entropy_epochs=1)
    for other in ("gpdnn diagonal", "sv-dkl"):
        with pytest.raises(ValueError, match=r"head\."):
            run(other, tmp_path, epochs=1, cross_entropy_epochs=1)


def test_points_that_are_not_numbers_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    regress = VariationalHead.regress

    def broken(head: VariationalHead, *arguments: Any) -> None:
        regress(head, *arguments)
        with torch.no_grad():
            next(head.parameters()).fill_(math.nan)

    monkeypatch.setattr(VariationalHead, "regress", broken)
    for name in ("gpdnn", "sv-dkl"):
        with pytest.raises(FloatingPointError, match="epoch 3: the loss, or a parameter, is not finite"):
            run(name, None)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: GPDNN(inducing=0), "inducing"),
        (lambda: GPDNN(epsilon=0.0), "epsilon"),
        (lambda: GPDNN(covariance="low rank"), "covariance"),  # pyright: ignore
        (lambda: GPDNN(start="zero"), "start"),  # pyright: ignore
        (lambda: SVDKL(grid_size=4), "grid"),
        (lambda: SVDKL(features=0), "features"),
        (lambda: SVDKL(samples=0), "samples"),
    ],
)
def test_bad_settings(make: Callable[[], Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        make()


def test_a_gpu_finds_the_same() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    for name in SETTINGS:
        head, embeddings, y = walked(name)
        twin = copy.deepcopy(head).cuda()
        torch.testing.assert_close(twin.loss(embeddings.cuda(), y.cuda()).cpu(), head.loss(embeddings, y))
        torch.testing.assert_close(twin.log_probabilities(embeddings.cuda()).cpu(), head.log_probabilities(embeddings))
