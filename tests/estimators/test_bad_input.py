"""Odd data get a right answer or a clear error; a failed fit leaves the estimator as it was."""

import warnings

import numpy as np
import pytest
from gpytorch.kernels import GridInterpolationKernel, RBFKernel

from gptree import GPForestClassifier, GPTreeClassifier, Growth, load_model
from gptree.experts import LDA, KernelDensity, Pool

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(4, 6))
Y = np.repeat(np.arange(4), 10)
X = CENTRES[Y] + 0.2 * RNG.normal(size=(40, 6))


@pytest.fixture
def fitted():
    return GPTreeClassifier(random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.where(np.arange(6) == 2, np.nan, X), Y, "NaN"),
        (np.where(np.arange(6) == 2, np.inf, X), Y, "infinity"),
        (X, Y[:-1], "inconsistent numbers of samples"),
        (X[:0], Y[:0], "0 sample"),
        (X[:, :0], Y, "0 feature"),
        (X[0], Y, "Expected 2D array"),
        (X[None], Y, "dim 3"),
        (X, np.linspace(0, 1, 40), "continuous"),
        (X, [None, *["a"] * 39], r"row 0 has no label \(None\): give every row one, or leave the row out"),
        (X, np.array([7, *["a"] * 39], dtype=object), "there are 7 and 'a': make all of them text, or all numbers"),
        (X.astype(complex), Y, "omplex"),
        (np.full((40, 6), "text"), Y, "convert"),
    ],
)
def test_clear_errors(fitted, features, labels, message):
    before = fitted.predict_proba(X)
    with pytest.raises(ValueError, match=message):
        fitted.fit(features, labels)
    assert np.array_equal(fitted.predict_proba(X), before)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "cubic"}, "unknown kernel"),
        ({"kernel": 3}, "kernel must be"),
        ({"inference": 3}, "inference must be"),
        ({"inference": "hmc"}, "Unknown inference 'hmc'"),
        ({"tree": "oak"}, "oak"),
        ({"tree": [[0, 1], 2]}, "missing"),
        ({"predict_at": "median"}, "predict_at"),
        ({"feature_map": "cube"}, "feature_map"),
        ({"feature_map": 7}, "feature_map"),
        ({"prior_mean": "oracle"}, "Unknown expert 'oracle'"),
        ({"prior_mean": 3}, "prior_mean must be"),
        ({"class_prior": "uniform"}, "class_prior"),
        ({"class_prior": [0.5, 0.5]}, "4 positive numbers"),
        ({"class_prior": [0.5, 0.3, 0.2, float("nan")]}, "4 positive numbers"),
        ({"class_prior": [0.5, 0.3, 0.2, float("inf")]}, "4 positive numbers"),
        ({"class_prior": [0.5, 0.3, 0.2, 0.0]}, "4 positive numbers"),
        ({"class_prior": [0.5, 0.6, 0.2, -0.3]}, "4 positive numbers"),
        ({"kernel": GridInterpolationKernel(RBFKernel(), 8, num_dims=2)}, "6 columns .* this number of dimensions"),
        (
            {"kernel": GridInterpolationKernel(RBFKernel(), 8, num_dims=1, grid_bounds=[(-0.1, 0.1)], active_dims=[0])},
            "out of bounds .* a grid must reach beyond",
        ),
        ({"node_limit": 1}, "two points"),
        ({"node_limit": "many"}, "node_limit"),
        ({"dtype": "float16"}, "dtype"),
        ({"memory_budget": 10}, "memory_budget"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GPTreeClassifier(**parameters).fit(X, Y)


def test_n_trees_must_be_positive():
    with pytest.raises(ValueError, match="n_estimators"):
        GPForestClassifier(n_estimators=0).fit(X, Y)


def test_another_feature_count_is_refused(fitted):
    with pytest.raises(ValueError, match="5 features"):
        fitted.predict(X[:, :5])


def test_one_class_and_one_sample():
    with pytest.warns(UserWarning, match="one class only, 'only'") as said:
        one_class = GPTreeClassifier().fit(X, np.full(40, "only"))
    assert said[0].filename == __file__
    assert set(one_class.predict(X)) == {"only"}
    np.testing.assert_array_equal(one_class.predict_proba(X), np.ones((40, 1)))
    assert one_class.explain(X[:1])[0].path == ()
    with pytest.warns(UserWarning, match="one class only, 5"):
        assert GPTreeClassifier().fit(X[:1], [5]).predict(X[:3]).tolist() == [5, 5, 5]


def test_two_classes_are_no_reason_to_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        GPTreeClassifier(random_state=0).fit(X[Y < 2], Y[Y < 2])


def test_one_sample_a_class():
    few = GPTreeClassifier(random_state=0).fit(CENTRES, np.arange(4))
    assert few.score(X, Y) > 0.9
    assert len(np.unique(few.novelty_score(X))) == len(X)  # strangeness still has an order


@pytest.mark.filterwarnings("ignore:there is one class only")
@pytest.mark.parametrize("kind", [GPTreeClassifier, GPForestClassifier])
@pytest.mark.parametrize("growth", [None, Growth()])
@pytest.mark.parametrize("n_classes", [1, 12])
def test_one_class_and_a_class_for_every_row(kind, growth, n_classes, tmp_path):
    rows = 3 * RNG.normal(size=(12, 6))
    model = kind(random_state=0, growth=growth).fit(rows, np.arange(12) % n_classes)
    p = model.predict_proba(rows)
    assert (model.predict(rows) == np.arange(12) % n_classes).all()
    for beam in (None, 3):
        found = model.predict_top_k(rows, n_classes, beam=beam)
        assert (found.classes[:, 0] == np.arange(12) % n_classes).all()
        np.testing.assert_allclose(found.outside, 0, atol=1e-12)
        with pytest.raises(ValueError, match=f"from 1 to the {n_classes} classes, not {n_classes + 1}"):
            model.predict_top_k(rows, n_classes + 1, beam=beam)
    assert np.isfinite(model.novelty_score(X)).all()
    assert model.predict_open(rows, reject=0.3).shape == (12,)
    model.save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").predict_proba(rows), p)
    model.add_classes(X[:3], [50, 50, 51])
    assert model.predict_proba(rows).shape == (12, n_classes + 2)
    assert np.array_equal(model.undo().predict_proba(rows), p)


@pytest.mark.parametrize("labels", [Y + 2**62, Y - 2**62, Y * 1.0, Y.astype(np.int8), Y.astype(str)])
def test_labels_of_any_kind(labels):
    estimator = GPTreeClassifier(random_state=0).fit(X, labels)
    assert estimator.score(X, labels) > 0.95
    assert estimator.predict(X).dtype == np.asarray(labels).dtype


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_any_scale_gives_the_same_answer(scale, dtype):
    plain = GPTreeClassifier(random_state=0, dtype=dtype).fit(X, Y).predict_proba(X)
    scaled = GPTreeClassifier(random_state=0, dtype=dtype).fit(X * scale, Y).predict_proba(X * scale)
    np.testing.assert_allclose(scaled, plain, atol=1e-4 if dtype == "float32" else 1e-8)


def test_without_a_feature_map_a_scale_that_overflows_is_an_error():
    with pytest.raises(ValueError, match="scale of the features"):
        GPTreeClassifier(kernel="linear", feature_map=None, dtype="float32").fit(X * 1e30, Y)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, bool, object])
