"""Frozen classifiers give the probabilities of the model, and nothing of it is left in them but tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import RQKernel, ScaleKernel
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from gptree import CoordinateAscent, Gibbs, GPForestClassifier, GPTreeClassifier, Growth
from gptree.experts import LDA, FittedExpert, KernelDensity, Pool, RandomFeatures, Ridge
from gptree.inference import InducingPoints, LearnKernel, frozen_variances
from gptree.maths.frozen import NotFrozenError

RNG = np.random.default_rng(0)
Y = np.repeat(np.arange(8), [2, 3, 6, 6, 6, 6, 6, 6])
MEANS = RNG.normal(size=(8, 5))
X = MEANS[Y] + 0.5 * RNG.normal(size=(len(Y), 5))
NEW = MEANS[np.arange(12) % 8] + 0.7 * RNG.normal(size=(12, 5))
BASE = Y < 6

CASES: dict[str, Any] = {
    "tree": GPTreeClassifier(),
    "forest": GPForestClassifier(),
    "quadrature": GPForestClassifier(predict_at="quadrature"),
    "inducing points": GPForestClassifier(predict_at="quadrature", node_limit=InducingPoints(8)),
    "features as they are": GPForestClassifier(feature_map=None, predict_at="quadrature"),
    "no experts, a prior": GPForestClassifier(prior_mean=None, class_prior="empirical", feature_map="unit"),
    "matern52": GPForestClassifier(kernel="matern52", predict_at="quadrature"),
    "linear": GPTreeClassifier(kernel="linear", predict_at="quadrature"),
    "paper": GPTreeClassifier.paper(inference=Gibbs(chains=3)),
    "paper, rbf": GPTreeClassifier.paper("rbf", inference=Gibbs(chains=3)),
    "wide": GPTreeClassifier.paper("rbf", output_scale=30.0, inference=CoordinateAscent()),
    "a kernel a node": GPTreeClassifier(
        prior_mean=None, inference=CoordinateAscent(learn=LearnKernel(steps=2, per_node=True)), predict_at="quadrature"
    ),
    "random features": GPTreeClassifier(
        prior_mean=Pool((RandomFeatures(LDA(), 20), RandomFeatures(KernelDensity(), 20), RandomFeatures(Ridge(), 30)))
    ),
}


def fitted(model: Any, rows: Any = slice(None), columns: Any = X) -> Any:
    return model.set_params(random_state=0).fit(columns[rows], Y[rows])


@pytest.mark.parametrize("name", CASES)
def test_a_frozen_model_gives_the_probabilities_of_the_model(name: str) -> None:
    model = fitted(CASES[name])
    expected = model.predict_proba(NEW)
    frozen = model.freeze()
    assert np.array_equal(frozen.classes, model.classes_)
    np.testing.assert_allclose(frozen(torch.tensor(NEW)).numpy(), expected, rtol=0, atol=1e-12)
    single = model.freeze("float32")
    assert {b.dtype for b in single.buffers() if b.is_floating_point()} == {torch.float32}
    found = single(torch.tensor(NEW, dtype=torch.float32))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5)
    assert not list(frozen.parameters())


@pytest.fixture(scope="module")
def grown() -> Any:
    model = fitted(GPForestClassifier(growth=Growth(3)), BASE)
    return model.add_classes(X[~BASE], Y[~BASE])


def test_grown_models(grown: Any) -> None:
    """The experts on random features of a base session compute in single precision."""
    np.testing.assert_allclose(grown.freeze()(torch.tensor(NEW)).numpy(), grown.predict_proba(NEW), rtol=0, atol=1e-5)
    later = fitted(GPTreeClassifier(), BASE).add_classes(X[~BASE], Y[~BASE]).remove_classes([0])
    np.testing.assert_allclose(later.freeze()(torch.tensor(NEW)).numpy(), later.predict_proba(NEW), rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", [GPTreeClassifier, GPForestClassifier])
@pytest.mark.parametrize("growth", [None, Growth(3)])
def test_grown_models_in_single_precision(family: Any, growth: Growth | None) -> None:
    model = fitted(family(growth=growth), BASE).add_classes(X[~BASE], Y[~BASE])
    single = model.freeze("float32")
    assert {b.dtype for b in single.buffers() if b.is_floating_point()} == {torch.float32}
    found = single(torch.tensor(NEW, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(found, model.predict_proba(NEW), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", [GPTreeClassifier, GPForestClassifier])
@pytest.mark.parametrize("growth", [None, Growth(3)])
def test_models_that_compute_in_single_precision(family: Any, growth: Growth | None) -> None:
    model = fitted(family(dtype="float32", growth=growth), BASE)
    for arrived in (False, True):
        if arrived:
            model.add_classes(X[~BASE], Y[~BASE])
        expected = model.predict_proba(NEW)
        for frozen in (model.freeze(), model.freeze("float32")):
            found = frozen(torch.tensor(NEW, dtype=torch.float32))
            assert found.dtype == torch.float32
            np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-5)


def test_it_learns_nothing_later_and_shares_nothing() -> None:
    model = fitted(GPForestClassifier(), BASE)
    frozen, before = model.freeze(), model.predict_proba(NEW)
    frozen.rows_at_a_time = 5  # of twelve
    model.add_classes(X[~BASE], Y[~BASE])
    np.testing.assert_allclose(frozen(torch.tensor(NEW)).numpy(), before, rtol=0, atol=1e-12)
    for buffer in frozen.buffers():
        buffer.zero_()
    model.undo()
    assert np.array_equal(model.predict_proba(NEW), before)


def test_the_state_is_in_the_state_dict() -> None:
    model = fitted(GPTreeClassifier(predict_at="quadrature"), Y < 4)
    frozen, again = model.freeze("float32"), model.freeze("float32")
    rows = torch.tensor(NEW, dtype=torch.float32)
    expected = frozen(rows)
    for buffer in again.buffers():
        if buffer.is_floating_point():
            buffer.zero_()
    again.load_state_dict(frozen.state_dict())
    assert torch.equal(again(rows), expected)


def test_one_class_and_square_roots() -> None:
    with pytest.warns(UserWarning, match="one class only"):
        one = fitted(GPTreeClassifier(), Y == 3)
    assert one.freeze()(torch.tensor(NEW)).tolist() == [[1.0]] * len(NEW)
    model = fitted(GPTreeClassifier(), columns=np.abs(X))
    np.testing.assert_allclose(model.freeze()(torch.tensor(NEW)).numpy(), model.predict_proba(NEW), rtol=0, atol=1e-12)


@dataclass(frozen=True, eq=False)
class Own(FittedExpert):
    """An expert that says nothing of how it is frozen."""

    def log_probabilities(self, X: Any, raw: Any = None, cache: Any = None) -> Any:
        return X.new_zeros(len(X), 8)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (GPTreeClassifier(kernel=ScaleKernel(RQKernel())), "the kernel ScaleKernel cannot be frozen: only"),
        (GPTreeClassifier(prior_mean=LogisticRegression()), "the expert FittedSklearn cannot be frozen"),
        (GPTreeClassifier(feature_map=StandardScaler()), "the feature map StandardScaler cannot be frozen"),
    ],
)
def test_what_is_code_is_refused_and_still_predicts(model: Any, said: str) -> None:
    with pytest.raises(NotFrozenError, match=said):
        fitted(model).freeze()
    np.testing.assert_allclose(model.predict_proba(NEW).sum(1), 1.0)


def test_an_expert_of_your_own_is_refused() -> None:
    from dataclasses import replace

    model = fitted(GPTreeClassifier())
    model.state_ = replace(model.state_, experts=Own())
    with pytest.raises(NotFrozenError, match="the expert Own cannot be frozen"):
        model.freeze()
    assert model.predict_proba(NEW).shape == (len(NEW), 8)


def test_a_posterior_of_an_inference_of_your_own_is_refused() -> None:
    """An inference of your own whose posteriors are the library's freezes: nothing of its code is needed any more."""
    own: Any = type("OwnPosterior", (), {"factors": 1, "factoriser": lambda self, grams: lambda draws: None})()
    with pytest.raises(NotFrozenError, match="the posterior OwnPosterior cannot be frozen"):
        frozen_variances._inverses(own, None)  # type: ignore[arg-type]


