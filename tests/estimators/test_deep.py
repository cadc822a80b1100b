"""Deep classifiers: what they predict, with which head, and from which inputs."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deep_cases import NAMES, network, pictures, small, vector_network
from sklearn.linear_model import LogisticRegression
from torch.utils.data import TensorDataset

from gptree import Gibbs, GPForestClassifier, GPTreeClassifier, Growth
from gptree.deep import (
    Arrays,
    FromDataset,
    Milestones,
    RandomCrop,
    RandomFlip,
    TreeHead,
    WeightedEnsemble,
    embed,
    read_log,
    train,
)
from gptree.deep.loop import train as training_module
from small_sizes import small_random_features

X, Y = pictures()
CPU = torch.device("cpu")
ALL = np.arange(len(X))


# ------------------------------------------------------------------------------------------------------- training


def test_predictions_are_those_of_training_by_hand() -> None:
    model = small(augment=(RandomCrop(1), RandomFlip())).fit(X, Y)
    labels, codes = np.unique(Y, return_inverse=True)
    source = Arrays(X, augment=(RandomCrop(1), RandomFlip()))
    by_hand = train(
        network(),
        source,
        codes,
        labels.tolist(),
        training=model.training,
        head=model.variational,
        seed=model.state_.seed,
        device="cpu",
    )
    assert by_hand.head is not None
    embeddings = embed(by_hand.network, source, ALL, CPU)
    expected = by_hand.log_probabilities(embeddings)
    assert model.classes_.tolist() == sorted(NAMES[:5].tolist())
    assert np.array_equal(model.embed(X), embeddings.numpy())
    assert np.array_equal(model.predict_log_proba(X), expected.numpy())
    assert np.array_equal(model.predict_proba(X), np.exp(expected.numpy()))
    assert np.array_equal(model.predict(X), labels[expected.argmax(1)])
    assert model.tree_ == by_hand.head.tree
    assert np.array_equal(model.rows_, by_hand.rows)
    assert [row["loss"] for row in model.log_] == [row["loss"] for row in by_hand.log]
    model.set_params(predict_at="mean")
    assert np.array_equal(model.predict_log_proba(X), by_hand.ensemble.log_probabilities(embeddings, "mean").numpy())


@pytest.mark.parametrize("refit", [0, 5])
def test_the_vote_is_weighted_for_predictions_as_they_are_made(refit: int) -> None:
    model = small(predict_at="mean", refit=refit).fit(X, Y)
    held_out = np.setdiff1d(ALL, model.rows_)
    codes = np.unique(Y, return_inverse=True)[1][held_out]
    again = WeightedEnsemble(*model.ensemble_.layers)
    again.choose(torch.as_tensor(model.embed(X[held_out])), torch.as_tensor(codes), "mean")
    assert model.ensemble_.weights.tolist() == pytest.approx(again.weights.tolist(), rel=1e-6)
    assert small(predict_at="mean", how={"calibrate": False}).fit(X, Y).ensemble_.weights.tolist() == [1.0]


def test_it_learns() -> None:
    model = small(how={"epochs": 15, "cross_entropy_epochs": 7}).fit(X[:90], Y[:90])
    assert model.score(X[90:], Y[90:]) > 0.8
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0)


def test_the_same_seed_gives_the_same_numbers_and_another_one_does_not() -> None:
    first, again, other, generator = (
        small(random_state=seed).fit(X, Y).predict_log_proba(X) for seed in (1, 1, 2, np.random.RandomState(1))
    )
    assert np.array_equal(first, again)
    assert np.array_equal(first, generator)
    assert not np.array_equal(first, other)
    heads = [small(classifier=GPTreeClassifier(inference=Gibbs(chains=2))).fit(X, Y) for _ in range(2)]
    assert np.array_equal(heads[0].predict_log_proba(X), heads[1].predict_log_proba(X))


def test_softmax_alone() -> None:
    model = small(how={"cross_entropy_epochs": 4}).fit(X, Y)
    expected = model.ensemble_.log_probabilities(torch.as_tensor(model.embed(X)))
    assert np.array_equal(model.predict_log_proba(X), expected.numpy())
    with pytest.raises(AttributeError, match="no tree"):
        _ = model.tree_


def test_refit_is_coordinate_ascent_on_the_clean_rows_that_were_trained_on() -> None:
    plain, refitted = (small(refit=sweeps, augment=(RandomFlip(),)).fit(X, Y) for sweeps in (0, 7))
    rows, y = plain.rows_, np.unique(Y, return_inverse=True)[1]
    assert len(rows) < len(X)
    embeddings, codes = torch.as_tensor(plain.embed(X[rows])), torch.as_tensor(y[rows])
    assert isinstance(plain.ensemble_.first, TreeHead)
    before = plain.ensemble_.first.bound(embeddings, codes).sum()
    plain.ensemble_.first.refit(embeddings, codes, 7)
    held_out = np.setdiff1d(np.arange(len(X)), rows)
    plain.ensemble_.choose(torch.as_tensor(plain.embed(X[held_out])), torch.as_tensor(y[held_out]))
    np.testing.assert_allclose(refitted.predict_log_proba(X), plain.predict_log_proba(X), atol=1e-9)
    assert refitted.ensemble_.first.bound(embeddings, codes).sum() > before


def test_validation_data_are_measured_and_not_trained_on() -> None:
    model = small(how={"best": "nll", "calibrate": False}).fit(X[:90], Y[:90], validation=(X[90:], Y[90:]))
    assert np.array_equal(model.rows_, np.arange(90))
    assert model.training.validation == 0.1  # the parameter stays
    joint = [row for row in model.log_ if row["stage"] == "joint"]
    best = min(joint, key=lambda row: row["nll"])
    assert model.best_epoch_ == best["epoch"]
    assert model.score(X[90:], Y[90:]) == pytest.approx(best["accuracy"])


@pytest.mark.parametrize("refit", [0, 3])
def test_validation_data_calibrate_as_it_predicts(refit: int) -> None:
    model = small(predict_at="mean", refit=refit).fit(X[:90], Y[:90], validation=(X[90:], Y[90:]))
    assert model.ensemble_ is not None
    chosen = model.ensemble_.weights.clone()
    codes = torch.as_tensor(np.searchsorted(model.classes_, Y[90:]))
    model.ensemble_.choose(torch.as_tensor(model.embed(X[90:])), codes, "mean")
    torch.testing.assert_close(model.ensemble_.weights, chosen)
    model.ensemble_.choose(torch.as_tensor(model.embed(X[90:])), codes, "quadrature")
    assert not torch.equal(model.ensemble_.weights, chosen)


def test_what_was_done_in_a_folder_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(folder=tmp_path / "run", verbose=True).fit(X, Y)
    assert read_log(tmp_path / "run") == model.log_
    assert (tmp_path / "run" / "curves.png").exists()
    model.curves(tmp_path / "again.png")
    picture = (tmp_path / "again.png").read_bytes()
    assert picture.startswith(b"\x89PNG")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            model.curves(tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == picture  # what was there

    def refuse(*_: object) -> None:
        raise AssertionError("an epoch was asked for")

    monkeypatch.setattr(training_module, "epoch_plan", refuse)
    again = small(folder=tmp_path / "run", classifier=GPTreeClassifier(random_state=0)).fit(X, Y)
    assert np.array_equal(again.embed(X), model.embed(X))
    with pytest.raises(ValueError, match="holds a training with"):
        small(folder=tmp_path / "run", random_state=1).fit(X, Y)


def test_an_interrupted_fit_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, plan, epochs = small().fit(X, Y), training_module.epoch_plan, []

    def interrupt(*arguments: object) -> list:
        epochs.append(arguments[-1])
        if len(epochs) == 4:
            raise KeyboardInterrupt
        return plan(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(training_module, "epoch_plan", interrupt)
    model = small(folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    assert not hasattr(model, "classes_")
    model.fit(X, Y)
    assert epochs == [0, 1, 2, 3, 3]
    assert np.array_equal(model.predict_log_proba(X), whole.predict_log_proba(X))


# --------------------------------------------------------------------------------------------------------- inputs


def test_arrays_tensors_and_layouts_are_alike() -> None:
    expected = small().fit(X, Y).predict_log_proba(X)
    for given in (X[:, None], X[..., None], torch.as_tensor(X), torch.as_tensor(X[:, None])):
        model = small().fit(given, Y)
        assert np.array_equal(model.predict_log_proba(X), expected)
        assert np.array_equal(model.predict_log_proba(given), expected)


def test_pictures_are_normalised_as_they_were_at_fit() -> None:
    model = small().fit(X, Y)
    dark = np.where(X > 100, 30, 0).astype(np.uint8)
    alone = model.predict_log_proba(dark[:1])
    np.testing.assert_allclose(alone, model.predict_log_proba(dark)[:1], atol=1e-5)
    source = Arrays(dark, mean=model.state_.inputs.mean, std=model.state_.inputs.std)
    assert np.array_equal(model.predict_log_proba(source), model.predict_log_proba(dark))
    with pytest.raises(ValueError, match="normalised as those at fit"):
        model.predict(Arrays(dark))  # with a mean of its own


def test_floats_in_any_precision_data_sets_and_sources_are_alike() -> None:
    vectors = X.reshape(len(X), -1) / 255
    codes = np.unique(Y, return_inverse=True)[1]
    model = small(vector_network()).fit(vectors, torch.as_tensor(codes))
    assert model.n_features_in_ == 64
    expected = model.predict_log_proba(vectors)
    singles = torch.as_tensor(vectors, dtype=torch.float32)
    data = TensorDataset(singles, torch.as_tensor(codes))
    for given in (data, FromDataset(data, workers=0)):
        from_data = small(vector_network()).fit(given)
        assert from_data.classes_.tolist() == [0, 1, 2, 3, 4]
        assert np.array_equal(from_data.predict_log_proba(given), expected)
        assert np.array_equal(from_data.predict_log_proba(vectors), expected)  # what it is given may differ from fit
        assert from_data.score(data, codes) == model.score(vectors, codes)
        assert small(vector_network()).fit(given, Y).classes_.tolist() == sorted(set(Y))  # y comes first
    assert np.array_equal(model.predict_log_proba(singles), expected)
    double = small(vector_network().double()).fit(singles, Y)
    assert double.embed(singles).dtype == np.float64


def test_a_data_set_validates_too() -> None:
    floats = torch.as_tensor(X[:, None] / 255, dtype=torch.float32)
    data = TensorDataset(floats, torch.as_tensor(np.unique(Y, return_inverse=True)[1]))
    model = small(how={"calibrate": False}).fit(data, validation=(data, None))
    assert len(model.rows_) == len(X)
    assert model.log_[-1]["accuracy"] == pytest.approx(model.score(data, data.tensors[1]))


# ----------------------------------------------------------------------------------------------- another head, growing


@pytest.mark.parametrize("classifier_rows", ["trained", "held_out", "all"])
def test_a_head_is_fitted_to_the_clean_embeddings_of_its_rows(classifier_rows: str) -> None:
    model = small(
        classifier=GPTreeClassifier(random_state=3), augment=(RandomFlip(),), classifier_rows=classifier_rows
    ).fit(X, Y)
    assert model.ensemble_ is None
    rows = np.array(
        [i for i in range(len(X)) if classifier_rows == "all" or (i in model.rows_) == (classifier_rows == "trained")]
    )
    held_out = ~np.isin(ALL, model.rows_) if classifier_rows == "all" else None
    by_hand = GPTreeClassifier(random_state=3).fit(model.embed(X[rows]), Y[rows], held_out)
    assert np.array_equal(model.predict_log_proba(X), by_hand.predict_log_proba(model.embed(X)))
    assert model.tree_ == by_hand.tree_
    assert not hasattr(model.classifier, "classes_")  # the parameter stays as it was
    rows = rows if held_out is None else np.flatnonzero(held_out)  # nodes are fitted to these
    nearest = model.explain(X[rows[:1]])[0].neighbours[0]
    assert nearest.row == rows[0]  # of X
    assert nearest.similarity == pytest.approx(1.0)


def test_by_default_trees_are_told_which_rows_the_network_does_not_know() -> None:
    plain = small(classifier=GPTreeClassifier(random_state=3)).fit(X, Y)
    asked = small(classifier=GPTreeClassifier(random_state=3), classifier_rows="all").fit(X, Y)
    assert np.array_equal(plain.predict_log_proba(X), asked.predict_log_proba(X))
    other = small(classifier=LogisticRegression()).fit(X, Y)  # cannot be told
    twin = LogisticRegression().fit(other.embed(X[other.rows_]), Y[other.rows_])
    assert np.allclose(other.predict_log_proba(X), twin.predict_log_proba(other.embed(X)))


def test_given_validation_rows_are_held_out_rows_after_those_of_x() -> None:
    learned, unseen = ALL[::2], ALL[1::2]
    model = small(classifier=GPTreeClassifier(random_state=3))
    model.fit(X[learned], Y[learned], validation=(X[unseen], Y[unseen]))
    assert np.array_equal(model.rows_, np.arange(len(learned)))
    order = np.concatenate([learned, unseen])
    twin = GPTreeClassifier(random_state=3)
    twin.fit(model.embed(X[order]), Y[order], held_out=np.arange(len(order)) >= len(learned))
    assert np.array_equal(model.predict_log_proba(X), twin.predict_log_proba(model.embed(X)))
    right = np.flatnonzero(model.predict(X[unseen]) == Y[unseen])[0]
    assert model.explain(X[unseen[right]][None])[0].neighbours[0].row == len(learned) + right


@pytest.mark.parametrize("how", [{"validation": 1}, {"validation": None}])
def test_a_forest_on_rows_known_by_heart_warns(how: dict[str, Any]) -> None:
    model = small(classifier=GPTreeClassifier(random_state=3), how=how)
    with pytest.warns(UserWarning, match=r"by heart.*fewer of .*Training\(validation=2\)"):
        model.fit(X, Y)
    twin = GPTreeClassifier(random_state=3).fit(model.embed(X[model.rows_]), Y[model.rows_])
    assert np.array_equal(model.predict_log_proba(X), twin.predict_log_proba(model.embed(X)))


def test_growing_is_that_of_the_head() -> None:
    both, labels = pictures(7, 280)
    base = np.isin(labels, NAMES[:5])
    later = np.concatenate([np.flatnonzero(labels == name)[:5] for name in NAMES[5:]])
    with small_random_features():
        model = small(classifier=GPForestClassifier(n_estimators=2, growth=Growth(), random_state=0)).fit(
            both[base], labels[base]
        )
        before = model.predict_log_proba(both)
        twin = GPForestClassifier(n_estimators=2, growth=Growth(), random_state=0)
        unseen = ~np.isin(np.arange(base.sum()), model.rows_)
        twin.fit(model.embed(both[base]), labels[base], held_out=unseen)
        assert model.add_classes(both[later], y=labels[later]) is model
        twin.add_classes(model.embed(both[later]), labels[later])
        assert model.classes_.tolist() == [*sorted(NAMES[:5]), *sorted(NAMES[5:])]
        assert np.array_equal(model.predict_log_proba(both), twin.predict_log_proba(model.embed(both)))
        assert np.array_equal(model.novelty_score(X=both), twin.novelty_score(model.embed(both)))
        open_labels = model.predict_open(both, reject=0.2, unknown="none")
        assert np.array_equal(open_labels, twin.predict_open(model.embed(both), 0.2, "none"))
        assert model.novelty_threshold(0.2) == twin.novelty_threshold(0.2)
        assert np.array_equal(model.suggest(both, n=3), twin.suggest(model.embed(both), 3))
        assert model.explain(both[:1], 1)[0].label == twin.explain(model.embed(both[:1]))[0].label
        latent = model.posterior(both[:4], nodes=[0, 3]), twin.posterior(model.embed(both[:4]), nodes=[0, 3])
        assert np.array_equal(latent[0].covariance, latent[1].covariance)
        assert len(model.memory_) == len(twin.memory_)
        model.rename_class("five", "5").merge_classes(["5", "six"], "many")
        model.add_examples(both[later[:2]], ["many"] * 2).remove_classes(["many"])
        assert [entry.kind for entry in model.journal_] == [
            "fit",
            "add_classes",
            "rename_class",
            "merge_classes",
            "add_examples",
            "remove_classes",
        ]
        assert [list(session) for session in model.sessions_] == [sorted(NAMES[:5])]
        for _ in range(5):
            model.undo()
    assert np.array_equal(model.predict_log_proba(both), before)
    with pytest.raises(ValueError, match="already"):
        model.add_classes(both[:1], labels[:1])
    assert np.array_equal(model.predict_log_proba(both), before)


def test_a_head_that_cannot_grow_says_how_to_get_one_that_can() -> None:
    for classifier in (None, LogisticRegression()):
        model = small(classifier=classifier).fit(X, Y)
        for ask in (lambda m: m.add_classes(X, Y), lambda m: m.undo(), lambda m: m.predict_open(X)):
            with pytest.raises(AttributeError, match=r"classifier=GPForestClassifier\(growth=Growth\(\)\)"):
                ask(model)
        assert not hasattr(model, "journal_")
    assert model.score(X, Y) > 0.3


# ----------------------------------------------------------------------------------------------------------- paper


def test_the_papers_settings() -> None:
    from gptree import DeepGPTreeClassifier as Deep

    cifar, cub, mini = (Deep.paper(name) for name in ("cifar", "cub", "mini-imagenet"))
    for model, numbers, milestones in (
        (cifar, (1024, 256, 200, 80, 0.01, 40, 0.1), (100, 150)),
        (cub, (512, 128, 100, 20, 0.01, 5, 2), (40, 60)),
        (mini, (512, 128, 100, 40, 0.1, 5, 0.05), (40, 60)),
    ):
        how, variational = model.training, model.variational
        assert numbers == (
            model.backbone.recipe["embedding"],
            how.batch_size,
            how.epochs,
            how.cross_entropy_epochs,
            how.learning_rate,
            variational.inducing,
            how.validation,
        )
        assert how.schedule == Milestones(milestones, 0.1)
        assert (how.momentum, how.nesterov, how.best, how.weight_decay) == (0.9, False, "accuracy", 5e-4)
        assert (variational.step, variational.node_weights, variational.learn_kernel) == (0.05, "size", "shared")
        assert model.kernel is None  # RBF, 4 and 1
        assert model.predict_at == "quadrature"
    assert [model.backbone.recipe["stem"] for model in (cifar, cub, mini)] == ["cifar", "imagenet", "small"]

    own = network()
    changed = Deep.paper("cifar", own, refit=3, augment=())
    assert changed.backbone is own
    assert (changed.refit, changed.augment) == (3, ())
    changed.set_params(training__epochs=2, training__cross_entropy_epochs=1)
    assert Deep.paper("cifar").training.epochs == 200  # each has settings of its own
    with pytest.raises(ValueError, match="'cifar', 'cub', 'mini-imagenet'"):
        Deep.paper("imagenet")  # pyright: ignore[reportArgumentType]


def test_the_paper_on_digits() -> None:
    from gptree import DeepGPTreeClassifier as Deep

    model = Deep.paper("cifar", network(), augment=(RandomCrop(1),), random_state=0, device="cpu")
    model.set_params(training__epochs=10, training__cross_entropy_epochs=5, training__batch_size=16)
    model.set_params(training__learning_rate=0.05, variational__inducing=3)
    many = pictures(n=200)
    assert model.fit(*many).score(*many) > 0.7


@pytest.mark.parametrize("classifier", [None, GPTreeClassifier(random_state=0)], ids=["variational", "estimator"])
def test_it_has_the_attributes_of_its_siblings(classifier: Any) -> None:
    model = small(classifier=classifier).fit(X, Y)
    path, winners = model.decision_path(X[:9]), model.predict_log_proba(X[:9]).argmax(1)
    assert path.shape == (9, model.tree_.n_nodes)
    for row, winner in zip(path.toarray(), winners, strict=True):
        assert set(np.flatnonzero(row)) == {node for node, _ in model.tree_.path(winner)}
    assert len(model.diagnostics_["posterior"]) == model.tree_.n_nodes
    assert model.kernel_.batch_shape == torch.Size([])
    if classifier is None:  # three inducing points a class
        members = [len(model.tree_.members(node)) for node in range(model.tree_.n_nodes)]
        assert model.diagnostics_["inducing_points"].tolist() == [3 * count for count in members]
