"""Each incremental rival's own mathematics against an obvious slow version."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression, Ridge

from gptree.rivals import LogisticMemory, SessionClassMean, SessionRanPAC, ShrunkMeanLDA, StreamingLDA, Teen
from gptree.rivals.incremental.rehearsal import rehearsals
from gptree.rivals.left_out import fit_temperature, mean_nll, scale_of, shot_folds

D = 5
SHOTS = [9, 8, 10, 7, 6, 8]  # of the base classes 0 … 5
SESSIONS = [{6: 3, 7: 1}, {8: 4}]  # shots of the later classes


def blobs(shots: dict[int, int], seed: int, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes in shuffled order; the seed of a class's centre is its number."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(list(shots), list(shots.values())))
    centres = {c: np.random.default_rng([7, c]).standard_normal(D) for c in shots}
    return np.array([centres[c] for c in y]) + noise * rng.standard_normal((len(y), D)), y


def base() -> tuple[np.ndarray, np.ndarray]:
    return blobs(dict(enumerate(SHOTS)), seed=0)


def sessions() -> list[tuple[np.ndarray, np.ndarray]]:
    return [blobs(shots, seed=1 + number) for number, shots in enumerate(SESSIONS)]


def everything() -> tuple[np.ndarray, np.ndarray]:
    parts = [base(), *sessions()]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def taught(rival):
    rival.fit(*base())
    for session in sessions():
        rival.add_classes(*session)
    return rival


NEW = np.random.default_rng(9).standard_normal((7, D))


def gaussian_probabilities(means: list[np.ndarray], covariance: np.ndarray, tau: float) -> np.ndarray:
    """By the plain formula, for the rows of NEW."""
    precision = np.linalg.inv(covariance)
    scores = [[-0.5 * (x - m) @ precision @ (x - m) for m in means] for x in NEW]
    return softmax(tau * np.array(scores), axis=1)


def pooled(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    scatter = np.zeros((D, D))
    for point, label in zip(x, y, strict=True):
        r = point - x[y == label].mean(axis=0)
        scatter += np.outer(r, r)
    return scatter / len(x)


def shrunken(covariance: np.ndarray, shrinkage: float) -> np.ndarray:
    return (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / D * np.eye(D)


class TestSessionClassMean:
    @pytest.mark.parametrize("metric", ["cosine", "euclidean"])
    def test_only_the_temperature_and_the_unit_are_the_bases(self, metric):
        rival = taught(SessionClassMean(metric=metric))
        x, y = everything()
        at_once = SessionClassMean(metric=metric, temperature=rival.temperature_).fit(x, y)
        at_once.scale_ = scale_of(base()[0])
        np.testing.assert_allclose(rival.predict_proba(NEW), at_once.predict_proba(NEW))
        assert rival.temperature_ == SessionClassMean(metric=metric).fit(*base()).temperature_


class TestStreamingLDA:
    def test_covariance_is_the_pooled_one_of_all_examples(self):
        rival = taught(StreamingLDA())
        np.testing.assert_allclose(rival.statistics_.covariance, pooled(*everything()), atol=1e-12)

    def test_covariance_equals_the_one_by_one_update_in_any_order(self):
        x, y = everything()
        order = np.random.default_rng(3).permutation(len(x))
        means, counts, scatter = np.zeros((9, D)), np.zeros(9), np.zeros((D, D))
        for z, c in zip(x[order], y[order], strict=True):
            scatter += counts[c] / (counts[c] + 1) * np.outer(z - means[c], z - means[c])
            means[c] += (z - means[c]) / (counts[c] + 1)
            counts[c] += 1
        rival = taught(StreamingLDA())
        np.testing.assert_allclose(rival.statistics_.covariance, scatter / len(x), atol=1e-12)
        np.testing.assert_allclose(rival.statistics_.means, means, atol=1e-12)

    def test_probabilities_are_those_of_tempered_gaussians(self):
        rival = taught(StreamingLDA())
        x, y = everything()
        means = [x[y == c].mean(axis=0) for c in range(9)]
        expected = gaussian_probabilities(means, shrunken(pooled(x, y), rival.setting_), rival.temperature_)
        np.testing.assert_allclose(rival.predict_proba(NEW), expected)

    def test_the_papers_shrinkage(self):
        assert StreamingLDA(shrinkages=(1e-4,)).fit(*base()).setting_ == 1e-4


class TestShrunkMeanLDA:
    def means_by_loops(self, alpha: float, sharpness: float) -> list[np.ndarray]:
        x, y = everything()
        means = [x[y == c].mean(axis=0) for c in range(9)]
        drawn = means[:6]
        for c in range(6, 9):
            weights = []
            for b in range(6):
                cosine = means[c] @ means[b] / np.sqrt((means[c] @ means[c]) * (means[b] @ means[b]))
                weights.append(np.exp(sharpness * cosine))
            lean = sum(w * means[b] for b, w in enumerate(weights)) / sum(weights)
            drawn.append(alpha * means[c] + (1 - alpha) * lean)
        return drawn

    @pytest.mark.parametrize(("alpha", "sharpness"), [(0.5, 16.0), (0.8, 3.0)])
    def test_probabilities(self, alpha, sharpness):
        rival = taught(ShrunkMeanLDA(alpha=alpha, sharpness=sharpness))
        covariance = shrunken(pooled(*base()), rival.setting_)
        expected = gaussian_probabilities(self.means_by_loops(alpha, sharpness), covariance, rival.temperature_)
        np.testing.assert_allclose(rival.predict_proba(NEW), expected)

    def test_on_random_features_it_is_the_same_after_the_map(self):
        rival = taught(ShrunkMeanLDA(random_features=40, shrinkages=(0.2,), random_state=3))
        projection = np.random.default_rng(3).standard_normal((D, 40))

        def lift(x: np.ndarray) -> np.ndarray:
            h = np.maximum(x @ projection, 0)
            return h / np.linalg.norm(h, axis=1, keepdims=True)

        plain = ShrunkMeanLDA(shrinkages=(0.2,)).fit(lift(base()[0]), base()[1])
        for x, y in sessions():
            plain.add_classes(lift(x), y)
        np.testing.assert_allclose(rival.predict_proba(NEW), plain.predict_proba(lift(NEW)))

    def test_bad_alpha(self):
        with pytest.raises(ValueError, match="alpha"):
            ShrunkMeanLDA(alpha=1.5).fit(*base())


class TestTeen:
    @pytest.mark.parametrize(("alpha", "sharpness"), [(0.5, 16.0), (0.1, 16.0), (0.7, 3.0)])
    def test_probabilities_by_loops(self, alpha, sharpness):
        rival = taught(Teen(alpha=alpha, sharpness=sharpness))
        x, y = everything()
        prototypes = [m / np.linalg.norm(m) for m in (x[y == c].mean(axis=0) for c in range(9))]
        base = prototypes[:6]
        for c in range(6, 9):
            weights = [np.exp(sharpness * prototypes[c] @ b) for b in base]
            lean = sum(w * b for w, b in zip(weights, base, strict=True))
            prototypes[c] = (1 - alpha) * prototypes[c] + alpha * lean / np.linalg.norm(lean)
        scores = [[z @ p / np.linalg.norm(z) / np.linalg.norm(p) for p in prototypes] for z in NEW]
        np.testing.assert_allclose(rival.predict_proba(NEW), softmax(rival.temperature_ * np.array(scores), axis=1))

    def test_without_calibration_it_is_the_nearest_class_mean(self):
        rival, plain = taught(Teen(alpha=0.0)), taught(SessionClassMean())
        np.testing.assert_allclose(rival.predict_proba(NEW), plain.predict_proba(NEW))

    def test_base_prototypes_and_those_of_earlier_sessions_stay(self):
        """Novel classes are calibrated by the base alone, whatever came between."""
        rival = Teen().fit(*base())
        for session in sessions():
            before = rival.prototypes_
            rival.add_classes(*session)
            np.testing.assert_array_equal(rival.prototypes_[: len(before)], before)
        alone = Teen().fit(*base()).add_classes(*sessions()[1])
        np.testing.assert_array_equal(rival.prototypes_[8], alone.prototypes_[6])

    def test_temperature(self):
        assert Teen(temperature=32.0).fit(*base()).temperature_ == 32.0
        assert Teen().fit(*base()).temperature_ == SessionClassMean().fit(*base()).temperature_

    def test_bad_alpha(self):
        with pytest.raises(ValueError, match="alpha"):
            Teen(alpha=-0.1).fit(*base())


class TestSessionRanPAC:
    def lift(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ np.random.default_rng(2).standard_normal((D, 30)), 0)

    @pytest.mark.parametrize("balanced", [False, True])
    def test_sessions_equal_all_at_once(self, balanced):
        """Weighted least squares on all examples of all sessions."""
        rival = taught(SessionRanPAC(balanced=balanced, features=30, random_state=2))
        x, y = everything()
        weights = np.array([1 / np.sum(y == c) if balanced else 1.0 for c in y])
        slow = Ridge(alpha=rival.setting_, fit_intercept=False, solver="cholesky")
        slow.fit(self.lift(x), np.eye(9)[y], sample_weight=weights)
        expected = softmax(rival.temperature_ * slow.predict(self.lift(NEW)), axis=1)
        np.testing.assert_allclose(rival.predict_proba(NEW), expected, rtol=1e-6)

    def test_plain_equals_fitting_everything(self):
        settings = {"features": 30, "penalties": (3.0,), "random_state": 2}
        at_once = SessionRanPAC(**settings).fit(*everything())
        np.testing.assert_allclose(taught(SessionRanPAC(**settings)).coef_, at_once.coef_, rtol=1e-9)

    @pytest.mark.parametrize("balanced", [False, True])
    def test_copies_of_the_rows_matter_only_if_not_balanced(self, balanced):
        settings = {"balanced": balanced, "features": 30, "penalties": (3.0,)}
        x, y = base()
        once, twice = (SessionRanPAC(**settings).fit(np.tile(x, (k, 1)), np.tile(y, k)) for k in (1, 2))
        assert np.allclose(once.coef_, twice.coef_) == balanced

    def test_temperature_is_fitted_on_a_fifth_of_each_base_class(self):
        rival = taught(SessionRanPAC(features=30, random_state=2))
        x, y = base()
        out = shot_folds(y, 5) == 0
        slow = Ridge(alpha=rival.setting_, fit_intercept=False, solver="cholesky")
        scores = slow.fit(self.lift(x[~out]), np.eye(6)[y[~out]]).predict(self.lift(x[out]))

        def loss(tau: float) -> float:
            return mean_nll(log_softmax(tau * scores, axis=1), y[out])

        assert loss(rival.temperature_) < min(loss(1.05 * rival.temperature_), loss(rival.temperature_ / 1.05))


class TestLogisticMemory:
    def test_it_is_logistic_regression_on_exemplars_and_shots(self):
        rival = taught(LogisticMemory(exemplars=3))
        x, y = base()
        kept, codes = rival.memory_, rival.codes_
        assert [np.sum(codes == c) for c in range(9)] == [3] * 6 + [3, 1, 4]
        for c in range(6):
            assert all(any(np.array_equal(row, z) for z in x[y == c]) for row in kept[codes == c])
        later = np.concatenate([x for x, _ in sessions()])
        np.testing.assert_array_equal(kept[18:], later)
        slow = LogisticRegression(C=rival.C_, class_weight="balanced", tol=1e-10, max_iter=10_000)
        slow.fit(kept / scale_of(kept), codes)
        np.testing.assert_allclose(rival.predict_proba(NEW), slow.predict_proba(NEW / scale_of(kept)), atol=1e-4)

    def test_exemplars_stand_for_the_clusters_of_a_class(self):
        rng = np.random.default_rng(0)
        centres = 10 * rng.standard_normal((2, 4, D))
        x = np.concatenate([np.repeat(centres[c], 6, axis=0) for c in range(2)])
        x = x + 0.1 * rng.standard_normal(x.shape)
        rival = LogisticMemory(exemplars=4).fit(x, np.repeat([0, 1], 24))
        for c in range(2):
            near = np.linalg.norm(rival.memory_[rival.codes_ == c][:, None] - centres[c], axis=2).argmin(axis=1)
            assert sorted(near) == [0, 1, 2, 3]

    def test_no_exemplars(self):
        with pytest.raises(ValueError, match="exemplars"):
            LogisticMemory(exemplars=0).fit(*base())


class TestRehearsal:
    @given(st.lists(st.integers(1, 9), min_size=2, max_size=9), st.integers(1, 6), st.integers(0, 5))
    def test_rows(self, counts, shots, seed):
        y = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
        for codes, n_base, base, few, queries in rehearsals(y, shots, seed):
            assert n_base >= 2
            assert not set(queries) & {*base, *few}
            for c in range(len(counts)):
                of_class = np.flatnonzero(y == c)
                (code,) = set(codes[of_class])
                asked = np.isin(queries, of_class).sum()
                if code < n_base:
                    assert np.isin(base, of_class).sum() == len(of_class) - asked >= 1
                    assert not np.isin(few, of_class).any()
                else:
                    assert np.isin(few, of_class).sum() == min(shots, len(of_class) - asked) >= 1
                    assert not np.isin(base, of_class).any()

    @pytest.mark.parametrize(
        ("rival", "name", "grid"),
        [
            (StreamingLDA(), "shrinkages", (0.02, 0.3, 0.9)),
            (ShrunkMeanLDA(), "shrinkages", (0.02, 0.3, 0.9)),
            (SessionRanPAC(features=20), "penalties", (0.1, 3.0, 100.0, 1e4)),
            (SessionRanPAC(balanced=True, features=20), "penalties", (0.01, 1.0, 100.0)),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_the_setting_does_best_in_sessions_within_the_base(self, rival, name, grid):
        """By whole rivals that are fitted to a part of the base and then taught the rest of it."""
        x, y = base()

        def loss(setting: float) -> float:
            total = 0.0
            for codes, _, first, few, queries in rehearsals(y, 2, 0):
                rival.set_params(**{name: (setting,)}).fit(x[first], codes[first]).add_classes(x[few], codes[few])
                scores = rival._checked_logits(x[queries]) / rival.temperature_
                total += fit_temperature(scores, codes[queries])[1]
            return total

        best = min(grid, key=loss)
        assert rival.set_params(**{name: grid}, shots=2).fit(x, y).setting_ == best

    def test_ties_go_to_the_most_cautious(self):
        """Two examples a class: without one of them the covariance is unknown, and every shrinkage the same."""
        x, y = blobs(dict.fromkeys(range(6), 2), seed=0)
        assert StreamingLDA(shrinkages=(0.1, 0.7, 0.4)).fit(x, y).setting_ == 0.7

    @pytest.mark.parametrize(("settings", "message"), [({"shrinkages": ()}, "no setting"), ({"shots": 0}, "shots")])
    def test_bad_settings(self, settings, message):
        with pytest.raises(ValueError, match=message):
            StreamingLDA(**settings).fit(*base())