def test_odd_dtypes(dtype):
    features = np.round(np.abs(X) * 10).astype(dtype)
    assert np.isfinite(GPTreeClassifier(random_state=0).fit(features, Y).predict_proba(features)).all()


def test_constant_columns_constant_rows_and_duplicates():
    columns = np.hstack([X, np.ones((40, 3))])
    assert GPTreeClassifier(random_state=0).fit(columns, Y).score(columns, Y) > 0.9
    constant = GPTreeClassifier(random_state=0).fit(np.ones((40, 6)), Y).predict_proba(np.ones((2, 6)))
    assert np.isfinite(constant).all()
    doubled = GPTreeClassifier(random_state=0).fit(np.vstack([X, X]), np.concatenate([Y, (Y + 1) % 4]))
    assert np.isfinite(doubled.predict_proba(X)).all()


def test_very_unequal_classes():
    features = np.vstack([X[Y == 0][:1], CENTRES[1] + 0.2 * RNG.normal(size=(500, 6)), X[Y == 2][:2]])
    labels = np.repeat([0, 1, 2], [1, 500, 2])
    estimator = GPTreeClassifier(random_state=0, node_limit=64).fit(features, labels)
    assert estimator.predict(CENTRES[:3]).tolist() == [0, 1, 2]


def test_classes_of_one_row_and_of_ten_thousand():
    means = RNG.normal(size=(7, 6))

    def rows(*counts):
        y = np.repeat(np.arange(7), counts)
        return means[y] + 0.2 * RNG.normal(size=(len(y), 6)), y

    experts = Pool((LDA(), KernelDensity()))  # the default has kernel ridge too, which takes ten seconds here
    plain = GPTreeClassifier(random_state=0, prior_mean=experts).fit(*rows(1, 10_000, 2, 40, 1, 0, 0))
    assert plain.predict(means[:5]).tolist() == [0, 1, 2, 3, 4]
    grown = GPTreeClassifier(random_state=0, growth=Growth()).fit(*rows(1, 0, 2, 40, 1, 0, 0))
    grown.add_classes(*rows(0, 10_000, 0, 0, 0, 1, 0))
    assert grown.predict(means[:6]).tolist() == [0, 1, 2, 3, 4, 5]


def test_unfitted_use_is_an_error():
    from sklearn.exceptions import NotFittedError

    for method in ("predict", "predict_proba", "explain", "decision_path"):
        with pytest.raises(NotFittedError):
            getattr(GPTreeClassifier(), method)(X)
    with pytest.raises(NotFittedError):
        GPTreeClassifier().save("anywhere")
    with pytest.raises(NotFittedError):
        _ = GPTreeClassifier().tree_
