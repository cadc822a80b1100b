"""What agrees with the paper's experiments with Gibbs sampling and what does not, in words computed from rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.experiments.gibbs_quoted import published
from benchmarks.experiments.gibbs_shown import ACCURACY, NAMES, NLL, by_data, numbers_of_classes, peaks_of, score
from benchmarks.experiments.gibbs_trials import GIBBS_METHODS, KERNELS
from benchmarks.rows import Row
from benchmarks.tables import Column, Summary, field_of

#: In points of accuracy: what is called similar. The paper calls methods similar that are 2.2 points apart.
SIMILAR = 3.0
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

    def gap(
        self, one: Which, other: Which, classes: int, column: Column, ats: tuple[str, str] = ("mean", "mean")
    ) -> Summary:
        """One minus the other over the seeds that both have, mean and standard error."""
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
        return Summary.over(first[seed] - second[seed] for seed in first if seed in second)

    def accuracy_gap(self, one: str, other: str, classes: int) -> Summary:
        return self.gap(method(one), method(other), classes, ACCURACY)


def method(name: str) -> Which:
    return lambda row: row.trial.method == name


def chains(number: int, steps: int) -> Which:
    return lambda row: (row.trial.settings["chains"], row.trial.settings["steps"]) == (number, steps)


def ahead(gap: Summary) -> bool:
    """By more than two standard errors."""
    return gap.mean > 2 * gap.error


def signed(gap: Summary, digits: int = 1) -> str:
    if not gap.count:
        return "unknown"
    error = "" if math.isnan(gap.error) else f" ± {gap.error:.{digits}f}"
    return f"{round(gap.mean, digits) + 0.0:+.{digits}f}{error}".replace("-", "−")  # + 0.0: no negative zero


def verdict(gap: Summary) -> str:
    if math.isnan(gap.error):
        return "from one seed" if gap.count else "no seed in common"
    return "ahead" if ahead(gap) else "behind" if gap.mean < -2 * gap.error else "level within two standard errors"


def _each(rows: list[Row], say: Callable[[Found], list[str]]) -> str:
    said = [f"- {found.name}: {line}" for found in map(Found, *_split(rows)) for line in say(found)]
    return "\n".join(said) or NOT_YET


def _split(rows: list[Row]) -> tuple[list[str], list[list[Row]]]:
    parts = by_data(rows)
    return list(parts), list(parts.values())


# ----------------------------------------------------------------------------------------------------- gibbs-classes


def classes_findings(rows: list[Row]) -> str:
    return _each(
        rows,
        lambda found: [
            line
            for part in (_order, _few_classes, _others, _plain, _quadrature, _kernels, _memory, _stops)
            if (line := part(found))
        ],
    )


def _order(found: Found) -> str:
    n = found.most
    pairs = (("GP-Tree", "GP-Tree Rnd"), ("GP-Tree", "SBM-GP"), ("GP-Tree Rnd", "SBM-GP"))
    gaps = [found.accuracy_gap(*pair, n) for pair in pairs]
    if n <= FEW or not all(gap.count for gap in gaps):
        return ""
    told = "; ".join(
        f"{one} minus {other} {signed(gap)}{_papers_gap(found, one, other, n)}"
        for (one, other), gap in zip(pairs, gaps, strict=True)
    )
    if gaps[0].count < 2:
        return f"at {n} classes, points of accuracy: {told}. One seed says nothing of the order."
    similar = abs(gaps[2].mean) <= SIMILAR
    holds = ahead(gaps[0]) and ahead(gaps[1]) and similar
    return (
        f"at {n} classes, points of accuracy over {gaps[0].count} seeds: {told}. The paper's order, GP-Tree first and "
        f"Rnd similar to SBM-GP (within {SIMILAR:g} points), {'holds' if holds else 'does not hold'}: against Rnd "
        f"GP-Tree is {verdict(gaps[0])}, against SBM-GP {verdict(gaps[1])}, and Rnd and SBM-GP are "
        f"{'similar' if similar else 'not similar'}."
    )


def _papers_gap(found: Found, one: str, other: str, classes: int) -> str:
    a, b = published(one, classes), published(other, classes)
    if found.data != "cub200" or a is None or b is None:
        return ""
    return f" (paper: {a - b:+.1f})".replace("-", "−")


def _few_classes(found: Found) -> str:
    few = [n for n in numbers_of_classes(found.rows) if n <= FEW]
    told, far, seeds = [], [], []
    for rival in ("LSM", "OVE"):
        gaps = {n: gap for n in few if (gap := found.accuracy_gap("GP-Tree", rival, n)).count}
        if gaps:
            seeds += [gap.count for gap in gaps.values()]
            low, high = (signed(Summary(end(g.mean for g in gaps.values()), math.nan, 1)) for end in (min, max))
            told.append(f"{low} to {high} points from {rival}")
            far += [f"{rival} at {n}" for n, gap in gaps.items() if abs(gap.mean) > SIMILAR]
    if not told:
        return ""
    agree = "comparable, as in the paper" if not far else f"not everywhere comparable ({', '.join(far)})"
    judged = f": {agree} (within {SIMILAR:g} points)" if min(seeds) > 1 else ""
    return f"up to {max(few)} classes GP-Tree is {' and '.join(told)}{judged}."


def _others(found: Found) -> str:
    n = found.most
    gaps = {rival: gap for rival in ("LSM", "OVE") if (gap := found.accuracy_gap("GP-Tree", rival, n)).count}
    if n <= FEW or not gaps:
        return ""
    told = [f"{signed(g)} against {r}{_papers_gap(found, 'GP-Tree', r, n)}, {verdict(g)}" for r, g in gaps.items()]
    return f"at {n} classes GP-Tree has {'; '.join(told)}."


def _plain(found: Found) -> str:
    n, told = found.most, []
    for name in ("residual forest", "logistic regression"):
        points, nats = (found.gap(method(name), method("GP-Tree"), n, column) for column in (ACCURACY, NLL))
        if points.count:
            told.append(f"the {name}" if name.endswith("forest") else name)
            told[-1] += f" is {signed(points)} points of accuracy and {signed(nats, 2)} of NLL from GP-Tree"
    return f"at {n} classes {'; '.join(told)}." if told else ""


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
            within = "within" if max(peaks) <= limit else "above"
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
        few, many = (found.accuracy_gap("Gibbs", rival, n) for n in (least, most))
        nats = found.gap(method("Gibbs"), method(rival), most, NLL)
        if few.count and many.count and least < most:
            grows = many.mean > few.mean and ahead(many)
            judged = (
                " The paper's gap in favour of Gibbs sampling that grows with the classes is "
                f"{'seen' if grows else 'not seen'}."
            )
            said.append(
                f"Gibbs sampling minus {rival}: {signed(few)} points of accuracy at {least} classes, {signed(many)} at "
                f"{most} ({verdict(many)}), and {signed(nats, 2)} of NLL there.{judged if many.count > 1 else ''}"
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
    first, further, more = (
        found.gap(*pair, n, ACCURACY)
        for pair in ((chains(4, 1), chains(1, 1)), (chains(top, 1), chains(4, 1)), (chains(4, long), chains(4, 1)))
    )
    if first.count and further.count:
        agree = ahead(first) and further.mean < first.mean / 2
        judged = (
            " In the paper accuracy grows with the chains and little beyond four: "
            f"{'so it does here' if agree else 'here it does not'}."
        )
        said.append(
            f"at {n} classes four chains are {signed(first)} points of accuracy from one, and {top} are "
            f"{signed(further)} from four.{judged if first.count > 1 else ''}"
        )
    if more.count and long > 1:
        judged = (
            " The paper calls the effect of the steps on performance minor: on accuracy it is "
            f"{'below' if abs(more.mean) <= 1 else 'above'} a point here."
        )
        said.append(
            f"at {n} classes {long} steps are {signed(more)} points of accuracy and "
            f"{signed(found.gap(chains(4, long), chains(4, 1), n, NLL), 2)} of NLL from one step, at four chains."
            f"{judged if more.count > 1 else ''}"
        )
    return said
