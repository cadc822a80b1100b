"""What agrees with the paper's experiments on sessions and what does not, in words computed from rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.experiments import fscil_lines as lines
from benchmarks.experiments.fscil_lines import DATA, Line
from benchmarks.experiments.fscil_shown import estimate
from benchmarks.rows import Row

#: In points of accuracy: what is called the same, and little forgetting.
SAME, LITTLE = 0.5, 5.0


class Found:
    """The rows of one data set, as percentages."""

    def __init__(self, rows: Sequence[Row], data: str):
        self.rows, self.data = rows, data

    def has(self, *wanted: Line) -> bool:
        return all(line.of(self.rows, self.data) for line in wanted)

    @property
    def seeds(self) -> int:
        """That the paper's tree has with its usual settings."""
        return len(lines.PAPER.of(self.rows, self.data))

    def present(self, wanted: Sequence[Line]) -> list[Line]:
        return [line for line in wanted if self.has(line)]

    def __call__(self, line: Line, metric: str = "accuracy", session: int = -1) -> float:
        return estimate(line.of(self.rows, self.data), metric, session).mean


def _each(rows: list[Row], data: Sequence[str], needed: Sequence[Line], say: Callable[[Found], list[str]]) -> str:
    """A paragraph for every data set that has rows of the lines that are needed."""
    found = [(name, Found(rows, name)) for name in data]
    said = [f"*{DATA[name]}.* {' '.join(say(own))}" for name, own in found if own.has(*needed)]
    return "\n\n".join(said) or "Not measured yet."


def _judged(found: Found, holds: bool) -> str:
    """Whether something agrees with the paper; nothing where there is one seed only."""
    return "" if found.seeds < 2 else ", as in the paper" if holds else ", unlike in the paper"


def _change(points: float) -> str:
    return f"{'loses' if points >= 0 else 'gains'} {abs(points):.1f} points"


def _listed(found: Found, shown: Sequence[Line], metric: str = "accuracy") -> str:
    return "; ".join(f"{line.name} {found(line, metric):.1f}" for line in shown)


# ------------------------------------------------------------------------------------------------------- experiments


def sessions(rows: list[Row], *, data: Sequence[str]) -> str:
    """Table 3 and figure 3: GP-Tree leads after the last session, and knows base classes better than novel ones."""

    def say(found: Found) -> list[str]:
        tree, heads = lines.PAPER, found.present(lines.RIVALS)
        base, novel = found(tree, "base_accuracy"), found(tree, "novel_accuracy")
        published = " (73.7 % and 44.5 % in the paper)" if found.data in lines.CUB else ""
        text = [
            f"The paper's tree goes from {found(tree, session=0):.1f} % in the base session to {found(tree):.1f} % in "
            f"the last{published}.",
            f"It is {'better' if base > novel else 'not better'} on base classes than on novel ones, {base:.1f} % and "
            f"{novel:.1f} %{_judged(found, base > novel)}.",
        ]
        if heads:
            best = max(heads, key=found)
            ahead = sum(found(tree) > found(head) for head in heads)
            text.append(
                f"At the end it is ahead of {ahead} of {len(heads)} frozen heads, the best of which, {best.name}, has "
                f"{found(best):.1f} %. In the paper it leads, against methods that train the network further, which "
                "are not run here."
            )
            if found.has(lines.FOREST):
                text.append(_forest_beside(found, best))
        return text

    return _each(rows, data, [lines.PAPER], say)


def _forest_beside(found: Found, head: Line) -> str:
    gain, least = found(lines.FOREST) - found(head), min(found.present(lines.RIVALS), key=lambda r: found(r, "ece"))
    place = "level with" if abs(gain) < SAME else "ahead of" if gain > 0 else "behind"
    return (
        f"The default forest ends at {found(lines.FOREST):.1f} %, {place} that head ({gain:+.1f} points), with an ECE "
        f"of {found(lines.FOREST, 'ece'):.1f} % (the paper's tree: {found(lines.PAPER, 'ece'):.1f} %; the best head in "
        f"this, {least.name}: {found(least, 'ece'):.1f} %)."
    )


