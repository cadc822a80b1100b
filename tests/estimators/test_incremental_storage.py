"""Models that grow come back from disk with their journal, and go on from there as if they had never left."""

from __future__ import annotations

import copy
import json
import re
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from gptree import (
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    Graft,
    Growth,
    Herding,
    KMeansPlusPlusExemplars,
    SessionTree,
    load_model,
)
from gptree.estimators.storage import state_from_parts, state_to_parts
from gptree.experts import KernelRidge
from gptree.incremental import memory_left_out
from gptree.storage import StorageError
from growing_pairs import KINDS, STRATEGIES, quarter_of_the_pairs

RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(15, 8))
Y = np.repeat(np.arange(15), 12)
X = CENTRES[Y] + 0.3 * RNG.normal(size=(len(Y), 8))
PLACE = np.tile(np.arange(12), 15)
TEST = PLACE >= 9
OLD = (Y < 5) & (PLACE < 9)

ALWAYS = {"random_state": 0, "device": "cpu"}
each_kind = pytest.mark.parametrize("kind", KINDS)


pytestmark = pytest.mark.usefixtures("few_random_features")


@cache
def fitted(kind: str):
    parameters = {**ALWAYS, "growth": Growth() if "growth" in kind else None}
    if "forest" in kind:
        return GPForestClassifier(n_estimators=2, **parameters).fit(X[OLD], Y[OLD])
    return GPTreeClassifier.paper("rbf", 8.0, inference=Gibbs(chains=3), **parameters).fit(X[OLD], Y[OLD])


def left_out(model):
    """Left-out log-probabilities of the experts at the examples in memory."""
    return memory_left_out(model.state_.base, model.state_.grown, model.state_.on_sphere)


def start(kind: str, strategy):
    return copy.deepcopy(fitted(kind)).set_params(growth=Growth(strategy=strategy))


def shots(*classes: int, begin: int = 0, end: int = 4) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.isin(Y, classes) & (begin <= PLACE) & (end > PLACE)
    return X[chosen], Y[chosen]


def bits(model) -> bytes:
    return model.predict_log_proba(X[TEST]).tobytes()


def journal(model) -> list[tuple]:
    features = [None if e.features is None else e.features.numpy().tobytes() for e in model.journal_]
    written = [(e.kind, e.labels, e.counts, e.time, e.note, e.rows) for e in model.journal_]
    return [(*entry, feature) for entry, feature in zip(written, features, strict=True)]


def staying(model) -> list[bool]:
    """Which posteriors are those of the base session, and not only equal to them."""
    base = model.state_.base.model.predictor.posteriors
    return [any(p is other for other in base) for p in model.model_.predictor.posteriors]


def check_same(loaded, model) -> None:
    assert bits(loaded) == bits(model)
    assert np.array_equal(loaded.novelty_score(X[TEST]), model.novelty_score(X[TEST]))
    assert journal(loaded) == journal(model)
    assert loaded.classes_.tolist() == model.classes_.tolist()
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.growth == model.growth
    assert loaded.memory_.counts == model.memory_.counts
    assert [labels.tolist() for labels in loaded.sessions_] == [labels.tolist() for labels in model.sessions_]
    assert loaded.explain(X[:2]) == model.explain(X[:2])


