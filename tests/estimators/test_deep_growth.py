"""A tree that was trained with a network grows: its nodes stay, its inducing points are the memory."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deep_cases import NAMES, network, pictures, small, vector_network
from gpytorch.kernels import MaternKernel, ScaleKernel

from gptree import (
    CoordinateAscent,
    DeepGPTreeClassifier,
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    Growth,
    LearnKernel,
    load_model,
)
from gptree.deep import Training, VariationalTree
from gptree.deep.loop import train as training_module
from gptree.estimators.known_rows import known_rows
from gptree.incremental import joined_kernels
from gptree.maths import make_kernel
from gptree.maths.kernels import node_kernels

X, Y = pictures(7, 280)
VECTORS = X.reshape(len(X), -1) / 255.0
BASE = np.isin(Y, NAMES[:5])
FIVES, SIXES = (np.flatnonzero(name == Y)[:5] for name in NAMES[5:])
ALONE = {"calibrate": False}
HEAD = VariationalTree(inducing=3, dtype="float64")


def sessions(**parameters: Any) -> GPTreeClassifier:
    classifier = GPTreeClassifier.paper("rbf", 8.0, growth=Growth(), random_state=3, device="cpu")
    return classifier.set_params(**parameters)


def growing(backbone: Any = None, **others: Any) -> Any:
    settings = {"classifier": sessions(), "classifier_rows": "inducing", "how": ALONE, "variational": HEAD}
    return small(vector_network().double() if backbone is None else backbone, **{**settings, **others})


@pytest.fixture(scope="module")
def plain() -> Any:
    """The same training without growth: the head predicts."""
    return small(vector_network().double(), how=ALONE, variational=HEAD).fit(VECTORS[BASE], Y[BASE])


@pytest.fixture(scope="module")
def fitted() -> Any:
    return growing().fit(VECTORS[BASE], Y[BASE])


@pytest.fixture
def model(fitted: Any) -> Any:
    return copy.deepcopy(fitted)


def conditional(log_p: np.ndarray) -> np.ndarray:
    """Of the five base classes, given that it is one of them."""
    return log_p[:, :5] - np.logaddexp.reduce(log_p[:, :5], axis=1, keepdims=True)


# -------------------------------------------------------------------------------------------------------- predictions


@pytest.mark.parametrize("predict_at", ["mean", "quadrature"])
def test_before_any_session_it_predicts_as_the_head_does(plain: Any, model: Any, predict_at: str) -> None:
    plain.set_params(predict_at=predict_at)
    model.classifier_.set_params(predict_at=predict_at)
    np.testing.assert_allclose(model.predict_log_proba(VECTORS), plain.predict_log_proba(VECTORS), atol=1e-10)
    plain.set_params(predict_at="quadrature")
    assert model.ensemble_ is None
    assert model.tree_ == plain.tree_
    assert model.memory_.counts == dict.fromkeys(sorted(NAMES[:5]), 3)
    assert model.diagnostics_["posterior"].tolist() == ["sparse"] * 4


def test_sessions_leave_the_base_tree_as_it_is(plain: Any, model: Any) -> None:
    before = plain.predict_log_proba(VECTORS)
    for rows in (FIVES, SIXES):
        assert model.add_classes(VECTORS[rows], Y[rows]) is model
        after = model.predict_log_proba(VECTORS)
        np.testing.assert_allclose(np.exp(after).sum(1), 1.0)
        np.testing.assert_allclose(conditional(after), before, atol=1e-10)
    assert model.classes_.tolist() == [*sorted(NAMES[:5]), "five", "six"]
    assert [labels.tolist() for labels in model.sessions_] == [sorted(NAMES[:5]), ["five"], ["six"]]
    assert [entry.kind for entry in model.journal_] == ["fit", "add_classes", "add_classes"]
    assert model.journal_[0].counts == tuple(np.unique(Y[BASE][model.rows_], return_counts=True)[1])


def test_probabilities_are_products_of_decisions(plain: Any, model: Any) -> None:
    """The slow twin: the root's two sides times the head's base tree, and times the nodes of the novel tree."""
    rows = np.concatenate([FIVES, SIXES])
    x = VECTORS[::9]
    found = model.add_classes(VECTORS[rows], Y[rows]).predict_proba(x)
    points = plain.ensemble_.first.points.detach()
    point_class = plain.ensemble_.first.point_class.numpy()
    order = np.argsort(point_class, kind="stable")
    shots, y = torch.as_tensor(model.embed(VECTORS[rows])), Y[rows]
    z = torch.nn.functional.normalize(torch.cat([points[order], shots]), dim=1).numpy()
    features = model.classifier_.model_.predictor.grams.X.numpy()
    matched = np.square(features[:, None] - z[None]).sum(-1).argmin(1)

    def node(rows: np.ndarray, left: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Probability of the left side, at the draws of ω that the model has: closed form with explicit inverses."""
        (posterior,) = [
            (p, v)
            for p in model.classifier_.model_.predictor.posteriors
            if p.kind == "dense"
            for v in range(len(p.nodes))
            if int((p.omega[0, v] > 0).sum()) == len(rows)
        ]
        draws, v = posterior
        seen = matched[draws.rows[v, : len(rows)].numpy()]  # the model has its own order of the rows
        assert sorted(seen) == sorted(rows)
        goes_left = np.isin(seen, rows[left])
        kernel = lambda a, b: 8.0 * np.exp(-0.5 * np.square(a[:, None] - b[None]).sum(-1))  # noqa: E731
        K, k = kernel(z[seen], z[seen]), kernel(z[seen], x)
        levels, weights = np.polynomial.hermite_e.hermegauss(40)
        total = np.zeros(len(x))
        for omega in draws.omega[:, v, : len(rows)].numpy():
            inverse = np.linalg.inv(K + np.diag(1 / omega))
            mean = k.T @ inverse @ (np.where(goes_left, 0.5, -0.5) / omega)
            variance = 8.0 - np.einsum("nt,nm,mt->t", k, inverse, k)
            f = mean[:, None] + np.sqrt(variance)[:, None] * levels
            total += (1 / (1 + np.exp(-f))) @ (weights / weights.sum()) / len(draws.omega)
        return total

    e = model.embed(x)
    e = e / np.linalg.norm(e, axis=1, keepdims=True)
    everything, novel = np.arange(len(z)), np.arange(len(points), len(z))
    is_base = node(everything, everything < len(points), e)
    tree = model.tree_
    five_first = tree.position[5] < tree.position[6]
    is_five = node(novel, (y == "five") == five_first, e)
    is_five = is_five if five_first else 1 - is_five
    expected = np.column_stack([
        is_base[:, None] * plain.predict_proba(x), (1 - is_base) * is_five, (1 - is_base) * (1 - is_five)
    ])  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-5)  # 20 points of quadrature against 40


