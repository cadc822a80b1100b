"""Residual trees: what experts say, what the GP changes, and how strange a row is."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from gptree import Gibbs, GPForestClassifier, GPTreeClassifier
from gptree.experts import LDA, Examples, Pool
from gptree.maths import make_kernel
from gptree.metrics import auroc, nll

X, X_NEW, Y, Y_NEW = train_test_split(*load_digits(return_X_y=True), train_size=200, random_state=0)


@pytest.mark.parametrize("tree", ["two-means", "chain", "random"])
@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
def test_without_a_gp_any_tree_returns_its_experts(tree, predict_at):
    silent = GPForestClassifier(
        kernel=make_kernel("rbf", 1e-12), tree=tree, predict_at=predict_at, n_estimators=2, random_state=0
    ).fit(X, Y)
    features = silent.state_.features(X_NEW)
    pool = Pool().fit(Examples.of(silent.state_.X, torch.as_tensor(silent.state_.y))).expert
    np.testing.assert_allclose(silent.predict_log_proba(X_NEW), pool.log_probabilities(features), atol=1e-8)


def test_the_default_is_better_calibrated_than_zero_means():
    default = GPTreeClassifier(random_state=0).fit(X, Y).predict_proba(X_NEW)
    zero = GPTreeClassifier(prior_mean=None, random_state=0).fit(X, Y).predict_proba(X_NEW)
    assert nll(default, Y_NEW) < 0.75 * nll(zero, Y_NEW)


def test_prior_means_enter_gibbs_sampling_and_the_sparse_bound():
    reference = GPTreeClassifier(random_state=0).fit(X, Y).predict_proba(X_NEW)
    for settings in ({"inference": Gibbs(chains=20, steps=20)}, {"node_limit": 60}, {"node_limit": None}):
        other = GPTreeClassifier(random_state=0, **settings).fit(X, Y).predict_proba(X_NEW)
        assert np.abs(other - reference).mean() < 0.03
        assert abs(nll(other, Y_NEW) - nll(reference, Y_NEW)) < 0.05


def test_one_expert_a_classifier_or_a_function_can_serve():
    def zero_shot(raw):
        """A source that never saw a label: distance to ten fixed rows of known digits."""
        anchors = np.stack([load_digits().data[load_digits().target == c][:3].mean(0) for c in range(10)])
        return -((raw[:, None] - anchors) ** 2).sum(-1) / 500

    for prior_mean in (LDA(), GaussianNB(), zero_shot):
        estimator = GPTreeClassifier(prior_mean=prior_mean, random_state=0).fit(X, Y)
        assert estimator.score(X_NEW, Y_NEW) > 0.85


def test_explanations_show_what_the_gp_changed():
    estimator = GPTreeClassifier(random_state=0).fit(X, Y)
    prior = np.array([step.prior_probability for e in estimator.explain(X_NEW[:30]) for step in e.path])
    final = np.array([step.probability for e in estimator.explain(X_NEW[:30]) for step in e.path])
    assert not np.allclose(prior, 0.5)
    assert not np.allclose(prior, final)


def test_class_prior_tilts_the_experts():
    heavy = np.ones(10)
    heavy[3] = 50.0
    plain = GPTreeClassifier(random_state=0).fit(X, Y).predict_proba(X_NEW)
    tilted = GPTreeClassifier(class_prior=heavy, random_state=0).fit(X, Y).predict_proba(X_NEW)
    assert (tilted[:, 3] > plain[:, 3] - 1e-6).mean() > 0.95


def test_novelty_score():
    known = Y < 7
    estimator = GPForestClassifier(random_state=0).fit(X[known], Y[known])
    score = estimator.novelty_score(X_NEW)
    assert score.shape == (len(X_NEW),)
    assert ((score >= 0) & (score <= 1)).all()
    both = estimator.predict_with_novelty(X_NEW)
    assert (both[1] == score).all()
    assert (both[0] == estimator.predict_proba(X_NEW)).all()
    confidence = both[0].max(1)
    new = Y_NEW >= 7
    assert auroc(score[~new], score[new]) > max(0.9, auroc(-confidence[~new], -confidence[new]) - 0.01)
    assert GPTreeClassifier().fit(X[:5], np.zeros(5)).novelty_score(X_NEW[:3]).tolist() == [0, 0, 0]
    sampled = GPTreeClassifier.paper(inference=Gibbs(chains=2), random_state=0).fit(X[known], Y[known])
    assert np.isfinite(sampled.novelty_score(X_NEW[:5])).all()