@quarter_of_the_pairs(0)
def test_a_grown_model_comes_back_and_goes_on(kind: str, strategy, tmp_path) -> None:
    model = start(kind, strategy)
    model.add_classes(*shots(5, 6)).add_examples(*shots(6, 1, begin=4, end=6)).add_classes(*shots(7))
    model.save(tmp_path / "first")
    loaded = load_model(tmp_path / "first")
    assert type(loaded) is type(model)
    check_same(loaded, model)
    assert staying(loaded) == staying(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for each in (model, loaded):
            each.remove_classes([0]).rename_class(6, 60).add_classes(*shots(8))
    assert bits(loaded) == bits(model)
    loaded.save(tmp_path / "second")
    again = load_model(tmp_path / "second")
    assert [entry[:3] for entry in journal(again)] == [entry[:3] for entry in journal(model)]
    assert bits(again) == bits(model)
    for _ in range(3):
        again.undo()
    assert bits(again) == bits(load_model(tmp_path / "first"))


@pytest.mark.parametrize(("kind", "strategy"), list(zip(["forest, growth", "paper"] * 2, STRATEGIES, strict=True)))
def test_ten_sessions_are_taken_back_after_reloading(kind: str, strategy, tmp_path) -> None:
    model = start(kind, strategy)
    states = [bits(model)]
    for c in range(5, 15):
        model.add_classes(*shots(c, end=2 + c % 3))
        states.append(bits(model))
    model.save(tmp_path / "ten")
    loaded = load_model(tmp_path / "ten")
    check_same(loaded, model)
    assert len(loaded.journal_) == 11
    for k in reversed(range(10)):
        loaded.undo()
        assert bits(loaded) == states[k]
        assert loaded.classes_.tolist() == list(range(5 + k))
    with pytest.raises(ValueError, match="nothing to undo"):
        loaded.undo()


@each_kind
def test_a_model_that_has_not_grown_yet(kind: str, tmp_path) -> None:
    model = copy.deepcopy(fitted(kind))
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert bits(loaded) == bits(model)
    assert bits(loaded.add_classes(*shots(5, 6))) == bits(model.add_classes(*shots(5, 6)))
    loaded.undo().save(tmp_path)
    assert bits(load_model(tmp_path)) == bits(fitted(kind))


@each_kind
def test_a_base_class_that_was_cut_out(kind: str, tmp_path) -> None:
    model = copy.deepcopy(fitted(kind))
    with pytest.warns(UserWarning, match="cut out"):
        model.remove_classes([2])
    model.add_examples(*shots(1, begin=4, end=6)).add_classes(*shots(5))
    model.save(tmp_path)
    check_same(load_model(tmp_path), model)
    assert bits(load_model(tmp_path).undo().undo().undo()) == bits(fitted(kind))


@pytest.mark.parametrize("dtype", [str, object])
def test_strings_survive(dtype: type, tmp_path) -> None:
    names = np.array([f"class {c} ✓" for c in range(15)], dtype=dtype)
    model = GPTreeClassifier(prior_mean=None, growth=Growth(), **ALWAYS).fit(X[OLD], names[Y[OLD]])
    features, labels = shots(5, 6)
    model.add_classes(features, names[labels]).rename_class(str(names[5]), "a much longer name with a \x00 in it")
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    check_same(loaded, model)
    assert loaded.undo().classes_.tolist() == [*sorted(names[:5].tolist()), *sorted(names[5:7].tolist())]


@pytest.mark.parametrize(
    "growth",
    [Growth(3, 7, Graft(), Herding()), Growth(np.int64(2), 1, SessionTree(), KMeansPlusPlusExemplars())],
    ids=["herding", "spread"],
)
def test_settings_survive(growth: Growth, tmp_path) -> None:
    model = GPTreeClassifier(prior_mean=None, growth=growth, **ALWAYS).fit(X[OLD], Y[OLD])
    model.save(tmp_path)
    assert load_model(tmp_path).growth == growth


def test_single_precision_survives(tmp_path) -> None:
    model = GPForestClassifier(n_estimators=2, growth=Growth(), dtype="float32", **ALWAYS).fit(X[OLD], Y[OLD])
    model.add_classes(*shots(5, 6)).add_examples(*shots(0, 5, begin=4, end=6))
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    check_same(loaded, model)
    assert bits(loaded.add_classes(*shots(7))) == bits(model.add_classes(*shots(7)))
    assert loaded.model_.predictor.grams.X.dtype == torch.float32


def test_memory_is_the_same_after_reloading(tmp_path) -> None:
    """But for storage that is shared in one and not in the other."""
    for kind in ("forest, growth", "paper"):
        model = copy.deepcopy(fitted(kind)).add_classes(*shots(5, 6)).add_classes(*shots(7))
        model.save(tmp_path / kind)
        loaded = load_model(tmp_path / kind)
        assert model.memory_.example_bytes == loaded.memory_.example_bytes
        assert loaded.memory_.nbytes == pytest.approx(model.memory_.nbytes, rel=0.5)


def test_a_journal_that_is_damaged_is_refused(tmp_path) -> None:
    model = copy.deepcopy(fitted("paper")).add_classes(*shots(5, 6))
    model.save(tmp_path)
    path = tmp_path / "model.json"
    document = json.loads(path.read_text())
    assert [entry["kind"] for entry in document["journal"]] == ["fit", "add_classes"]
    document["journal"][1]["labels"] = [0, 6]
    path.write_text(json.dumps(document))
    with pytest.raises(StorageError):
        load_model(tmp_path)


def test_with_many_base_classes_novel_ones_do_without_ridge_regression(tmp_path, monkeypatch):
    monkeypatch.setattr(KernelRidge, "pays", lambda self, n_classes: n_classes < 5)
    model = GPTreeClassifier(growth=Growth(), **ALWAYS).fit(X[OLD], Y[OLD])
    grown = copy.deepcopy(model).add_classes(*shots(5, 6))
    experts = grown.state_.experts
    assert experts.ridge is None
    assert len(experts.experts) == len(experts.root_weights) == 3
    assert grown.score(X[TEST & (Y < 7)], Y[TEST & (Y < 7)]) > 0.9
    grown.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.predict_log_proba(X[TEST]), grown.predict_log_proba(X[TEST]))
    more = loaded.add_classes(*shots(7))
    assert np.array_equal(more.predict_proba(X[TEST]), grown.add_classes(*shots(7)).predict_proba(X[TEST]))
    document, tensors = state_to_parts(model.state_)
    document["n_features"] = X.shape[1]
    document["base"]["novel_experts"]["ridge_penalty"] = 1.0
    with pytest.raises(StorageError, match="novel_experts does not have a weight for each expert"):
        state_from_parts(document, tensors, torch.device("cpu"), None)


