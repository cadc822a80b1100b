"""What agrees with the paper's experiments with Gibbs sampling and what does not, in words computed from rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.experiments.gaps import AHEAD, BEHIND, NO_DIFFERENCE, in_words, minus, number, over_seeds, verdict
from benchmarks.experiments.gibbs_quoted import published
from benchmarks.experiments.gibbs_shown import ACCURACY, NAMES, NLL, by_data, numbers_of_classes, peaks_of, score
from benchmarks.experiments.gibbs_trials import GIBBS_METHODS, KERNELS
from benchmarks.rows import Row
from benchmarks.tables import Column, Summary, field_of

#: Up to so many classes the paper finds GP-Tree, LSM and OVE comparable; beyond, GP-Tree ahead.
FEW = 30
NOT_YET = "Not measured yet."
Which = Callable[[Row], bool]


@dataclass(frozen=True)
class Found:
    """The rows of one data set."""

    data: str
    rows: list[Row]

    @property
    def name(self) -> str:
        return NAMES[self.data]

    @property
    def most(self) -> int:
        return max(numbers_of_classes(self.rows))

    def gaps(
        self, one: Which, other: Which, classes: int, column: Column, ats: tuple[str, str] = ("mean", "mean")
    ) -> dict[int, float]:
        """One minus the other, by the seeds that both have."""
        first, second = (
            {
                row.trial.seed: column.scale * value
                for row in self.rows
                if which(row)
                and row.trial.settings["classes"] == classes
                and (value := field_of(row, score(column, at).path)) is not None
            }
            for which, at in zip((one, other), ats, strict=True)
        )
        return minus(first, second)

    def gap(self, *compared: Any, **how: Any) -> Summary:
        """Mean and standard error of `gaps`."""
        return over_seeds(self.gaps(*compared, **how))

    def accuracy_gap(self, one: str, other: str, classes: int) -> Summary:
        return self.gap(method(one), method(other), classes, ACCURACY)


def method(name: str) -> Which:
    return lambda row: row.trial.method == name


def chains(number: int, steps: int) -> Which:
    return lambda row: (row.trial.settings["chains"], row.trial.settings["steps"]) == (number, steps)


CRITERION = (
    "Gaps are means over the seeds that both have, ± one standard error. Ahead and behind: by more than two standard "
    f"errors; otherwise: {NO_DIFFERENCE}."
)


def signed(gap: Summary, digits: int = 1) -> str:
    if not gap.count:
        return "unknown"
    error = "" if math.isnan(gap.error) else f" ± {number(gap.error, digits)}"
    return f"{number(gap.mean, digits, '+')}{error}".replace("inf", "∞")


def listed(names: Iterable[object]) -> str:
    """a, b and c"""
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last


def _each(rows: list[Row], say: Callable[[Found], list[str]]) -> str:
    said = [f"- {found.name}: {line}" for found in map(Found, *_split(rows)) for line in say(found)]
    return "\n".join((CRITERION, "", *said)) if said else NOT_YET


def _split(rows: list[Row]) -> tuple[list[str], list[list[Row]]]:
    parts = by_data(rows)
    return list(parts), list(parts.values())


# ----------------------------------------------------------------------------------------------------- gibbs-classes


def classes_findings(rows: list[Row]) -> str:
    return _each(
        rows,
        lambda found: [
            line
            for part in (_order, _random_tree, _few_classes, _plain, _quadrature, _kernels, _memory, _stops)
            if (line := part(found))
        ],
    )


def _order(found: Found) -> str:
    """GP-Tree against every sampled rival at most classes."""
    n, told = found.most, defaultdict(list)
    for rival in ("GP-Tree Rnd", "SBM-GP", "LSM", "OVE"):
        gap = found.accuracy_gap("GP-Tree", rival, n)
        if gap.count:
            absent = found.data == "cub200" and published(rival, n) is None
            text = f"{rival} ({signed(gap)}{_papers_gap(found, 'GP-Tree', rival, n)})"
            told[verdict(gap)].append(text + (", which the paper did not run there" if absent else ""))
    if n <= FEW or not told:
        return ""
    words = {AHEAD: "ahead of", BEHIND: "behind", NO_DIFFERENCE: "not seen to differ from"}
    parts = [f"{how} {listed(told.pop(each))}" for each, how in words.items() if each in told]
    parts += [f"beside {listed(rivals)}, {why}" for why, rivals in told.items()]
    return (
        f"at {n} classes, in points of accuracy, GP-Tree is {listed(parts)}. In the paper, on CUB, it is ahead of all "
        "that ran there."
    )


def _random_tree(found: Found) -> str:
    n = found.most
    gap = found.accuracy_gap("GP-Tree Rnd", "SBM-GP", n)
    if n <= FEW or gap.count < 2:
        return ""
    paper = "similar, as in the paper" if verdict(gap) == NO_DIFFERENCE else "in the paper they are similar"
    return (
        f"at {n} classes GP-Tree Rnd against SBM-GP: {in_words(gap)} "
        f"({signed(gap)}{_papers_gap(found, 'GP-Tree Rnd', 'SBM-GP', n)}); {paper}."
    )


def _papers_gap(found: Found, one: str, other: str, classes: int) -> str:
    a, b = published(one, classes), published(other, classes)
    if found.data != "cub200" or a is None or b is None:
        return ""
    return f"; paper: {number(a - b, 1, '+')}"


def _few_classes(found: Found) -> str:
    """GP-Tree against the rivals that the paper finds comparable there: where it is ahead, behind and neither."""
    few = [n for n in numbers_of_classes(found.rows) if n <= FEW]
    told, seen = [], set()
    for rival in ("LSM", "OVE"):
        where = defaultdict(list)
        for n in few:
            if (gap := found.accuracy_gap("GP-Tree", rival, n)).count:
                where[verdict(gap)].append(f"{n} ({signed(gap)})")
                seen.add(verdict(gap))
        if where:
            told.append(f"against {rival} {listed(f'{how} at {listed(at)}' for how, at in where.items())}")
    if not told:
        return ""
    paper = ""
    if {AHEAD, BEHIND} & seen:
        paper = " In the paper the three are comparable; here not everywhere."
    elif seen == {NO_DIFFERENCE}:
        paper = " They are comparable, as in the paper."
    return f"up to {max(few)} classes, GP-Tree {'; '.join(told)}.{paper}"


def _plain(found: Found) -> str:
    n, told = found.most, []
    for name in ("residual forest", "logistic regression"):
        points, nats = (found.gap(method(name), method("GP-Tree"), n, column) for column in (ACCURACY, NLL))
        if points.count:
            told.append(f"the {name}" if name.endswith("forest") else name)
            told[-1] += f" is {signed(points)} points of accuracy ({in_words(points)}) and {signed(nats, 2)} of NLL"
    return f"at {n} classes, from GP-Tree, {'; '.join(told)}." if told else ""


def _quadrature(found: Found) -> str:
    n, told = found.most, []
    for name in GIBBS_METHODS:
        which, ats = method(name), ("quadrature", "mean")
        points, nats = (found.gap(which, which, n, column, ats) for column in (ACCURACY, NLL))
        if points.count:
            told.append(f"{name} {signed(points)} points and {signed(nats, 2)} of NLL")
    return f"at {n} classes quadrature changes what the mean predicts by: {'; '.join(told)}." if told else ""


def _kernels(found: Found) -> str:
    chosen = [row.metrics["chosen"]["kernel"] for row in found.rows if "chosen" in row.metrics]
    if not chosen:
        return ""
    counts = " and ".join(f"the {'RBF' if k == 'rbf' else k} kernel in {chosen.count(k)}" for k in KERNELS)
    return f"of {len(chosen)} choices validation took {counts}; the paper found the linear one better throughout."


def _memory(found: Found) -> str:
    told = []
    for name, classes, limit in (("LSM", 60, 4), ("OVE", 10, 2)):
        own = [r for r in found.rows if method(name)(r) and r.trial.settings["classes"] == classes]
        peaks = [peak / 1e9 for peak in peaks_of(own)]
        if peaks:
            within = "within" if max(peaks) <= limit else "which does not show it within"
            told.append(f"{name} at {classes} classes took at most {max(peaks):.2f} GB, {within} {limit} GB")
    return "; ".join(told) + "." if told else ""


def _stops(found: Found) -> str:
    stopped = {}
    for row in found.rows:
        if "stopped" in row.metrics:
            stopped.setdefault((row.trial.method, row.trial.settings["classes"]), row.metrics["stopped"])
    if stopped:
        return (
            "; ".join(f"{name} stopped at {n} classes: {why.rstrip('.')}" for (name, n), why in stopped.items()) + "."
        )
    ran = [row for row in found.rows if method("OVE")(row)]
    if not ran:
        return ""
    most, peaks = max(numbers_of_classes(ran)), peaks_of(ran)
    memory = f", with at most {max(peaks) / 1e9:.1f} GB" if peaks else ""
    paper = "; the paper had to stop at 10" if most > 10 else ""
    return f"OVE ran at all numbers of classes up to {most}{memory}{paper}."


# --------------------------------------------------------------------------------------------- gibbs-vs-vi, -chains


def inference_findings(rows: list[Row]) -> str:
    return _each(rows, _inference)


def _inference(found: Found) -> list[str]:
    least, most = min(numbers_of_classes(found.rows)), found.most
    said = []
    for rival in ("VI, all points", "VI, 5 inducing points a class"):
        few, many = (found.gaps(method("Gibbs"), method(rival), n, ACCURACY) for n in (least, most))
        first, last = map(over_seeds, (few, many))
        growth = over_seeds(minus(many, few))
        nats = found.gap(method("Gibbs"), method(rival), most, NLL)
        if first.count and last.count and least < most:
            grows = verdict(last) == verdict(growth) == AHEAD
            paper = (
                " The paper's gap in favour of Gibbs sampling that grows with the classes is "
                f"{'seen' if grows else 'not seen'}."
            )
            said.append(
                f"Gibbs sampling minus {rival}: {signed(first)} points of accuracy at {least} classes "
                f"({in_words(first)}), {signed(last)} at {most} ({in_words(last)}), which is {signed(growth)} more; "
                f"and {signed(nats, 2)} of NLL at {most}.{paper if growth.count > 1 else ''}"
            )
    unsettled = sum(row.metrics.get("unsettled_nodes", 0) for row in found.rows)
    if said and unsettled:
        said.append(f"{unsettled} nodes of the chosen variational fits had not settled after all sweeps.")
    return said


def chains_findings(rows: list[Row]) -> str:
    return _each(rows, _chains)


def _chains(found: Found) -> list[str]:
    n, said = found.most, []
    counts, steps = ({row.trial.settings[of] for row in found.rows} for of in ("chains", "steps"))
    top, long = max(counts), max(steps)
    gains, beyond, longer = (
        found.gaps(*pair, n, ACCURACY)
        for pair in ((chains(4, 1), chains(1, 1)), (chains(top, 1), chains(4, 1)), (chains(4, long), chains(4, 1)))
    )
    first, further, more = map(over_seeds, (gains, beyond, longer))
    less = over_seeds(minus(gains, beyond))
    if first.count and further.count:
        agree = verdict(first) == verdict(less) == AHEAD
        paper = (
            " In the paper accuracy grows with the chains, and less beyond four: "
            f"{'so it does here' if agree else 'here it does not'}."
        )
        said.append(
            f"at {n} classes four chains are {signed(first)} points of accuracy from one ({in_words(first)}), and "
            f"{top} are {signed(further)} from four ({in_words(further)}).{paper if less.count > 1 else ''}"
        )
    if more.count and long > 1:
        said.append(
            f"at {n} classes {long} steps are {signed(more)} points of accuracy ({in_words(more)}) and "
            f"{signed(found.gap(chains(4, long), chains(4, 1), n, NLL), 2)} of NLL from one step, at four chains. The "
            "paper calls the effect of the steps minor."
        )
    return said
