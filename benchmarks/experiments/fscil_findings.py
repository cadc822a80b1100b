"""What agrees with the paper's experiments on sessions and what does not, in words computed from rows.

Methods are compared over the seeds that both have (see `gaps`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from benchmarks.experiments import fscil_lines as lines
from benchmarks.experiments.fscil_lines import DATA, Line
from benchmarks.experiments.fscil_quoted import TREE_VARIANTS
from benchmarks.experiments.fscil_shown import estimate
from benchmarks.experiments.gaps import AHEAD, BEHIND, in_words, minus, number, over_seeds, shown, sorted_out
from benchmarks.rows import Row
from benchmarks.tables import Summary

FORESTS = {
    lines.FOREST: "The default forest",
    lines.FEW: "Fitted to the rows held out alone it",
    lines.TOLD: "Fitted to all rows and told which were held out it",
}
AGREES, DISAGREES = "as in the paper", "unlike in the paper"
LAST = -1


class Found:
    """The rows of one data set, as percentages."""

    def __init__(self, rows: Sequence[Row], data: str):
        self.rows, self.data = rows, data

    def has(self, *wanted: Line) -> bool:
        return all(line.of(self.rows, self.data) for line in wanted)

    def present(self, wanted: Sequence[Line]) -> list[Line]:
        return [line for line in wanted if self.has(line)]

    def __call__(self, line: Line, metric: str = "accuracy", session: int = LAST) -> float:
        return estimate(line.of(self.rows, self.data), metric, session).mean

    def by_seed(self, line: Line, metric: str = "accuracy", session: int = LAST) -> dict[int, float]:
        own = line.of(self.rows, self.data)
        return {row.trial.seed: estimate([row], metric, session).mean for row in own}

    def less(self, one: Line, other: Line, metric: str = "accuracy", session: int = LAST) -> dict[int, float]:
        """Points of one line less those of the other, by seed."""
        return minus(self.by_seed(one, metric, session), self.by_seed(other, metric, session))

    def gap(self, one: Line, other: Line, metric: str = "accuracy") -> Summary:
        return over_seeds(self.less(one, other, metric))

    def against(self, line: Line, others: Sequence[Line], metric: str = "accuracy") -> dict[str, Summary]:
        """Gaps of a line to others that have rows, by their names."""
        return {other.name: self.gap(line, other, metric) for other in self.present(others) if other != line}


def _each(rows: list[Row], data: Sequence[str], needed: Sequence[Line], say: Callable[[Found], list[str]]) -> str:
    """A paragraph for every data set that has rows of the lines that are needed."""
    found = [(name, Found(rows, name)) for name in data]
    said = [f"*{DATA[name]}.* {' '.join(say(own))}" for name, own in found if own.has(*needed)]
    return "\n\n".join(said) or "Not measured yet."


def _told(gap: Summary, papers: str = "") -> str:
    """A gap and what it says of the paper, which has it positive, beside the paper's own."""
    calibration_rows = {AHEAD: f", {AGREES}", BEHIND: f", {DISAGREES}"}
    said = in_words(gap)
    return f"{shown(gap)} ({papers}{said}{calibration_rows.get(said, '')})"


def _listed(found: Found, wanted: Sequence[Line], metric: str = "accuracy") -> str:
    return "; ".join(f"{line.name} {number(found(line, metric))}" for line in wanted)


# ------------------------------------------------------------------------------------------------------- experiments


def sessions(rows: list[Row], *, data: Sequence[str]) -> str:
    """Table 3 and figure 3: GP-Tree leads after the last session, and knows base classes better than novel ones."""

    def say(found: Found) -> list[str]:
        tree, heads = lines.PAPER, found.present(lines.RIVALS)
        base, novel = (found.by_seed(tree, f"{kind}_accuracy") for kind in ("base", "novel"))
        published = " (73.7 % and 44.5 % in the paper)" if found.data in lines.CUB else ""
        text = [
            f"The paper's tree goes from {number(found(tree, session=0))} % in the base session to "
            f"{number(found(tree))} % in the last{published}.",
            f"Points on base classes less those on novel ones: {_told(over_seeds(minus(base, novel)))}.",
        ]
        if heads:
            text.append(
                f"Its points of accuracy after the last session, against those of the heads: "
                f"{_placed(found, tree, heads)}. In the paper it leads, against methods that train the network "
                "further, which are not run here."
            )
        forests = found.present(list(FORESTS))
        if heads and forests:
            text += [
                f"{FORESTS[forest]} ends at {number(found(forest))} %. In points: "
                f"{_placed(found, forest, (tree, *heads))}."
                for forest in forests
            ]
            sure = sorted((tree, *forests, *heads), key=lambda line: found(line, "ece"))
            text.append(f"ECE (%), lowest first: {_listed(found, sure, 'ece')}.")
        return text

    return _each(rows, data, [lines.PAPER], say)