def test_base_classes_are_scored_at_arrivals_alone(monkeypatch):
    """What the base classes have at the exemplars is known from the base session, and gives the same model."""
    monkeypatch.setattr(KernelRidge, "pays", lambda self, n_classes: n_classes < 5)
    model = GPTreeClassifier(growth=Growth(), **ALWAYS).fit(X[OLD], Y[OLD])
    base = model.state_.base
    assert base.novel_experts.base_mass.shape == base.exemplars.shape
    again = copy.deepcopy(model)
    unknown = replace(base, novel_experts=replace(base.novel_experts, base_mass=None))
    again.state_ = replace(model.state_, base=unknown)
    for taught in (shots(5, 6), shots(7, end=1)):
        one, other = model.add_classes(*taught), again.add_classes(*taught)
        np.testing.assert_allclose(one.predict_proba(X[TEST]), other.predict_proba(X[TEST]), rtol=0, atol=1e-5)
        np.testing.assert_allclose(*map(left_out, (one, other)), rtol=0, atol=1e-4)
    before = copy.deepcopy(model).remove_classes([7])
    never = GPTreeClassifier(growth=Growth(), **ALWAYS).fit(X[OLD], Y[OLD]).add_classes(*shots(5, 6))
    assert np.array_equal(before.predict_proba(X[TEST]), never.predict_proba(X[TEST]))
    with pytest.raises(StorageError, match="base_mass is not that of the exemplars"):
        replace(base.novel_experts, base_mass=base.novel_experts.base_mass[1:]).check("it", {})
    with pytest.raises(StorageError, match="base_mass is not that of the exemplars"):
        replace(base.novel_experts, base_rows=base.exemplars + 1).check("it", {})


@pytest.mark.parametrize("growth", [Growth(exemplars=3), None], ids=["base session", "plain fit"])
@pytest.mark.parametrize(
    "change", [lambda m: m.add_classes(*shots(5, 6)), lambda m: m.remove_classes([1])], ids=["grown", "shrunk"]
)
def test_files_of_grown_models_hold_no_array_of_rows_times_classes(growth, change, tmp_path):
    """What is left out is computed again, for novelty, further examples and classes; of other rows it cannot be."""
    model = change(GPTreeClassifier(growth=growth, **ALWAYS).fit(X[OLD], Y[OLD]))
    state = model.state_
    held = [state.left_out, state.base.left_out, state.grown.left_out]
    assert not [each for each in held if isinstance(each, torch.Tensor)]
    model.save(tmp_path / "model")
    tensors = load_file(next((tmp_path / "model").glob("*.safetensors")))
    sizes = {len(state.y), len(state.base.y), len(state.grown.y)}, {len(state.classes), state.base.n_classes}
    wide = [name for name, each in tensors.items() if each.ndim == 2 and {len(each)} <= sizes[0]]
    wide = [name for name in wide if tensors[name].shape[1] in sizes[1]]
    assert all("ridge" in name or name.endswith(".weights") for name in wide), wide  # kernel ridge regression has them
    loaded = load_model(tmp_path / "model")
    assert np.array_equal(loaded.novelty_score(X[TEST]), model.novelty_score(X[TEST]))
    np.testing.assert_allclose(loaded.left_out().probabilities, model.left_out().probabilities, rtol=0, atol=1e-12)
    more = X[OLD][Y[OLD] == 2][:2] + 0.1
    one, other = (each.add_examples(more, [2, 2]).predict_proba(X[TEST]) for each in (loaded, model))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)
    document, tensors = state_to_parts(state)
    document["n_features"] = X.shape[1]
    (points,) = [name for name in tensors if re.fullmatch(r"base\.expert\.experts\.\d\.points", name)][:1]
    tensors[points] = tensors[points].flip(0)
    with pytest.raises(StorageError, match="the experts of the base have other rows"):
        state_from_parts(document, tensors, torch.device("cpu"), None)


def test_left_out_predictions_in_older_files_are_taken_as_they_are():
    """Files of version 7 that were written before they could be computed again hold them."""
    model = copy.deepcopy(fitted("forest, growth")).add_classes(*shots(5))
    document, tensors = state_to_parts(model.state_)
    document["n_features"] = X.shape[1]
    tensors["base.left_out"], tensors["grown.left_out"] = model.state_.base.left_out.dense(), left_out(model)
    loaded = copy.deepcopy(model)
    loaded.state_ = state_from_parts(document, tensors, torch.device("cpu"), None)
    assert isinstance(loaded.state_.base.left_out, torch.Tensor)
    np.testing.assert_allclose(loaded.novelty_score(X[TEST]), model.novelty_score(X[TEST]), rtol=0, atol=1e-9)
    one, other = (each.add_classes(*shots(6)).predict_proba(X[TEST]) for each in (loaded, model))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)
