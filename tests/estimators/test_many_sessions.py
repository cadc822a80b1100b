"""Many sessions in few sub-trees, and sessions of many rows of which few are kept."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest

from gptree import GPTreeClassifier, Growth, Herding, KMeansPlusPlusExemplars, Logarithmic, RebuildTree, load_model
from gptree.experts import novel, novel_scores
from gptree.experts.wrong_labels import with_beliefs
from gptree.incremental import exemplars, sessions
from gptree.incremental.exemplars import condensed
from gptree.model import node_problems
from gptree.tree import label_hashes

RNG = np.random.default_rng(0)
D, CLASSES, SHOTS, OLD = 6, 9, 4, 4
CENTRES = RNG.normal(size=(CLASSES, D))
Y = np.repeat(np.arange(CLASSES), 20)
X = CENTRES[Y] + 0.35 * RNG.normal(size=(len(Y), D))
TEST = np.arange(len(Y)) % 20 >= 12


pytestmark = pytest.mark.usefixtures("few_random_features")


@cache
def fitted() -> GPTreeClassifier:
    rows = (Y < OLD) & ~TEST
    return GPTreeClassifier(growth=Growth(), random_state=0, device="cpu").fit(X[rows], Y[rows])


def shots(c: int, count: int = SHOTS) -> tuple[np.ndarray, np.ndarray]:
    rows = np.flatnonzero((c == Y) & ~TEST)[:count]
    return X[rows], Y[rows]


def taught(*arrived: int, count: int = SHOTS, **growth: Any) -> GPTreeClassifier:
    model = copy.deepcopy(fitted()).set_params(growth=Growth(**growth))
    for c in arrived:
        model.add_classes(*shots(c, count))
    return model


def bits(model: GPTreeClassifier) -> bytes:
    return model.predict_log_proba(X[TEST]).tobytes() + model.novelty_score(X[TEST][::5]).tobytes()


# -------------------------------------------------------------------------------------------------- many sessions


def groups(model: GPTreeClassifier) -> list[set[int]]:
    """The novel classes below each root, the oldest first."""
    tree, vertex, found = model.tree_, 0, []
    while (tree.members(vertex) >= OLD).any():
        found.append(set(tree.right(vertex).tolist()))
        vertex = int(tree.left_child[vertex])
    return found[::-1]


def posteriors(model: GPTreeClassifier) -> set[int]:
    return {id(each) for each in model.state_.model.predictor.posteriors}


def test_sessions_of_equal_size_share_a_sub_tree() -> None:
    model = taught(strategy="logarithmic")
    assert model.growth == Growth(strategy=Logarithmic())
    expected = [[{4}], [{4, 5}], [{4, 5}, {6}], [{4, 5, 6, 7}], [{4, 5, 6, 7}, {8}]]
    base = posteriors(model)
    for c, sets in enumerate(expected, OLD):
        before = posteriors(model)
        model.add_classes(*shots(c))
        assert groups(model) == sets
        assert base <= posteriors(model)
        # older sub-trees are not touched where the newest stands alone
        assert (before <= posteriors(model)) == (len(sets) > 1 or c == OLD)
    accuracy = np.mean(model.predict(X[TEST]) == Y[TEST])
    rebuilt = taught(*range(OLD, CLASSES), strategy=RebuildTree())
    assert accuracy > 0.85
    assert accuracy > np.mean(rebuilt.predict(X[TEST]) == Y[TEST]) - 0.1


def test_removing_a_class_after_merges_is_never_having_added_it(tmp_path) -> None:
    strategy = Logarithmic()
    model = taught(4, 5, 6, 7, 8, strategy=strategy)
    before = bits(model)
    model.save(tmp_path / "model")
    model.remove_classes([5])
    never = taught(4, 6, 7, 8, strategy=strategy)
    assert groups(model) == [{4, 5, 6, 7}]  # class numbers, without a gap
    assert bits(model) == bits(never)
    assert bits(model.undo()) == before
    back = load_model(tmp_path / "model")
    assert bits(back) == before
    assert bits(back.undo()) == bits(taught(4, 5, 6, 7, strategy=strategy))
    assert bits(back.remove_classes([4, 5])) == bits(taught(6, 7, strategy=strategy))


# ---------------------------------------------------------------------------------- sums over classes of older layers


BASE, LAYERED_Y = 102, np.repeat(np.arange(116), 5)
LAYERED_X = np.random.default_rng(1).normal(size=(116, D))[LAYERED_Y] + 0.2 * RNG.normal(size=(len(LAYERED_Y), D))


@cache
def wide() -> GPTreeClassifier:
    rows = LAYERED_Y < BASE
    model = GPTreeClassifier(growth=Growth(strategy=Logarithmic()), random_state=0, device="cpu")
    return model.fit(LAYERED_X[rows], LAYERED_Y[rows])


def layered(*arrived: int, shots: int = 4) -> GPTreeClassifier:
    """Sessions of two classes each."""
    model = copy.deepcopy(wide())
    for c in arrived:
        rows = np.isin(LAYERED_Y, (c, c + 1)) & (np.arange(len(LAYERED_Y)) % 5 < shots)
        model.add_classes(LAYERED_X[rows], LAYERED_Y[rows])
    return model


def log_p(model: GPTreeClassifier) -> np.ndarray:
    return model.predict_log_proba(LAYERED_X[::3])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether sums of older layers were enough, each time they were there; also in this small model."""
    monkeypatch.setattr(sessions, "KEPT_TABLE", 0)
    monkeypatch.setattr(exemplars, "ROOT_ROWS", 150)
    found, layer_scores = [], novel.layer_scores

    def counted(*given):
        result = layer_scores(*given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(novel, "layer_scores", counted)
    return found


def test_sums_over_the_classes_of_older_layers(asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same numbers as from scoring all novel classes in every session."""
    arrived = range(BASE, 116, 2)
    model = layered(*arrived)
    assert asked.count(True) >= 3  # not of sessions 1, 2 and 4, which make one layer
    monkeypatch.setattr(novel, "layer_scores", lambda *_: None)
    np.testing.assert_allclose(np.exp(log_p(model)), np.exp(log_p(layered(*arrived))), rtol=0, atol=1e-6)


@pytest.mark.parametrize("shots", [2, 4])
def test_labels_of_layers_are_doubted_by_all_their_rows(
    shots: int, asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether classes have few rows does not depend on how many of them a root sees."""
    found: list[tuple] = []
    monkeypatch.setattr(novel_scores, "with_beliefs", lambda *given: found.append(given[2:]) or with_beliefs(*given))
    model = layered(*range(BASE, 116, 2), shots=shots)
    assert asked.count(True) >= 3
    assert {few for *_, few in found} == {shots < 3}
    assert max(k for k, *_ in found) == len(model.classes_)


def test_older_classes_of_a_layer_have_one_column(asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    experts = sessions._experts
    last: list[Any] = []
    monkeypatch.setattr(sessions, "_experts", lambda *given: last.append((given[4], experts(*given))) or last[-1][1])
    layered(*range(BASE, 116, 2))
    rows, (_, newest) = last[-1]
    assert asked[-1]
    monkeypatch.setattr(novel, "layer_scores", lambda *_: None)
    layered(*range(BASE, 116, 2))
    _, (_, whole) = last[-1]
    assert newest.together == 12
    assert whole.together == 1
    found, every = newest.at(rows).exp(), whole.at(rows).exp()
    older = every[:, BASE : BASE + 12].sum(1, keepdim=True)
    expected = np.concatenate([every[:, :BASE], older, every[:, BASE + 12 :]], 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    others = np.concatenate([expected[:, :-2].sum(1, keepdims=True), expected[:, -2:]], 1)
    for each in (newest, whole):
        np.testing.assert_allclose(each.against(rows, 12).exp(), others, rtol=0, atol=1e-6)


def test_a_layer_is_asked_about_its_own_rows(asked: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of its newest classes alone is not taken for what is known of all, however little it is."""
    monkeypatch.setattr(sessions, "KEPT_TABLE", 3_000)
    model = layered(*range(BASE, 116, 2))
    assert asked[-1]
    rows = len(model.state_.grown.rows)
    assert 5 * rows < 3_000 < 14 * rows
    found = model.left_out()
    assert found.probabilities.shape == (rows, 116)
    monkeypatch.setattr(sessions, "KEPT_TABLE", 2**20)
    np.testing.assert_allclose(found.probabilities, layered(*range(BASE, 116, 2)).left_out().probabilities, atol=1e-6)


def test_sums_come_from_the_registry_alone(asked: list[bool], tmp_path) -> None:
    model = layered(*range(BASE, 116, 2))
    before = log_p(model)
    model.save(tmp_path / "model")
    back = load_model(tmp_path / "model")
    assert np.array_equal(log_p(back), before)
    last = layered(*range(BASE, 114, 2))
    assert np.array_equal(log_p(copy.deepcopy(model).undo()), log_p(last))
    assert np.array_equal(log_p(back.undo()), log_p(last))
    rows = LAYERED_Y >= 114
    for each in (back, last):
        each.add_classes(LAYERED_X[rows][:8], LAYERED_Y[rows][:8])
    assert np.array_equal(log_p(back), log_p(last))
    removed = model.remove_classes([104, 105])
    assert np.array_equal(log_p(removed), log_p(layered(BASE, *range(106, 116, 2))))
    assert np.array_equal(log_p(removed.undo()), before)
    assert True in asked


def test_single_shots_are_scored_by_all_classes(asked: list[bool]) -> None:
    layered(*range(BASE, 108, 2), shots=1)
    assert not asked


# -------------------------------------------------------------------------------------------------- bounded memory


@pytest.mark.parametrize("selection", [Herding(), KMeansPlusPlusExemplars()])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_are_kept_stand_for_those_nearest_to_them(selection, weighted: bool) -> None:
    x, y = X[Y < 3] / np.linalg.norm(X[Y < 3], axis=1, keepdims=True), Y[Y < 3]
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted else None
    counted = np.ones(len(y)) if weights is None else weights
    rows, masses = condensed(x, y, 4, selection, label_hashes(range(3)), 0, weights)
    assert np.bincount(y[rows]).tolist() == [4, 4, 4]
    expected = np.zeros(len(rows))
    for i in range(len(y)):
        mine = [k for k in range(len(rows)) if y[rows[k]] == y[i]]
        expected[min(mine, key=lambda k: float(np.square(x[rows[k]] - x[i]).sum()))] += counted[i]
    np.testing.assert_allclose(masses, expected)
    np.testing.assert_allclose(np.bincount(y[rows], masses), np.bincount(y, counted))


def test_a_session_keeps_few_rows_of_a_class(tmp_path) -> None:
    few = taught(4, 5, count=12, session_exemplars=3)
    more = taught(4, 5, count=12)
    assert [few.memory_.counts[c] for c in (4, 5)] == [3, 3]
    assert [more.memory_.counts[c] for c in (4, 5)] == [12, 12]
    assert [entry.counts for entry in few.journal_[1:]] == [(3,), (3,)]
    assert all(float(entry.weights.sum()) == 12 for entry in few.journal_[1:])
    assert few.memory_.nbytes < more.memory_.nbytes
    counts = few.state_.experts.lda.counts.tolist()
    assert counts == more.state_.experts.lda.counts.tolist()  # experts know what the rows stand for
    few.save(tmp_path / "few")
    more.save(tmp_path / "more")
    sizes = [sum(f.stat().st_size for f in (tmp_path / name).rglob("*") if f.is_file()) for name in ("few", "more")]
    assert sizes[0] < sizes[1]
    back = load_model(tmp_path / "few")
    assert bits(back) == bits(few)
    assert bits(back.add_classes(*shots(6, 12))) == bits(few.add_classes(*shots(6, 12)))
    assert bits(back.remove_classes([4])) == bits(taught(5, 6, count=12, session_exemplars=3))
    assert np.mean(few.predict(X[TEST & (Y < 7)]) == Y[TEST & (Y < 7)]) > 0.85


def test_the_bound_is_for_each_call_and_a_merge_keeps_what_its_classes_kept() -> None:
    model = taught(4, 5, count=6, session_exemplars=3)
    before = bits(model)
    for c, kept in ((4, 6), (0, 5 + 3)):  # a base class has five exemplars
        x, y = shots(c, 12)
        model.add_examples(x[6:], y[6:])
        assert model.journal_[-1].counts == (3,)
        assert float(model.journal_[-1].weights.sum()) == 6
        assert model.memory_.counts[c] == kept
    model.merge_classes([4, 5], 4)
    assert model.memory_.counts[4] == 6 + 3
    for _ in range(3):
        model.undo()
    assert bits(model) == before


def test_nodes_count_the_rows_that_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class of twelve rows of which three are kept does not outweigh base classes at the nodes."""
    given = []
    monkeypatch.setattr(sessions, "node_problems", lambda *about: given.append(about[1]) or node_problems(*about))
    taught(4, count=12, session_exemplars=3)
    data = given[0]
    np.testing.assert_allclose(np.bincount(data.y, data.weights), [3.0] * (OLD + 1))
    np.testing.assert_allclose(data.weights[data.y < OLD], 3 / 5)


def test_classes_of_no_more_rows_are_kept_as_they_are() -> None:
    assert bits(taught(4, 5, session_exemplars=SHOTS)) == bits(taught(4, 5))


def test_a_rebuild_works_from_what_is_kept() -> None:
    """The whole model is that of the rows kept, given with what they stand for."""
    model = taught(4, count=12, session_exemplars=3, strategy=RebuildTree())
    entry = model.journal_[1]
    rows = np.flatnonzero((Y == 4) & ~TEST)[:12][list(entry.rows)]
    other = taught(session_exemplars=3, strategy=RebuildTree())
    other.add_classes(X[rows], Y[rows], sample_weight=entry.weights.numpy())
    np.testing.assert_allclose(model.predict_proba(X[TEST]), other.predict_proba(X[TEST]), rtol=0, atol=1e-9)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "three"])
def test_a_number_of_rows_that_is_none(value: Any) -> None:
    with pytest.raises(ValueError, match="session_exemplars must be a whole number of at least 1"):
        Growth(session_exemplars=value)
