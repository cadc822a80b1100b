"""Estimators come back from disk as they were."""

import json

import gpytorch
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB

from gptree import (
    CoordinateAscent,
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    InducingPoints,
    LearnKernel,
    load_model,
)
from gptree.estimators.storage import state_from_parts, state_to_parts
from gptree.experts import LDA, Pool, RandomFeatures, Ridge
from gptree.storage import StorageError, folder
from gptree.tree import BalancedTwoMeans

X, Y = load_digits(return_X_y=True)
X, Y, X_NEW = X[:200], Y[:200], X[200:300]


@pytest.mark.parametrize(
    "estimator",
    [
        GPTreeClassifier(random_state=0),
        GPForestClassifier(random_state=0, n_estimators=3, inference=Gibbs(chains=2), predict_at="quadrature"),
        GPTreeClassifier.paper(inference=Gibbs(chains=2), random_state=0),
        GPTreeClassifier(random_state=0, node_limit=InducingPoints(40), predict_at="quadrature", dtype="float32"),
        GPTreeClassifier(random_state=0, tree=BalancedTwoMeans(3), class_prior="empirical", feature_map=None),
        GPTreeClassifier(random_state=0, prior_mean=Pool(experts=(LDA((0.1, 0.5)), RandomFeatures(Ridge(), count=50)))),
        GPTreeClassifier(random_state=0, prior_mean=None),
        GPTreeClassifier(
            kernel=gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=64)),
            inference=CoordinateAscent(learn=LearnKernel(steps=2, per_node=True)),
            random_state=0,
        ),
    ],
    ids=["default", "forest", "paper", "sparse", "settings", "experts", "zero mean", "per-node kernels"],
)
def test_round_trip(estimator, tmp_path):
    estimator.fit(X, Y)
    estimator.save(tmp_path / "model")
    loaded = type(estimator).load(tmp_path / "model")
    if estimator.predict_at == "mean":  # to the last bit; factors for variances are made anew, up to rounding
        assert np.array_equal(loaded.predict_log_proba(X_NEW), estimator.predict_log_proba(X_NEW))
    tolerance = 1e-3 if estimator.dtype == "float32" else 1e-9
    np.testing.assert_allclose(loaded.predict_proba(X_NEW), estimator.predict_proba(X_NEW), atol=tolerance)
    assert loaded.explain(X_NEW[:1])[0].neighbours == estimator.explain(X_NEW[:1])[0].neighbours
    assert np.array_equal(load_model(tmp_path / "model").predict(X_NEW), estimator.predict(X_NEW))
    parameters = {name: value for name, value in estimator.get_params(deep=False).items() if name != "kernel"}
    assert {name: loaded.get_params(deep=False)[name] for name in parameters} == parameters
    assert loaded.fit(X, Y).score(X, Y) > 0.9  # a loaded estimator can be fitted again
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert len(names) == 2
    assert names[1] == "model.json"


def test_strings_and_feature_names_survive(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=[f"p{i}" for i in range(64)])
    labels = np.array([f"digit {i} ✓" for i in Y], dtype=object)
    GPTreeClassifier(random_state=0).fit(frame, labels).save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.predict(frame[:3]).tolist() == labels[:3].tolist()
    assert loaded.feature_names_in_.tolist() == list(frame.columns)


def test_saving_again_replaces_the_old_model(tmp_path):
    GPTreeClassifier(random_state=0).fit(X, Y).save(tmp_path)
    second = GPTreeClassifier(random_state=1, tree="random").fit(X, Y)
    second.save(tmp_path)
    assert np.array_equal(load_model(tmp_path).predict_proba(X_NEW), second.predict_proba(X_NEW))
    assert len(list(tmp_path.iterdir())) == 2


def test_another_class_is_refused(tmp_path):
    GPTreeClassifier(random_state=0).fit(X, Y).save(tmp_path)
    with pytest.raises(StorageError, match="holds a GPTreeClassifier"):
        GPForestClassifier.load(tmp_path)


class Halve(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X / 2


def test_what_cannot_be_stored_says_so_and_leaves_nothing(tmp_path):
    estimator = GPTreeClassifier(feature_map=Halve(), random_state=0).fit(X, Y)
    with pytest.raises(StorageError, match="Pipeline"):
        estimator.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    estimator = GPTreeClassifier(prior_mean=GaussianNB(), random_state=0).fit(X, Y)
    with pytest.raises(StorageError, match="prior_mean"):
        estimator.save(tmp_path / "model")


def test_an_unknown_setting_in_the_file_is_an_error(tmp_path):
    GPTreeClassifier(random_state=0, inference=Gibbs()).fit(X, Y).save(tmp_path)
    path = tmp_path / "model.json"
    document = json.loads(path.read_text())
    document["parameters"]["inference"]["@"] = "os.system"
    document["checksum"] = folder._checksum({key: document[key] for key in document if key != "checksum"})
    path.write_text(json.dumps(document))
    with pytest.raises(StorageError, match=r"unknown here\. Import the module"):
        load_model(tmp_path)


def test_files_hold_no_array_of_rows_times_classes(tmp_path):
    """What is left out is computed again, from experts and rows; of other rows it cannot be."""
    model = GPTreeClassifier(random_state=0, class_prior="empirical").fit(X, Y)
    model.save(tmp_path / "model")
    tensors = load_file(next((tmp_path / "model").glob("*.safetensors")))
    rows = len(model.state_.y)
    assert not [name for name, value in tensors.items() if value.shape == (rows, 10) and not name.startswith("experts")]
    loaded = load_model(tmp_path / "model")
    np.testing.assert_allclose(loaded.left_out().probabilities, model.left_out().probabilities, rtol=0, atol=1e-12)
    assert loaded.diagnostics_["doubtful"].tolist() == model.diagnostics_["doubtful"].tolist()
    assert loaded.novelty_threshold() == pytest.approx(model.novelty_threshold(), abs=1e-12)
    document, tensors = state_to_parts(model.state_)
    document["n_features"] = X.shape[1]
    tensors["experts.experts.2.points"] = tensors["experts.experts.2.points"].flip(0)
    with pytest.raises(StorageError, match="left-out predictions are missing: the experts have other rows"):
        state_from_parts(document, tensors, torch.device("cpu"), None)


def test_what_follows_from_other_arrays_is_not_stored(tmp_path, monkeypatch):
    """Rows in single precision, for experts of many rows, and precisions of nodes whose rows are kept."""
    monkeypatch.setattr("gptree.experts.products.DOUBLE_UP_TO", 100)
    model = GPTreeClassifier(random_state=0, node_limit=InducingPoints(40), predict_at="quadrature").fit(X, Y)
    model.save(tmp_path / "model")
    tensors = load_file(next((tmp_path / "model").glob("*.safetensors")))
    assert [name for name, value in tensors.items() if value.shape == X.shape] == ["features"]
    assert "sites" in model.diagnostics_["posterior"]
    assert not [name for name in tensors if name.endswith("precision")]
    loaded = load_model(tmp_path / "model")
    assert loaded.state_.experts.experts[2].points.dtype == torch.float32
    np.testing.assert_allclose(loaded.predict_proba(X_NEW), model.predict_proba(X_NEW), rtol=0, atol=1e-12)
    np.testing.assert_allclose(loaded.novelty_score(X_NEW), model.novelty_score(X_NEW), rtol=0, atol=1e-12)
