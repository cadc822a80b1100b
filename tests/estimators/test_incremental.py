"""Classifiers whose classes come and go: what stays the same to the last bit, and what should change."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from gptree import (
    CoordinateAscent,
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    Graft,
    Growth,
    Herding,
    KMeansPlusPlusExemplars,
    LearnKernel,
    RebuildTree,
    SessionTree,
)
from gptree.incremental import base as base_session
from gptree.incremental import episodes, sessions
from gptree.model import cavities
from growing_pairs import KINDS, STRATEGIES, half_of_the_pairs, other_half_of_the_pairs, quarter_of_the_pairs

D, BASE = 8, range(6)
RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(10, D))
Y = np.repeat(np.arange(10), 16)
X = CENTRES[Y] + 0.3 * RNG.normal(size=(len(Y), D))
PLACE = np.tile(np.arange(16), 10)  # of a row in its class
TEST = PLACE >= 12

ALWAYS = {"random_state": 0, "device": "cpu"}  # sums on a GPU differ in the last bits from one time to the next
each_kind = pytest.mark.parametrize("kind", KINDS)
two_kinds = pytest.mark.parametrize("kind", ["forest, growth", "paper"])
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda value: type(value).__name__)


def rows(*classes: int, start: int = 0, stop: int = 5) -> np.ndarray:
    return np.flatnonzero(np.isin(Y, classes) & (start <= PLACE) & (stop > PLACE))


BASE_ROWS = rows(*BASE, stop=12)


#: The sizes that the library uses have a test of their own.
pytestmark = pytest.mark.usefixtures("few_random_features")


def make(kind: str, **parameters: Any):
    parameters = {**ALWAYS, "growth": Growth() if "growth" in kind else None, **parameters}
    if "forest" in kind:
        return GPForestClassifier(**{"n_estimators": 2, **parameters})
    return GPTreeClassifier.paper("rbf", 8.0, **{"inference": Gibbs(chains=3), **parameters})


@cache
def fitted(kind: str):
    return make(kind).fit(X[BASE_ROWS], Y[BASE_ROWS])


def start(kind: str, strategy=None):
    """A fitted base to change. The strategy plays no part in fitting it (tested with the base session)."""
    model = copy.deepcopy(fitted(kind))
    return model if strategy is None else model.set_params(growth=Growth(strategy=strategy))


@cache
def grown(kind: str, strategy, sessions):
    model = start(kind, strategy)
    for classes in sessions:
        add(model, *classes)
    return model


def taught(kind: str, strategy=None, sessions=((6, 7), (8,), (9,))):
    return copy.deepcopy(grown(kind, strategy, sessions))


def add(model, *classes: int, as_label: int | None = None, **span: int):
    chosen = rows(*classes, **span)
    return model.add_classes(X[chosen], Y[chosen] if as_label is None else np.full(len(chosen), as_label))


def more(model, *classes: int, as_label: int | None = None):
    chosen = rows(*classes, start=5, stop=9)
    return model.add_examples(X[chosen], Y[chosen] if as_label is None else np.full(len(chosen), as_label))


def bits(model, strangeness: bool = False) -> tuple[bytes, ...]:
    """What is predicted, to the last bit."""
    found = [model.predict_log_proba(X[TEST])]
    if strangeness:
        found.append(model.novelty_score(X[TEST][::3]))
    return tuple(values.tobytes() for values in found)


def nodes(model) -> dict[int, tuple[bytes, ...]]:
    """The bytes of the posterior of every fitted node."""
    found = {}
    for p in model.model_.predictor.posteriors:
        for v, number in enumerate(p.nodes.tolist()):
            own = [p.rows[v], p.precision[v] if p.kind == "sparse" else p.omega[:, v], p.weights[:, v]]
            found[number] = (p.kind, *(part.contiguous().numpy().tobytes() for part in own))
    return found


def quietly(operation: Callable):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return operation()


# ----------------------------------------------------------------------------------------------- what stays as it was


@half_of_the_pairs
def test_base_posteriors_are_never_touched(kind: str, strategy) -> None:
    model = start(kind, strategy)
    before, trees, numbers = nodes(model), model.model_.trees, model.model_.node_of
    earlier: dict[int, tuple[bytes, ...]] = {}
    for classes in ((6, 7), (8,), (9,)):
        add(model, *classes)
        after = nodes(model)
        if isinstance(strategy, RebuildTree):
            assert len(after) == len(set().union(*(n.tolist() for n in model.model_.node_of)))
            assert not set(before.values()) & set(after.values())
            continue
        assert {number: after[number] for number in before} == before
        for tree, used, grown, uses in zip(trees, numbers, model.model_.trees, model.model_.node_of, strict=True):
            # and every one of them still separates the base classes it did
            for v in range(tree.n_nodes):
                u = uses.tolist().index(int(used[v]))
                assert set(tree.left(v).tolist()) == {c for c in grown.left(u).tolist() if c < 6}
                assert set(tree.right(v).tolist()) == {c for c in grown.right(u).tolist() if c < 6}
        if isinstance(strategy, SessionTree):
            assert {number: after[number] for number in earlier} == earlier
            earlier = after


@quarter_of_the_pairs(1)
def test_removing_a_later_class_is_never_having_added_it(kind: str, strategy) -> None:
    model = taught(kind, strategy)
    more(model, 8, 1, 6)
    fewer = copy.deepcopy(model).remove_classes([7, 8])  # one class of a session, and a whole session
    never = taught(kind, strategy, ((6,), (9,)))
    assert bits(fewer, strangeness=True) == bits(more(never, 1, 6), strangeness=True)
    assert fewer.classes_.tolist() == [0, 1, 2, 3, 4, 5, 6, 9]
    none = copy.deepcopy(model).remove_classes([6, 7, 8, 9])
    assert bits(none) == bits(more(start(kind, strategy), 1))


@quarter_of_the_pairs(2)
def test_undo_takes_back_every_operation(kind: str, strategy) -> None:
    operations = [
        lambda m: add(m, 6, 7),
        lambda m: more(m, 6, 1),
        lambda m: add(m, 8),
        lambda m: m.rename_class(6, 60),
        lambda m: m.merge_classes([60, 8], 8),
        lambda m: add(m, 9),
        lambda m: m.remove_classes([0]),
        lambda m: m.merge_classes([9, 2], 99),
        lambda m: m.remove_classes([8]),
    ]
    model = start(kind, strategy)
    strange = bits(model, strangeness=True)
    states = [(bits(model), model.classes_.tolist(), model.memory_.counts)]
    for operation in operations:
        assert quietly(lambda operation=operation: operation(model)) is model
        states.append((bits(model), model.classes_.tolist(), model.memory_.counts))
    assert states[-1][1] == [1, 99, 3, 4, 5, 7]
    kinds = [entry.kind for entry in model.journal_]
    for k in reversed(range(len(operations))):
        assert model.undo() is model
        assert [entry.kind for entry in model.journal_] == kinds[: k + 1]
        assert (bits(model), model.classes_.tolist(), model.memory_.counts) == states[k]
    assert bits(model, strangeness=True) == strange


@each_kind
def test_what_an_operation_cannot_do_changes_nothing(kind: str) -> None:
    model = add(start(kind), 6, 7)
    before, probabilities = dict(vars(model)), bits(model)
    for attempt in (
        lambda: add(model, 6, 8),
        lambda: more(model, 6, 8),
        lambda: model.add_classes(X[:2, :5], [11, 12]),
        lambda: model.add_classes(X[:2] * np.nan, [11, 12]),
        lambda: model.add_classes(X[:2], ["a", "b"]),
        lambda: model.remove_classes([7, 17]),
        lambda: model.remove_classes(list(BASE)),
        lambda: model.rename_class(6, 7),
        lambda: model.merge_classes([0, 1], 0),
    ):
        with pytest.raises(ValueError):  # messages are tested beside the other bad input
            attempt()
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[name] is value for name, value in before.items())
    assert bits(model) == probabilities


@each_kind
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_a_failure_in_the_middle_changes_nothing(
    kind: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = start(kind)
    before, probabilities = dict(vars(model)), bits(model)

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("gptree.incremental.sessions.fit_nodes", fail)
        with pytest.raises(error):
            add(model, 6, 7)
    assert all(vars(model)[name] is value for name, value in before.items())
    assert bits(model) == probabilities
    add(model, 6, 7)
    assert bits(model) == bits(taught(kind, sessions=((6, 7),)))


@two_kinds
@each_strategy
def test_columns_keep_their_meaning(kind: str, strategy) -> None:
    model = start(kind, strategy)
    add(model, 9, 7)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 7, 9]
    add(model, 6)
    add(model, 8)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 7, 9, 6, 8]
    assert [labels.tolist() for labels in model.sessions_] == [[0, 1, 2, 3, 4, 5], [7, 9], [6], [8]]
    probabilities = model.predict_proba(X[TEST])
    np.testing.assert_allclose(probabilities.sum(1), 1.0)
    assert (model.classes_[probabilities.argmax(1)] == Y[TEST]).mean() > 0.75
    model.remove_classes([7])
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 9, 6, 8]
    assert [labels.tolist() for labels in model.sessions_] == [[0, 1, 2, 3, 4, 5], [9], [6], [8]]
    assert model.predict_proba(X[TEST]).shape == (40, 9)
    assert model.score(X[TEST & (Y != 7)], Y[TEST & (Y != 7)]) > 0.75


def test_the_order_of_the_rows_given_does_not_matter() -> None:
    model, other = start("paper"), start("paper")
    chosen = rows(6, 7)
    interleaved = np.concatenate([chosen[::2], chosen[1::2]])
    order = np.argsort(Y[interleaved], kind="stable")
    model.add_classes(X[interleaved], Y[interleaved])
    other.add_classes(X[interleaved][order], Y[interleaved][order])
    assert bits(model) == bits(other)


# -------------------------------------------------------------------------------------------------------- add_examples


@each_kind
def test_examples_of_a_base_class_refit_its_path_alone(kind: str) -> None:
    model = start(kind)
    before, used = nodes(model), [n.tolist() for n in model.model_.node_of]
    more(model, 2)
    after = nodes(model)
    for tree, old, new in zip(model.model_.trees, used, model.model_.node_of, strict=True):
        path = {node for node, _ in tree.path(2)}
        for v in range(tree.n_nodes):
            if v in path:
                assert int(new[v]) not in before
                assert after[int(new[v])] != before[old[v]]
            else:
                assert after[int(new[v])] == before[old[v]]


@two_kinds
@pytest.mark.parametrize("c", [2, 7], ids=["base", "novel"])
@each_strategy
def test_examples_move_predictions_the_right_way(kind: str, c: int, strategy) -> None:
    """Examples of a class from a place where it was never seen: new ones there are then known to be of it."""
    there = X[Y == 9]  # a class that is never taught
    model = taught(kind, strategy, ((6, 7), (8,)))
    before, others = model.predict_proba(there[8:])[:, c].mean(), model.score(X[TEST], Y[TEST])
    model.add_examples(there[:8], np.full(8, c))
    assert model.classes_.tolist() == list(range(9))
    after = model.predict_proba(there[8:])[:, c].mean()
    # below a graft, base nodes without experts go on as they did, and may lead elsewhere
    assert after > (before if isinstance(strategy, Graft) else max(before, 0.5))
    assert model.score(X[TEST], Y[TEST]) > others - 0.1


@two_kinds
@each_strategy
def test_more_examples_of_novel_classes_help(kind: str, strategy) -> None:
    model = start(kind, strategy)
    add(model, 6, 7, stop=2)
    add(model, 8, 9, stop=2)
    test = TEST & (Y >= 6)

    def loss() -> float:
        return -model.predict_log_proba(X[test])[np.arange(test.sum()), Y[test]].mean()

    before = loss()
    model.add_examples(X[rows(6, 7, 8, 9, start=2, stop=12)], Y[rows(6, 7, 8, 9, start=2, stop=12)])
    assert loss() < before
    assert model.memory_.counts[8] == 12


def test_examples_of_a_novel_class_leave_the_base_nodes_alone() -> None:
    model = taught("forest, growth")
    base = nodes(start("forest, growth"))
    after = nodes(more(model, 6, 9))
    assert {number: after[number] for number in base} == base


# ------------------------------------------------------------------------------------------------------ merge, rename


@quarter_of_the_pairs(3)
def test_merged_novel_classes_are_as_if_taught_as_one(kind: str, strategy) -> None:
    """To the last bit, if the class keeps the label of its host."""
    merged = taught(kind, strategy).merge_classes([6, 7], 6)
    together = start(kind, strategy)
    add(together, 6, 7, as_label=6)
    for c in (8, 9):
        add(together, c)
    assert bits(merged) == bits(together)
    # across sessions: as if all had come with the session of the host
    merged.merge_classes([9, 6], 6)
    one_session = add(start(kind, strategy), 6, 7, 9, as_label=6)
    add(one_session, 8)
    assert bits(merged) == bits(one_session)
    assert merged.memory_.counts[6] == 15
    assert [labels.tolist() for labels in merged.sessions_][1:] == [[6], [8]]


@other_half_of_the_pairs
def test_a_novel_class_merged_into_a_base_class_becomes_its_examples(kind: str, strategy) -> None:
    model = taught(kind, strategy)
    merged = copy.deepcopy(model).merge_classes([1, 9], 1)
    model.remove_classes([9]).add_examples(X[rows(9)], np.full(5, 1))
    assert bits(merged) == bits(model)
    assert merged.classes_.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]


@two_kinds
@each_strategy
def test_a_new_name_changes_labels_only(kind: str, strategy) -> None:
    model = taught(kind, strategy)
    before, fitted_before = bits(model), model.model_
    model.rename_class(7, 70).rename_class(3, 300)
    assert bits(model) == before
    assert model.model_ is fitted_before
    assert model.classes_.tolist() == [0, 1, 2, 300, 4, 5, 6, 70, 8, 9]
    assert 300 in model.predict(X[rows(3, 7)])
    model.merge_classes([6, 70], 6).rename_class(6, 66)
    other = taught(kind, strategy).merge_classes([6, 7], 66)
    assert bits(model) == bits(other)


@each_kind
def test_a_label_can_be_used_again(kind: str) -> None:
    """A class whose label another one had first; without that one, it is as if there had never been another."""
    model = taught(kind, sessions=((6, 7),))
    model.rename_class(7, 70)
    add(model, 8, as_label=7)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4, 5, 6, 70, 7]
    assert (model.predict(X[TEST & (Y == 8)]) == 7).mean() > 0.7
    assert (model.predict(X[TEST & (Y == 7)]) == 70).mean() > 0.7
    never = taught(kind, sessions=((6,),))
    assert bits(model.remove_classes([70])) == bits(add(never, 8, as_label=7))
    base_again = quietly(lambda: start(kind).remove_classes([4]))
    add(base_again, 4, start=5, stop=10)
    assert base_again.classes_.tolist() == [0, 1, 2, 3, 5, 4]
    assert (base_again.predict(X[TEST & (Y == 4)]) == 4).mean() > 0.7
    removed = taught(kind)
    removed.remove_classes([9])
    assert bits(add(removed, 9)) == bits(taught(kind))


# -------------------------------------------------------------------------------------------------------- base classes


@two_kinds
@each_strategy
def test_a_base_class_is_cut_out_and_says_so(kind: str, strategy) -> None:
    model = taught(kind, strategy)
    base = nodes(start(kind))
    with pytest.warns(UserWarning, match="cut out of the base trees: 0, 3; the nodes around keep what they learnt"):
        model.remove_classes([0, 7, 3])
    assert "0, 3" in model.journal_[-1].note
    assert model.classes_.tolist() == [1, 2, 4, 5, 6, 8, 9]
    kept = TEST & np.isin(Y, model.classes_)
    assert model.score(X[kept], Y[kept]) > (0.5 if isinstance(strategy, Graft) else 0.85)
    np.testing.assert_allclose(model.predict_proba(X[TEST]).sum(1), 1.0)
    assert set(model.memory_.counts) == {1, 2, 4, 5, 6, 8, 9}
    if not isinstance(strategy, RebuildTree):
        after = nodes(model)
        assert {number: after[number] for number in base} == base


def test_all_but_one_base_class_can_go() -> None:
    for kind in KINDS:
        model = taught(kind, sessions=())
        quietly(lambda model=model: model.remove_classes([0, 1, 2, 3, 4]))
        np.testing.assert_allclose(model.predict_proba(X[TEST]), 1.0)
        assert model.novelty_score(X[:3]).tolist() == [0.0] * 3
        add(model, 6, 7)
        kept = TEST & np.isin(Y, [5, 6, 7])
        assert model.score(X[kept], Y[kept]) > 0.85


# ---------------------------------------------------------------------------------------------- memory, labels, dtypes


@two_kinds
@each_strategy
def test_memory(kind: str, strategy) -> None:
    model = start(kind, strategy)
    per_class = 5 if "growth" in kind else 12
    assert model.memory_.counts == dict.fromkeys(BASE, per_class)
    before = model.memory_.nbytes
    add(model, 6, 7)
    more(model, 6, 0)
    memory = model.memory_
    assert memory.counts == dict.fromkeys(BASE, per_class) | {0: per_class + 4, 6: 9, 7: 5}
    assert len(memory) == sum(memory.counts.values())
    assert memory.example_bytes == len(memory) * D * 8
    assert memory.nbytes > before > memory.example_bytes
    bits(model, strangeness=True)
    model.explain(X[:2])
    assert model.memory_ == memory  # caches of predictions do not count
    more(model, 7)
    assert model.memory_.nbytes > memory.nbytes
    assert abs(model.undo().memory_.nbytes - memory.nbytes) < 200


def test_what_is_kept_for_the_next_question_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, unasked, forgetful = (start("forest") for _ in range(3))
    asked.novelty_score(X[:2])
    add(asked, 6, 7)
    assert asked.state_.base._novelty
    assert asked.state_.grown._table is not None
    expected = asked.novelty_score(X[TEST])
    monkeypatch.setattr(cavities, "KEPT_PAIRS", 0)
    monkeypatch.setattr(sessions, "KEPT_TABLE", -1)
    forgetful.novelty_score(X[:2])
    for model in (unasked, forgetful):
        add(model, 6, 7)
        assert model.state_.grown._table is None
        np.testing.assert_allclose(model.novelty_score(X[TEST]), expected, rtol=0, atol=1e-9)
        assert not model.state_.staying._known
        model.state_.base._novelty.clear()
        np.testing.assert_allclose(model.left_out().probabilities, asked.left_out().probabilities, rtol=0, atol=1e-9)


def test_growth_keeps_less() -> None:
    many, noise = {}, np.repeat(1e-3 * np.arange(5), len(BASE_ROWS))[:, None]  # equal rows would be one
    for kind in KINDS[2:]:
        rows = np.tile(X[BASE_ROWS], (5, 1)) * (1 + noise) + noise
        many[kind] = quietly(lambda kind=kind, rows=rows: make(kind).fit(rows, np.tile(Y[BASE_ROWS], 5)))
    for model in many.values():
        add(model, 6)
    assert many["paper, growth"].memory_.nbytes < many["paper"].memory_.nbytes / 2.5


def test_the_journal() -> None:
    model = taught("paper, growth", sessions=((7, 6),))
    more(model, 6)
    quietly(lambda: model.remove_classes([0]))
    model.rename_class(7, 70).merge_classes([70, 6], 70)
    seen = [(entry.kind, entry.labels, entry.counts) for entry in model.journal_]
    assert seen == [
        ("fit", (0, 1, 2, 3, 4, 5), (12,) * 6),
        ("add_classes", (6, 7), (5, 5)),
        ("add_examples", (6,), (4,)),
        ("remove_classes", (0,), ()),
        ("rename_class", (7, 70), ()),
        ("merge_classes", (70, 6, 70), ()),
    ]
    assert all(entry.time.endswith("+00:00") for entry in model.journal_)
    entry, given = model.journal_[1], X[rows(6, 7)]
    assert sorted(entry.rows[:5]) == list(range(5))
    assert sorted(entry.rows[5:]) == list(range(5, 10))
    assert torch.equal(entry.features, model.state_.features(given[list(entry.rows)]))


@pytest.mark.parametrize("dtype", [object, str])
def test_strings(dtype: type) -> None:
    names = np.array(["dog", "cat", "ant", "emu", "bee", "fox", "zebu", "a very long name", "gnu", "hen"], dtype=dtype)
    labels = names[Y]
    model = make("paper, growth").fit(X[BASE_ROWS], labels[BASE_ROWS])
    for chosen in (rows(6, 7), rows(8)):
        model.add_classes(X[chosen], labels[chosen])
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog", "emu", "fox", "a very long name", "zebu", "gnu"]
    known = TEST & (Y != 9)
    assert model.score(X[known], labels[known]) > 0.85
    model.rename_class("gnu", "an even longer name than that")
    assert model.classes_[-1] == "an even longer name than that"
    model.remove_classes(["zebu"]).merge_classes(("a very long name", "an even longer name than that"), "x")
    assert model.classes_.tolist()[6:] == ["x"]
    for _ in range(5):
        model.undo()
    assert model.classes_.tolist() == sorted(names[:6])
    assert model.classes_.dtype.kind == np.array(labels).dtype.kind


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.float32, np.float64])
def test_numbers_keep_their_type(dtype: type) -> None:
    labels = Y.astype(dtype)
    model = make("paper").fit(X[BASE_ROWS], labels[BASE_ROWS])
    model.add_classes(X[rows(6)], labels[rows(6)])
    assert model.predict(X[:3]).dtype == dtype
    if np.issubdtype(dtype, np.integer):
        model.rename_class(6, 100_000)
        assert model.classes_[-1] == 100_000  # wide enough for it
    assert model.classes_[:6].tolist() == list(BASE)


def test_labels_in_any_container() -> None:
    model = taught("paper")
    six, seven = model.classes_[6], model.classes_[7]
    assert isinstance(six, np.integer)
    for labels in (
        [6, 7],
        (6, 7),
        {6, 7},
        [six, seven],
        model.classes_[6:8],
        (c for c in (6, 7)),
        torch.tensor([6, 7]),
    ):
        assert copy.deepcopy(model).remove_classes(labels).classes_.tolist() == [0, 1, 2, 3, 4, 5, 8, 9]
    assert copy.deepcopy(model).rename_class(six, np.int32(66)).classes_[6] == 66
    assert copy.deepcopy(model).merge_classes(model.classes_[6:8], seven).classes_.tolist()[6:] == [7, 8, 9]


@two_kinds
def test_single_precision(kind: str) -> None:
    model = make(kind, dtype="float32").fit(X[BASE_ROWS].astype(np.float32), Y[BASE_ROWS])
    single = X.astype(np.float32)
    double = start(kind)
    states = [bits(model)]
    for classes in ((6, 7), (8,)):
        model.add_classes(single[rows(*classes)], Y[rows(*classes)])
        states.append(bits(model))
        add(double, *classes)
    assert model.predict_proba(single).dtype == np.float32
    tensors = [model.model_.predictor.grams.X, *(p.weights for p in model.model_.predictor.posteriors)]
    assert {tensor.dtype for tensor in tensors} == {torch.float32}
    if "forest" in kind:  # sampling meets other random numbers
        np.testing.assert_allclose(model.predict_proba(X[TEST]), double.predict_proba(X[TEST]), atol=0.02)
    assert model.score(X[TEST & (Y < 9)], Y[TEST & (Y < 9)]) > 0.85
    assert bits(model.undo()) == states[1]
    assert bits(model.undo()) == states[0]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@each_strategy
def test_cuda_agrees_with_the_cpu(strategy) -> None:
    growth, inference = Growth(strategy=strategy), CoordinateAscent(sweeps=3, tolerance=0.0)
    found = {}
    for device in ("cpu", "cuda"):
        model = make("forest", device=device, growth=growth, inference=inference)
        model.fit(X[BASE_ROWS], Y[BASE_ROWS])
        base = model.predict_proba(X[TEST])
        more(add(model, 6, 7), 6, 0)
        quietly(lambda model=model: model.remove_classes([1]))
        found[device] = model.predict_proba(X[TEST])
        for _ in range(3):
            model.undo()
        np.testing.assert_allclose(model.predict_proba(X[TEST]), base, atol=1e-9)
    np.testing.assert_allclose(found["cuda"], found["cpu"], atol=1e-5)


# ------------------------------------------------------------------------------------------ the rest of the classifier


@two_kinds
@each_strategy
def test_explanations_of_a_grown_model(kind: str, strategy) -> None:
    model = taught(kind, strategy)
    more(model, 9)
    chosen = rows(1, 8, 9, start=0, stop=1)
    for row, found in zip(chosen, model.explain(X[chosen], n_neighbours=3), strict=True):
        assert found.label == Y[row] or isinstance(strategy, Graft)  # one of its own training examples
        assert sorted(found.path[0].towards + found.path[0].away) == list(range(10))
        assert found.path[-1].towards == (found.label,)
        if kind.startswith("paper"):
            assert np.isclose(np.prod([step.probability for step in found.path]), found.probability)
        given = {0: BASE_ROWS, 1: rows(6, 7), 2: rows(8), 3: rows(9), 4: rows(9, start=5, stop=9)}
        for neighbour in found.neighbours:
            origin = given[neighbour.entry][neighbour.row]
            assert Y[origin] == found.label
            a, b = (model.state_.features(X[[i]])[0] for i in (row, origin))
            assert float(a @ b) == pytest.approx(neighbour.similarity)
        assert found.to_json()["neighbours"][0]["entry"] == found.neighbours[0].entry
    paths = model.decision_path(X[chosen])
    assert paths.shape == (3, model.tree_.n_nodes)
    lengths = [len(model.tree_.path(model.classes_.tolist().index(label))) for label in model.predict(X[chosen])]
    assert paths.sum(1).tolist() == lengths
    assert model.tree_.n_classes == 10
    assert len(model.diagnostics_["posterior"]) == model.model_.predictor.n_nodes
    assert set(model.diagnostics_["posterior"]) <= {"dense", "sparse", "linear"}


@two_kinds
@each_strategy
def test_what_was_strange_is_familiar_once_it_is_taught(kind: str, strategy) -> None:
    model = taught(kind, strategy, ((6, 7),))
    test = TEST & (Y >= 8)
    before = model.novelty_score(X[test])
    assert ((before >= 0) & (before <= 1)).all()
    add(model, 8, 9)
    after = model.novelty_score(X[test])
    assert ((after >= 0) & (after <= 1)).all()
    assert after.mean() < before.mean()


@two_kinds
def test_fitting_again_starts_anew(kind: str) -> None:
    model = taught(kind)
    assert bits(model.fit(X[BASE_ROWS], Y[BASE_ROWS])) == bits(fitted(kind))
    assert [entry.kind for entry in model.journal_] == ["fit"]
    assert model.classes_.tolist() == list(BASE)
    unfitted = clone(taught(kind))
    assert unfitted.get_params()["growth"] == model.growth
    assert not hasattr(unfitted, "classes_")


@two_kinds
def test_a_pickle_grows_on(kind: str) -> None:
    model = taught(kind, sessions=((6, 7),))
    again = pickle.loads(pickle.dumps(model))
    assert bits(again) == bits(model)
    assert bits(add(again, 8)) == bits(add(model, 8))


def test_a_learnt_kernel_stays() -> None:
    learn = CoordinateAscent(sweeps=3, tolerance=0.0, learn=LearnKernel(steps=2))
    for growth in (Growth(), None):
        parameters = {**ALWAYS, "prior_mean": None, "inference": learn, "growth": growth}
        model = GPTreeClassifier(**parameters).fit(X[BASE_ROWS], Y[BASE_ROWS])
        before = {name: value.clone() for name, value in model.kernel_.state_dict().items()}
        base = nodes(model)
        add(model, 6, 7)
        assert all(torch.equal(model.kernel_.state_dict()[name], value) for name, value in before.items())
        assert {number: nodes(model)[number] for number in base} == base


@pytest.mark.parametrize("kernel", ["linear", "matern52"])
@pytest.mark.parametrize("growth", [Growth(), None], ids=["growth", "none"])
def test_other_kernels(kernel: str, growth: Growth | None) -> None:
    model = GPTreeClassifier.paper(kernel, 8.0, growth=growth, **ALWAYS).fit(X[BASE_ROWS], Y[BASE_ROWS])
    before, base = bits(model), nodes(model)
    add(model, 6, 7)
    more(model, 6, 2)
    known = TEST & (Y < 8)
    assert model.score(X[known], Y[known]) > 0.8
    assert {number: nodes(model)[number] for number in base} == base
    assert bits(model.undo().undo()) == before


@pytest.mark.parametrize(
    ("selection", "count"), [(Herding(), 1), (KMeansPlusPlusExemplars(), 20)], ids=["herding", "spread"]
)
def test_other_memories(selection, count: int) -> None:
    growth = Growth(exemplars=count, selection=selection)
    model = make("forest", growth=growth).fit(X[BASE_ROWS], Y[BASE_ROWS])
    assert model.memory_.counts == dict.fromkeys(BASE, min(count, 12))
    add(model, 6, 7)
    known = TEST & (Y < 8)
    assert model.score(X[known], Y[known]) > 0.85


def test_sampling_around_experts() -> None:
    model = GPTreeClassifier(inference=Gibbs(chains=2), growth=Growth(), **ALWAYS).fit(X[BASE_ROWS], Y[BASE_ROWS])
    add(model, 6, 7)
    known = TEST & (Y < 8)
    assert model.score(X[known], Y[known]) > 0.85


def test_a_tree_of_your_own_is_the_base_tree() -> None:
    nested = [[0, [1, 2]], [3, [4, 5]]]
    model = GPTreeClassifier(prior_mean=None, tree=nested, growth=Growth(), **ALWAYS)
    add(model.fit(X[BASE_ROWS], Y[BASE_ROWS]), 6, 7)
    assert model.tree_.to_nested(range(8)) == [nested, [6, 7]]
    add(model.set_params(growth=Growth(strategy=RebuildTree())), 8)
    assert model.tree_.n_classes == 9


def test_the_sizes_of_the_library() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(episodes, "RANDOM_LDA", replace(episodes.RANDOM_LDA, count=1_000))
        patch.setattr(base_session, "RANDOM_LDA", replace(episodes.RANDOM_LDA, count=1_000))
        patch.setattr(base_session, "BASE_RIDGE", replace(base_session.BASE_RIDGE, count=2_000))
        model = GPForestClassifier(growth=Growth(), **ALWAYS).fit(X[BASE_ROWS], Y[BASE_ROWS])
        add(model, 6, 7)
    known = TEST & (Y < 8)
    assert model.score(X[known], Y[known]) > 0.85
