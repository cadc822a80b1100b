"""Tables and figure of the experiment on the uncertainty of deep kernels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.core.figures import panels
from benchmarks.core.tables import Column, Table, chosen, comparison, grouped
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.deep.answers import MOST, OWN, TREE
from benchmarks.experiments.deep.corruptions import STRENGTHS

NAMES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "omniglot32": "Omniglot", "cub32": "CUB"}
COLOURS = dict(zip(OWN, ("C0", "C9", "C7", "C1", "C2", "C5", "C3", "C4"), strict=True))


def _metrics(place: str, after: str = "") -> tuple[Column, ...]:
    return (
        Column(f"accuracy (%){after}", f"{place}.accuracy", scale=100, digits=2),
        Column(f"NLL{after}", f"{place}.nll", digits=3, better=min),
        Column(f"ECE (%){after}", f"{place}.ece", scale=100, digits=2, better=min),
    )


CLEAN, WORSE = _metrics("metrics.clean"), _metrics("metrics.worse", ", corrupted")
#: For numbers in the text: `NLL of GP-Tree`, `AUROC of GP-Tree` with `set` …
COLUMNS = {
    f"{what} of {answer}": replace(column, path=column.path.replace("metrics.", f"metrics.answers.{answer}.", 1))
    for answer, own in OWN.items()
    for what, column in {
        "accuracy": CLEAN[0],
        "NLL": CLEAN[1],
        "ECE": CLEAN[2],
        "corrupted accuracy": WORSE[0],
        "corrupted NLL": WORSE[1],
        "corrupted ECE": WORSE[2],
        **{
            f"{name} AUROC{by}": Column("AUROC", f"metrics.auroc.{data}.{score}", digits=3)
            for data, name in NAMES.items()
            for by, score in (("", own), (" by probability", MOST))
        },
    }.items()
}


def by_answer(rows: list[Row]) -> list[Row]:
    """A row for every answer of a row, with the answer in the place of the method."""
    return [
        replace(row, trial=Trial(t.experiment, answer, t.data, t.seed, dict(t.settings)), metrics=metrics)
        for row in rows
        for t in [row.trial]
        for answer, metrics in row.metrics["answers"].items()
    ]


def lines_of(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each answer, in the order of the page."""
    return {answer: found for answer in OWN if (found := chosen(rows, method=answer))}


def _sets(rows: list[Row]) -> Iterator[tuple[str, int, list[Row]]]:
    for (data, epochs), group in grouped(by_answer(rows), ["data", "settings.epochs"]).items():
        yield data, epochs, group


def tables(rows: list[Row]) -> list[Table]:
    made = []
    for data, epochs, group in _sets(rows):
        title = f"{NAMES[data]}, {epochs} epochs"
        made.append(
            comparison(
                f"{title}: probabilities, test pictures and corrupted ones", lines_of(group), (*CLEAN, *WORSE), NOTE
            )
        )
        made.append(_strangers(f"{title}: AUROC of strange pictures", group))
    return made


NOTE = "Corrupted: mean over four kinds and five strengths."
STRANGE = "By maximum probability, and by the answer's own score."


def _strangers(title: str, rows: list[Row]) -> Table:
    """The own score has another name in every line, so its value is first put in one place."""
    own = [
        replace(
            row,
            metrics={
                "auroc": {
                    data: {**rates, "own": rates[OWN[row.trial.method]]} for data, rates in row.metrics["auroc"].items()
                }
            },
        )
        for row in rows
    ]
    columns = [
        Column(f"{NAMES[data]}, {word}", f"metrics.auroc.{data}.{score}", digits=3)
        for data in own[0].metrics["auroc"]
        for word, score in (("max p", MOST), ("own", "own"))
    ]
    return comparison(title, lines_of(own), columns, STRANGE)