def _placed(found: Found, line: Line, others: Sequence[Line]) -> str:
    return sorted_out(found.against(line, others), ahead="ahead of", behind="behind")


def trees(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's table: shared root first, then session tree, then rebuild, about a point apart."""
    published = (lines.SHARED, lines.SESSION, lines.REBUILD)
    papers = {name: float(cells[-1]) for name, *cells in TREE_VARIANTS.lines}

    def relation(found: Found, one: Line, other: Line) -> str:
        theirs = number(papers[one.name] - papers[other.name], 2, "+")
        beside = f"{theirs} in the paper; " if found.data in lines.CUB else ""
        return f"{one.name} less {other.name} {_told(found.gap(one, other), beside)}"

    def say(found: Found) -> list[str]:
        order = sorted(published, key=found, reverse=True)
        text = [
            f"Accuracy after the last session (%): {_listed(found, order)}.",
            f"In points: {', '.join(relation(found, *pair) for pair in pairwise(published))}.",
            f"On novel classes (%): {_listed(found, published, 'novel_accuracy')}. "
            f"On base classes (%): {_listed(found, published, 'base_accuracy')}.",
        ]
        if found.has(lines.GRAFT):
            text.append(
                f"Grafting new classes beside similar base classes, ours, ends at {number(found(lines.GRAFT))} %, "
                f"{number(found(lines.GRAFT, 'novel_accuracy'))} % on novel classes. In points: "
                f"{_placed(found, lines.GRAFT, published)}."
            )
        return text

    return _each(rows, data, published, say)


def exemplars(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's figure: fewer exemplars cost a little, more in later sessions."""
    most, *fewer = lines.REPRESENTATIVES

    def say(found: Found) -> list[str]:
        changes = {
            line.name: over_seeds(minus(found.less(line, most), found.less(line, most, session=1)))
            for line in found.present(fewer)
        }
        lost = {line.name: found.gap(line, most) for line in found.present(fewer)}
        return [
            f"Accuracy after the last session (%): {_listed(found, found.present(lines.REPRESENTATIVES))}.",
            f"In points from {most.name}: "
            f"{sorted_out(lost, f'accuracy gained, {DISAGREES}, with', f'accuracy lost, {AGREES}, with')}.",
            "The same, less what it was after the second session: "
            f"{sorted_out(changes, f'less lost later, {DISAGREES}, with', f'more lost later, {AGREES}, with')}.",
        ]

    return _each(rows, data, [most, fewer[-1]], say)


def kernels(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's figure: RBF and Matérn far ahead of linear on novel classes, alike on base classes."""
    titles = {"ahead": f"ahead, {AGREES}, with", "behind": f"behind, {DISAGREES}, with"}

    def say(found: Found) -> list[str]:
        gained, where = {}, {}
        for smooth in (lines.RBF, lines.MATERN):
            base, novel = (found.less(smooth, lines.LINEAR, f"{kind}_accuracy") for kind in ("base", "novel"))
            gained[smooth.name] = found.gap(smooth, lines.LINEAR)
            where[smooth.name] = over_seeds(minus(novel, base))
        return [
            f"Accuracy after the last session (%): {_listed(found, lines.KERNELS)}.",
            f"On novel classes (%): {_listed(found, lines.KERNELS, 'novel_accuracy')}. "
            f"On base classes (%): {_listed(found, lines.KERNELS, 'base_accuracy')}.",
            "In the paper non-linear kernels are far ahead of the linear one, above all on novel classes. "
            f"Here, in points from the linear kernel: {sorted_out(gained, **titles)}.",
            f"The gap on novel classes less that on base classes: {sorted_out(where, **titles)}.",
        ]

    return _each(rows, data, lines.KERNELS, say)


def forgetting(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's figure: GP-Tree forgets less than the methods that it is compared with."""

    def say(found: Found) -> list[str]:
        heads = {line: found(line, "forgetting") for line in found.present(lines.METHODS)}
        order = sorted(heads, key=heads.__getitem__)
        place = 1 + sum(forgotten < heads[lines.PAPER] for forgotten in heads.values())
        gaps = found.against(lines.PAPER, order, "forgetting")
        text = [
            f"After the last session (%), lowest first: {_listed(found, order, 'forgetting')}.",
            f"The paper's tree has place {place} of {len(heads)}; in the paper it forgets less than SDC and PODNet, "
            "which are not run here.",
        ]
        if gaps:
            text.append(f"In points: {sorted_out(gaps, ahead='forgets more than', behind='forgets less than')}.")
        return [
            *text,
            f"It then knows {number(found(lines.PAPER, 'novel_accuracy'))} % of the novel classes' test rows and "
            f"{number(found(lines.PAPER, 'base_accuracy'))} % of the base classes': what was not learned is not "
            "forgotten.",
        ]

    return _each(rows, data, [lines.PAPER], say)
