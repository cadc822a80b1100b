"""Storing fitted experts, random features, and experts from elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from expert_twins import blobs
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from gptree.experts import (
    LDA,
    Examples,
    FittedPool,
    KernelDensity,
    KernelRidge,
    Pool,
    PriorScores,
    RandomFeatures,
    Ridge,
    SklearnExpert,
)
from gptree.storage import restore

X, Y = blobs([5, 4, 6, 1], 7)
NEW, _ = blobs([3, 3, 3], 7, seed=4)


@pytest.mark.parametrize(
    "expert",
    [
        LDA(),
        KernelRidge(),
        Ridge(),
        KernelDensity(),
        RandomFeatures(LDA(), 20),
        Pool(),
        Pool((LDA(), Pool((Ridge(), RandomFeatures(Ridge(), 30, unit_length=False))))),
    ],
    ids=str,
)
def test_an_expert_comes_back_from_tensors_and_json(expert):
    fitted = expert.fit(Examples.of(X, Y)).expert
    tensors, settings = fitted.state()
    assert all(isinstance(value, torch.Tensor) for value in tensors.values())
    again = restore(tensors, json.loads(json.dumps(settings)))
    assert type(again) is type(fitted)
    assert torch.equal(again.log_probabilities(NEW), fitted.log_probabilities(NEW))


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown kind of stored value 'Oracle'"):
        restore({}, {"kind": "Oracle"})


class TestRandomFeatures:
    def test_are_those_of_the_formula(self):
        fit = RandomFeatures(Ridge((1.0,)), 50, unit_length=False, seed=3).fit(Examples.of(X, Y))
        features = (X @ fit.expert.projection).clamp(min=0)
        inner = Ridge((1.0,)).fit(Examples.of(features, Y))
        torch.testing.assert_close(fit.left_out, inner.left_out)
        features = (NEW @ fit.expert.projection).clamp(min=0)
        torch.testing.assert_close(fit.expert.log_probabilities(NEW), inner.expert.log_probabilities(features))

    def test_are_scaled_to_unit_length(self):
        """Kernel experts refuse anything longer, so that this fit is the test."""
        RandomFeatures(KernelDensity(), 50).fit(Examples.of(X, Y))
        with pytest.raises(ValueError, match="unit length"):
            RandomFeatures(KernelDensity(), 50, unit_length=False).fit(Examples.of(X, Y))

    def test_depend_on_the_seed_alone(self):
        torch.manual_seed(1)
        one = RandomFeatures(LDA(), 20, seed=5).fit(Examples.of(X, Y))
        torch.manual_seed(2)
        two = RandomFeatures(LDA(), 20, seed=5).fit(Examples.of(X, Y))
        other = RandomFeatures(LDA(), 20, seed=6).fit(Examples.of(X, Y))
        assert torch.equal(one.left_out, two.left_out)
        assert not torch.allclose(one.left_out, other.left_out)

    def test_need_a_positive_count(self):
        with pytest.raises(ValueError, match="count"):
            RandomFeatures(LDA(), 0)


class TestSklearnExpert:
    def test_left_out_against_a_loop_of_fits(self):
        X, y = blobs([5, 4, 6], 7)
        fit = SklearnExpert(GaussianNB(), folds=3).fit(Examples.of(X, y))
        shots = {c: (y == c).nonzero()[:, 0].tolist() for c in range(3)}
        scores = torch.zeros(len(y), 3, dtype=X.dtype)
        for i in range(len(y)):
            fold = shots[int(y[i])].index(i) % 3
            rows = [j for j in range(len(y)) if shots[int(y[j])].index(j) % 3 != fold]
            p = GaussianNB().fit(X[rows].numpy(), y[rows].numpy()).predict_proba(X[i : i + 1].numpy())[0]
            smooth = 1 / (2 * len(y))
            scores[i] = torch.log((1 - smooth) * torch.from_numpy(p) + smooth / 3)
        expected = (fit.expert.temperature * scores).log_softmax(1)
        torch.testing.assert_close(fit.left_out, expected, rtol=0, atol=1e-9)

    @pytest.mark.parametrize("estimator", [LogisticRegression(), KNeighborsClassifier(2)])
    @pytest.mark.parametrize("counts", [[5, 1, 4, 1, 3], [1, 1, 1, 1], [3, 1, 1]])
    def test_one_shot_classes(self, estimator, counts):
        X, y = blobs(counts, 7)
        fit = SklearnExpert(estimator).fit(Examples.of(X, y))
        for logs in (fit.left_out, fit.expert.log_probabilities(X)):
            assert bool(torch.isfinite(logs).all())
            torch.testing.assert_close(logs.exp().sum(1), torch.ones(len(X), dtype=X.dtype))

    def test_never_sees_the_example_it_scores(self):
        """The nearest neighbour of an example it has seen is the example, at distance zero: perfect, were it so."""
        X, y = blobs([6] * 5, 3)
        y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]  # labels mean nothing
        fit = SklearnExpert(KNeighborsClassifier(1)).fit(Examples.of(X, y))
        assert float((fit.left_out.argmax(1) == y).double().mean()) < 0.5

    def test_the_estimator_is_not_changed(self):
        estimator = GaussianNB()
        SklearnExpert(estimator).fit(Examples.of(X, Y))
        assert not hasattr(estimator, "classes_")

    def test_needs_probabilities(self):
        with pytest.raises(TypeError, match="no predict_proba"):
            SklearnExpert(RidgeClassifier()).fit(Examples.of(X, Y))

    def test_cannot_be_stored(self):
        with pytest.raises(TypeError, match="pickle"):
            Pool((LDA(), SklearnExpert(GaussianNB()))).fit(Examples.of(X, Y)).expert.state()


class TestPriorScores:
    CENTRES = torch.randn(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def test_are_tempered_and_not_left_out(self):
        fit = PriorScores(lambda inputs: inputs @ self.CENTRES.T).fit(Examples.of(X, Y))
        torch.testing.assert_close(fit.left_out, (fit.expert.temperature * X @ self.CENTRES.T).log_softmax(1))
        torch.testing.assert_close(fit.left_out, fit.expert.log_probabilities(X))

    def test_read_the_raw_inputs_where_there_are_any(self):
        words = [f"{'abcd'[int(c)]} text" for c in Y]

        def source(texts):
            return np.array([[float(text.startswith(letter)) for letter in "abcd"] for text in texts])

        fit = PriorScores(source).fit(Examples.of(X, Y, raw=words))
        assert torch.equal(fit.left_out.argmax(1), Y)
        assert fit.expert.log_probabilities(X[:1], ["c text"]).argmax() == 2

    def test_may_be_a_fitted_classifier(self):
        model = GaussianNB().fit(NEW.repeat(2, 1).numpy(), np.arange(18) % 4)
        fit = Pool((LDA(), PriorScores(model))).fit(Examples.of(X, Y))
        assert isinstance(fit.expert, FittedPool)
        assert bool(torch.isfinite(fit.expert.log_probabilities(NEW)).all())

    def test_serve_one_shot_classes(self):
        """Their only examples are evidence here: nothing was fitted to them."""
        X, y = blobs([1] * 8, 5, noise=0.1)
        fit = PriorScores(lambda inputs: 1e-3 * torch.eye(8, dtype=X.dtype)[y]).fit(Examples.of(X, y))
        assert torch.equal(fit.left_out.argmax(1), y)
        assert float(fit.left_out.max(1).values.exp().mean()) > 0.9

    @pytest.mark.parametrize("bad", [torch.zeros(16, 3), torch.full((16, 4), float("nan"))])
    def test_of_the_wrong_kind(self, bad):
        with pytest.raises(ValueError, match="prior scores must be finite and of shape"):
            PriorScores(lambda inputs: bad).fit(Examples.of(X, Y))

    def test_need_a_source(self):
        with pytest.raises(TypeError, match="callable or have predict_proba"):
            PriorScores(3)

    def test_cannot_be_stored(self):
        with pytest.raises(TypeError, match="pickle"):
            PriorScores(lambda inputs: inputs[:, :4]).fit(Examples.of(X, Y)).expert.state()