def _order(found: Found, holds: bool) -> str:
    if found.seeds < 2:
        return "One seed says nothing of the order. "
    return (
        f"The paper's order, shared root before session tree before rebuild, {'holds' if holds else 'does not hold'}. "
    )


def trees(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's table: shared root first, then session tree, then rebuild, about a point apart."""
    published = (lines.SHARED, lines.SESSION, lines.REBUILD)

    def say(found: Found) -> list[str]:
        order = sorted(published, key=found, reverse=True)
        text = [
            f"Accuracy after the last session (%): {_listed(found, order)}.",
            _order(found, tuple(order) == published)
            + f"First and last are {found(order[0]) - found(order[-1]):.1f} points apart (1.3 in the paper).",
            f"On novel classes (%): {_listed(found, published, 'novel_accuracy')}. "
            f"On base classes (%): {_listed(found, published, 'base_accuracy')}.",
        ]
        if found.has(lines.GRAFT):
            text.append(
                f"Grafting new classes beside similar base classes, ours, ends at {found(lines.GRAFT):.1f} %, "
                f"{found(lines.GRAFT, 'novel_accuracy'):.1f} % on novel classes."
            )
        return text

    return _each(rows, data, published, say)


def representatives(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's figure: fewer representatives cost a little, more in later sessions."""
    most, *_, one = lines.REPRESENTATIVES

    def say(found: Found) -> list[str]:
        early, late = (found(most, session=k) - found(one, session=k) for k in (1, -1))
        return [
            f"Accuracy after the last session (%): {_listed(found, found.present(lines.REPRESENTATIVES))}.",
            f"With one representative instead of five the paper's tree {_change(early)} after the second session and "
            f"{_change(late)} after the last. Fewer cost {'' if late > SAME else 'no '}accuracy"
            f"{_judged(found, late > SAME)}, and {'more' if late > early else 'no more'} in later sessions"
            f"{_judged(found, late > early)}.",
        ]

    return _each(rows, data, [most, one], say)


def _kernels_verdict(found: Found, holds: bool) -> str:
    return "" if found.seeds < 2 else f"; this is {'so here too' if holds else 'not so here'}"


def kernels(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's figure: RBF and Matérn far ahead of linear on novel classes, alike on base classes."""

    def say(found: Found) -> list[str]:
        smooth = max(lines.RBF, lines.MATERN, key=found)
        gain, base, novel = (
            found(smooth, metric) - found(lines.LINEAR, metric)
            for metric in ("accuracy", "base_accuracy", "novel_accuracy")
        )
        return [
            f"Accuracy after the last session (%): {_listed(found, lines.KERNELS)}.",
            f"{smooth.name} is {gain:+.1f} points from the linear kernel, {base:+.1f} on base and {novel:+.1f} on "
            "novel classes.",
            "In the paper non-linear kernels are far ahead, above all on novel classes"
            f"{_kernels_verdict(found, gain > SAME and novel > base)}.",
        ]

    return _each(rows, data, lines.KERNELS, say)


def forgetting(rows: list[Row], *, data: Sequence[str]) -> str:
    """The supplement's figure: little forgetting by GP-Tree."""

    def say(found: Found) -> list[str]:
        shown = sorted(found.present(lines.METHODS), key=lambda line: found(line, "forgetting"))
        tree = found(lines.PAPER, "forgetting")
        return [
            f"After the last session (%): {_listed(found, shown, 'forgetting')}.",
            f"The paper's tree forgets {tree:.1f} points (little is less than {LITTLE:g})"
            f"{_judged(found, tree < LITTLE)}.",
            f"It then knows {found(lines.PAPER, 'novel_accuracy'):.1f} % of the novel classes' test rows and "
            f"{found(lines.PAPER, 'base_accuracy'):.1f} % of the base classes': what was not learned is not forgotten.",
        ]

    return _each(rows, data, [lines.PAPER], say)
