"""Every pool of the library's experts can grow: base sessions on exemplars, further classes, examples, undo, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.naive_bayes import GaussianNB
from torch import Tensor

from gptree import GPTreeClassifier, Growth, load_model
from gptree.experts import (
    LDA,
    Examples,
    ExemplarDensity,
    ExemplarRidge,
    Expert,
    FittedKernelDensity,
    FittedKernelRidge,
    FittedPool,
    FittedRandomFeatures,
    KernelDensity,
    KernelRidge,
    Pool,
    PriorScores,
    RandomFeatures,
    Ridge,
    SklearnExpert,
)
from gptree.experts.random_features import SingleRandomFeatures
from small_sizes import small_random_features

X, Y = load_digits(return_X_y=True)
BASE, LATER, NEW = np.flatnonzero(Y[:250] < 7), np.flatnonzero(Y[:60] >= 7), slice(300, 500)

EXPERTS = {
    "LDA": LDA(),
    "ridge": Ridge(penalties=(0.1, 1.0)),
    "kernel ridge": KernelRidge(),
    "kernel density": KernelDensity(),
    "LDA on random features": RandomFeatures(LDA(), 40),
    "ridge on random features": RandomFeatures(Ridge(), 60, unit_length=False),
    "density on random features": RandomFeatures(KernelDensity(), 60),
    "kernel ridge on random features": RandomFeatures(KernelRidge(), 60),
    "a pool of one": Pool((LDA(),)),
    "the default pool as a value": Pool(),
    "pools in pools": Pool((KernelRidge(), Pool((LDA(), RandomFeatures(Pool((LDA(), KernelDensity())), 40))))),
}


def model(prior_mean: object, growth: Growth | None) -> GPTreeClassifier:
    return GPTreeClassifier(prior_mean=prior_mean, growth=growth, random_state=0, device="cpu")


@pytest.mark.parametrize("name", EXPERTS)
@pytest.mark.parametrize("growth", [None, Growth(exemplars=3)], ids=["later", "growth"])
def test_models_around_any_expert_grow(name: str, growth: Growth | None, tmp_path: Path) -> None:
    with small_random_features():
        grown = model(EXPERTS[name], growth).fit(X[BASE], Y[BASE])
        states = [grown.predict_proba(X[NEW])]
        grown.add_classes(X[LATER], Y[LATER])
        states.append(grown.predict_proba(X[NEW]))
        assert (grown.classes_[states[-1].argmax(1)] == Y[NEW]).mean() > 0.64  # prior_mean="experts": 0.76 and 0.70
        more = np.flatnonzero(Y[250:300] == 2) + 250
        grown.add_examples(X[more], Y[more])
        states.append(grown.predict_proba(X[NEW]))
        with pytest.warns(UserWarning, match="cut out of the base trees"):
            grown.remove_classes([0])
        assert 0 not in grown.classes_
        grown.save(tmp_path / "model")
        loaded = load_model(tmp_path / "model")
        np.testing.assert_allclose(loaded.predict_proba(X[NEW]), grown.predict_proba(X[NEW]), rtol=0, atol=1e-12)
        for before in reversed(states):
            assert np.array_equal(grown.undo().predict_proba(X[NEW]), before)
        np.testing.assert_allclose(loaded.undo().undo().undo().predict_proba(X[NEW]), states[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("growth", [None, Growth(exemplars=3)], ids=["later", "growth"])
def test_held_out_rows(growth: Growth | None) -> None:
    """Experts that learned from all rows are not those of episodes on the held-out ones."""
    held_out = np.arange(len(BASE)) % 2 == 0
    with small_random_features():
        grown = model(Pool((LDA(), RandomFeatures(LDA(), 40))), growth).fit(X[BASE], Y[BASE], held_out=held_out)
        before = grown.predict_proba(X[NEW])
        assert grown.add_classes(X[LATER], Y[LATER]).score(X[NEW], Y[NEW]) > 0.6
        assert np.array_equal(grown.undo().predict_proba(X[NEW]), before)


def points_kept(expert: object) -> list[int]:
    """How many examples each part of a fitted expert keeps."""
    if isinstance(expert, FittedPool):
        return [count for part in expert.experts for count in points_kept(part)]
    if isinstance(expert, FittedRandomFeatures):
        return points_kept(expert.expert)
    return [len(expert.points)] if isinstance(expert, FittedKernelDensity | FittedKernelRidge) else []


def test_a_base_session_keeps_exemplars_alone() -> None:
    with small_random_features():
        grown = model(EXPERTS["pools in pools"], Growth(exemplars=3)).fit(X[BASE], Y[BASE])
        assert points_kept(grown.state_.experts) == [21, 21]
        whole = model(EXPERTS["pools in pools"], None).fit(X[BASE], Y[BASE])
        assert points_kept(whole.state_.experts) == [len(BASE), len(BASE)]


@pytest.mark.parametrize(
    ("prior_mean", "reason"),
    [
        (GaussianNB(), "GaussianNB learns from all examples at once"),
        (Pool((LDA(), SklearnExpert(GaussianNB()))), "GaussianNB learns from all examples at once"),
        (lambda raw: raw[:, :7], "fixed list of classes"),
        (Pool((LDA(), Pool((PriorScores(lambda raw: raw[:, :7]),)))), "fixed list of classes"),
    ],
)
def test_adapters_say_why_they_cannot(prior_mean: object, reason: str) -> None:
    with pytest.raises(ValueError, match=f"cannot change its classes: .*{reason}.*prior_mean="):
        model(prior_mean, Growth()).fit(X[BASE], Y[BASE])
    fitted = model(prior_mean, None).fit(X[BASE], Y[BASE])
    with pytest.raises(ValueError, match=reason):
        fitted.add_classes(X[LATER], Y[LATER])


# ----------------------------------------------------------------------------------------------- forms on exemplars


def sphere(n: int, seed: int = 0) -> Tensor:
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


def test_forms_on_exemplars() -> None:
    rows, weights = torch.tensor([1, 2]), torch.ones(2)
    assert LDA().on_exemplars(rows, weights) == LDA()
    for ridge in (Ridge(most_classes=7), KernelRidge(most_classes=7)):
        kept = ridge.on_exemplars(rows, weights)
        assert [kept.pays(n) for n in (7, 8)] == [True, False]
    single = RandomFeatures(LDA(), 9).on_exemplars(rows, weights)
    assert isinstance(single, SingleRandomFeatures)
    assert single.get_params() == RandomFeatures(LDA(), 9).get_params()
    density = KernelDensity(sharpnesses=(3.0,)).on_exemplars(rows, weights)
    assert isinstance(density, ExemplarDensity)
    assert density.sharpnesses == (3.0,)
    pool = Pool((LDA(), RandomFeatures(KernelRidge(), 9))).on_exemplars(rows, weights)
    assert isinstance(pool, Pool)
    inner = pool.experts[1]
    assert isinstance(inner, RandomFeatures)
    assert isinstance(inner.expert, ExemplarRidge)


def test_ridge_on_exemplars_equals_fits_without_each_of_them() -> None:
    """Of an exemplar: the regression on the others, their weights as they were. Of another example: on all of them."""
    x, y, alpha = sphere(24), torch.arange(24) % 4, 0.3
    rows = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])  # three of classes 0 and 1, two of 2 and 3
    examples = Examples.of(x, y, folds=torch.full_like(y, -1))
    fit = KernelRidge(penalties=(alpha,)).on_exemplars(rows, torch.ones(10)).fit(examples)
    fitted = fit.expert
    assert isinstance(fitted, FittedKernelRidge)
    counts = torch.bincount(y[rows])[y[rows]].double()
    W = (1 / counts) / (1 / counts).mean()

    def scores(at: Tensor, points: Tensor, w: Tensor) -> Tensor:
        root = torch.diag(w.sqrt())
        K = (x[points] @ x[points].T - 1).exp()
        targets = torch.eye(4, dtype=x.dtype)[y[points]]
        A = root @ torch.linalg.inv(root @ K @ root + alpha * torch.eye(len(points), dtype=x.dtype)) @ root @ targets
        return (x[at] @ x[points].T - 1).exp() @ A

    for i in range(24):
        others = rows != i
        expected = scores(torch.tensor([i]), rows[others], W[others])
        expected = (fitted.temperature * expected).log_softmax(1)[0]
        torch.testing.assert_close(fit.left_out[i], expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(fitted.scores(x), scores(torch.arange(24), rows, W), rtol=1e-9, atol=1e-9)


def test_ridge_on_all_examples_is_kernel_ridge() -> None:
    x, y = sphere(40, seed=2), torch.arange(40) % 4
    examples = Examples.of(x, y)
    whole = KernelRidge().fit(examples)
    again = KernelRidge().on_exemplars(torch.arange(40), torch.ones(40)).fit(examples)
    assert torch.equal(whole.left_out, again.left_out)


# -------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LDA(shrinkages=()), r"shrinkages must lie in \(0, 1\]"),
        (lambda: LDA(shrinkages=(0.5, 1.5)), r"shrinkages must lie in \(0, 1\]"),
        (lambda: LDA(count_weight=-1.0), "count_weight must not be negative"),
        (lambda: Ridge(penalties=(0.0,)), "penalties must be positive numbers"),
        (lambda: KernelRidge(penalties=(-1.0,)), "penalties must be positive numbers"),
        (lambda: KernelRidge(at_most=3), "at_most must be at least 10"),
        (lambda: KernelDensity(sharpnesses=()), "sharpnesses must be positive numbers"),
        (lambda: RandomFeatures(LDA(), 0), "count must be at least 1"),
        (lambda: RandomFeatures("lda"), "RandomFeatures takes experts"),  # pyright: ignore[reportArgumentType]
        (lambda: Pool(()), "at least one expert"),
        (lambda: Pool((GaussianNB(),)), "a pool takes experts"),  # pyright: ignore[reportArgumentType]
        (lambda: SklearnExpert(GaussianNB(), folds=1), "folds must be at least 2"),
    ],
)
def test_experts_check_themselves_when_made(make, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_experts_by_name() -> None:
    assert {"experts", "lda", "ridge", "kernel-ridge", "kernel-density"} <= set(Expert.names())
    assert Expert.of("experts") == Pool()
    by_name = model("lda", None).fit(X[BASE], Y[BASE]).predict_proba(X[:20])
    assert np.array_equal(by_name, model(LDA(), None).fit(X[BASE], Y[BASE]).predict_proba(X[:20]))
    assert hash(Pool([LDA([0.5])])) == hash(Pool((LDA((0.5,)),)))  # pyright: ignore[reportArgumentType]
