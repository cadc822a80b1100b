"""Explanations add up to the prediction they explain."""

import json

import numpy as np
from sklearn.datasets import load_digits

from gptree import GPForestClassifier, GPTreeClassifier

X, Y = load_digits(return_X_y=True)
NAMES = np.array([f"digit {i}" for i in range(10)])


def test_the_path_multiplies_to_the_probability():
    estimator = GPTreeClassifier(random_state=0, predict_at="quadrature").fit(X[:200], NAMES[Y[:200]])
    probabilities = estimator.predict_proba(X[200:210])
    for explanation, row in zip(estimator.explain(X[200:210]), probabilities, strict=True):
        assert np.isclose(np.prod([step.probability for step in explanation.path]), explanation.probability)
        assert np.isclose(explanation.probability, row.max())
        assert np.isclose(explanation.runner_up_probability, np.sort(row)[-2])
        assert explanation.label in explanation.path[-1].towards
        assert explanation.path[-1].towards == (explanation.label,)
        assert sorted(explanation.path[0].towards + explanation.path[0].away) == sorted(NAMES)


def test_prior_probabilities_are_those_of_the_experts():
    """p(towards) / (p(towards) + p(away)) by the experts alone; one half without them."""
    estimator = GPTreeClassifier(random_state=0).fit(X[:200], NAMES[Y[:200]])
    state = estimator.state_
    experts = state.experts.log_probabilities(state.features(X[200:210])).exp().numpy()
    for explanation, row in zip(estimator.explain(X[200:210]), experts, strict=True):
        p = dict(zip(state.classes.tolist(), row, strict=True))
        for step in explanation.path:
            towards, away = (sum(p[label] for label in side) for side in (step.towards, step.away))
            assert np.isclose(step.prior_probability, towards / (towards + away), rtol=1e-9, atol=0)
    without = GPTreeClassifier(random_state=0, prior_mean=None).fit(X[:100], Y[:100]).explain(X[200:201])[0]
    assert [step.prior_probability for step in without.path] == [0.5] * len(without.path)


def test_neighbours_are_the_nearest_rows_of_the_winner():
    estimator = GPTreeClassifier(random_state=0).fit(X[:200], Y[:200])
    explanation = estimator.explain(X[:1], n_neighbours=2)[0]
    assert explanation.neighbours[0].row == 0  # the row itself was a training example
    assert np.isclose(explanation.neighbours[0].similarity, 1.0)
    assert all(Y[n.row] == explanation.label for n in explanation.neighbours)


def test_text_and_json():
    explanation = GPForestClassifier(random_state=0).fit(X[:200], NAMES[Y[:200]]).explain(X[200:201])[0]
    text = str(explanation)
    assert explanation.label in text
    assert "rather than" in text
    assert json.loads(json.dumps(explanation.to_json()))["label"] == explanation.label
