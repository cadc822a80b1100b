"""Tables and curves over sessions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.core.figures import panels
from benchmarks.core.gaps import gap_table
from benchmarks.core.tables import Column, Summary, Table, bold_best, comparison
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil.lines import DATA, FromPictures, Line
from benchmarks.experiments.fscil.sets import SETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAST = "metrics.sessions.-1."
ACCURACY = Column("accuracy (%)", f"{LAST}accuracy", 100, 1)
BASE = Column("base (%)", f"{LAST}base_accuracy", 100, 1)
NOVEL = Column("novel (%)", f"{LAST}novel_accuracy", 100, 1)
HARMONIC = Column("harmonic mean (%)", f"{LAST}harmonic_mean", 100, 1)
FORGETTING = Column("forgetting (%)", f"{LAST}forgetting", 100, 1, min)
NLL = Column("NLL", f"{LAST}nll", 1, 3, min)
ECE = Column("ECE (%)", f"{LAST}ece", 100, 1, min)
SECONDS = Column("seconds", f"{LAST}seconds_add", 1, 1, min)
KEPT = Column("kept (MB)", f"{LAST}bytes", 1e-6, 2, min)
NEAREST = Column("by nearest means (%)", "metrics.nearest_mean.-1", 100, 1)
TITLES = {
    ACCURACY: "accuracy, all classes",
    BASE: "accuracy, base classes",
    NOVEL: "accuracy, novel classes",
    FORGETTING: "average forgetting",
}
NOTE = "In %, sessions as the paper numbers them, 1 being the base; mean ± standard error over seeds; best in bold."
LAST_NOTE = """\
All classes after the last session; harmonic mean of base and novel accuracy; forgetting as in
[average forgetting](fscil-forgetting.md); mean ± standard error over seeds; best in bold."""
PICTURES_NOTE = f"""\
{LAST_NOTE} Seconds of the last session, on a GPU where a network is trained, else one thread; kept: what is held
between sessions beside the network and its classifier, pictures at 3 bytes a pixel. Temperatures of the rivals that
train a network are those of rehearsed sessions. iCaRL, tuned and at learning rate 0, and SDC answer by nearest means,
which are no probabilities: theirs are the softmax of minus squared distances, divided by such a temperature."""
NEAREST_NOTE = """\
All classes after the last session: by the classifier, which counts elsewhere and was decided on beforehand, and by the
nearest mean of exemplars, where all classes have some."""
FORGETTING_NOTE = """\
After session k: the mean over sessions j < k of the best accuracy that the classes of session j had in sessions
1 … k − 1, less what they have now; mean ± standard error over seeds (none: one seed), lowest in bold. What never learns
a class has nothing to forget: read it beside the accuracies."""
#: Where a method forgets more than so many points, the scale is logarithmic above 10.
MUCH_FORGOTTEN = 25
#: The palette of Okabe and Ito, told apart by people with any kind of colour vision, and more; markers differ too.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D31", "#7F7F7F", "#6A3D9A",
           "#B15928", "#1B9E77", "#E7298A", "#A6761D", "#4D4D4D")  # fmt: skip
MARKERS = "os^DvPX<>hd*p"


def after(column: Column, session: int) -> Column:
    """The column as it was after a session, numbered from 0."""
    return replace(column, path=column.path.replace(LAST, f"metrics.sessions.{session}."))


COLUMNS = {
    "accuracy": ACCURACY,
    "first": after(ACCURACY, 0),
    "base": BASE,
    "novel": NOVEL,
    "forgetting": FORGETTING,
    "NLL": NLL,
    "ECE": ECE,
    "nearest": NEAREST,
}


def groups(rows: Sequence[Row], lines: Sequence[Line], data: str) -> dict[Line, list[Row]]:
    """The lines that have rows on a data set, and these."""
    return {line: group for line in lines if (group := line.of(rows, data))}


@dataclass(frozen=True)
class Study:
    """Lines on data sets, session by session: trials, tables and curves.

    pairs : lines whose gaps are shown.
    column : what is shown after each session.
    gaps : columns in which the gaps are shown.
    main : the data set of the small table.
    """

    lines: Sequence[Line]
    data: Sequence[str]
    pairs: Sequence[tuple[Line, Line]]
    column: Column = ACCURACY
    gaps: Sequence[Column] = (ACCURACY, BASE, NOVEL)
    main: str = ""

    @property
    def choices(self) -> Mapping[str, Mapping[str, Any]]:
        return {line.name: line.fields for line in self.lines}

    def trials(self, seeds: int) -> list[Trial]:
        cases = ((name, seed, line) for name in self.data for seed in range(seeds) for line in self.lines)
        return [line.trial(name, seed) for name, seed, line in cases if line.fits(name)]

    def tables(self, rows: list[Row]) -> list[Table]:
        """Of every data set that has rows: the column after each session, the last one's scores, and gaps."""
        made = []
        for name in self.data:
            if here := groups(rows, self.lines, name):
                made += _tables_of(here, name, self.column)
                both = {
                    f"{one.name} less {other.name}": (here[one], here[other])
                    for one, other in self.pairs
                    if one in here and other in here
                }
                made += [gap_table(f"{DATA[name]}: gaps after the last session", both, self.gaps)] if both else []
        return made

    def glance(self, rows: list[Row]) -> Table:
        """The last session on the main data set."""
        drawn = [line for line in self.lines if line.is_drawn(self.main)]
        lines = {line.name: group for line, group in groups(rows, drawn, self.main).items()}
        return comparison(f"{DATA[self.main]}: after the last session", lines, (ACCURACY, BASE, NOVEL, NLL, ECE))

    def figure(self, rows: list[Row], path: Path) -> None:
        """A row of panels for every data set that has rows, or a panel where one column is drawn; a curve a line."""
        from matplotlib.ticker import MaxNLocator

        columns = [self.column] if self.column is FORGETTING else [ACCURACY, BASE, NOVEL]
        present = {
            name: drawn
            for name in self.data
            if (drawn := groups(rows, [line for line in self.lines if line.is_drawn(name)], name))
        }
        if not present:
            raise ValueError("There are no rows to draw; run the experiment first.")
        present = {name: here for name, here in present.items() if len(here) > 1} or present  # one compares nothing
        compared = {name: here for name, here in present.items() if any(isinstance(l, FromPictures) for l in here)}
        if self.column is FORGETTING:
            present = {name: here for name, here in present.items() if name not in SETS or name in compared}
        else:  # the networks of which most is compared
            present = compared or present
        drawn = dict.fromkeys(line for here in present.values() for line in here)
        numbers = {line: k for k, line in enumerate(sorted(drawn, key=lambda line: line.is_rival))}
        across = len(columns) if len(columns) > 1 else len(present)
        picture, axes = panels(len(present) * len(columns) // across, across, height=3.6 if len(columns) > 1 else 5.0)
        curves: dict[str, Any] = {}
        for ax, (name, each) in zip(axes, [(name, each) for name in present for each in columns], strict=True):
            for line, group in present[name].items():
                curves[line.name] = _draw(ax, line, numbers[line], group, each)
            ax.set_title(DATA[name], fontsize=8.5)
            ax.set(xlabel="session", ylabel=f"{TITLES[each]} (%)")
            if each is FORGETTING and ax.get_ylim()[1] > MUCH_FORGOTTEN:
                ax.set_yscale("symlog", linthresh=10)
                ax.set_yticks([*range(-2, 11, 2), 20, 40, 60], minor=False)
                ax.yaxis.set_major_formatter("{x:g}")
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        below: dict[str, Any] = {"loc": "outside lower center", "ncols": across, "frameon": False, "fontsize": 9}
        picture.legend(list(curves.values()), list(curves), **below)
        picture.savefig(path, dpi=150)


def _tables_of(here: dict[Line, list[Row]], data: str, column: Column) -> Iterator[Table]:
    names = [line.name for line in here]
    forgets = column is FORGETTING  # there is nothing to forget in the base session
    sessions = range(int(forgets), len(next(iter(here.values()))[0].metrics["sessions"]))
    cells = [
        bold_best([Summary.of(group, after(column, k)) for group in here.values()], column.digits, column.better)
        for k in sessions
    ]
    yield Table(
        f"{DATA[data]}: {TITLES[column]}, after each session",
        ["method", *(str(k + 1) for k in sessions)],
        [list(line) for line in zip(names, *cells, strict=True)],
        FORGETTING_NOTE if forgets else NOTE,
    )
    if not forgets:
        scores = (ACCURACY, BASE, NOVEL, HARMONIC, FORGETTING, NLL, ECE, *((SECONDS, KEPT) if data in SETS else ()))
        by_name = {line.name: group for line, group in here.items()}
        note = PICTURES_NOTE if data in SETS else LAST_NOTE
        yield comparison(f"{DATA[data]}: after the last session", by_name, scores, note)
        both = {line.name: group for line, group in here.items() if Summary.of(group, NEAREST).count}
        if both:
            yield comparison(f"{DATA[data]}: two ways to answer", both, (ACCURACY, NEAREST), NEAREST_NOTE)


def _draw(ax: Axes, line: Line, number: int, rows: Sequence[Row], column: Column) -> Any:
    """A curve with bars of one standard error; rivals are thin and dashed."""
    points = []
    for session in range(len(rows[0].metrics["sessions"])):
        summary = Summary.of(rows, after(column, session))
        if summary.count:  # there are no novel classes in the base session
            points.append((session + 1, summary.mean, np.nan_to_num(summary.error)))
    x, mean, error = np.array(points).T
    rival = line.is_rival
    return ax.errorbar(
        x,
        mean,
        yerr=error,
        color=COLOURS[number % len(COLOURS)],
        marker=MARKERS[number % len(MARKERS)],
        linestyle="--" if rival else "-",
        linewidth=0.9 if rival else 2.0,
        markersize=3.5 if rival else 5,
        alpha=0.8 if rival else 1.0,
        zorder=2 if rival else 3,
        elinewidth=0.8,
        capsize=1.5,
    )
