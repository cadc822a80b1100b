"""Each rival's own mathematics against an obvious slow version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.covariance import ledoit_wolf
from sklearn.linear_model import LogisticRegression, Ridge

from gptree.rivals import (
    KernelLogistic,
    LogisticClassifier,
    NearestClassMean,
    NearestNeighbours,
    RanPAC,
    ShrinkageLDA,
    SmoothedLogistic,
    SoftmaxRidge,
)
from gptree.rivals.frozen.kernel_logistic import spread_rows
from gptree.rivals.frozen.lda import left_out_discriminant, within_covariance
from gptree.rivals.frozen.logistic import _walk_down
from gptree.rivals.frozen.neighbours import left_out_neighbours
from gptree.rivals.frozen.ranpac import RidgePath
from gptree.rivals.frozen.ridge import left_out_ridge
from gptree.rivals.frozen.softmax_regression import FEW_POINTS, choose, descend, left_out_folds
from gptree.rivals.left_out import class_means, fit_temperature, mean_nll, scale_of, shot_folds


def blobs(shots: list[int], d: int, seed: int = 0, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes of the given sizes in shuffled order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(shots)), shots))
    return rng.standard_normal((len(shots), d))[y] + noise * rng.standard_normal((len(y), d)), y


SHOTS = [4, 5, 1, 3, 2]  # one class with a single example


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


class TestNearestClassMean:
    def test_cosine_scores(self):
        x, y = blobs(SHOTS, d=6)
        p = NearestClassMean(temperature=3.0).fit(x, y).predict_proba(x[:4])
        for i in range(4):
            scores = [3 * cosine(x[i], x[y == c].mean(axis=0)) for c in range(5)]
            np.testing.assert_allclose(p[i], softmax(scores))

    def test_euclidean_scores_do_not_depend_on_the_scale(self):
        x, y = blobs(SHOTS, d=6)
        p = NearestClassMean(metric="euclidean").fit(x, y).predict_proba(x)
        np.testing.assert_allclose(NearestClassMean(metric="euclidean").fit(100 * x, y).predict_proba(100 * x), p)
        model = NearestClassMean(metric="euclidean", temperature=2.0).fit(x, y)
        squared = [np.sum((x[0] - x[y == c].mean(axis=0)) ** 2) for c in range(5)]
        expected = softmax(-np.array(squared) / scale_of(x) ** 2)
        np.testing.assert_allclose(model.predict_proba(x[:1])[0], expected)

    def test_temperature_has_the_least_left_out_nll(self):
        x, y = blobs(SHOTS, d=6)
        folds = shot_folds(y, 30)
        rows = [i for i in range(len(y)) if folds[i] >= 0]
        scores = [[cosine(x[i], x[(y == c) & (folds != folds[i])].mean(axis=0)) for c in range(5)] for i in rows]

        def loss(tau: float) -> float:
            return mean_nll(log_softmax(tau * np.array(scores), axis=1), y[rows])

        tau = NearestClassMean().fit(x, y).temperature_
        assert loss(tau) < min(loss(tau * 1.05), loss(tau / 1.05))

    def test_bad_metric(self):
        with pytest.raises(ValueError, match="metric"):
            NearestClassMean(metric="manhattan").fit(*blobs(SHOTS, d=2))  # pyright: ignore[reportArgumentType]


class TestLogisticHead:
    @pytest.mark.parametrize("d", [3, 40])
    def test_weights_are_scikit_learns_on_all_dimensions(self, d):
        x, y = blobs(SHOTS, d)
        rival = LogisticClassifier(C=2.0).fit(x, y)
        scale = scale_of(x)
        plain = LogisticRegression(C=2.0, tol=1e-10, max_iter=10_000).fit(x / scale, y)
        np.testing.assert_allclose(rival.coef_, plain.coef_ / scale, atol=1e-4)
        np.testing.assert_allclose(rival.predict_proba(x), plain.predict_proba(x / scale), atol=1e-4)

    def test_two_classes(self):
        x, y = blobs([6, 4], d=3)
        plain = LogisticRegression(C=2.0, tol=1e-10).fit(x / scale_of(x), y)
        p = LogisticClassifier(C=2.0).fit(x, y).predict_proba(x)
        np.testing.assert_allclose(p, plain.predict_proba(x / scale_of(x)), atol=1e-4)

    def test_the_chosen_penalty_is_the_valley(self):
        x, y = blobs([6, 5, 1, 4], d=4, noise=0.7)
        rival = LogisticClassifier().fit(x, y)
        folds, z = shot_folds(y, 5), x / scale_of(x)

        def loss(C: float) -> float:
            log_p = np.empty((len(y), 4))
            for fold in range(folds.max() + 1):
                model = LogisticRegression(C=C, tol=1e-8, max_iter=5000).fit(z[folds != fold], y[folds != fold])
                log_p[folds == fold] = model.predict_log_proba(z[folds == fold])
            return mean_nll(log_p[folds >= 0], y[folds >= 0])

        assert min(rival.grid, key=loss) == rival.C_

    @given(st.integers(0, 12), st.integers(1, 12))
    def test_the_walk_finds_the_valley(self, place, length):
        valley = min(place, length - 1)
        assert _walk_down(lambda i: abs(i - valley), length) == valley


def smoothed_scores(x: np.ndarray, y: np.ndarray, C: float, smoothing: float, new: np.ndarray) -> np.ndarray:
    """Scores by scikit-learn on one weighted copy of every row for each class."""
    classes, copies = y.max() + 1, np.repeat(np.arange(len(x)), y.max() + 1)
    labels = np.tile(np.arange(classes), len(x))
    weights = (1 - smoothing) * (labels == y[copies]) + smoothing / classes
    model = LogisticRegression(C=C, tol=1e-10, max_iter=10_000)
    return model.fit(x[copies], labels, sample_weight=weights).decision_function(new)


class TestSmoothedLogistic:
    @pytest.mark.parametrize("d", [3, 40])
    @pytest.mark.parametrize("smoothing", [0.0, 0.2])
    def test_scores_are_scikit_learns_on_weighted_copies(self, d, smoothing):
        x, y = blobs(SHOTS, d)
        rival = SmoothedLogistic(grid=(2.0,), smoothings=(smoothing,)).fit(x, y)
        z, new = (x - x.mean(axis=0)) / scale_of(x), np.random.default_rng(1).standard_normal((6, d))
        scores = smoothed_scores(z, y, 2.0, smoothing, (new - x.mean(axis=0)) / scale_of(x))
        np.testing.assert_allclose(rival.predict_proba(new), softmax(rival.temperature_ * scores, axis=1), atol=1e-5)

    def test_settings_and_temperature_have_the_least_left_out_nll(self):
        x, y = blobs([6, 5, 1, 4], d=4, noise=0.7)
        rival = SmoothedLogistic(grid=(0.3, 3.0, 30.0), smoothings=(0.0, 0.2, 0.5)).fit(x, y)
        z, folds = (x - x.mean(axis=0)) / scale_of(x), shot_folds(y, 5)

        def left_out(C: float, smoothing: float) -> np.ndarray:
            scores = np.empty((len(y), 4))
            for fold in range(folds.max() + 1):
                rest, out = folds != fold, folds == fold
                scores[out] = smoothed_scores(z[rest], y[rest], C, smoothing, z[out])
            return scores[folds >= 0]

        pairs = [(C, smoothing) for C in rival.grid for smoothing in rival.smoothings]
        found = {pair: fit_temperature(left_out(*pair), y[folds >= 0]) for pair in pairs}
        best = min(found, key=lambda pair: found[pair][1])
        assert (rival.C_, rival.smoothing_) == best
        assert rival.temperature_ == pytest.approx(found[best][0], rel=1e-2)

    def test_one_example_a_class(self):
        x, y = blobs([1, 1, 1], d=4)
        rival = SmoothedLogistic().fit(x, y)
        assert (rival.C_, rival.smoothing_, rival.temperature_) == (1e4, 0.0, 1.0)

    @pytest.mark.parametrize("bad", [{"smoothings": (1.0,)}, {"smoothings": ()}, {"grid": (0.0,)}])
    def test_bad_settings(self, bad):
        with pytest.raises(ValueError, match=next(iter(bad))):
            SmoothedLogistic(**bad).fit(*blobs(SHOTS, d=2))

    def test_one_fold_where_there_are_many_rows(self):
        y = np.repeat(np.arange(3), FEW_POINTS // 3)
        assert len(left_out_folds(y)) == 5
        ((rest, out),) = left_out_folds(np.append(y, 0))
        assert not (rest & out).any()
        assert out.sum() == FEW_POINTS // 5 + 1
        assert left_out_folds(np.arange(4)) == []

    @given(st.integers(0, 5), st.integers(0, 5))
    def test_the_search_finds_the_valley_of_a_bowl(self, i, j):
        """Also of one whose valley runs across both axes, as that of two settings that do the same."""

        def bowl(a: float, b: float) -> float:
            return (a - i) ** 2 + 1.8 * (a - i) * (b - j) + (b - j) ** 2

        assert descend(bowl, (6, 6)) == (i, j)
        grid = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
        assert choose(lambda C, other: (7.0, bowl(C, other)), grid, grid) == (i, j, 7.0)


class TestKernelLogistic:
    def test_scores_are_those_of_the_functions_of_least_penalty(self):
        """All weights of one kernel function a row, by BFGS on the objective as it is written."""
        x, y = blobs([4, 5, 3], d=3)
        rival = KernelLogistic(grid=(5.0,), length_scales=(0.7,)).fit(x, y)

        def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            return np.exp([[-0.5 * np.sum((p - q) ** 2) / (0.7 * scale_of(x)) ** 2 for q in b] for p in a])

        K, n = kernel(x, x), len(x)

        def objective(flat: np.ndarray) -> float:
            A, b = flat[: 3 * n].reshape(n, 3), flat[3 * n :]
            nll = -log_softmax(K @ A + b, axis=1)[np.arange(n), y].sum()
            return 5.0 * nll + 0.5 * np.trace(A.T @ K @ A)

        flat = minimize(objective, np.zeros(3 * n + 3), options={"gtol": 1e-6}).x
        new = np.random.default_rng(1).standard_normal((6, 3))
        scores = kernel(new, x) @ flat[: 3 * n].reshape(n, 3) + flat[3 * n :]
        np.testing.assert_allclose(rival.predict_proba(new), softmax(rival.temperature_ * scores, axis=1), atol=1e-4)

    def test_settings_and_temperature_have_the_least_left_out_nll(self):
        x, y = blobs([6, 5, 1, 4], d=4, noise=0.7)
        rival = KernelLogistic(grid=(1.0, 10.0, 100.0), length_scales=(0.5, 1.0, 2.0)).fit(x, y)
        folds, scale = shot_folds(y, 5), scale_of(x)

        def left_out(C: float, length_scale: float) -> tuple[float, float]:
            scores = np.empty((len(y), 4))
            for fold in range(folds.max() + 1):
                rest, out = folds != fold, folds == fold
                part = KernelLogistic(grid=(C,), length_scales=(length_scale * scale / scale_of(x[rest]),))
                part.fit(x[rest], y[rest])
                scores[out] = part._logits(x[out]) / part.temperature_
            return fit_temperature(scores[folds >= 0], y[folds >= 0])

        found = {(C, length): left_out(C, length) for C in rival.grid for length in rival.length_scales}
        best = min(found, key=lambda pair: found[pair][1])
        assert (rival.C_, rival.length_scale_) == best
        assert rival.temperature_ == pytest.approx(found[best][0], rel=1e-2)

    def test_landmarks_in_place_of_all_rows(self):
        x, y = blobs([40, 40, 40], d=2)
        few, all_rows = (KernelLogistic(landmarks=m).fit(x, y) for m in (30, 120))
        assert len(few.landmarks_) == 30
        p, q = few.predict_proba(x), all_rows.predict_proba(x)
        assert np.abs(p - q).mean() < 0.02

    @given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 40), st.integers(0, 3))
    def test_landmarks_are_as_many_of_each_class_as_possible(self, counts, limit, seed):
        y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
        rows = spread_rows(y, limit, seed)
        assert len(set(rows)) == len(rows) == min(limit, len(y))
        kept = np.bincount(y[rows], minlength=len(counts))
        for c, count in enumerate(counts):
            assert kept[c] == count or kept[c] >= kept.max() - 1

    @pytest.mark.parametrize("bad", [{"length_scales": (0.0,)}, {"landmarks": 0}, {"grid": ()}])
    def test_bad_settings(self, bad):
        with pytest.raises(ValueError, match=next(iter(bad))):
            KernelLogistic(**bad).fit(*blobs(SHOTS, d=2))


class TestNearestNeighbours:
    def test_votes(self):
        x, y = blobs(SHOTS, d=6)
        new = np.random.default_rng(1).standard_normal((5, 6))
        rival = NearestNeighbours().fit(x, y)
        rival.k_, rival.sharpness_, rival.floor_ = 3, 2.0, 0.1
        rival.index_.set_params(n_neighbors=3)
        for point, p in zip(new, rival.predict_proba(new), strict=True):
            near = sorted(range(len(x)), key=lambda i: -cosine(point, x[i]))[:3]
            votes = np.zeros(5)
            for i in near:
                votes[y[i]] += np.exp(2.0 * cosine(point, x[i]))
            np.testing.assert_allclose(p, 0.9 * votes / votes.sum() + 0.1 / 5)

    def test_left_out_neighbours(self):
        x, y = blobs(SHOTS, d=6)
        folds = shot_folds(y, 30)
        distance, own = left_out_neighbours(x, y, folds, k=4)
        points = [i for fold in range(folds.max() + 1) for i in np.flatnonzero(folds == fold)]
        assert len(distance) == len(points) == len(y) - 1
        for i, d, is_own in zip(points, distance, own, strict=True):
            others = [j for j in range(len(y)) if folds[j] != folds[i]]
            near = sorted(others, key=lambda j: 1 - cosine(x[i], x[j]))[:4]
            np.testing.assert_allclose(d, [1 - cosine(x[i], x[j]) for j in near], atol=1e-12)
            np.testing.assert_array_equal(is_own, [y[j] == y[i] for j in near])


class TestRidgeHead:
    @pytest.mark.parametrize("d", [3, 40])
    def test_left_out_scores_equal_refits(self, d):
        x, y = blobs(SHOTS, d)
        targets, folds, alpha = np.eye(5)[y], shot_folds(y, 30), 0.7
        u, s, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
        scores = left_out_ridge(u, s**2 / (s**2 + alpha), targets, folds)
        for i in range(len(y)):
            if folds[i] == -1:
                assert np.isnan(scores[i]).all()
            else:
                rest = folds != folds[i]
                slow = Ridge(alpha=alpha, solver="cholesky").fit(x[rest], targets[rest]).predict(x[i : i + 1])[0]
                np.testing.assert_allclose(scores[i], slow, atol=1e-9)

    @pytest.mark.parametrize("d", [3, 40])
    def test_weights(self, d):
        x, y = blobs(SHOTS, d)
        rival = SoftmaxRidge().fit(x, y)
        plain = Ridge(alpha=rival.alpha_ * scale_of(x) ** 2).fit(x, np.eye(5)[y])
        np.testing.assert_allclose(rival.coef_, plain.coef_, atol=1e-9)
        np.testing.assert_allclose(rival.predict_proba(x), softmax(rival.temperature_ * plain.predict(x), axis=1))


class TestShrinkageLDA:
    def test_probabilities_are_those_of_tempered_gaussians(self):
        x, y = blobs(SHOTS, d=4)
        rival = ShrinkageLDA().fit(x, y)
        means = class_means(x, y)
        covariance, shrinkage = ledoit_wolf(x - means[y], assume_centered=True)
        assert rival.shrinkage_ == pytest.approx(shrinkage)
        for i in range(len(y)):
            scores = [-0.5 * (x[i] - m) @ np.linalg.inv(covariance) @ (x[i] - m) for m in means]
            np.testing.assert_allclose(
                rival.predict_proba(x[i : i + 1])[0], softmax(rival.temperature_ * np.array(scores))
            )

    @pytest.mark.parametrize("d", [3, 40])
    def test_left_out_scores_equal_their_definition(self, d):
        x, y = blobs(SHOTS, d)
        n, folds, shrinkage = len(y), shot_folds(y, 30), 0.3
        scores = left_out_discriminant(x, y, within_covariance(x, y), shrinkage)
        trace = sum(np.sum((x[i] - x[y == y[i]].mean(axis=0)) ** 2) for i in range(n)) / n
        for i in range(n):
            if folds[i] == -1:
                assert np.isnan(scores[i]).all()
                continue
            rest = np.arange(n) != i
            scatter = np.zeros((d, d))
            for c in range(5):
                r = x[rest & (y == c)] - x[rest & (y == c)].mean(axis=0)
                scatter += r.T @ r
            covariance = (1 - shrinkage) * scatter / n + shrinkage * trace / d * np.eye(d)
            for c in range(5):
                delta = x[i] - x[(y == c) & (folds != folds[i])].mean(axis=0)
                slow = -0.5 * delta @ np.linalg.solve(covariance, delta)
                np.testing.assert_allclose(scores[i, c], slow, rtol=1e-9)


class TestRanPAC:
    @pytest.mark.parametrize("features", [8, 50])
    def test_weights_on_either_side(self, features):
        rng = np.random.default_rng(0)
        h, targets = rng.standard_normal((20, features)), rng.standard_normal((20, 3))
        slow = np.linalg.solve(h.T @ h + 0.3 * np.eye(features), h.T @ targets)
        np.testing.assert_allclose(RidgePath(h, targets).weights(0.3), slow, atol=1e-10)

    def test_scores_are_ridge_on_random_features(self):
        x, y = blobs([6, 5, 7], d=4)
        rival = RanPAC(features=30, random_state=5).fit(x, y)
        h = np.maximum(x @ np.random.default_rng(5).standard_normal((4, 30)), 0)
        weights = np.linalg.solve(h.T @ h + rival.penalty_ * np.eye(30), h.T @ np.eye(3)[y])
        np.testing.assert_allclose(rival.predict_proba(x), softmax(rival.temperature_ * h @ weights, axis=1), rtol=1e-6)

    def test_the_penalty_has_the_least_error_on_a_fifth_of_each_class(self):
        x, y = blobs([10, 10, 10], d=4)
        rival = RanPAC(features=30).fit(x, y)
        h, out = np.maximum(x @ rival.projection_, 0), shot_folds(y, 5) == 0
        assert out.sum() == 6

        def error(penalty: float) -> float:
            a = h[~out]
            weights = np.linalg.solve(a.T @ a + penalty * np.eye(30), a.T @ np.eye(3)[y[~out]])
            return float(np.mean((h[out] @ weights - np.eye(3)[y[out]]) ** 2))

        assert error(rival.penalty_) <= min(error(10.0**power) for power in range(-5, 9)) + 1e-9

    def test_equal_points_do_not_break_the_factor(self):
        h = np.ones((20, 30), dtype=np.float32)
        assert np.isfinite(RidgePath(h, np.eye(20, dtype=np.float32)).weights(1e-8)).all()