def details(rows: list[Row]) -> list[Table]:
    """All scores, and every corruption at every strength."""
    made = []
    for data, epochs, group in _sets(rows):
        title = f"{NAMES[data]}, {epochs} epochs"
        lines = {
            f"{answer}: {score}": [
                replace(row, metrics={n: r[score] for n, r in row.metrics["auroc"].items()}) for row in found
            ]
            for answer, found in lines_of(group).items()
            for score in found[0].metrics["auroc"][next(iter(found[0].metrics["auroc"]))]
        }
        columns = [Column(NAMES[name], f"metrics.{name}", digits=3) for name in group[0].metrics["auroc"]]
        made.append(comparison(f"{title}: AUROC of all scores", lines, columns))
        for kind, strengths in STRENGTHS.items():
            columns = [
                replace(column, title=f"{column.title} at {strength:g}")
                for column_of in (1, 2)
                for place, strength in enumerate(strengths)
                for column in [_metrics(f"metrics.corrupted.{kind}.{place}")[column_of]]
            ]
            made.append(comparison(f"{title}: {kind}", lines_of(group), columns))
    return made


def glance(rows: list[Row]) -> Table:
    """CIFAR-10, or what there is."""
    data, epochs, group = next(_sets(rows))
    near = next(name for name in group[0].metrics["auroc"] if name.startswith("cifar"))
    columns = [
        CLEAN[0],
        CLEAN[1],
        WORSE[1],
        WORSE[2],
        Column(f"AUROC, {NAMES[near]}", f"metrics.auroc.{near}.{MOST}", digits=3),
    ]
    return comparison(f"{NAMES[data]}, {epochs} epochs", lines_of(group), columns, NOTE)


def figure(rows: list[Row], path: Path) -> None:
    """NLL and calibration error over the strength, mean over the kinds; AUROC by the own score and by probability."""
    from matplotlib.lines import Line2D

    sets = list(_sets(rows))
    picture, axes = panels(len(sets), 3, width=4.0, height=3.5)
    for place, (data, epochs, group) in enumerate(sets):
        ax_nll, ax_ece, ax_auroc = axes[3 * place : 3 * place + 3]
        for answer, found in lines_of(group).items():
            for ax, name, scale in ((ax_nll, "nll", 1), (ax_ece, "ece", 100)):
                curves = [
                    [
                        row.metrics["clean"][name],
                        *np.mean([[at[name] for at in c] for c in row.metrics["corrupted"].values()], 0),
                    ]
                    for row in found
                ]
                width = 2.2 if answer.startswith(TREE) else 1.3
                ax.plot(
                    range(6),
                    scale * np.mean(curves, 0),
                    color=COLOURS[answer],
                    linewidth=width,
                    marker="o",
                    markersize=3,
                )
        ax_nll.set(title=f"{NAMES[data]}, {epochs} epochs", xlabel="strength of the corruption", ylabel="NLL")
        ax_ece.set(title=NAMES[data], xlabel="strength of the corruption", ylabel="ECE (%)")
        _draw_auroc(ax_auroc, group)
        ax_auroc.set(title=f"{NAMES[data]} against other pictures", ylabel="AUROC")
    handles = [Line2D([], [], color=colour, linewidth=2) for colour in COLOURS.values()]
    picture.legend(handles, list(COLOURS), loc="outside lower center", ncols=4, frameon=False)
    picture.savefig(path, dpi=150)


def _draw_auroc(ax, rows: list[Row]) -> None:
    """Dots by the own score, rings by the maximum probability."""
    others = list(rows[0].metrics["auroc"])
    lines = lines_of(rows)
    for shift, (answer, found) in zip(np.linspace(-0.32, 0.32, len(lines)), lines.items(), strict=True):
        for place, other in enumerate(others):
            for score, fill in ((OWN[answer], COLOURS[answer]), (MOST, "none")):
                value = np.mean([row.metrics["auroc"][other][score] for row in found])
                ax.plot(place + shift, value, "o", color=COLOURS[answer], markerfacecolor=fill, markersize=6)
    ax.set_xticks(range(len(others)), [NAMES[other] for other in others])
    ax.axhline(0.5, color="0.6", linestyle=":", linewidth=1)
    ax.set_xlabel("dots: own score; rings: maximum probability")
