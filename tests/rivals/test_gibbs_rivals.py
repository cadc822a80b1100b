"""Stick-breaking, logistic-softmax and one-vs-each Gaussian processes against slow versions and known identities."""

from __future__ import annotations

import math

import gibbs_twins as slow
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy import integrate, stats

import gptree.rivals.gibbs.base as gibbs_base
import gptree.rivals.gibbs.logistic_softmax as lsm
import gptree.rivals.gibbs.one_vs_each as ove
import slow_twins
from gptree import Gibbs, GPTreeClassifier
from gptree.maths import FunctionSpace, pg_mean
from gptree.rivals import GIBBS_RIVALS, LogisticSoftmaxGP, OneVsEachGP, StickBreakingGP
from gptree.rivals.gibbs.base import run_chains
from gptree.rivals.gibbs.logistic_softmax import Counts, LogisticSoftmax, log_expected_share
from gptree.rivals.gibbs.one_vs_each import Elimination, OneVsEach, expected_log_sigmoid
from gptree.tree import Chain

FLOAT = torch.float64
every_rival = pytest.mark.parametrize("make", GIBBS_RIVALS.values(), ids=GIBBS_RIVALS)

#: Standard errors at which a z-test alarms: by chance once in 147,000.
ALARM = 4.5


def points(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    """Rows of unit length."""
    x = np.random.default_rng(seed).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def rbf(x: np.ndarray, other: np.ndarray | None = None, scale: float = 2.0) -> np.ndarray:
    other = x if other is None else other
    return scale * np.exp(-0.5 * ((x[:, None] - other) ** 2).sum(-1))


def spread(n: int, classes: int, seed: int = 0) -> np.ndarray:
    """Labels in no order, every class there, some oftener than others."""
    rng = np.random.default_rng(seed)
    return rng.permutation(np.concatenate([np.arange(classes), rng.integers(classes, size=n - classes)]))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values), dtype=FLOAT)


def normals(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=FLOAT)


# ------------------------------------------------------------------------------------------------ what they share


@every_rival
def test_logarithms_and_both_ways_to_predict(make):
    x, y = points(30, 4), spread(30, 3)
    rival = make().fit(x, y)
    new = points(11, 4, seed=1)
    found = {}
    for at in ("mean", "quadrature"):
        found[at] = rival.set_params(predict_at=at).predict_proba(new)
        np.testing.assert_allclose(rival.predict_log_proba(new), np.log(found[at]), rtol=1e-12)
        fitted_so = make().set_params(predict_at=at).fit(x, y)
        np.testing.assert_array_equal(fitted_so.predict_proba(new), found[at])
    assert np.abs(found["mean"] - found["quadrature"]).max() > 1e-3


@every_rival
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_quadrature_row_by_row_and_on_hard_features(make, kernel):
    """Equal rows in two classes, a row of zeros: probabilities, and the same for a row alone as among others."""
    x, y = points(20), spread(20, 3)
    x[np.flatnonzero(y == 1)[:3]], x[y == 2] = x[np.flatnonzero(y == 0)[:3]], 0.0
    rival = make().set_params(kernel=kernel).fit(x, y)
    p = rival.predict_proba(x)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(np.concatenate([rival.predict_proba(row[None]) for row in x]), p, rtol=1e-6)


@every_rival
def test_lengths_of_the_rows_do_not_matter(make):
    x, y, new = points(20), spread(20, 3), points(5, seed=1)
    longer = make().fit(x * np.linspace(0.1, 9, 20)[:, None], y).predict_proba(7 * new)
    np.testing.assert_allclose(longer, make().fit(x, y).predict_proba(new), rtol=1e-6)


@every_rival
def test_kernels_by_name_and_by_object(make):
    x, y, new = points(20), spread(20, 3), points(5, seed=1)
    kernel = ScaleKernel(RBFKernel())
    kernel.outputscale, kernel.base_kernel.lengthscale = 6.0, 0.7
    by_name = make().set_params(kernel="rbf", output_scale=6.0, length_scale=0.7).fit(x, y).predict_proba(new)
    np.testing.assert_allclose(make().set_params(kernel=kernel).fit(x, y).predict_proba(new), by_name, rtol=1e-5)
    assert np.abs(make().set_params(kernel="linear").fit(x, y).predict_proba(new) - by_name).max() > 1e-3


