"""More classes than are scored in full, and beam search; also with few classes, where both are compared with it all."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from joblib import Parallel, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError
from sklearn.naive_bayes import GaussianNB

from gptree import GPForestClassifier, GPTreeClassifier, Growth, InducingPoints, load_model
from gptree.estimators import state, top_k
from gptree.experts import (
    LDA,
    ExemplarScores,
    FittedPool,
    FittedShortlist,
    KernelRidge,
    Pool,
    SklearnExpert,
    density,
    lda,
    pool,
    shortlist,
)
from gptree.incremental import base as base_session
from gptree.incremental import episodes, exemplars
from gptree.inference import CoordinateAscent
from gptree.model import beam as beam_search
from gptree.model import node_sums
from gptree.tree import PathSums, node_log_odds, path_sums
from tree.random_trees import random_tree

C, D = 30, 8
RNG = np.random.default_rng(0)
MEANS = RNG.normal(size=(C + 1, D))
Y = np.repeat(np.arange(C), 4)
X = MEANS[Y] + 0.5 * RNG.normal(size=(len(Y), D))
X_NEW = RNG.normal(size=(15, D))


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """What happens beyond 2,000 classes, with 30."""
    for module in (shortlist, pool, lda, density, state):
        monkeypatch.setattr(module, "MANY_CLASSES", 10)
    monkeypatch.setattr(shortlist, "MANY_ROWS", 10)
    monkeypatch.setattr(top_k, "BEAM_FROM", 10)
    monkeypatch.setattr(shortlist, "SHORTLIST", 12)
    monkeypatch.setattr(KernelRidge, "pays", lambda self, n_classes: False)


def spread(model: Any, k: int, beam: int | None) -> np.ndarray:
    """Probabilities in the order of `classes_`."""
    found = model.predict_top_k(X_NEW, k, beam=beam)
    p = np.zeros((len(X_NEW), len(model.classes_)))
    np.put_along_axis(p, np.searchsorted(model.classes_, found.classes), found.probabilities, 1)
    return p


@pytest.mark.parametrize(
    "model",
    [
        GPTreeClassifier(random_state=0, kernel="matern52", class_prior=np.arange(1, C + 1) / 465),
        GPForestClassifier(random_state=0, n_estimators=3, node_limit=InducingPoints(20)),
        GPTreeClassifier(random_state=0, tree="chain", feature_map=None),
    ],
    ids=["prior", "forest", "chain"],
)
def test_a_beam_of_all_nodes_is_the_whole_model(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIECE_ROWS": 8, "STRIP_NUMBERS": 3 * C, "EVERY_POINTS": 0}.items():
        monkeypatch.setattr(beam_search, name, value)
    for name, value in {"MOST_ROWS": 3, "GATHERED": 50 * D}.items():
        monkeypatch.setattr(node_sums, name, value)
    p = model.fit(X, Y).predict_proba(X_NEW)
    np.testing.assert_allclose(spread(model, C, beam=C), p, rtol=0, atol=1e-12)
    for beam in (1, 3):
        np.testing.assert_allclose(spread(model, C, beam).sum(1), 1, atol=1e-12)
    narrow, whole = model.predict_top_k(X_NEW, 2, beam=4), model.predict_top_k(X_NEW, 2)
    assert (narrow.classes[:, 0] == whole.classes[:, 0]).mean() > 0.8
    assert (narrow.outside > 1 - narrow.probabilities.sum(1) - 1e-12).all()
    np.testing.assert_allclose(model.predict_top_k(X_NEW, 2, beam=C).outside, whole.outside, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("few_random_features")
def test_a_base_session_of_many_classes(many: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two experts, the second on a shortlist, no rows × classes; it grows, shrinks and is stored as any other."""
    monkeypatch.setattr(base_session, "MANY_CLASSES", 10)
    monkeypatch.setattr("gptree.experts.left_out.MOST_KEPT", 0)
    monkeypatch.setattr(episodes, "MOST_CLASSES", 15)
    monkeypatch.setattr(exemplars, "ROOT_ROWS", 20)
    old = Y < C - 4
    model = GPTreeClassifier(growth=Growth(), random_state=0, device="cpu").fit(X[old], Y[old])
    base = model.state_.base
    assert base is not None
    assert isinstance(base.expert, FittedShortlist)
    assert isinstance(base.left_out, ExemplarScores)
    assert base.novel_experts is not None
    assert base.novel_experts.base_rows is not None
    assert len(base.novel_experts.base_rows) == 20
    two = [np.flatnonzero(np.isin(Y, c)) for c in ([26, 27], [28, 29])]
    never = copy.deepcopy(model).add_classes(X[two[0]], Y[two[0]])
    for rows in two:
        model.add_classes(X[rows], Y[rows])
    assert (model.predict(X) == Y).mean() > 0.9
    model.save(tmp_path / "model")
    again = load_model(tmp_path / "model", device="cpu")
    assert np.array_equal(again.predict_proba(X_NEW), model.predict_proba(X_NEW))
    np.testing.assert_array_equal(model.remove_classes([28, 29]).predict_proba(X_NEW), never.predict_proba(X_NEW))
    assert np.array_equal(again.remove_classes([28, 29]).novelty_score(X_NEW), never.novelty_score(X_NEW))