def test_new_nodes_are_those_of_a_tree_grown_on_the_inducing_points(plain: Any) -> None:
    exact = {"inference": CoordinateAscent()}  # draws would depend on the order of the points
    model = growing(classifier=sessions(**exact)).fit(VECTORS[BASE], Y[BASE])
    head = plain.ensemble_.first
    order = head.point_class.argsort(stable=True)
    points, labels = head.points.detach()[order].numpy(), plain.classes_[head.point_class[order].numpy()]
    twin = sessions(tree=head.tree, **exact).fit(points, labels)
    for rows in (FIVES, SIXES):
        model.add_classes(VECTORS[rows], Y[rows])
        twin.add_classes(model.embed(VECTORS[rows]), Y[rows])
    found, expected = model.predict_proba(VECTORS), twin.predict_proba(model.embed(VECTORS))
    np.testing.assert_allclose(found[:, 5:], expected[:, 5:], atol=1e-10)
    np.testing.assert_allclose(found[:, :5].sum(1), expected[:, :5].sum(1), atol=1e-10)


def test_pictures_and_a_head_in_single_precision() -> None:
    single = VariationalTree(inducing=3, dtype="float32")
    model = growing(network(), variational=single).fit(X[BASE], Y[BASE])
    alone = small(network(), variational=single, how=ALONE).fit(X[BASE], Y[BASE])
    np.testing.assert_allclose(model.predict_proba(X), alone.predict_proba(X), atol=1e-3)
    model.add_classes(X[FIVES], Y[FIVES]).add_classes(X[SIXES], Y[SIXES])
    assert model.predict_proba(X).shape == (280, 7)
    assert model.score(X[BASE], Y[BASE]) > 0.3
    found = model.explain(X[FIVES[:1]], 1)[0]
    assert {side for step in found.path for side in (*step.towards, *step.away)} >= set(NAMES[:5])
    assert model.decision_path(X[:4]).shape == (4, 6)


