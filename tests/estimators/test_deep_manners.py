"""Deep classifiers keep scikit-learn's manners, and say what is wrong with what they are given.

All of scikit-learn's `check_estimator` does not apply: its checks fit data of many widths, and a network has one.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from deep_cases import network, pictures, small, vector_network
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import TensorDataset

from gptree import DeepGPTreeClassifier, GPTreeClassifier
from gptree.deep import Arrays, RandomCrop, Training, VariationalTree

X, Y = pictures()
VECTORS = X.reshape(len(X), -1) / 255.0


def test_clone_copies_the_network() -> None:
    model = small(classifier=GPTreeClassifier(), augment=(RandomCrop(1),))
    twin = clone(model.fit(X, Y))
    assert twin.backbone is not model.backbone
    assert all(
        torch.equal(value, model.backbone.state_dict()[name]) for name, value in twin.backbone.state_dict().items()
    )
    assert twin.training == model.training
    assert twin.augment == model.augment
    assert not hasattr(twin, "classes_")
    assert np.array_equal(twin.fit(X, Y).predict_log_proba(X), model.predict_log_proba(X))


def test_the_users_network_is_not_changed_by_fit() -> None:
    backbone = network()
    before = copy.deepcopy(backbone.state_dict())
    model = small(backbone).fit(X, Y)
    assert model.backbone is backbone
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert model.network_ is not backbone


def test_parameters() -> None:
    backbone = network()
    model = DeepGPTreeClassifier(backbone)
    assert model.get_params(deep=False).keys() == {
        "backbone",
        "training",
        "variational",
        "kernel",
        "tree",
        "augment",
        "predict_at",
        "classifier_rows",
        "refit",
        "classifier",
        "random_state",
        "device",
        "folder",
        "verbose",
    }
    assert model.get_params()["training__epochs"] == Training().epochs
    model.set_params(
        training__epochs=90, variational__inducing=7, classifier=GPTreeClassifier(), classifier__tree="chain"
    )
    assert (model.training.epochs, model.variational.inducing, model.classifier.tree) == (90, 7, "chain")
    assert DeepGPTreeClassifier(backbone).training.epochs == Training().epochs  # defaults are not shared
    assert is_classifier(model)
    assert "epochs=90" in repr(model.training)
    with pytest.raises(TypeError):
        DeepGPTreeClassifier()  # pyright: ignore[reportCallIssue]


def test_unfitted() -> None:
    model = small()
    asked: list[Any] = [
        lambda: model.predict(X),
        lambda: model.predict_proba(X),
        lambda: model.embed(X),
        lambda: model.classes_,
        lambda: model.tree_,
        lambda: model.curves("curves.png"),
        lambda: model.add_classes(X, Y),
        lambda: model.save("model"),
    ]
    for ask in asked:
        with pytest.raises(NotFittedError):
            ask()


@pytest.mark.parametrize("classifier", [None, GPTreeClassifier(random_state=0)], ids=["variational", "estimator"])
def test_pickles(classifier: Any) -> None:
    model = small(classifier=classifier).fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_log_proba(X), model.predict_log_proba(X))
    assert np.array_equal(copy.deepcopy(model).predict_log_proba(X), model.predict_log_proba(X))


def test_pipeline_search_and_cross_validation() -> None:
    pipeline = make_pipeline(StandardScaler(), small(vector_network(), how={"epochs": 6}))
    pipeline.fit(VECTORS, Y)
    assert pipeline.score(VECTORS, Y) > 0.8
    assert pipeline.classes_.tolist() == sorted(set(Y))
    search = GridSearchCV(small(vector_network()), {"training__epochs": [3, 5]}, cv=2).fit(VECTORS, Y)
    assert len(search.best_estimator_.log_) == search.best_params_["training__epochs"]
    assert search.estimator.training.epochs == 4  # the caller's value is as it was
    assert cross_val_score(small(), X, Y, cv=2).mean() > 0.2  # pictures are cut as tables are


def test_a_failed_fit_changes_nothing() -> None:
    model = small().fit(X, Y)
    before, state = model.predict_log_proba(X), dict(vars(model))
    with pytest.raises(ValueError, match="at least two classes"):
        model.fit(X, np.zeros(len(X), dtype=int))
    model.set_params(classifier=GPTreeClassifier(kernel="sinc"))  # shows only when it is fitted
    with pytest.raises(ValueError, match="unknown kernel"):
        model.fit(X[:100], Y[:100])
    assert {name: value for name, value in vars(model).items() if name != "classifier"} == {
        name: value for name, value in state.items() if name != "classifier"
    }
    assert np.array_equal(model.predict_log_proba(X), before)


# --------------------------------------------------------------------------------------------------------- bad input


def bad_fit(match: str, error: type[Exception] = ValueError, given: Any = X, y: Any = Y, **others: Any) -> None:
    validation = others.pop("validation", None)
    model = small(**others)
    with pytest.raises(error, match=match):
        model.fit(given, y, validation=validation)
    assert not hasattr(model, "seed_")


def test_bad_parameters() -> None:
    bad_fit("backbone must be a Module", TypeError, backbone="resnet18")
    bad_fit("training must be a Training", TypeError, training={"epochs": 3})
    bad_fit("variational must be a VariationalTree", TypeError, variational=40)
    bad_fit("predict_at", predict_at="median")
    bad_fit("classifier_rows", classifier_rows="some")
    bad_fit("give a classifier", classifier_rows="held_out")
    none = Training(validation=None)
    bad_fit("rows held out to calibrate", classifier=GPTreeClassifier(), classifier_rows="held_out", training=none)
    bad_fit("rows held out to calibrate", classifier=GPTreeClassifier(), classifier_rows="all", training=none)
    bad_fit("has no held_out", classifier=LogisticRegression(), classifier_rows="all")
    one = Training(epochs=2, cross_entropy_epochs=1, validation=1)
    bad_fit(
        r"two rows of every class held out.*Training\(validation=2",
        classifier=GPTreeClassifier(),
        classifier_rows="all",
        training=one,
    )
    bad_fit("number of sweeps", refit=True)
    bad_fit("number of sweeps", refit=-1)
    bad_fit("classifier must be", TypeError, classifier="forest")
    bad_fit("classifier must be", TypeError, classifier=GPTreeClassifier)
    bad_fit("sequence of augmentations", TypeError, augment=RandomCrop(1))
    bad_fit("sequence of augmentations", TypeError, augment=("flip",))
    bad_fit(r"a pair \(X, y\)", validation=(X,))
    bad_fit("refit is for the variational head", refit=2, classifier=GPTreeClassifier())
    bad_fit("refit is for the variational head", refit=2, how={"cross_entropy_epochs": 4})
    bad_fit("device", device="tpu")
    bad_fit("unknown kernel", kernel="sinc")
    bad_fit("cap=2", variational=VariationalTree(inducing=3, cap=2))
    bad_fit("network computes in float64", backbone=network().double())
    bad_fit("64 features", backbone=nn.Sequential(nn.Conv2d(1, 1, 2), vector_network()))


def test_seeds_that_would_differ(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bad_fit("random_state an int", random_state=None, folder=tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    bad_fit("random_state an int", random_state=None)


def test_weights_of_rows_are_refused() -> None:
    with pytest.raises(TypeError, match="takes no sample_weight: its batches count every row once"):
        small().fit(X, Y, sample_weight=np.ones(len(Y)))
    with pytest.raises(TypeError, match="fit takes X, y and validation, not weights"):
        small().fit(X, Y, weights=np.ones(len(Y)))


def test_bad_data() -> None:
    bad_fit("120 rows and y 119", y=Y[:119])
    bad_fit("no labels", y=None)
    bad_fit("Unknown label type", y=np.linspace(0, 1, len(X)))
    bad_fit("1d array", y=np.stack([Y, Y], 1))
    bad_fit("at least two classes", y=["one"] * len(X))
    bad_fit("int64", TypeError, given=X.astype(np.int64))
    bad_fit("1, 3 or 4 channels", given=X[:, None, None])
    nan = (X / 255).astype(np.float32)
    nan[3, 2, 1] = np.nan
    bad_fit("row 3 holds NaN", given=nan[:, None])
    bad_fit("pictures", given=VECTORS, augment=(RandomCrop(1),))
    bad_fit("augment is for inputs in memory", given=Arrays(X), augment=(RandomCrop(1),))
    bad_fit("not trained on.*'ten'", validation=(X[:2], ["one", "ten"]))
    bad_fit("2 rows and y 1", validation=(X[:2], ["one"]))
    bad_fit("8 × 7 pixels", validation=(X[:2, :, :7], Y[:2]))
    bad_fit("fitted to pictures in uint8", validation=(X[:2] / 255, Y[:2]))


def test_predictions_refuse_other_inputs() -> None:
    model = small().fit(X, Y)
    for match, given in (
        ("8 × 7 pixels", X[:, :, :7]),
        ("3 channels, those at fit had 1", np.repeat(X[:, None], 3, axis=1)),
        ("channels", X[0]),  # a picture without its batch
        ("fitted to pictures in uint8", X[:, None] / 255),
        ("fitted to pictures in uint8", TensorDataset(torch.zeros(2, 1, 8, 8))),
        ("n ≥ 1", X[:0]),
    ):
        with pytest.raises(ValueError, match=match):
            model.predict(given)
    floats = small(vector_network()).fit(VECTORS, Y)
    for match, given in (
        ("shape", VECTORS[:, :60]),
        ("row 1 holds NaN", np.where(np.arange(len(X))[:, None] == 1, np.nan, VECTORS)),
        ("fitted to floats", X),
    ):
        with pytest.raises(ValueError, match=match):
            floats.predict(given)
