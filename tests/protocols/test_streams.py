"""Streams of sessions: who arrives when, with which rows, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gptree.protocols import Session, SessionStream, hold_out, stream_from_arrays, stream_from_lists

NAMES = np.array(["ant", "bee", "cat", "dog", "eel", "fox", "gnu"])


def pool(classes: np.ndarray = NAMES, rows: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """`rows` rows a class, the classes taking turns; feature 0 is the row number."""
    y = np.tile(classes, rows)
    return np.column_stack([np.arange(len(y)), np.ones(len(y))]), y


def stream(**changes: object) -> SessionStream:
    """Three base classes, then two a session; 7 classes do not fill it: 3 + 2 + 2."""
    X, y = pool()
    settings: dict = {"base": 3, "way": 2, "shot": 2} | changes
    return stream_from_arrays(X, y, *pool(rows=3), **settings)


def label_lists(found: SessionStream) -> list[list]:
    return [session.labels.tolist() for session in found.sessions]


def all_labels(found: SessionStream) -> list:
    return [label for labels in label_lists(found) for label in labels]


def rows_by_class(found: SessionStream) -> dict[str, list[int]]:
    """The numbers of the training rows of every class, in the order in which they stand."""
    pairs = [(label, int(x[0])) for session in found.sessions for x, label in zip(session.X, session.y, strict=True)]
    return {name: [row for label, row in pairs if label == name] for name, _ in pairs}


# ------------------------------------------------------------------------------------------------------ from arrays


def test_sessions_hold_what_was_asked_for() -> None:
    _, y = pool()
    found = stream(seed=4, name="zoo")
    assert found.name == "zoo"
    assert [len(session.labels) for session in found.sessions] == [3, 2, 2]
    assert sorted(all_labels(found)) == NAMES.tolist()
    for number, session in enumerate(found.sessions):
        assert session.labels.tolist() == sorted(session.labels.tolist())
        counts = {name: int((session.y == name).sum()) for name in session.labels}
        assert set(counts.values()) == ({2} if number else {6})
        np.testing.assert_array_equal(session.y, y[session.X[:, 0].astype(int)])  # rows keep their labels
        assert len(np.unique(session.X[:, 0])) == len(session.X)  # no row is drawn twice
        assert sorted(session.y_test.tolist()) == sorted(session.labels.tolist() * 3)


def test_the_default_order_is_a_permutation_by_the_seed() -> None:
    arrival = np.random.default_rng(4).permutation(NAMES)
    assert label_lists(stream(seed=4)) == [sorted(arrival[:3]), sorted(arrival[3:5]), sorted(arrival[5:])]
    assert label_lists(stream(seed=4)) != label_lists(stream(seed=5))


def test_an_explicit_order_and_an_explicit_base() -> None:
    order = ["gnu", "ant", "fox", "bee", "eel", "cat", "dog"]
    assert label_lists(stream(order=order)) == [["ant", "fox", "gnu"], ["bee", "eel"], ["cat", "dog"]]
    named = stream(order=order, base=["dog", "ant"])
    assert label_lists(named) == [["ant", "dog"], ["fox", "gnu"], ["bee", "eel"], ["cat"]]
    assert label_lists(stream(base=["dog", "ant"]))[0] == ["ant", "dog"]


def test_a_last_session_that_is_not_full_is_kept() -> None:
    assert [len(labels) for labels in label_lists(stream(way=3))] == [3, 3, 1]
    assert [len(labels) for labels in label_lists(stream(way=9))] == [3, 4]


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 5), st.integers(1, 6))
def test_a_draw_depends_on_its_class_alone(seed: int, base: int, way: int, shot: int) -> None:
    """Other classes, their number and order, other shots: a class gives the same rows, fewer shots being a prefix."""
    everyone = rows_by_class(stream(seed=seed, base=base, way=way, shot=shot, base_shot=6))
    reference = rows_by_class(stream(seed=seed, base=["ant"], way=1, shot=6, base_shot=6))
    for name, rows in everyone.items():
        assert rows == reference[name][: len(rows)]
    X, y = pool()
    some = y != "cat"
    fewer = stream_from_arrays(X[some], y[some], X[some], y[some], base=["ant"], way=1, shot=6, seed=seed)
    found = rows_by_class(fewer)
    assert all(found[name] == reference[name] for name in found if name != "ant")  # the base is whole


def test_seeds_draw_different_rows() -> None:
    one, two = (rows_by_class(stream(seed=seed, order=NAMES, shot=3)) for seed in (0, 1))
    assert any(one[name] != two[name] for name in NAMES[3:])
    assert all(one[name] == two[name] for name in NAMES[:3])  # all rows of the base, whatever the seed


def test_base_shots() -> None:
    assert len(stream(base_shot=4).sessions[0].y) == 12


@pytest.mark.parametrize(
    "labels", [np.array([7, -3, 100, 20]), np.array([0.5, 2.0, -1.0, 8.0]), np.array(list("dbca"))]
)
def test_labels_are_never_renumbered(labels: np.ndarray) -> None:
    X, y = pool(labels)
    found = stream_from_arrays(X, y, X, y, base=2, way=1, shot=1)
    assert sorted(all_labels(found)) == sorted(labels.tolist())
    assert all(session.y.dtype == labels.dtype for session in found.sessions)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base": 7}, "base must leave classes to arrive: 1 to 6 of them, got 7"),
        ({"base": 0}, "1 to 6 of them, got 0"),
        ({"base": list(NAMES)}, "base names 7 of 7 classes"),
        ({"base": ["yak"]}, "'yak', are not among the 7 classes"),
        ({"way": 0}, "way must be a positive whole number, got 0"),
        ({"shot": 1.5}, "shot must be a positive whole number, got 1.5"),
        ({"shot": 7}, "has 6 rows, and 7 are needed"),
        ({"base_shot": 7}, "has 6 rows, and 7 are needed"),
        ({"order": NAMES[:6]}, "order must name each of the 7 classes once; it has 6 entries"),
        ({"order": [*NAMES[:6], "ant"]}, "order must name each of the 7 classes once"),
        ({"order": [*NAMES[:6], "yak"]}, "'yak', are not among the 7 classes"),
    ],
)
def test_bad_settings_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        stream(**changes)


def test_bad_arrays_are_refused() -> None:
    X, y = pool()
    settings: dict = {"base": 3, "way": 2, "shot": 2}
    with pytest.raises(ValueError, match="y_test holds classes that y lacks: 'yak'"):
        stream_from_arrays(X, y, X[:2], np.array(["ant", "yak"]), **settings)
    with pytest.raises(ValueError, match="X and y must be features"):
        stream_from_arrays(X, y[:-1], X, y, **settings)
    with pytest.raises(ValueError, match=r"same number of features, got \[1, 2\]"):
        stream_from_arrays(X, y, X[:, :1], y, **settings)
    with pytest.raises(ValueError, match="no test rows"):
        stream_from_arrays(X, y, X[:3], y[:3], order=NAMES, **settings)


def test_sessions_check_themselves() -> None:
    X, y = np.zeros((2, 1)), np.array(["a", "b"])
    good = Session(X, y, X, y, np.array(["a", "b"]))
    with pytest.raises(ValueError, match="sorted labels"):
        Session(X, y, X, y, np.array(["b", "a"]))
    with pytest.raises(ValueError, match="Test rows of 'c', which the session with 'a', 'b' lacks"):
        Session(X, y, X, np.array(["a", "c"]), np.array(["a", "b"]))
    with pytest.raises(ValueError, match="arrive in two sessions: 'a', 'b'"):
        SessionStream("twice", (good, good))
    with pytest.raises(ValueError, match="at least one session"):
        SessionStream("none", ())


# -------------------------------------------------------------------------------------------------- held-out rows


@given(st.integers(0, 100), st.floats(0.01, 0.99))
def test_hold_out_takes_a_share_of_each_class(seed: int, share: float) -> None:
    y = np.repeat(NAMES, [2, 3, 5, 10, 10, 20, 40])
    apart = hold_out(y, share, seed)
    for name in NAMES:
        size, taken = int((y == name).sum()), int(apart[y == name].sum())
        assert 1 <= taken <= size - 1
        assert abs(taken - share * size) <= 1
    some = y != "cat"
    np.testing.assert_array_equal(hold_out(y[some], share, seed), apart[some])  # of the class alone


def test_rows_to_hold_out_and_shots_are_separate_draws() -> None:
    X, y = pool(rows=40)
    drawn = rows_by_class(stream_from_arrays(X, y, X, y, base=["ant"], way=1, shot=20, seed=0))
    apart = hold_out(y, 0.5, seed=0)
    assert all(set(drawn[name]) != set(np.flatnonzero(apart & (y == name)).tolist()) for name in NAMES[1:])


def test_hold_out_refuses() -> None:
    with pytest.raises(ValueError, match="'b' has 1 rows, and 2 are needed"):
        hold_out(np.array(["a", "a", "b"]), 0.5)
    with pytest.raises(ValueError, match="share"):
        hold_out(np.array(["a", "a"]), 1.0)


# -------------------------------------------------------------------------------------------------- from list files


def write_lists(folder: Path, lists: dict[str, list[str]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, items in lists.items():
        (folder / f"{name}.txt").write_text("".join(f"{item}\n" for item in items))
    return folder


@pytest.fixture
def birds() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels and paths of 4 files of each of 3 classes, whose file names repeat; feature 0 is the row."""
    paths = np.array([f"{name}/{number}.jpg" for name in ("owl", "jay", "kite") for number in range(4)])
    return np.arange(12.0)[:, None], np.repeat([30, 10, 20], 4), paths