def test_sub_trees_outside_the_beam_go_by_the_experts() -> None:
    """By hand: the deepest beam of one node, and siblings along its way."""
    model = GPTreeClassifier(random_state=0).fit(X, Y)
    found = spread(model, C, beam=1)
    experts = np.exp(model.state_.class_scores(model.state_.features(X_NEW), X_NEW).numpy())
    left, _ = model.model_.node_log_probabilities(
        model.state_.features(X_NEW), torch.as_tensor(np.log(experts)), "mean"
    )
    tree, go_left = model.tree_, np.exp(left.numpy())
    for row in range(len(X_NEW)):
        expected, v, reach = np.zeros(C), 0, 1.0
        while True:
            lo, mid, hi = int(tree.lo[v]), int(tree.mid[v]), int(tree.hi[v])
            p = go_left[int(model.model_.node_of[0][v]), row]
            sides = [
                (lo, mid, reach * p, int(tree.left_child[v])),
                (mid, hi, reach * (1 - p), int(tree.right_child[v])),
            ]
            inner = [side for side in sides if side[1] - side[0] > 1]
            best = max(inner, key=lambda side: side[2]) if inner else None
            for start, stop, mass, _ in (side for side in sides if side is not best):
                share = experts[row, tree.order[start:stop]]
                expected[tree.order[start:stop]] = mass * share / share.sum()
            if best is None:
                break
            _, _, reach, v = best
        np.testing.assert_allclose(found[row], expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("beam", [0, -1, 1.5, True, "16"])
def test_beams_that_are_none(beam: Any) -> None:
    model = GPTreeClassifier(random_state=0).fit(X[:12], Y[:12])
    with pytest.raises(ValueError, match="beam must be a whole number, at least 1, or None"):
        model.predict_top_k(X_NEW, 1, beam=beam)


@pytest.mark.parametrize("parameters", [{"prior_mean": None}, {"predict_at": "quadrature"}, {"kernel": "linear"}])
def test_models_without_beam_search_say_so(parameters: dict[str, Any]) -> None:
    model = GPTreeClassifier(random_state=0, **parameters).fit(X[:12], Y[:12])
    with pytest.raises(ValueError, match="no beam search"):
        model.predict_top_k(X_NEW, 1, beam=4)
    assert model.predict_top_k(X_NEW, 1).classes.shape == (15, 1)


@pytest.mark.usefixtures("many")
class TestManyClasses:
    """Single precision: what is promised in double to 1e-8 holds to 1e-4 in probability."""

    @pytest.mark.parametrize("kind", [FittedShortlist, FittedPool])
    def test_beam_file_novelty_and_growth(self, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if kind is FittedPool:
            monkeypatch.setattr(shortlist, "MANY_ROWS", len(X))
        model = GPTreeClassifier(random_state=0).fit(X, Y)
        assert type(model.state_.experts) is kind
        p = model.predict_proba(X_NEW)
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-9)
        np.testing.assert_allclose(spread(model, C, beam=C), p, rtol=0, atol=1e-5)
        np.testing.assert_allclose(model.freeze()(torch.as_tensor(X_NEW)).numpy(), p, rtol=0, atol=1e-5)
        found = model.predict_top_k(X_NEW, 3)  # by a beam of 16
        assert found.classes.shape == (15, 3)
        assert (found.outside >= 1 - np.take_along_axis(p, found.classes, 1).sum(1) - 1e-5).all()
        model.save(tmp_path / "model")
        again = load_model(tmp_path / "model")
        np.testing.assert_array_equal(again.predict_proba(X_NEW), p)
        np.testing.assert_allclose(again.novelty_score(X_NEW), model.novelty_score(X_NEW), rtol=0, atol=1e-6)
        assert again.explain(X_NEW[:1])[0].neighbours == model.explain(X_NEW[:1])[0].neighbours
        novel = MEANS[[C] * 4] + 0.5 * RNG.normal(size=(4, D))
        grown = again.add_classes(novel, [C] * 4)
        assert (grown.predict(novel) == C).mean() > 0.5
        np.testing.assert_allclose(grown.undo().predict_proba(X_NEW), p, rtol=0, atol=1e-12)

    def test_a_beam_around_an_expert_that_is_code(self) -> None:
        experts = Pool((LDA(), SklearnExpert(GaussianNB())))
        model = GPTreeClassifier(random_state=0, prior_mean=experts).fit(X, Y)
        np.testing.assert_allclose(spread(model, C, beam=C), model.predict_proba(X_NEW), rtol=0, atol=1e-5)

    def test_a_beam_over_features_without_a_map(self) -> None:
        """Experts see rows of unit length there, nodes do not."""
        model = GPForestClassifier(random_state=0, n_estimators=2, feature_map=None).fit(X + 3, Y)
        found = model.predict_top_k(X_NEW + 3, C, beam=C)
        p = np.take_along_axis(model.predict_proba(X_NEW + 3), found.classes, 1)
        np.testing.assert_allclose(found.probabilities, p, rtol=0, atol=1e-5)

    def test_the_order_of_rows_scale_rotation_and_workers(self) -> None:
        p = GPForestClassifier(random_state=0, n_estimators=2).fit(X, Y).predict_proba(X_NEW)
        places = np.random.default_rng(1).permutation(len(X))
        again = GPForestClassifier(random_state=0, n_estimators=2).fit(X[places], Y[places])
        np.testing.assert_allclose(again.predict_proba(X_NEW), p, rtol=0, atol=1e-8)
        turn = np.linalg.qr(np.random.default_rng(2).normal(size=(D, D)))[0]
        turned = GPForestClassifier(random_state=0, n_estimators=2).fit(-X @ turn, Y)
        plain = GPForestClassifier(random_state=0, n_estimators=2).fit(-X, Y)
        np.testing.assert_allclose(turned.predict_proba(-X_NEW @ turn), plain.predict_proba(-X_NEW), rtol=0, atol=1e-4)
        scaled = GPForestClassifier(random_state=0, n_estimators=2).fit(7.3 * X, Y)
        np.testing.assert_allclose(scaled.predict_proba(7.3 * X_NEW), p, rtol=0, atol=1e-4)
        with parallel_config("threading"):
            workers = GPForestClassifier(random_state=0, n_estimators=2, n_jobs=2).fit(X, Y)
        np.testing.assert_allclose(workers.predict_proba(X_NEW), p, rtol=0, atol=1e-4)

    def test_classes_with_one_row_and_with_many(self) -> None:
        Y_odd = np.concatenate([np.arange(20), np.full(400, 20)])
        X_odd = MEANS[Y_odd] + 0.5 * np.random.default_rng(4).normal(size=(420, D))
        p = GPTreeClassifier(random_state=0).fit(X_odd, Y_odd).predict_proba(X_NEW)
        np.testing.assert_allclose(p.sum(1), 1, atol=1e-9)

    def test_as_many_classes_as_rows(self) -> None:
        model = GPTreeClassifier(random_state=0).fit(X[::4], Y[::4])
        assert (model.predict(X[::4]) == Y[::4]).mean() > 0.9
        assert model.predict_top_k(X_NEW, C, beam=2).probabilities.sum(1) == pytest.approx(np.ones(15), abs=1e-5)


def test_what_does_not_change_a_model_of_more_than_1500_rows() -> None:
    """300 classes of six rows, every size as it is, all changes at once: parts are in single precision there."""
    random = np.random.default_rng(5)
    means, y = random.normal(size=(300, 12)), np.repeat(np.arange(300), 6)
    x, new = means[y] + 0.4 * random.normal(size=(1_800, 12)), means + 0.6 * random.normal(size=means.shape)
    turn, places = 7.3 * np.linalg.qr(random.normal(size=(12, 12)))[0], random.permutation(1_800)
    p = GPTreeClassifier(random_state=0).fit(x, y).predict_proba(new)
    with parallel_config("threading"):
        turned = GPTreeClassifier(random_state=0, n_jobs=2).fit((x @ turn)[places], y[places])
    np.testing.assert_allclose(turned.predict_proba(new @ turn), p, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("block", [1, 4, 23, path_sums.BLOCK])
def test_sums_along_paths_are_the_log_odds_of_the_nodes(
    dtype: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_sums, "BLOCK", block)
    scores = 5 * torch.randn(40, 23, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores[3] *= 200  # beyond what exponentials hold
    scores[4, :3] = -torch.inf
    classes = torch.arange(40) % 20 + 3
    for seed in range(3):
        tree = random_tree(23, seed)
        below = (scores - scores.amax(1, keepdim=True)).to(dtype)
        odds, log_p = PathSums(tree, scores.device).log_odds(below, below.exp(), classes)
        every, start = node_log_odds(tree, scores), 0
        for row, c in enumerate(classes.tolist()):
            position = int(tree.position[c])
            nodes = [v for v in range(tree.n_nodes) if tree.lo[v] <= position < tree.hi[v]]
            expected = every[nodes, row]
            found = odds[start : start + len(nodes)].double()
            finite = expected.isfinite()
            torch.testing.assert_close(found[finite], expected[finite], rtol=1e-5, atol=1e-5)
            assert torch.equal(found[~finite], expected[~finite])
            start += len(nodes)
        own = scores.log_softmax(1).gather(1, classes[:, None])[:, 0]
        torch.testing.assert_close(log_p.double(), own, rtol=1e-5, atol=1e-5)


def test_an_interrupted_fit_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = GPTreeClassifier(random_state=0).fit(X, Y)
    p, fit = model.predict_proba(X_NEW), CoordinateAscent.fit

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CoordinateAscent, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:40], Y[:40])
    np.testing.assert_array_equal(model.predict_proba(X_NEW), p)
    monkeypatch.setattr(CoordinateAscent, "fit", fit)
    assert len(model.fit(X[:40], Y[:40]).classes_) == 10


def test_a_worker_that_dies_is_an_error_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As joblib says it; one dies for it in `tests/inference/test_fit.py`."""
    model = GPTreeClassifier(random_state=0).fit(X[:12], Y[:12])
    p = model.predict_proba(X_NEW)

    def dies(self: Any, tasks: Any) -> None:
        raise TerminatedWorkerError("a worker was unexpectedly terminated")

    monkeypatch.setattr(Parallel, "__call__", dies)
    with pytest.raises(TerminatedWorkerError, match="unexpectedly terminated"):
        model.set_params(n_jobs=2).fit(X[:12], Y[:12])
    np.testing.assert_array_equal(model.predict_proba(X_NEW), p)
