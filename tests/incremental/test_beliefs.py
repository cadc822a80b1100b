"""What sessions make of wrong labels: likelihood weights, and which rows are doubtful."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from gptree import GPForestClassifier, Growth, RebuildTree, SharedRoot, load_model
from gptree.estimators import forest
from gptree.estimators.evidence import SCALES
from gptree.experts import left_out
from gptree.experts.novel_scores import NovelScores
from gptree.experts.wrong_labels import label_noise
from gptree.incremental import base as base_session
from gptree.incremental import episodes, memory_left_out, new_nodes, sessions
from gptree.maths import make_kernel

CLASSES, SHOTS, D = 12, 12, 10

pytestmark = pytest.mark.usefixtures("few_random_features")


def task(wrong: float = 0.2, shots: int = SHOTS, spread: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels as given, and which of them are wrong; two of every class are right."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(CLASSES), shots)
    X = random.normal(size=(CLASSES, D))[truth] + spread * random.normal(size=(len(truth), D))
    changed = (random.random(len(truth)) < wrong) & (np.arange(len(truth)) % shots > 1)
    return X, np.where(changed, (truth + random.integers(1, CLASSES, len(truth))) % CLASSES, truth), changed


def classifier(grows: bool = True, **settings: Any) -> GPForestClassifier:
    settings = {"growth": Growth(exemplars=4) if grows else None, "random_state": 0} | settings
    return GPForestClassifier(n_estimators=2, device="cpu", **settings)


def spied(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[tuple[tuple, dict[str, Any], Any]]:
    """Arguments and results of the calls of a function."""
    calls, function = [], getattr(module, name)

    def spy(*args, **kwargs):
        calls.append((args, kwargs, function(*args, **kwargs)))
        return calls[-1][-1]

    monkeypatch.setattr(module, name, spy)
    return calls


# -------------------------------------------------------------------------------------------------------- beliefs


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("masked", [False, True], ids=["", "held out"])
@pytest.mark.parametrize("streamed", [False, True], ids=["", "streamed"])
def test_rows_of_a_base_session_count_by_the_belief_in_their_labels(
    weighted: bool, masked: bool, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if streamed:  # scores are computed of a few rows at a time
        monkeypatch.setattr(left_out, "MOST_KEPT", 0)
        monkeypatch.setattr(left_out, "row_chunks", lambda rows, n_classes: rows.split(7))
    fits, scored = spied(monkeypatch, forest, "fit_base"), spied(monkeypatch, base_session, "_prior")
    fitted, asked = (
        spied(monkeypatch, base_session, "fit_forest"),
        spied(monkeypatch, base_session, "left_out_predictions"),
    )
    X, y, _ = task(0.1)
    X[::6] = X[np.random.default_rng(1).integers(len(X), size=(3, len(X[::6])))].mean(0)  # which are of no class
    extra: dict[str, Any] = {"held_out": np.arange(len(y)) % SHOTS < 9} if masked else {}
    if weighted:
        extra["sample_weight"] = 0.5 + np.arange(len(y)) % 3
    classifier().fit(X, y, **extra)
    (_, options, (base, rows, _)), data, scores = fits[0], fitted[0][0][1], scored[0][2].left_out
    counts = torch.ones(len(y), dtype=torch.float64) if options["weights"] is None else options["weights"]
    seen = np.arange(len(y)) if options["held_out"] is None else np.flatnonzero(options["held_out"])
    counts = counts[torch.as_tensor(seen)].tolist()
    own = [math.exp(scores[i][c] - scores[i].logsumexp(0)) for i, c in enumerate(data.y)]
    unsure = [float(scores[i].logsumexp(0) - scores[i].max()) for i in range(len(data.y))]
    counted, doubts = (torch.tensor(each, dtype=torch.float64) for each in (counts, unsure))
    noise = label_noise(torch.tensor(own, dtype=torch.float64), CLASSES, counted, unsure=doubts)
    assert isinstance(noise, torch.Tensor)
    assert float(noise.max()) > 1.5 * float(noise.min()) > 0.05
    beliefs = {
        row: (1 - e) * p / ((1 - e) * p + e / CLASSES) for row, p, e in zip(seen, own, noise.tolist(), strict=True)
    }
    for row, count, found in zip(seen, counts, data.weights.tolist(), strict=True):
        assert found == pytest.approx(count * beliefs[row], rel=1e-9)
    assert asked[0][0][3] is data.weights  # left-out predictions know them
    np.testing.assert_allclose(base.beliefs, [beliefs[row] for row in rows], rtol=1e-9)
    assert (base.weights is None) is not weighted


def test_right_labels_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = spied(monkeypatch, base_session, "fit_forest")
    X, y, _ = task(wrong=0.0)
    assert classifier().fit(X, y).state_.beliefs is None
    assert fitted[0][0][1].weights is None


def test_rehearsals_of_two_rows_a_class_count_queries_by_belief(monkeypatch: pytest.MonkeyPatch) -> None:
    made, learnt = spied(monkeypatch, episodes, "make_episode"), spied(monkeypatch, base_session, "learn_novel_experts")
    X, y, _ = task(0.3, 8, spread=0.2)
    rows = np.concatenate([np.flatnonzero(y == c)[-2:] for c in range(CLASSES)])
    classifier().fit(X[rows], y[rows])
    beliefs = learnt[0][0][-1]
    assert beliefs is not None
    assert float(beliefs.min()) < 0.9
    features = learnt[0][0][0]
    for *_, episode in made:
        for x, weight in zip(episode.queries, episode.weights, strict=True):
            (same,) = (features == x).all(1).nonzero()[:, 0]
            assert float(weight) == float(beliefs[same])


def test_what_wrong_labels_teach_base_nodes_does_no_harm() -> None:
    """With six seeds the forest is better than its experts, by 0.001 nats or more; without beliefs worse, by 0.02."""
    X, y, _ = task(shots=2 * SHOTS)
    truth = np.repeat(np.arange(CLASSES), 2 * SHOTS)
    train = np.arange(len(y)) % (2 * SHOTS) < SHOTS
    model = classifier().fit(X[train], y[train])
    query = model._query(X[~train])
    own = np.arange(len(query.log_p)), truth[~train]
    scores = model.state_.class_scores(query.features, query.raw)
    assert scores is not None
    assert -query.log_p[own].mean() < -scores.log_softmax(1).numpy()[own].mean() + 0.01


@pytest.mark.parametrize("grows", [True, False], ids=["base session", "plain fit"])
def test_base_nodes_that_are_fitted_again_believe_the_same(grows: bool, tmp_path, monkeypatch) -> None:
    problems = spied(monkeypatch, sessions, "node_problems")
    X, y, _ = task()
    model = classifier(grows).fit(X, y)
    beliefs = model.state_.beliefs
    assert beliefs is not None
    assert float(beliefs.min()) < 0.1 < 0.9 < float(beliefs.max())
    model.save(tmp_path / "fitted")
    more = X[:2] + 0.01, y[:2]
    again: Any = load_model(tmp_path / "fitted")
    again.add_examples(*more)
    model.add_examples(*more)
    base = model.state_.base
    assert base is not None
    assert base.beliefs is not None
    assert torch.equal(base.beliefs, beliefs)
    for args, _, _ in problems:
        expected = [stands * belief for stands, belief in zip(base.stands_for, beliefs, strict=True)]
        assert args[1].weights.tolist() == pytest.approx([*map(float, expected), 1.0, 1.0], rel=1e-12)
    model.save(tmp_path / "grown")
    for other in again, load_model(tmp_path / "grown"):
        assert torch.equal(other.state_.beliefs, beliefs)
        np.testing.assert_allclose(other.predict_proba(X), model.predict_proba(X), atol=1e-9)
        np.testing.assert_allclose(other.novelty_score(X), model.novelty_score(X), atol=1e-9)


# ---------------------------------------------------------------------------------------------------- output scale


def scale_of(model: Any) -> float:
    return float(model.kernel_.outputscale.detach())


def test_a_base_session_of_few_rows_takes_the_scale_of_a_plain_fit() -> None:
    X, y, _ = task(wrong=0.0, shots=2, spread=3.0)
    assert scale_of(classifier().fit(X, y)) == pytest.approx(SCALES[0])
    assert scale_of(classifier(kernel=make_kernel("rbf", 3.0)).fit(X, y)) == pytest.approx(3.0)
    assert scale_of(classifier(prior_mean=None).fit(X, y)) == pytest.approx(10.0)
    assert scale_of(classifier().fit(X[::2], y[::2])) == pytest.approx(10.0)  # of which nothing is known left out
    X, y, _ = task(wrong=0.0, shots=2, spread=0.1)
    assert scale_of(classifier().fit(X, y)) == scale_of(classifier(grows=False).fit(X, y)) == pytest.approx(1.25)
    X, y, _ = task(wrong=0.0, shots=3, spread=3.0)
    assert scale_of(classifier().fit(X, y)) == pytest.approx(10.0)


# ---------------------------------------------------------------------------------------------------------- doubts


@pytest.mark.parametrize("grows", [True, False], ids=["base session", "plain fit"])
def test_doubts_stay_while_classes_come_and_go(grows: bool, tmp_path) -> None:
    X, y, wrong = task()
    model = classifier(grows).fit(X, y)
    before = model.diagnostics_["doubtful"].tolist()
    assert len(before) > 0
    assert wrong[before].mean() > 0.7
    assert "doubtful_later" not in model.diagnostics_

    random = np.random.default_rng(1)
    centres = 3 * random.normal(size=(2, D))
    novel = np.repeat([20, 21], 20)
    Z = centres[novel - 20] + 0.5 * random.normal(size=(40, D))
    given = novel.copy()
    given[2] = 21
    model.add_classes(Z, given)
    assert model.diagnostics_["doubtful"].tolist() == before
    assert model.diagnostics_["doubtful_later"].tolist() == [[1, 2]]
    model.add_examples(centres + 0.01, [21, 21])
    assert model.diagnostics_["doubtful_later"].tolist() == [[1, 2], [2, 0]]
    model.save(tmp_path / "model")
    for name in "doubtful", "doubtful_later":
        loaded = load_model(tmp_path / "model").diagnostics_[name]
        assert loaded.tolist() == model.diagnostics_[name].tolist()

    model.remove_classes([0])
    assert set(model.diagnostics_["doubtful"]) <= set(np.flatnonzero(y != 0))
    model.undo().undo().undo()
    assert model.diagnostics_["doubtful"].tolist() == before
    assert model.diagnostics_["doubtful_later"].tolist() == []


def test_later_rows_are_doubted_as_a_plain_loop_says(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = task(wrong=0.0)
    random = np.random.default_rng(2)
    novel = np.repeat([20, 21, 22], [20, 20, 1])
    Z = 2 * random.normal(size=(3, D))[novel - 20] + 0.5 * random.normal(size=(41, D))
    novel[[3, 30]] = 21, 20
    model = classifier().fit(X, y).add_classes(Z, novel)
    state = model.state_
    assert state.base is not None
    assert state.grown is not None
    log_p = memory_left_out(state.base, state.grown, state.on_sphere)
    assert log_p is not None
    expected = []
    for i, row in enumerate(state.grown.rows.tolist()):
        own, c = log_p[i].exp(), int(state.grown.y[i])
        doubted = own[c] < 1 / 15 and own[c] < 0.1 * own.max()
        if row >= len(state.base.X) and doubted and c != 14:  # the last class has one example
            expected.append(state.origins[row].tolist())
    assert len(expected) > 0
    monkeypatch.setattr("gptree.estimators.state.row_chunks", lambda rows, n_classes: rows.split(3))
    assert model.diagnostics_["doubtful_later"].tolist() == sorted(expected)


# ----------------------------------------------------------------------------------------------- later sessions


def grown_task(shots: int = SHOTS, wrong: float = 0.2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `task`; from class 6 on classes come later, the last one has two rows."""
    X, y, changed = task(wrong, shots)
    last = (y == CLASSES - 1) & ~changed
    kept = (y < CLASSES - 1) | (last & (np.cumsum(last) <= 2))
    return X[kept], y[kept], changed[kept]