LISTS = {
    "session_1": ["set/images/kite/0.jpg", "set/images/kite/2.jpg", "set/images/jay/1.jpg"],
    "test_1": ["set/images/jay/3.jpg", "set/images/kite/1.jpg"],
    "session_2": ["set/images/owl/3.jpg", "", "set/images/owl/0.jpg"],
    "test_2": ["set/images/owl/1.jpg"],
}


def check_birds(found: SessionStream) -> None:
    base, later = found.sessions
    assert (base.X[:, 0].tolist(), base.y.tolist(), base.labels.tolist()) == ([8, 10, 5], [20, 20, 10], [10, 20])
    assert (base.X_test[:, 0].tolist(), base.y_test.tolist()) == ([7, 9], [10, 20])
    assert (later.X[:, 0].tolist(), later.y.tolist(), later.labels.tolist()) == ([3, 0], [30, 30], [30])
    assert (later.X_test[:, 0].tolist(), later.y_test.tolist()) == ([1], [30])


def test_lists_of_files_match_the_end_of_a_path(tmp_path: Path, birds: tuple) -> None:
    X, y, paths = birds
    folder = write_lists(tmp_path / "birds", LISTS)
    found = stream_from_lists(folder, X, y, paths=paths)
    assert found.name == "birds"
    check_birds(found)
    check_birds(stream_from_lists(folder, X, y, paths=[f"/home/me/set/images/{path}" for path in paths]))
    check_birds(stream_from_lists(folder, X, y, paths=[path.replace("/", "\\") for path in paths]))
    check_birds(stream_from_lists(folder, X, y, paths=paths, X_test=X, y_test=y, paths_test=paths))