@every_rival
def test_seeds(make):
    x, y, new = points(20), spread(20, 3), points(5, seed=1)
    p, q, r = (make().set_params(random_state=seed).fit(x, y).predict_proba(new) for seed in (3, 3, 4))
    np.testing.assert_array_equal(p, q)
    assert np.abs(p - r).max() > 1e-4


@every_rival
@pytest.mark.parametrize("bad", [{"chains": 0}, {"steps": 0}, {"keep": 2}, {"predict_at": "mode"}, {"kernel": "cubic"}])
def test_bad_settings_are_refused(make, bad):
    with pytest.raises(ValueError, match=r"chain|step|keep|predict_at|kernel"):
        make().set_params(**bad).fit(points(6), [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("make", [LogisticSoftmaxGP, OneVsEachGP])
def test_draws_are_chains_times_kept_sweeps(make):
    rival = make(chains=3, steps=5, keep=2).fit(points(8), spread(8, 3))
    assert rival.omega_.shape == rival.weights_.shape == (6, 3, 8)


@pytest.mark.parametrize("make", [LogisticSoftmaxGP, OneVsEachGP])
def test_too_little_memory_is_told_before_any_work(make, monkeypatch):
    monkeypatch.setattr(gibbs_base, "gram", None)
    monkeypatch.setattr(gibbs_base, "linear_features", None)
    with pytest.raises(MemoryError, match=r"need about 0\.0\d+ GiB for 4 classes and 400 points, but .* 0\.00098 GiB"):
        make(memory_budget=2**20).fit(points(400), spread(400, 4))


def test_the_memory_that_is_asked_for():
    """The sizes of the paper's experiment, thirty points a class."""
    assert 8 * LogisticSoftmaxGP(chains=1)._numbers(1800, 60) < 0.3e9
    assert 8 * OneVsEachGP(chains=20)._numbers(300, 10) < 0.1e9
    assert 8 * OneVsEachGP(chains=1)._numbers(1800, 60) < 2**31
    with pytest.raises(MemoryError, match="about 13 GiB"):
        OneVsEachGP()._require_memory(3000, 170)


# --------------------------------------------------------------------------------------------- against integrals


N, C = 3, 3
X, Y = points(N, 2), np.array([2, 0, 2])


def z_scores(model, likelihood, mean_and_variance) -> np.ndarray:
    """Of E[f] and E[f²] after 40 sweeps of 3,000 chains, against weighted draws of the prior; 18 tests.

    Every chain gives E[f | auxiliary variables] and E[f² | auxiliary variables] of its last sweep. What 40 sweeps leave
    of the start is far below the standard errors.
    """
    state = run_chains(model, Gibbs(chains=3000, steps=40), generator())[0]
    mean, variance = mean_and_variance(state)
    exact = slow.posterior_moments(rbf(X), likelihood, Y, C)
    scores = []
    for draws, (expected, error) in zip((mean, variance + mean**2), exact, strict=True):
        own_error = draws.std(axis=0) / math.sqrt(len(draws))
        scores.append((draws.mean(axis=0) - expected) / np.hypot(own_error, error))
    return np.abs(scores)


def one_hot(y: np.ndarray, classes: int) -> torch.Tensor:
    return tensor(np.eye(classes)[:, y])


def softmax_model(x: np.ndarray, y: np.ndarray, classes: int, kind=LogisticSoftmax) -> LogisticSoftmax:
    return kind(FunctionSpace(tensor(rbf(x))[None]), one_hot(y, classes), 2**20)


def softmax_moments(state: Counts) -> tuple[np.ndarray, np.ndarray]:
    kappa = 0.5 * (np.eye(C)[:, Y] - state.n.numpy())
    sigma = np.linalg.inv(np.linalg.inv(rbf(X)) + np.eye(N) * state.omega.numpy()[..., None])
    return np.einsum("scnm,scm->scn", sigma, kappa), np.diagonal(sigma, axis1=2, axis2=3)


def each_model(x: np.ndarray, y: np.ndarray, classes: int, kind=OneVsEach, scale: float = 2.0) -> OneVsEach:
    return kind(FunctionSpace(tensor(rbf(x, scale=scale))[None]), torch.as_tensor(y), classes)


def each_moments(omega: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    found = [slow.one_vs_each_conditional(rbf(X), Y, C, o) for o in omega.numpy()]
    means, covariances = zip(*found, strict=True)
    return np.stack(means).reshape(-1, C, N), np.diagonal(covariances, axis1=1, axis2=2).reshape(-1, C, N)


class CountsOfTheWrongSide(LogisticSoftmax):
    """n ~ Poisson(λ σ(f))."""

    def _counts(self, rate, f, random):
        return Counts(super()._counts(rate, -f, random).n, super()._counts(rate, f, random).omega)


class WrongCorrection(OneVsEach):
    """Matheron's rule with the correction's sign flipped."""

    def draw_latent(self, omega, z, epsilon):
        prior = gibbs_base.prior_draw(self.space, z)
        return 2 * prior - super().draw_latent(omega, z, epsilon)


class TestPosteriorMoments:
    """18 tests each: a false alarm once in 8,000 runs."""

    def test_logistic_softmax(self):
        assert z_scores(softmax_model(X, Y, C), slow.logistic_softmax, softmax_moments).max() < ALARM

    def test_one_vs_each(self):
        assert z_scores(each_model(X, Y, C), slow.one_vs_each, each_moments).max() < ALARM

    def test_they_can_fail(self):
        wrong = softmax_model(X, Y, C, CountsOfTheWrongSide), each_model(X, Y, C, WrongCorrection)
        assert z_scores(wrong[0], slow.logistic_softmax, softmax_moments).max() > 2 * ALARM
        assert z_scores(wrong[1], slow.one_vs_each, each_moments).max() > 2 * ALARM
        assert z_scores(softmax_model(X, Y, C), slow.one_vs_each, softmax_moments).max() > 2 * ALARM


# ------------------------------------------------------------------------------------------------ stick-breaking


class TestStickBreaking:
    classes, n = 4, 14
    x, y = points(n, 3), spread(n, classes)
    new = points(5, 3, seed=1)

    def rival(self, **settings) -> StickBreakingGP:
        return StickBreakingGP("rbf", 2.0, **settings).fit(self.x, self.y)

    def break_problem(self, k: int):
        """Rows that see break k, in ascending order, and their κ."""
        rows = np.flatnonzero(self.y >= k)
        return rows, (self.y[rows] == k) - 0.5

    def left(self, k: int, omega: np.ndarray) -> np.ndarray:
        """p(break k) at the new points, (draws, T), from ω (draws, n)."""
        rows, kappa = self.break_problem(k)
        K, cross = rbf(self.x[rows]), rbf(self.x[rows], self.new)
        moments = [slow.binary_predictive(K, cross, np.full(5, 2.0), o, kappa) for o in omega]
        return np.stack([slow.expected_sigmoid(*m) for m in moments])

    def test_given_omega_the_probabilities_are_those_of_stick_breaking(self):
        rival = self.rival(chains=3, steps=4, keep=2)
        left = np.empty((self.classes - 1, 5))
        for posterior in rival.model_.model_.predictor.posteriors:
            for v, k in enumerate(posterior.nodes.tolist()):
                rows, _ = self.break_problem(k)
                given = rival.model_.state_.origins[posterior.rows[v, : len(rows)], 1]  # rows have their own order
                order = np.argsort(given)
                np.testing.assert_array_equal(given[order], rows)
                left[k] = self.left(k, posterior.omega[:, v, : len(rows)].numpy()[:, order]).mean(axis=0)
        np.testing.assert_allclose(rival.predict_proba(self.new), slow.break_stick(left), rtol=1e-5)

    def test_probabilities_equal_those_of_a_slow_sampler(self):
        """1,000 chains against 1,000 of a plain sampler, two sweeps; 20 tests, a false alarm once in 7,000 runs.

        A class's probability is a product of means of breaks, each with the variance of its draws over 1,000.
        """
        chains, rng = 1000, np.random.default_rng(0)
        p = self.rival(chains=chains, steps=2).predict_proba(self.new)
        means, variances = [], []
        for k in range(self.classes - 1):
            rows, kappa = self.break_problem(k)
            K = rbf(self.x[rows])
            draws = self.left(k, np.stack([slow.sample_break(K, kappa, 2, rng) for _ in range(chains)]))
            means.append(draws.mean(axis=0))
            variances.append(draws.var(axis=0) / chains)
        expected = slow.break_stick(np.array(means))
        for c in range(self.classes):
            terms = [variances[j] / (1 - means[j]) ** 2 for j in range(c)]
            terms += [variances[c] / means[c] ** 2] if c < self.classes - 1 else []
            error = expected[:, c] * np.sqrt(2 * sum(terms))  # both sides are sampled
            assert np.abs((p[:, c] - expected[:, c]) / error).max() < ALARM

    def test_it_is_the_papers_tree_on_a_chain_in_class_order(self):
        tree = GPTreeClassifier.paper("rbf", 2.0, inference=Gibbs(5, 3, 2), tree=Chain(), random_state=7)
        rival = self.rival(chains=5, steps=3, keep=2, random_state=7)
        names = np.array(["a", "b", "c", "d"])
        nested = rival.model_.tree_.to_nested(names.tolist())
        assert nested == ["a", ["b", ["c", "d"]]]
        seed = rival.model_.random_state
        expected = tree.set_params(random_state=seed).fit(self.x, self.y).predict_proba(self.new)
        np.testing.assert_allclose(rival.predict_proba(self.new), expected, rtol=1e-12)


# ---------------------------------------------------------------------------------------------- logistic-softmax


class TestLogisticSoftmax:
    f = np.array([1.3, -0.4, 0.6, -2.1])

    @pytest.mark.parametrize("y", range(4))
    def test_the_augmented_density_sums_and_integrates_to_the_likelihood(self, y):
        """∫ dλ Π_c Σ_n Poisson(n | λ) 2^−b exp(½(y − n) f) ∫ exp(−½ ω f²) PG(ω | b, 0) dω, the last one cosh^−b(f/2).

        The sums run to n = 200, the integral to λ = 60, beyond which exp(−λ s) is below 1e-30.
        """
        n = np.arange(200)

        def integrand(rate: float) -> float:
            out = 1.0
            for c, f in enumerate(self.f):
                b = n + (c == y)
                laplace = np.cosh(f / 2) ** -b
                out *= np.sum(stats.poisson.pmf(n, rate) * 0.5**b * np.exp(0.5 * ((c == y) - n) * f) * laplace)
            return out

        expected = slow.logistic_softmax(self.f[None, :, None], np.array([y]))[0]
        assert integrate.quad(integrand, 0, 60, epsabs=1e-12)[0] == pytest.approx(expected, rel=1e-9)

    def test_auxiliary_variables_given_the_latent_values(self):
        """Moments known in closed form over 200,000 draws; 17 tests, a false alarm once in 8,000 runs.

        λ ~ Exponential(s) and n_c ~ Poisson(λ σ(−f_c)): E n = p, E n² = p + 2p² with p = σ(−f_c)/s, and with
        probability s/C all are 0. E ω = E(y + n) times the mean of PG(1, f).
        """
        draws = 200_000
        model = LogisticSoftmax(FunctionSpace(torch.ones(1, 1, 1, dtype=FLOAT)), one_hot(np.array([2]), 4), 2**20)
        f = tensor(self.f)[None, :, None].expand(draws, -1, -1)
        n, omega = (part[:, :, 0].numpy() for part in model.draw_auxiliaries(f, generator()))
        s = slow.sigmoid(self.f).sum()
        p = slow.sigmoid(-self.f) / s
        checks = [(n, p), (n**2, p + 2 * p**2), ((n == 0).all(axis=1)[:, None], np.array([s / 4]))]
        checks += [(omega, ((np.arange(4) == 2) + p) * pg_mean(tensor(self.f)).numpy())]
        # the conditional that needs f no more: λ | n ~ Gamma(1 + Σ n, rate C), after which n | λ is as before
        rng = np.random.default_rng(0)
        rate = rng.gamma(1 + n.sum(axis=1)) / 4
        checks += [(rng.poisson(rate[:, None] * slow.sigmoid(-self.f)), p)]
        for values, expected in checks:
            error = values.std(axis=0) / math.sqrt(draws)
            assert np.abs((values.mean(axis=0) - expected) / error).max() < ALARM

    def test_latent_values_given_auxiliary_variables(self):
        """Mean and covariance of the draw, which is affine in its noise, against explicit inverses."""
        n, classes = 5, 3
        model = softmax_model(points(n), spread(n, classes), classes)
        given = model.draw_auxiliaries(normals(1, classes, n), generator(1))
        zero = torch.zeros(1, classes, n, dtype=FLOAT)
        mean = model.draw_latent(given, zero, zero)
        torch.testing.assert_close(model.weights(given)[0] @ model.space.K[0], mean[0])
        for c in range(classes):
            kappa = 0.5 * (model.labels[c] - given.n[0, c])
            expected, covariance = slow_twins.conditional(model.space.K[0], given.omega[0, c], kappa, zero[0, 0])
            torch.testing.assert_close(mean[0, c], expected)
            columns = []
            for k in range(2 * n):
                z, epsilon = torch.zeros(2, 1, classes, n, dtype=FLOAT)
                (z if k < n else epsilon)[0, c, k % n] = 1
                columns.append((model.draw_latent(given, z, epsilon) - mean)[0])
            moved = torch.stack(columns, -1)
            torch.testing.assert_close(moved[c] @ moved[c].T, covariance)
            assert moved[[k for k in range(classes) if k != c]].abs().max() == 0

    @pytest.mark.parametrize("steps", [1, 4])
    def test_iteration_and_pieces_change_nothing(self, steps, monkeypatch):
        x, y, new = points(40), spread(40, 5), points(9, seed=1)
        rival = LogisticSoftmaxGP("rbf", chains=3, steps=steps).fit(x, y)
        small = LogisticSoftmaxGP("rbf", chains=3, steps=steps, memory_budget=2**20)
        np.testing.assert_allclose(small.fit(x, y).weights_, rival.weights_, rtol=1e-9)
        monkeypatch.setattr(lsm, "ITERATIVE_ORDER", 1)
        iterated = LogisticSoftmaxGP("rbf", chains=3, steps=steps).fit(x, y)
        np.testing.assert_allclose(iterated.weights_, rival.weights_, rtol=1e-7, atol=1e-9)
        monkeypatch.setattr(small, "memory_budget", 64 * (40 + 15) * 2)  # two new points at a time
        np.testing.assert_allclose(small.predict_proba(new), rival.predict_proba(new), rtol=1e-7)

    @pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
    def test_probabilities_given_the_auxiliary_variables(self, predict_at):
        """Two classes: latent moments by explicit inverses, their expectation on a grid of both latent values."""
        x, y, new = points(9), spread(9, 2), points(4, seed=1)
        rival = LogisticSoftmaxGP("rbf", 2.0, chains=3, steps=3, predict_at=predict_at).fit(x, y)
        state = run_chains(rival.model_, Gibbs(3, 3), generator(rival._seed()))[0]
        torch.testing.assert_close(state.omega, rival.omega_, rtol=0, atol=0)
        z = np.linspace(-8, 8, 201)
        w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
        total = np.zeros(4)
        for s in range(3):
            kappa = 0.5 * (np.eye(2)[:, y] - state.n[s].numpy())
            moments = [
                slow.binary_predictive(rbf(x), rbf(x, new), np.full(4, 2.0), state.omega[s, c].numpy(), kappa[c])
                for c in range(2)
            ]
            for t in range(4):
                (m0, v0), (m1, v1) = ((mean[t], variance[t] * (predict_at != "mean")) for mean, variance in moments)
                first, second = slow.sigmoid(m0 + np.sqrt(v0) * z)[:, None], slow.sigmoid(m1 + np.sqrt(v1) * z)
                total[t] += w @ (first / (first + second)) @ w / 3
        np.testing.assert_allclose(rival.predict_proba(new)[:, 0], total, rtol=1e-6)

    def test_expected_shares_of_many_classes(self):
        """Against 400,000 draws; 24 tests, a false alarm once in 6,000 runs."""
        classes, rng = 6, np.random.default_rng(0)
        mean, variance = 3 * rng.standard_normal((classes, 4)) - 1, rng.uniform(0.1, 9, (classes, 4))
        p = log_expected_share(tensor(mean)[None], tensor(variance)[None])[0].exp().numpy()
        np.testing.assert_allclose(p.sum(axis=0), 1, rtol=1e-12)
        for t in range(4):
            s = slow.sigmoid(mean[:, t] + np.sqrt(variance[:, t]) * rng.standard_normal((400_000, classes)))
            share = s / s.sum(axis=1, keepdims=True)
            error = share.std(axis=0) / math.sqrt(len(share))
            assert np.abs((p[:, t] - share.mean(axis=0)) / error).max() < ALARM

    def test_expected_shares_without_variance_and_far_out(self):
        mean = tensor([[0.3, -40.0, 30.0], [-1.0, -38.0, 25.0], [2.0, -60.0, -80.0]])[None]
        expected = torch.nn.functional.logsigmoid(mean).log_softmax(1)
        torch.testing.assert_close(log_expected_share(mean, torch.zeros_like(mean)), expected, rtol=1e-6, atol=1e-7)
        assert log_expected_share(mean, 16 + torch.zeros_like(mean)).isfinite().all()

    def test_counts_of_any_size(self):
        """Where all σ(f_c) are small the counts are huge; b·PG(1, c) by its first two moments, 1 in 37,000 each."""
        f, b = tensor([0.0, -3.0, -12.0]).repeat(20_000, 1), tensor([2e4, 3e5, 1e9])
        omega = lsm._sample_pg(f, b.expand_as(f), generator())
        one = torch.stack([pg_mean(f[0]), lsm.pg_variance(f[0])])
        scores = (omega.mean(0) - b * one[0]) / (b * one[1] / len(f)).sqrt()
        assert scores.abs().max() < ALARM
        ratio = omega.var(0) / (b * one[1]) - 1
        assert (ratio.abs() / math.sqrt(2 / len(f))).max() < ALARM
        model = softmax_model(X, Y, C)
        given = model.draw_auxiliaries(torch.full((2, C, N), -50.0, dtype=FLOAT), generator())
        assert given.n.max() > 1e10
        assert model.draw_latent(given, normals(2, C, N), normals(2, C, N)).isfinite().all()


# --------------------------------------------------------------------------------------------------- one-vs-each


CASES = {
    "kernel matrix of full rank": points(9),
    "equal rows": np.repeat(points(5), 2, axis=0)[:9],
}


class TestOneVsEach:
    classes = 4
    y = np.array([1, 3, 0, 1, 2, 1, 3, 0, 1])

    def model(self, x: np.ndarray, scale: float = 2.0) -> tuple[OneVsEach, torch.Tensor]:
        model = each_model(x, self.y, self.classes, scale=scale)
        return model, model.draw_auxiliaries(normals(2, self.classes, 9), generator(1))

    def test_differences_and_their_adjoint(self):
        model, omega = self.model(points(9))
        A, places = slow.difference_matrix(self.y, self.classes)
        assert ((omega > 0).sum((1, 2)) == len(places)).all()
        f, v = normals(self.classes, 9), normals(self.classes, 9) * model.others
        for (c, n), row in zip(places, A, strict=True):
            assert model.differences(f)[c, n] == pytest.approx(row @ f.flatten().numpy())
        flat = np.array([v[place] for place in places])
        np.testing.assert_allclose(model.adjoint(v).flatten(), A.T @ flat, atol=1e-12)

    @pytest.mark.parametrize("x", CASES.values(), ids=CASES)
    def test_latent_values_given_omega(self, x):
        """Mean and covariance of the draw, which is affine in its noise, against the dense system."""
        model, omega = self.model(x)
        size = self.classes * 9
        zero = torch.zeros(size, self.classes, 9, dtype=FLOAT)
        basis = torch.eye(size, dtype=FLOAT).view(size, self.classes, 9)
        for o in omega:
            mean, covariance = slow.one_vs_each_conditional(rbf(x), self.y, self.classes, o.numpy())
            centre = model.draw_latent(o[None], zero[:1], zero[:1])
            np.testing.assert_allclose(centre.flatten(), mean, atol=1e-8)
            np.testing.assert_allclose((model.weights(o[None]) @ model.K).flatten(), mean, atol=1e-8)
            each = o.expand(size, -1, -1)
            moved = torch.cat([model.draw_latent(each, basis, zero), model.draw_latent(each, zero, basis)]) - centre
            found = moved.flatten(1).T @ moved.flatten(1)
            np.testing.assert_allclose(found, covariance, atol=1e-7)

    @pytest.mark.parametrize("x", CASES.values(), ids=CASES)
    @pytest.mark.parametrize("scale", [2.0, 200.0])
    def test_elimination(self, x, scale):
        model, omega = self.model(x, scale)
        new = points(3, seed=1)
        right = normals(self.classes, 9) * model.others
        for o in omega:
            factors = Elimination.of(model, o)
            solved = factors.solve(right)
            image = solved + o.sqrt() * model.covariance(o.sqrt() * solved)
            torch.testing.assert_close(image, right, rtol=1e-6, atol=1e-7)
            found = factors.difference_variances(tensor(rbf(x, new, scale)), torch.full((3,), scale, dtype=FLOAT))
            for t in range(3):
                cross = rbf(x, new[t : t + 1], scale)[:, 0]
                K = rbf(x, scale=scale)
                _, V = slow.one_vs_each_conditional(K, self.y, self.classes, o.numpy(), cross, scale)
                expected = np.diag(V)[:, None] + np.diag(V) - 2 * V
                np.testing.assert_allclose(found[t], expected, rtol=1e-6, atol=1e-6 * scale)

    def test_elimination_takes_over_where_iteration_fails(self, monkeypatch):
        rival = OneVsEachGP("rbf", chains=2).fit(CASES["equal rows"], self.y)
        monkeypatch.setattr(ove, "ROUNDS", 0)
        eliminated = OneVsEachGP("rbf", chains=2).fit(CASES["equal rows"], self.y)
        np.testing.assert_allclose(eliminated.weights_, rival.weights_, atol=1e-6)

    def test_two_classes_are_one_binary_process_of_twice_the_variance(self):
        y = spread(9, 2)
        model = each_model(points(9), y, 2)
        omega = model.draw_auxiliaries(normals(1, 2, 9), generator(1))
        f = (model.weights(omega) @ model.K)[0]
        kappa = tensor((y == 0) - 0.5)
        expected, covariance = slow_twins.conditional(2 * model.K, omega[0].sum(0), kappa, torch.zeros(9, dtype=FLOAT))
        torch.testing.assert_close(f[0] - f[1], expected)
        found = Elimination.of(model, omega[0]).difference_variances(model.K, model.K.diagonal())
        torch.testing.assert_close(found[:, 0, 1], covariance.diagonal())

    @pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
    def test_probabilities_given_omega(self, predict_at, monkeypatch):
        """By both averages over the draws: of probabilities, and of scores."""
        x, new = points(9), points(5, seed=1)
        rival = OneVsEachGP("rbf", 2.0, chains=3, steps=3, predict_at=predict_at).fit(x, self.y)
        z = np.linspace(-8, 8, 201)
        w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
        expected, averaged = np.zeros((2, 5, self.classes))
        for omega in rival.omega_.numpy():
            for t in range(5):
                cross = rbf(x, new[t : t + 1])[:, 0]
                mean, V = slow.one_vs_each_conditional(rbf(x), self.y, self.classes, omega, cross, 2.0)
                scores = np.zeros(self.classes)
                for k in range(self.classes):
                    for c in range(self.classes):
                        if c != k:
                            deviation = np.sqrt(V[k, k] + V[c, c] - 2 * V[k, c]) * (predict_at != "mean")
                            scores[k] += w @ np.log(slow.sigmoid(mean[k] - mean[c] + deviation * z))
                expected[t] += np.exp(scores) / np.exp(scores).sum() / 3
                averaged[t] += scores / 3
        np.testing.assert_allclose(rival.predict_proba(new), expected, rtol=1e-5)
        monkeypatch.setattr(ove, "HELD", 2 * self.classes * 13)  # two points at a time
        np.testing.assert_allclose(rival.predict_proba(new), expected, rtol=1e-5)
        geometric = np.exp(averaged) / np.exp(averaged).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(rival.set_params(averaging="scores").predict_proba(new), geometric, rtol=1e-5)
        assert np.abs(geometric - expected).max() > 1e-3

    def test_a_bad_average_is_refused(self):
        rival = OneVsEachGP(averaging="votes").fit  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match='averaging must be "probabilities" or "scores"'):
            rival(points(9), self.y)

    def test_expected_log_sigmoid(self):
        mean, variance = tensor([0.0, 2.0, -9.0, 40.0]), tensor([0.0, 4.0, 25.0, 9.0])
        z = np.linspace(-9, 9, 2001)
        w = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
        f = mean.numpy()[:, None] + variance.sqrt().numpy()[:, None] * z
        np.testing.assert_allclose(expected_log_sigmoid(mean, variance), -np.logaddexp(0, -f) @ w, atol=2e-3)
