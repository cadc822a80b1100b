"""Rows summed up over seeds: estimates by hand, the table, the curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from gptree.protocols import METRICS, Estimate, markdown_table, plot_curves, summary


def row(seed: int, session: int, accuracy: float, **changes: Any) -> dict[str, Any]:
    """A row as far as tables and curves look at it."""
    later = {"harmonic_mean": accuracy, "forgetting": 0.1, "novel_accuracy": accuracy} if session else {}
    none = {"harmonic_mean": None, "forgetting": None, "novel_accuracy": None}
    return {
        **{"data": "zoo", "method": "m", "seed": seed, "session": session, "accuracy": accuracy},
        **{"base_accuracy": accuracy, "nll": 1.0, "ece": 0.02, "open_auroc": None, **none, **later, **changes},
    }


# Two seeds, three sessions.
ROWS = [
    row(0, 0, 0.9, open_auroc=0.8),
    row(0, 1, 0.6, open_auroc=0.7),
    row(0, 2, 0.6, nll=1.5, ece=0.03, forgetting=0.05),
    row(1, 0, 0.8, open_auroc=0.9),
    row(1, 1, 0.8, open_auroc=0.8),
    row(1, 2, 0.5, nll=1.7, ece=0.05, forgetting=0.15),
]


def test_estimates() -> None:
    assert Estimate.of([0.5]) == (0.5, None)
    # mean 2, squared deviations 1 + 0 + 1, sample variance 1, over √3
    assert Estimate.of([1.0, 2.0, 3.0]) == pytest.approx((2.0, 1 / np.sqrt(3)))
    assert Estimate.of([1.0, None]) is None
    assert Estimate.of([]) is None


def test_summary_by_hand() -> None:
    (line,) = summary(ROWS)
    assert (line["data"], line["method"], line["seeds"]) == ("zoo", "m", 2)
    # The standard error of two values is half their distance.
    assert line["last"] == pytest.approx((0.55, 0.05))  # .6, .5
    assert line["average"] == pytest.approx((0.7, 0.0))  # (.9 + .6 + .6) / 3, (.8 + .8 + .5) / 3
    assert line["drop"] == pytest.approx((0.3, 0.0))  # .9 − .6, .8 − .5
    assert line["harmonic_mean"] == pytest.approx((0.55, 0.05))
    assert line["forgetting"] == pytest.approx((0.1, 0.05))  # after the last session: .05, .15
    assert line["nll"] == pytest.approx((1.6, 0.1))
    assert line["ece"] == pytest.approx((0.04, 0.01))
    assert line["auroc"] == pytest.approx((0.8, 0.05))  # (.8 + .7) / 2, (.9 + .8) / 2
    assert set(line) == {"data", "method", "seeds", *METRICS}


def test_summary_does_not_depend_on_the_order_of_rows() -> None:
    mixed = [ROWS[i] for i in np.random.default_rng(0).permutation(len(ROWS))]
    (one,), (two,) = summary(ROWS), summary(mixed)
    assert all(one[metric] == pytest.approx(two[metric]) for metric in METRICS)


def test_one_seed_and_the_base_alone() -> None:
    (line,) = summary(ROWS[:1])
    assert line["last"] == (0.9, None)
    assert line["forgetting"] is None
    assert "| zoo | m | 1 | 90.0 | 90.0 | 0.0 | – | – | 1.000 | 2.0 | 80.0 |" in markdown_table(ROWS[:1])


def test_unfinished_and_doubled_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="m on zoo, seed 1, has 2 of 3 sessions"):
        summary(ROWS[:-1])
    with pytest.raises(ValueError, match="m on zoo, seed 0, has two rows for session 1"):
        summary([*ROWS, ROWS[1]])
    with pytest.raises(ValueError, match="no rows"):
        summary([])


def test_the_table() -> None:
    others = [{**found, "method": "a|b", "accuracy": 0.1} for found in ROWS]
    lines = markdown_table([*ROWS, *others]).splitlines()
    assert lines[0].split(" | ")[0] == "| data"
    assert lines[2] == (
        "| zoo | m | 2 | 55.0 ± 5.0 | 70.0 ± 0.0 | 30.0 ± 0.0 | 55.0 ± 5.0 | 10.0 ± 5.0 | 1.600 ± 0.100 | 4.0 ± 1.0 "
        "| 80.0 ± 5.0 |"
    )
    assert lines[3].startswith(r"| zoo | a\|b | 2 | 10.0 ± 0.0 |")  # methods in the order of their rows
    assert lines[1].count("|") == lines[0].count("|") == lines[2].count("|")
    assert "standard error" in lines[-1]


def test_the_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (drawn.append(self), save(self, *a, **k)))
    methods = [{**found, "method": f"method {number}"} for number in range(9) for found in ROWS]
    plot_curves(methods, tmp_path / "curves.png")
    assert imread(tmp_path / "curves.png").shape[0] > 500
    *panels, legend = drawn[0].axes
    assert [ax.get_title().split(",")[-1].strip() for ax in panels] == [
        *("all classes (%)", "base classes (%)", "novel classes (%)", "NLL", "ECE (%)")
    ]
    assert len(legend.get_legend().get_texts()) == 9
    looks = [(c[0].get_color(), c[0].get_marker(), c[0].get_linestyle()) for c in panels[0].containers]
    assert len(set(looks)) == 9
    line, _, (bars,) = panels[0].containers[0]
    np.testing.assert_allclose(line.get_ydata(), [85, 70, 55])
    np.testing.assert_allclose([segment[:, 1] for segment in bars.get_segments()], [[80, 90], [60, 80], [50, 60]])
    np.testing.assert_allclose(np.round(line.get_xdata()), [0, 1, 2])
    assert len(panels[2].containers[0][0].get_ydata()) == 2  # no novel classes in the base session


def test_curves_of_the_base_alone_and_of_two_data_sets(tmp_path: Path) -> None:
    plot_curves(ROWS[:1], tmp_path / "curves.png")
    with pytest.raises(ValueError, match="one data set; the rows are of farm, zoo"):
        plot_curves([*ROWS, *({**found, "data": "farm"} for found in ROWS)], tmp_path / "c.png")