def test_lists_of_row_numbers(tmp_path: Path, birds: tuple) -> None:
    X, y, _ = birds
    lists = {"session_1": ["8", "10", "5"], "test_1": ["7", "9"], "session_2": ["3", "0"], "test_2": ["1"]}
    folder = write_lists(tmp_path / "n", lists)
    check_birds(stream_from_lists(folder, X, y, X_test=X, y_test=y))
    with pytest.raises(ValueError, match="give X_test and y_test"):
        stream_from_lists(folder, X, y)
    write_lists(folder, {"test_2": ["12"]})
    with pytest.raises(ValueError, match=r"test_2\.txt: there is no row 12; the rows are 0 to 11"):
        stream_from_lists(folder, X, y, X_test=X, y_test=y)


def test_ten_sessions_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    X, y = np.arange(12.0)[:, None], np.arange(12)
    lists = {f"{kind}_{n + 1}": [str(n)] for n in range(12) for kind in ("session", "test")}
    found = stream_from_lists(write_lists(tmp_path / "n", lists), X, y, X_test=X, y_test=y)
    assert label_lists(found) == [[n] for n in range(12)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"session_1": ["set/images/wren/0.jpg"]}, r"session_1\.txt: 'set/images/wren/0.jpg': no row has such a path"),
        ({"test_2": ["owl/17.jpg"]}, r"test_2\.txt: 'owl/17.jpg': no row has such a path"),
        ({"test_2": ["1.jpg"]}, "rows 1 and 5 both match"),
        ({"test_2": ["owl/3.jpg"]}, "1 rows, the first 3, are listed for training and for testing"),
        ({"test_2": ["owl/1.jpg", "set/owl/1.jpg"]}, "1 items are listed twice"),
        ({"test_2": ["jay/0.jpg"]}, "Test rows of 10, which the session with 30 lacks"),
        ({"test_2": []}, "no test rows"),
        ({"session_3": ["jay/0.jpg"], "test_3": ["jay/2.jpg"]}, "arrive in two sessions: 10"),
        ({"session_4": ["jay/0.jpg"]}, r"lacks session_3\.txt, test_3\.txt, test_4\.txt"),
    ],
)
def test_bad_lists_are_refused(tmp_path: Path, birds: tuple, changes: dict, message: str) -> None:
    X, y, paths = birds
    with pytest.raises(ValueError, match=message):
        stream_from_lists(write_lists(tmp_path / "birds", LISTS | changes), X, y, paths=paths)


def test_lists_without_what_they_need(tmp_path: Path, birds: tuple) -> None:
    X, y, paths = birds
    with pytest.raises(ValueError, match="holds no lists"):
        stream_from_lists(tmp_path, X, y, paths=paths)
    folder = write_lists(tmp_path / "birds", LISTS)
    with pytest.raises(ValueError, match="the lists name files, so give paths"):
        stream_from_lists(folder, X, y, X_test=X, y_test=y)
    with pytest.raises(ValueError, match="paths has 11 entries for 12 rows"):
        stream_from_lists(folder, X, y, paths=paths[:-1])