def grown(model: GPForestClassifier, X: np.ndarray, y: np.ndarray) -> GPForestClassifier:
    model.fit(X[y < 6], y[y < 6])
    for c in (6, 9):
        model.add_classes(X[(y >= c) & (y < c + 3)], y[(y >= c) & (y < c + 3)])
    return model


@pytest.mark.parametrize("strategy", [SharedRoot(), RebuildTree()], ids=["shared root", "rebuild"])
def test_rows_of_a_session_count_by_the_belief_in_their_labels(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, _ = grown_task(2 * SHOTS)
    model = classifier(growth=Growth(4, strategy=strategy))
    with monkeypatch.context() as patch:
        patch.setattr(sessions, "beliefs_in_labels", lambda base, memory, seen, own, *_: torch.ones_like(own))
        trusting = spied(patch, sessions, "_fitted")
        grown(model, X, y)
    fitted = spied(monkeypatch, sessions, "_fitted")
    grown(model, X, y)
    state = model.state_
    assert state.base is not None
    assert state.grown is not None
    assert state.base.beliefs is not None
    log_p = memory_left_out(state.base, state.grown, state.on_sphere)
    assert log_p is not None
    labels = state.grown.y.tolist()
    own = [math.exp(row[c]) for row, c in zip(log_p, labels, strict=True)]
    asked = [6 <= c < CLASSES - 1 for c in labels]
    noise = label_noise(torch.tensor([p for p, some in zip(own, asked, strict=True) if some]).double(), CLASSES)
    assert noise > 0.05
    before, now, data = trusting[-1][0][3].weights, fitted[-1][0][3].weights, fitted[-1][0][3]
    assert data.y.tolist() == labels
    for i, row in enumerate(state.grown.rows.tolist()):
        belief = (1 - noise) * own[i] / ((1 - noise) * own[i] + noise / CLASSES) if asked[i] else 1.0
        if labels[i] < 6:
            belief = float(state.base.beliefs[row])
            if not strategy.rebuilds:  # base classes are one, to which a row with a wrong label may belong all the same
                belief += (1 - belief) * float(log_p[i, :6].exp().sum())
        assert float(now[i]) == pytest.approx(float(before[i]) * belief, rel=1e-7)


def test_right_labels_and_two_rows_a_class_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = spied(monkeypatch, sessions, "_fitted")
    for wrong, shots in ((0.0, SHOTS), (0.2, 2)):
        X, y, _ = grown_task(shots, wrong)
        grown(classifier(), X, y)
        data = fitted[-1][0][3]
        for c in range(6, CLASSES):
            assert len(set(data.weights[data.y == c].tolist())) == 1


def test_what_wrong_labels_teach_grown_models_does_less_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With six seeds, and all random features, the NLL is lower by 0.05 or more."""
    X, y, _ = task(shots=40)
    truth = np.repeat(np.arange(CLASSES), 40)
    train = np.arange(len(y)) % 40 < 20

    def nll() -> float:
        log_p = grown(classifier(), X[train], y[train]).predict_log_proba(X[~train])
        return -float(log_p[np.arange(len(log_p)), truth[~train]].mean())

    believing = nll()
    monkeypatch.setattr(new_nodes, "label_beliefs", lambda own, *_, **__: (0.0, None))
    monkeypatch.setattr(NovelScores, "choose", lambda self, best, own, counts: best(counts, None))
    trusting = nll()
    assert believing < trusting - 0.04


# ------------------------------------------------------------------------------------------- one example a class


@pytest.mark.parametrize("grows", [False, True], ids=["plain", "growth"])
def test_with_one_example_a_class_the_experts_decide(grows: bool) -> None:
    """What they say of a class without its example teaches nothing about how they err."""
    X, y, _ = task(wrong=0.0, shots=2)
    model = classifier(grows).fit(X[::2], y[::2])
    state = model.state_
    experts = state.experts.log_probabilities(state.on_sphere(state.features(X[1::2]))).softmax(1).numpy()
    np.testing.assert_allclose(model.predict_proba(X[1::2]), experts, rtol=0, atol=2e-3)
