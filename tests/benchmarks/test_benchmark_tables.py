"""Tables and plots from rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from benchmarks.rows import Row, Trial
from benchmarks.tables import Column, Summary, field_of, grouped, line_plot, markdown


def row(method: str, seed: int, accuracy: float | None, **settings) -> Row:
    trial = Trial("heads", method, "digits", seed, settings)
    return Row(trial, {"accuracy": accuracy}, {"wall": 1.0, "cpu": 2.0}, 10, {"python": "3"}, {"cpu": "x"})


ROWS = [
    row("lda", 0, 0.8, shots=5),
    row("lda", 1, 0.9, shots=5),
    row("knn", 0, 0.5, shots=5),
    row("lda", 0, 1.0, shots=None),
    row("lda", 0, None, shots=20),
    row("oracle", 0, 1.0),
]
ACCURACY = Column("accuracy %", "metrics.accuracy", scale=100, digits=1)


def test_fields():
    assert field_of(ROWS[0], "method") == "lda"
    assert field_of(ROWS[0], "settings.shots") == 5
    assert field_of(ROWS[0], "seconds.cpu") == 2
    assert field_of(ROWS[0], "peak_memory_bytes") == 10
    assert field_of(ROWS[0], "settings.scale") is None
    assert field_of(ROWS[0], "settings.scale", absent="?") == "?"


def test_summary_by_hand():
    # 80 and 90: mean 85, standard deviation √50, standard error √50/√2 = 5
    summary = Summary.of(ROWS[:2], ACCURACY)
    assert summary.mean == pytest.approx(85)
    assert summary.error == pytest.approx(5)
    assert summary.count == 2
    assert math.isnan(Summary.of(ROWS[2:3], ACCURACY).error)


@pytest.mark.parametrize(("values", "text"), [([0.5, math.inf], "∞"), ([0.5, -math.inf], "-∞"), ([math.nan, 1], "nan")])
def test_a_number_that_is_not_finite_is_shown_and_what_is_undefined_is_left_out(values, text):
    with np.errstate(all="raise"):
        rows = [row("lda", seed, value) for seed, value in enumerate([*values, None])]
        summary = Summary.of(rows, ACCURACY)
    assert summary.count == 2
    assert summary.text(1) == text


def test_table():
    assert markdown(ROWS, ["settings.shots", "method"], [ACCURACY, Column("CPU s", "seconds.cpu", digits=0)]) == (
        "| shots | method | accuracy % | CPU s | runs |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| 5 | lda | 85.0 ± 5.0 | 2 ± 0 | 2 |\n"
        "| 5 | knn | 50.0 | 2 | 1 |\n"
        "| all | lda | 100.0 | 2 | 1 |\n"
        "| 20 | lda | – | 2 | 1 |\n"
        "| – | oracle | 100.0 | 2 | 1 |\n"
    )


def test_groups_keep_their_order():
    assert list(grouped(ROWS, ["method"])) == [("lda",), ("knn",), ("oracle",)]


def test_plot():
    ax = Figure().subplots()
    rows = [row(m, s, 0.1 * n + 0.01 * s, shots=n) for m in ("lda", "knn") for n in (5, 1, 3) for s in (0, 1)]
    line_plot(rows, "settings.shots", ACCURACY, "method", ax)
    legend, bars = ax.get_legend(), ax.containers[0]
    assert legend is not None
    assert isinstance(bars, ErrorbarContainer)
    assert [text.get_text() for text in legend.get_texts()] == ["lda", "knn"]
    x, y = (np.asarray(part, dtype=float) for part in bars.lines[0].get_data())
    np.testing.assert_array_equal(x, [1, 3, 5])
    np.testing.assert_allclose(y, [10.5, 30.5, 50.5])
    assert ax.get_xlabel() == "shots"
    assert ax.get_ylabel() == "accuracy %"