@pytest.mark.parametrize("strategy", ["session-tree", "rebuild-tree", "graft"])
def test_other_strategies(strategy: str, plain: Any, tmp_path: Path) -> None:
    model = growing(classifier=sessions(growth=Growth(strategy=strategy))).fit(VECTORS[BASE], Y[BASE])
    model.add_classes(VECTORS[FIVES], Y[FIVES]).add_classes(VECTORS[SIXES], Y[SIXES])
    found = model.predict_log_proba(VECTORS)
    np.testing.assert_allclose(np.exp(found).sum(1), 1.0)
    kept = np.allclose(conditional(found), plain.predict_log_proba(VECTORS), atol=1e-10)
    assert kept == (strategy == "session-tree")
    model.save(tmp_path)
    assert np.array_equal(load_model(tmp_path).predict_log_proba(VECTORS), found)


# --------------------------------------------------------------------------------------------------------- the memory


def test_explanations_name_training_rows_near_the_points(plain: Any, model: Any) -> None:
    head, codes = plain.ensemble_.first, np.unique(Y[BASE], return_inverse=True)[1]
    rows = model.rows_
    z = torch.nn.functional.normalize(head.points.detach(), dim=1).numpy()
    e = model.embed(VECTORS[BASE][rows])
    e = e / np.linalg.norm(e, axis=1, keepdims=True)
    state = model.classifier_.state_
    stands_for = np.full(len(z), 0.5)
    for i, c in enumerate(codes[rows]):
        near = [z[j] @ e[i] if head.point_class[j] == c else -2.0 for j in range(len(z))]
        stands_for[int(np.argmax(near))] += 1
    for j in range(len(z)):
        near = [z[j] @ e[i] if c == head.point_class[j] else -2.0 for i, c in enumerate(codes[rows])]
        assert state.origins[j].tolist() == [0, rows[int(np.argmax(near))]]
    assert state.base.stands_for.tolist() == stands_for.tolist()
    neighbour = model.explain(VECTORS[:1], 1)[0].neighbours[0]
    assert Y[BASE][neighbour.row] == model.predict(VECTORS[:1])[0]


def test_fewer_exemplars_than_inducing_points() -> None:
    model = growing(classifier=sessions(growth=Growth(exemplars=2))).fit(VECTORS[BASE], Y[BASE])
    base = model.classifier_.state_.base
    assert torch.bincount(base.y[base.exemplars]).tolist() == [2] * 5
    assert float(base.exemplar_weights.sum()) == len(model.rows_) + 0.5 * 10
    model.add_classes(VECTORS[FIVES], Y[FIVES])
    dense = [p for p in model.classifier_.model_.predictor.posteriors if p.kind == "dense"]
    assert [p.rows.shape[1] for p in dense] == [5 * 2 + 5]  # the root


def test_open_labels_are_compared_with_the_rows_held_out(model: Any) -> None:
    rows = np.setdiff1d(np.arange(BASE.sum()), model.rows_)
    novelty = model.classifier_.state_.base.novelty
    assert len(novelty.signs) == 15 + len(rows)
    known = known_rows(model.classifier_.state_, model.classifier_.predict_at)
    np.testing.assert_allclose(np.sort(known.novelty[15:]), np.sort(model.novelty_score(VECTORS[BASE][rows])))
    before = model.novelty_threshold(0.1)
    model.add_classes(VECTORS[FIVES], Y[FIVES])
    assert 0 < model.novelty_threshold(0.1) <= 1
    assert set(model.predict_open(VECTORS, reject=0.2, unknown="none")) <= {*NAMES[:6], "none"}
    assert model.undo().novelty_threshold(0.1) == before


def test_rows_given_to_be_measured_do_no_more() -> None:
    def fit(rows: slice, **how: Any) -> Any:
        model = growing(how=how)
        return model.fit(VECTORS[BASE][:150], Y[BASE][:150], validation=(VECTORS[BASE][rows], Y[BASE][rows]))

    first, second = fit(slice(150, 175), calibrate=False), fit(slice(175, 200), calibrate=False)
    assert np.array_equal(first.predict_log_proba(VECTORS), second.predict_log_proba(VECTORS))
    assert first.novelty_threshold() == second.novelty_threshold()
    calibrated = fit(slice(150, 175), calibrate=True)
    assert not np.array_equal(calibrated.predict_log_proba(VECTORS), first.predict_log_proba(VECTORS))


def test_held_out_rows_choose_how_confident_the_tree_is(model: Any) -> None:
    calibrated = growing(how={}).fit(VECTORS[BASE], Y[BASE])
    rows = np.setdiff1d(np.arange(BASE.sum()), calibrated.rows_)
    places = np.arange(len(rows)), np.searchsorted(model.classes_, Y[BASE][rows])
    before, after = (m.predict_log_proba(VECTORS[BASE][rows])[places].mean() for m in (model, calibrated))
    assert after > before
    scales = calibrated.kernel_.outputscale / model.kernel_.outputscale
    assert float(scales.std()) < 1e-12
    assert calibrated.tree_ == model.tree_


