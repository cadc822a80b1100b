"""Tables and plots from rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from table_cases import assert_sound

from benchmarks.core.figures import line_plot
from benchmarks.core.gaps import gap, gap_table, verdict
from benchmarks.core.rendering import latex_text, to_latex, to_markdown
from benchmarks.core.tables import (
    Column,
    Summary,
    Table,
    bold_best,
    chosen,
    comparison,
    grouped,
    listing,
    number,
    one_cell,
)
from benchmarks.core.trials import Row, Trial


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
    assert ROWS[0].field("method") == "lda"
    assert ROWS[0].field("settings.shots") == 5
    assert ROWS[0].field("seconds.cpu") == 2
    assert ROWS[0].field("peak_memory_bytes") == 10
    assert ROWS[0].field("settings.scale") is None
    assert ROWS[0].field("settings.scale", absent="?") == "?"
    sessions = replace(ROWS[0], metrics={"sessions": [{"nll": 1.0}, {"nll": 2.0}]})
    assert sessions.field("metrics.sessions.-1.nll") == 2


def test_rows_are_chosen_by_fields_settings_and_metrics():
    assert chosen(ROWS, method="lda", shots=5) == ROWS[:2]
    assert chosen(ROWS, shots=None) == [ROWS[3], ROWS[5]]  # an absent setting is None
    assert chosen(ROWS, **{"metrics.accuracy": 0.5}) == [ROWS[2]]


def test_summary_by_hand():
    # 80 and 90: mean 85, standard deviation √50, standard error √50/√2 = 5
    summary = Summary.of(ROWS[:2], ACCURACY)
    assert summary.mean == pytest.approx(85)
    assert summary.error == pytest.approx(5)
    assert summary.count == 2
    assert math.isnan(Summary.of(ROWS[2:3], ACCURACY).error)


@pytest.mark.parametrize(("values", "text"), [([0.5, math.inf], "∞"), ([0.5, -math.inf], "−∞"), ([math.nan, 1], "nan")])
def test_a_number_that_is_not_finite_is_shown_and_what_is_undefined_is_left_out(values, text):
    with np.errstate(all="raise"):
        rows = [row("lda", seed, value) for seed, value in enumerate([*values, None])]
        summary = Summary.of(rows, ACCURACY)
    assert summary.count == 2
    assert summary.text(1) == text


def test_table():
    columns = [ACCURACY, Column("CPU s", "seconds.cpu", digits=0)]
    assert to_markdown(listing("", ROWS, ["settings.shots", "method"], columns)) == (
        "| shots | method | accuracy % | CPU s | runs |\n"
        "| --- | --- | ---: | ---: | ---: |\n"
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


# ----------------------------------------------------------------------------------------------------- rendering


TABLE = Table(
    title="Accuracy (%) of R&D_1 #2",
    columns=["method", "4 classes", "words"],
    lines=[
        ["**GP-Tree**, `a_b`", "**85.0 ± 5.0**", "4 → 60"],
        ["[x] 10", "–", "a|b {c} ~ ^ \\ $5 *so*"],
    ],
    note="λ is −1, see [there](https://example.org/a_b).",
)


class TestRendering:
    def test_markdown(self):
        assert to_markdown(TABLE).splitlines() == [
            "**Accuracy (%) of R&D_1 #2**",
            "",
            "| method | 4 classes | words |",
            "| --- | ---: | --- |",
            "| **GP-Tree**, `a_b` | **85.0 ± 5.0** | 4 → 60 |",
            "| [x] 10 | – | a\\|b {c} ~ ^ \\ $5 *so* |",
            "",
            "λ is −1, see [there](https://example.org/a_b).",
        ]

    def test_latex(self):
        latex = to_latex(TABLE, label="tab:x")
        assert latex.splitlines() == [
            r"\begin{table}",
            r"\centering",
            r"\caption{Accuracy (\%) of R\&D\_1 \#2}",
            r"\label{tab:x}",
            r"\begin{tabular}{lrl}",
            r"\toprule",
            r"method & 4 classes & words \\",
            r"\midrule",
            r"\textbf{GP-Tree}, \texttt{a\_b} & \textbf{85.0 $\pm$ 5.0} & 4 $\rightarrow$ 60 \\",
            r"{}[x] 10 & -- & a|b \{c\} \textasciitilde{} \textasciicircum{} \textbackslash{} \$5 \emph{so} \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\smallskip\footnotesize $\lambda$ is $-$1, see there.",
            r"\end{table}",
        ]
        assert_sound(latex)

    def test_emphasis_inside_and_alone(self):
        assert latex_text("**a *b* ± c**") == r"\textbf{a \emph{b} $\pm$ c}"
        assert latex_text("2 * 3") == "2 * 3"

    def test_lines_must_fit_the_columns(self):
        for render in (to_markdown, to_latex):
            with pytest.raises(ValueError, match="2 cells under 1 column titles"):
                render(Table("t", ["a"], [["b", "c"]]))

    def test_no_lines(self):
        assert_sound(to_latex(Table("t", ["a", "b"], [])))


NAN = float("nan")


def test_the_best_as_shown_is_bold():
    one, *others = (Summary(mean, NAN, 1) for mean in (1, 2))
    assert bold_best([one, *others], 0) == ["1", "**2**"]
    assert bold_best([one, Summary(-math.inf, NAN, 1), *others], 0, min) == ["**1**", "−∞", "2"]
    assert bold_best([Summary(NAN, NAN, 0)], 0) == ["–"]
    line = [Summary(88.14, 0.5, 3), Summary(88.06, NAN, 1), Summary(87, NAN, 1), Summary(NAN, NAN, 0)]
    assert bold_best(line, 1) == ["**88.1 ± 0.5**", "**88.1**", "87.0", "–"]


def test_comparisons():
    lines = {"lda": ROWS[:2], "knn": ROWS[2:3]}
    table = comparison("", lines, [ACCURACY, Column("CPU s", "seconds.cpu", digits=0, better=min)])
    assert table.columns == ["method", "accuracy %", "CPU s", "seeds"]
    assert table.lines == [["lda", "**85.0 ± 5.0**", "**2 ± 0**", "2"], ["knn", "50.0", "**2**", "1"]]
    assert one_cell([ROWS[:2], ROWS[2:3], []], [ACCURACY, ACCURACY]) == ["**85.0** / **85.0**", "50.0 / 50.0", "–"]


def test_numbers():
    assert [number(x, 1, "+") for x in (-0.04, 0.04, -1.25, 1.0)] == ["+0.0", "+0.0", "−1.2", "+1.0"]
    assert number(-0.0004, 3) == "0.000"


class TestGaps:
    def test_they_are_over_the_seeds_that_both_have(self):
        one = gap(ROWS[:2], ROWS[2:3], ACCURACY)
        assert (one.count, one.mean) == (1, pytest.approx(30))
        two = gap(ROWS[:2], [row("knn", 0, 0.75), row("knn", 1, 0.89), row("knn", 2, 0.1)], ACCURACY)
        assert (two.count, two.mean, two.error) == (2, pytest.approx(3), pytest.approx(2))  # 5 points and 1
        assert verdict(two) == "no difference seen"
        # rounding errors are no difference, and a number that is not defined is no seed
        assert gap([row("a", 0, 0.3)], [row("b", 0, 0.1 + 0.2)], ACCURACY).mean == 0
        assert gap([row("a", 0, None)], [row("b", 0, 0.1)], ACCURACY).count == 0

    @pytest.mark.parametrize(
        ("values", "found"),
        [
            ((1.0, 1.2, 1.1), "ahead"),
            ((-1.0, -1.2, -1.1), "behind"),
            ((2.0, -1.0, 0.5), "no difference seen"),
            ((1.0, 1.0), "ahead"),
            ((0.0, 0.0), "no difference seen"),
            ((9.0,), "one seed, no verdict"),
            ((1.0, np.inf), "not finite, no verdict"),
            ((), "no seed in common"),
        ],
    )
    def test_verdicts(self, values, found):
        assert verdict(Summary.over(values)) == found
        other = {"ahead": "behind", "behind": "ahead"}.get(found, found)
        assert verdict(Summary.over(values), better=min) == other

    def test_table(self):
        rows = {
            method: [row(method, seed, 0.8 + by + 0.01 * seed) for seed in (0, 1)]
            for method, by in (("a", 0.1), ("b", 0))
        }
        lower = replace(ACCURACY, title="error", better=min)
        table = gap_table("", {"a less b": (rows["a"], rows["b"])}, [ACCURACY, lower])
        assert table.lines == [["a less b", "+10.0 ± 0.0, ahead", "+10.0 ± 0.0, behind"]]