def test_variances_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(GPTreeClassifier(predict_at="quadrature"))
    monkeypatch.setattr(frozen_variances, "MOST_NUMBERS", 10)
    with pytest.raises(NotFrozenError, match="freeze with predict_at='mean'"):
        model.freeze()
    with pytest.raises(ValueError, match="dtype must be"):
        model.freeze("float16")


def test_points_in_single_precision_share_products_with_their_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `DOUBLE_UP_TO` rows experts keep their points in single precision."""
    monkeypatch.setattr("gptree.experts.products.DOUBLE_UP_TO", 10)
    monkeypatch.setattr("gptree.experts.kernel_ridge.DOUBLE_UP_TO", 10)
    model = fitted(GPForestClassifier())
    assert model.state_.prediction.width == len(X)
    state, features = model.state_, model.state_.features(NEW)
    twin = state.model.log_probabilities(features, lambda rows: state.class_scores(features[rows], NEW[rows]))
    np.testing.assert_allclose(model.predict_proba(NEW), twin.exp().numpy(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_prediction_of_a_state_is_that_of_its_parts_one_by_one(name: str) -> None:
    model = fitted(CASES[name])
    state, features = model.state_, model.state_.features(NEW)

    def scores(rows: slice) -> Any:
        return state.class_scores(features[rows], NEW[rows])

    given = None if state.experts is None and state.class_log_prior is None else scores
    twin = state.model.log_probabilities(features, given, model.predict_at)
    np.testing.assert_allclose(model.predict_log_proba(NEW), twin.numpy(), rtol=1e-9, atol=1e-9)
    one = np.concatenate([model.predict_proba(row[None]) for row in NEW])
    np.testing.assert_allclose(one, model.predict_proba(NEW), rtol=0, atol=1e-12)