def test_refit_comes_first() -> None:
    refitted = growing(refit=4).fit(VECTORS[BASE], Y[BASE])
    head = small(vector_network().double(), how=ALONE, variational=HEAD, refit=4).fit(VECTORS[BASE], Y[BASE])
    np.testing.assert_allclose(refitted.predict_log_proba(VECTORS), head.predict_log_proba(VECTORS), atol=1e-10)


# --------------------------------------------------------------------------------------------------------- operations


def test_operations_and_undo(model: Any) -> None:
    before = model.predict_log_proba(VECTORS)
    model.add_classes(VECTORS[FIVES], Y[FIVES])
    grown = model.predict_log_proba(VECTORS)
    more = np.flatnonzero(Y == "two")[-3:]
    model.add_examples(VECTORS[more], Y[more])
    assert not np.allclose(conditional(model.predict_log_proba(VECTORS)), conditional(grown))
    with pytest.warns(UserWarning, match="cut out of the base trees"):
        model.remove_classes(["four"])
    assert "four" not in model.classes_
    np.testing.assert_allclose(model.predict_proba(VECTORS).sum(1), 1.0)
    assert np.array_equal(model.undo().undo().predict_log_proba(VECTORS), grown)
    assert np.array_equal(model.undo().predict_log_proba(VECTORS), before)
    with pytest.raises(ValueError, match="nothing to undo"):
        model.undo()


def test_a_failed_session_changes_nothing(model: Any) -> None:
    state = model.state_
    for match, rows, labels in (
        ("already known", FIVES, ["five"] * 4 + ["two"]),
        ("inconsistent numbers", FIVES, Y[FIVES][:4]),
        ("strings", FIVES, [7] * 5),
    ):
        with pytest.raises(ValueError, match=match):
            model.add_classes(VECTORS[rows], labels)
    with pytest.raises(ValueError, match="shape"):
        model.add_classes(VECTORS[FIVES][:, :60], Y[FIVES])
    model.classifier_.set_params(kernel="matern52")
    with pytest.raises(ValueError, match="of the same kind"):
        model.add_classes(VECTORS[FIVES], Y[FIVES])
    assert model.state_ is state


def test_files(model: Any, tmp_path: Path) -> None:
    before = model.predict_log_proba(VECTORS)
    model.add_classes(VECTORS[FIVES], Y[FIVES]).save(tmp_path)
    loaded = load_model(tmp_path)
    assert (loaded.classifier_rows, loaded.classifier.growth) == ("inducing", Growth())
    assert np.array_equal(loaded.predict_log_proba(VECTORS), model.predict_log_proba(VECTORS))
    for each in (model, loaded):
        each.add_classes(VECTORS[SIXES], Y[SIXES])
    np.testing.assert_allclose(loaded.predict_log_proba(VECTORS), model.predict_log_proba(VECTORS), atol=1e-12)
    assert np.array_equal(loaded.undo().undo().predict_log_proba(VECTORS), before)
    assert loaded.novelty_threshold() == model.undo().undo().novelty_threshold()


# ---------------------------------------------------------------------------------------------------------- bad input


def bad_fit(match: str, error: type[Exception] = ValueError, **others: Any) -> None:
    model = growing(**others)
    with pytest.raises(error, match=match):
        model.fit(VECTORS[BASE], Y[BASE])
    assert not hasattr(model, "state_")


def test_what_cannot_take_over_the_tree_says_so_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_module, "epoch_plan", None)
    bad_fit("classifier of one tree", TypeError, classifier=GPForestClassifier(prior_mean=None))
    bad_fit("give a classifier", classifier=None)
    bad_fit("a tree that was trained", how={"cross_entropy_epochs": 4})
    bad_fit("prior_mean=None", classifier=GPTreeClassifier(growth=Growth()))
    bad_fit("prior_mean=None", classifier=sessions(feature_map="sphere"))
    bad_fit("class_prior=None", classifier=sessions(class_prior="empirical"))
    bad_fit("growth must be", TypeError, classifier=sessions(growth=5))
    learn = CoordinateAscent(learn=LearnKernel(per_node=True))
    bad_fit("kernel of its own at every node", classifier=sessions(inference=learn))
    bad_fit("of the same kind", kernel="matern52")
    bad_fit("of the same kind", kernel=ScaleKernel(MaternKernel(1.5)), classifier=sessions(kernel="matern52"))
    bad_fit("unknown kernel", classifier=sessions(kernel="sinc"))
    bad_fit(
        r"calibrate=False", kernel=MaternKernel(1.5), classifier=sessions(kernel=MaternKernel(1.5)), how={}
    )  # fmt: skip


