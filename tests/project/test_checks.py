"""Trouble that was put into data is found, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from gptree.embed import Failure
from gptree.project.checks import FAR, NEAR, _distances, findings
from gptree.project.pages import findings_page

IDS = [f"r{i}" for i in range(33)]


def rows() -> tuple[np.ndarray, list[str | None]]:
    """Three classes of ten, two without a label; r3 has a wrong label, r31 lies nearly on r7, r32 is far from all."""
    random = np.random.default_rng(3)
    centres = 4 * np.eye(3, 12)
    X = np.concatenate([centres[np.repeat(np.arange(3), 10)] + random.normal(0, 0.5, (30, 12)), np.zeros((3, 12))])
    X[30] = X[12]
    X[31] = X[7] + 1e-3
    X[32, 11] = 9.0
    labels: list[str | None] = [*np.repeat(["a", "b", "c"], 10).tolist(), "c", None, None]
    labels[3] = "b"
    return X, labels


def keys(X: np.ndarray) -> list[str]:
    return [row.tobytes().hex() for row in X]


def test_what_was_put_in_is_found() -> None:
    X, labels = rows()
    found = findings(X, labels, IDS, keys(X), [Failure("x.png", "empty")])
    assert (found.rows, found.labelled, found.classes, found.alone) == (33, 31, 3, ())
    assert found.suspects[0].id in ("r3", "r30")  # r30 is r12 with another label
    assert {each.id for each in found.suspects} <= {"r3", "r30", "r12"}
    assert next(each for each in found.suspects if each.id == "r3").answer == "a"
    exact, near = found.twins
    assert (exact.ids, exact.labels, exact.exact, exact.disagree) == (("r12", "r30"), ("b", "c"), True, True)
    assert (set(near.ids), near.exact, near.disagree) == ({"r7", "r31"}, False, False)
    assert near.distance < NEAR
    assert [each.id for each in found.outliers] == ["r32"]
    assert found.outliers[0].deviations > FAR
    assert str(found).startswith("33 rows, 31 with a label, 3 classes: ")
    assert (
        "1 duplicate has two labels, 1 exact duplicate, 1 near duplicate, 1 outlier, 1 file could not be read"
        in str(found)
    )


def test_clean_rows_give_nothing() -> None:
    """Of 30 rows three robust deviations are passed by chance in about 4 % of draws; this draw has none."""
    X, labels = rows()
    found = findings(X[:3], labels[:3], IDS[:3], keys(X[:3]))
    assert str(found) == "3 rows, 3 with a label, 1 classes: nothing wrong was found"
    good = [*range(3), *range(4, 30)]
    found = findings(X[good], [labels[i] for i in good], [IDS[i] for i in good], keys(X[good]))
    assert (found.suspects, found.twins, found.outliers) == ((), (), ())


def test_distances_are_those_of_a_loop() -> None:
    x = np.random.default_rng(0).normal(size=(9, 4))
    nearest, distance, lonely = _distances(x)
    for i, row in enumerate(x):
        all_of_them = np.sqrt(np.square(x - row).sum(1))
        order = np.argsort(all_of_them)
        assert (order[0], order[1]) == (i, nearest[i])
        assert distance[i] == pytest.approx(all_of_them[order[1]])
        assert lonely[i] == pytest.approx(all_of_them[order[5]])


def test_classes_of_one_row_are_told() -> None:
    X, labels = rows()
    found = findings(X[:21], labels[:21], IDS[:21], keys(X[:21]))
    assert found.alone == ("c",)
    assert "c" not in {each.label for each in found.suspects}


def test_the_page_runs_nothing_that_a_label_says() -> None:
    X, labels = rows()
    labels[3] = "b<script>alert(1)</script>"
    found = findings(X, labels, IDS, keys(X), [Failure("<img src=x>", "empty")])
    page = findings_page("<b>", found, {"r3": "a text <i>", "r7": "x" * 999})
    assert "<script>" not in page
    assert "<img src=x>" not in page
    assert "a text &lt;i&gt;" in page or "r3" not in {each.id for each in found.suspects}
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page
