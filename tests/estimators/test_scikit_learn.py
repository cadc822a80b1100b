"""The estimators keep scikit-learn's manners."""

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from gptree import CoordinateAscent, Gibbs, GPForestClassifier, GPTreeClassifier, Growth, InducingPoints, SubsetOfData
from small_sizes import small_random_features

X_TRAIN, X_TEST, Y_TRAIN, Y_TEST = train_test_split(
    *load_digits(return_X_y=True), train_size=250, test_size=300, random_state=0
)


@pytest.mark.parametrize(
    "estimator",
    [GPTreeClassifier(), GPForestClassifier(), GPTreeClassifier(growth=Growth(exemplars=3))],
    ids=["tree", "forest", "growth"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_passes_all_of_check_estimator(estimator):
    """Those of `sample_weight` among them; none is expected to fail."""
    with small_random_features():
        check_estimator(estimator)


@pytest.mark.parametrize(
    "estimator",
    [
        GPTreeClassifier(random_state=0),
        GPForestClassifier(random_state=0),
        GPTreeClassifier(inference=Gibbs(chains=3), predict_at="quadrature", random_state=0),
        GPTreeClassifier(node_limit=InducingPoints(60), predict_at="quadrature", random_state=0),
        GPTreeClassifier(node_limit=SubsetOfData(100), dtype="float32", random_state=0),
        GPTreeClassifier(kernel=ScaleKernel(MaternKernel(nu=1.5)), tree="ward", random_state=0),
        GPTreeClassifier.paper(inference=Gibbs(chains=4), random_state=0),
        GPTreeClassifier.paper("rbf", 8.0, inference=Gibbs(chains=4), random_state=0),
    ],
    ids=["tree", "forest", "gibbs", "sparse", "exemplars", "ward", "paper linear", "paper rbf"],
)
def test_learns_digits_and_gives_probabilities(estimator):
    probabilities = estimator.fit(X_TRAIN, Y_TRAIN).predict_proba(X_TEST)
    np.testing.assert_allclose(probabilities.sum(1), 1.0, atol=1e-5)
    assert estimator.score(X_TEST, Y_TEST) > 0.85
    assert np.array_equal(estimator.predict(X_TEST), estimator.classes_[probabilities.argmax(1)])
    np.testing.assert_allclose(np.log(probabilities), estimator.predict_log_proba(X_TEST), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "kernel", "scale", "length"),
    [((), LinearKernel, 4.0, None), (("rbf", 8.0, 0.5), RBFKernel, 8.0, 0.5), (("matern52",), MaternKernel, 4.0, 1.0)],
)
def test_the_settings_of_the_paper(given, kernel, scale, length):
    """Section C.1: zero mean, unit length, a fixed kernel, Gibbs sampling, quadrature, every point at every node."""
    model = GPTreeClassifier.paper(*given, random_state=3)
    assert type(model.kernel.base_kernel) is kernel
    assert model.kernel.outputscale.item() == pytest.approx(scale)
    if length is None:
        assert model.kernel.base_kernel.variance.item() == pytest.approx(1.0)
    else:
        assert model.kernel.base_kernel.lengthscale.item() == pytest.approx(length)
    settings = {name: value for name, value in model.get_params(deep=False).items() if name != "kernel"}
    expected = GPTreeClassifier().get_params(deep=False) | {
        "inference": Gibbs(),
        "prior_mean": None,
        "predict_at": "quadrature",
        "feature_map": "unit",
        "node_limit": None,
        "random_state": 3,
    }
    assert settings == {name: value for name, value in expected.items() if name != "kernel"}
    changed = GPTreeClassifier.paper(inference=Gibbs(chains=2), feature_map="sphere")
    assert (changed.inference, changed.feature_map) == (Gibbs(chains=2), "sphere")


def test_the_same_seed_gives_the_same_numbers_and_another_one_does_not():
    first, again, other = (
        GPTreeClassifier(inference=Gibbs(chains=2), random_state=seed).fit(X_TRAIN, Y_TRAIN).predict_proba(X_TEST)
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_grid_search_reaches_into_the_inference():
    search = GridSearchCV(
        GPTreeClassifier(inference=Gibbs(chains=1), random_state=0), {"inference__chains": [1, 4]}, cv=2
    ).fit(X_TRAIN, Y_TRAIN)
    assert search.best_params_["inference__chains"] in (1, 4)
    assert search.estimator.inference == Gibbs(chains=1)  # the caller's value is as it was


def test_settings_refuse_unknown_names_and_bad_values():
    with pytest.raises(ValueError, match="no setting 'chain'"):
        GPTreeClassifier(inference=Gibbs()).set_params(inference__chain=2)
    with pytest.raises(ValueError, match="keep must lie between"):
        Gibbs(steps=1, keep=2)
    with pytest.raises(ValueError, match="at least one sweep"):
        CoordinateAscent(sweeps=0)


def test_pipeline_cross_validation_and_clone():
    pipeline = make_pipeline(StandardScaler(), GPTreeClassifier(random_state=0))
    assert cross_val_score(pipeline, X_TRAIN, Y_TRAIN, cv=2).mean() > 0.8
    estimator = GPForestClassifier(n_estimators=2, inference=Gibbs(chains=2), node_limit=SubsetOfData(50))
    copy = clone(estimator)
    assert copy.inference == estimator.inference
    assert copy.n_estimators == 2
    assert not hasattr(copy, "classes_")


def test_pandas_strings_and_tensors():
    names = np.array([f"digit {i}" for i in range(10)])
    frame = pd.DataFrame(X_TRAIN, columns=[f"pixel {i}" for i in range(64)])
    from_pandas = GPTreeClassifier(random_state=0).fit(frame, pd.Series(names[Y_TRAIN]))
    assert list(from_pandas.feature_names_in_) == list(frame.columns)
    assert set(from_pandas.predict(frame)) <= set(names)
    from_torch = GPTreeClassifier(random_state=0).fit(torch.tensor(X_TRAIN), torch.tensor(Y_TRAIN))
    plain = GPTreeClassifier(random_state=0).fit(X_TRAIN, Y_TRAIN)
    assert np.array_equal(from_torch.predict_proba(torch.tensor(X_TEST)), plain.predict_proba(X_TEST))


def test_the_users_kernel_is_never_changed():
    kernel = ScaleKernel(MaternKernel(nu=2.5))
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    estimator = GPTreeClassifier(kernel=kernel, dtype="float64", random_state=0).fit(X_TRAIN, Y_TRAIN)
    assert estimator.kernel is kernel
    assert estimator.kernel_ is not kernel
    assert all(torch.equal(value, kernel.state_dict()[name]) for name, value in before.items())
    assert next(kernel.parameters()).dtype == torch.float32


def test_decision_path_follows_the_predicted_class():
    estimator = GPTreeClassifier(random_state=0).fit(X_TRAIN, Y_TRAIN)
    paths = estimator.decision_path(X_TEST[:20])
    for row, label in zip(paths.toarray(), estimator.predict(X_TEST[:20]), strict=True):
        assert set(np.flatnonzero(row)) == {node for node, _ in estimator.tree_.path(int(label))}


def test_class_prior_moves_the_prediction_far_from_the_data():
    prior = np.full(10, 0.05)
    prior[3] = 0.55
    far = -X_TEST[:5] - 100.0
    settings = {"kernel": "rbf", "prior_mean": None, "feature_map": None, "random_state": 0}
    tilted = GPTreeClassifier(class_prior=prior, **settings).fit(X_TRAIN, Y_TRAIN)
    np.testing.assert_allclose(tilted.predict_proba(far), np.tile(prior, (5, 1)), atol=1e-6)
    empirical = GPTreeClassifier(class_prior="empirical", **settings)
    frequencies = np.bincount(Y_TRAIN) / len(Y_TRAIN)
    np.testing.assert_allclose(empirical.fit(X_TRAIN, Y_TRAIN).predict_proba(far), [frequencies] * 5, atol=1e-6)


def test_a_forest_of_one_is_the_tree_and_common_nodes_are_fitted_once():
    tree = GPTreeClassifier(random_state=3).fit(X_TRAIN, Y_TRAIN)
    one = GPForestClassifier(n_estimators=1, random_state=3).fit(X_TRAIN, Y_TRAIN)
    assert np.array_equal(tree.predict_proba(X_TEST), one.predict_proba(X_TEST))
    same = GPForestClassifier(n_estimators=3, tree="chain", random_state=3).fit(X_TRAIN, Y_TRAIN)
    assert len(same.diagnostics_["sweeps"]) == 9  # three equal trees of nine nodes
    chain = GPTreeClassifier(tree="chain", random_state=3).fit(X_TRAIN, Y_TRAIN)
    np.testing.assert_allclose(same.predict_proba(X_TEST), chain.predict_proba(X_TEST), atol=1e-12)


def test_a_users_own_tree_is_used():
    nested = [[[0, 6], [8, [3, 5]]], [[1, [4, 7]], [2, 9]]]
    estimator = GPTreeClassifier(tree=nested, random_state=0).fit(X_TRAIN, Y_TRAIN)
    assert estimator.tree_.to_nested(list(range(10))) == nested
    again = GPTreeClassifier(tree=estimator.tree_, random_state=0).fit(X_TRAIN, Y_TRAIN)
    assert np.array_equal(estimator.predict_proba(X_TEST), again.predict_proba(X_TEST))


def test_diagnostics_are_reported_and_an_unsettled_fit_warns():
    estimator = GPTreeClassifier(inference=CoordinateAscent(sweeps=1), prior_mean=None, random_state=0)
    with pytest.warns(match="did not settle"):
        estimator.fit(X_TRAIN, Y_TRAIN)
    assert not estimator.diagnostics_["converged"].any()
    assert np.isfinite(estimator.diagnostics_["bound"]).all()
    sampled = GPTreeClassifier(inference=Gibbs(chains=3, steps=6, keep=4), random_state=0).fit(X_TRAIN, Y_TRAIN)
    assert (sampled.diagnostics_["r_hat"] > 0.8).all()


def test_workers_give_the_same_result():
    serial = GPForestClassifier(inference=Gibbs(chains=2), random_state=0).fit(X_TRAIN, Y_TRAIN)
    parallel = GPForestClassifier(inference=Gibbs(chains=2), random_state=0, n_jobs=2).fit(X_TRAIN, Y_TRAIN)
    np.testing.assert_allclose(serial.predict_proba(X_TEST), parallel.predict_proba(X_TEST), atol=1e-8)