def test_kernels_of_one_kind_are_joined() -> None:
    first, second = (node_kernels(make_kernel("rbf", scale, 2.0), n) for scale, n in ((3.0, 2), (5.0, 1)))
    joined = joined_kernels(first, second)
    assert joined.batch_shape == torch.Size([3])
    assert joined.outputscale.tolist() == pytest.approx([3.0, 3.0, 5.0])
    assert joined.base_kernel.lengthscale.shape == (3, 1, 1)
    assert first.batch_shape == torch.Size([2])  # as it was


# ------------------------------------------------------------------------------------------------------------ presets


def test_three_versions_of_an_experiment() -> None:
    paper = DeepGPTreeClassifier.paper
    published, corrected, defaults = (
        paper("mini-imagenet", network(), growth=True, version=version)
        for version in ("published", "corrected", "defaults")
    )
    assert published.training == paper("mini-imagenet", network()).training
    for model, inference in ((published, Gibbs(10, 1)), (corrected, Gibbs(10, 20))):
        assert isinstance(model.classifier, GPTreeClassifier)
        assert (model.classifier_rows, model.classifier.inference) == ("inducing", inference)
        assert (model.classifier.prior_mean, model.classifier.predict_at) == (None, "quadrature")
        assert model.classifier.kernel.outputscale.item() == pytest.approx(8.0)
        assert model.classifier.kernel.base_kernel.lengthscale.item() == pytest.approx(1.0)
        assert model.classifier.growth == Growth()
        assert model.variational.inducing == Growth().exemplars  # all of them are kept
    how = published.training
    assert (how.objective_weight, how.calibrate, how.best) == (0.0, False, "accuracy")
    how = corrected.training
    assert (how.objective_weight, how.calibrate, how.best) == (1.0, True, "last")
    assert (how.epochs, how.cross_entropy_epochs, how.learning_rate, how.validation) == (100, 40, 0.1, 0.05)
    assert corrected.variational == VariationalTree(5)
    assert isinstance(defaults.classifier, GPForestClassifier)
    assert defaults.classifier_rows == "all"
    for name in ("training", "variational", "augment"):  # one network for both
        assert getattr(defaults, name) == getattr(corrected, name)
    assert paper("cub", network(), growth=True, version="defaults").training.validation == 5
    assert paper("cub", network(), version="corrected").classifier is None
    assert paper("cub", network(), version="defaults").classifier.growth is None
    few = paper("cub", network(), growth=Growth(exemplars=3), classifier_rows="held_out")
    assert (few.classifier.growth.exemplars, few.classifier_rows) == (3, "held_out")
    with pytest.raises(ValueError, match="'published', 'corrected', 'defaults'"):
        paper("cub", network(), version="ours")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="growth must be"):
        paper("cub", network(), growth=5)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("version", ["published", "corrected", "defaults"])
def test_a_version_on_digits(version: Any) -> None:
    model: Any = DeepGPTreeClassifier.paper(
        "mini-imagenet", network(), growth=True, version=version, augment=(), random_state=0, device="cpu"
    )
    short = {"epochs": 4, "cross_entropy_epochs": 2, "batch_size": 32, "validation": 3}
    model.set_params(**{f"training__{name}": value for name, value in short.items()}, variational__inducing=3)
    if version == "defaults":
        model.set_params(classifier__n_estimators=1, classifier__prior_mean=None)  # experts take their time
    model.fit(X[BASE], Y[BASE])
    for rows in (FIVES, SIXES):
        model.add_classes(X[rows], Y[rows])
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)
    assert model.classes_.tolist() == [*sorted(NAMES[:5]), "five", "six"]
    assert version == "published" or model.score(X, Y) > 0.25  # by chance 0.14


def test_corrected_settings_are_settings() -> None:
    model = DeepGPTreeClassifier.paper("cifar", network(), version="corrected")
    assert model.training == Training(
        epochs=200, cross_entropy_epochs=80, learning_rate=0.01, batch_size=256, validation=0.1,
        nesterov=False, schedule=model.training.schedule,
    )  # fmt: skip
