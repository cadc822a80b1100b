"""`gptree demo`: few labels of scikit-learn's handwritten digits, a forest beside logistic regression, and pictures."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from gptree.cli import options
from gptree.cli.console import clear_errors, print_json, print_table, say
from gptree.cli.models import score, score_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gptree import GPForestClassifier

_SHOTS = 20  # training examples a class
_PAIRS, _EXAMPLES = 6, 8  # confused pairs in the picture, and images of each


@dataclass(frozen=True)
class Digits:
    """Training and test features (n, 64), grey values of 8 × 8 pixels, and labels 0 … 9."""

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray


@clear_errors
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pictures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Which digits are for training.", min=0, max=2**32 - 1)] = 0,
    as_json: options.Json = False,
) -> None:
    """Learn handwritten digits from 20 examples of each, beside logistic regression, and draw what was learned.

    Both see the same 200 training digits and are scored on the other 1,597. The penalty of logistic regression is
    chosen by cross-validation. Everything runs offline, on data that scikit-learn carries.
    """
    from gptree import GPForestClassifier
    from gptree.rivals import LogisticHead

    digits = load(seed)
    say(f"{len(digits.train_y)} handwritten digits to learn from, {len(digits.test_y):,} to be tested on …")
    forest = GPForestClassifier(random_state=seed)
    classifiers = {"gptree forest": forest, "logistic regression": LogisticHead()}
    outcomes = {name: evaluate(classifier, digits) for name, classifier in classifiers.items()}
    probabilities = {name: p for name, (p, _) in outcomes.items()}
    rows = {name: {**score(p, digits.test_y), "seconds": seconds} for name, (p, seconds) in outcomes.items()}
    pictures = draw(out, forest, probabilities, digits)
    least_sure = int(probabilities["gptree forest"].max(1).argmin())
    why = forest.explain(digits.test_x[[least_sure]])[0]
    if as_json:
        example = {"row": least_sure, "true_label": digits.test_y[least_sure], **why.to_json()}
        print_json({"results": rows, "pictures": [str(path) for path in pictures], "example": example})
        return
    table = {name: [*score_cells(row).values(), f"{row['seconds']:.1f}"] for name, row in rows.items()}
    header = [f"digits, {_SHOTS} labels a class", *score_cells(next(iter(rows.values()))), "seconds"]
    print_table(header, [[name, *cells] for name, cells in table.items()])
    typer.echo(f"\nThe test digit that the forest is least sure of is a {digits.test_y[least_sure]}. Its explanation:")
    typer.echo(f"{why}\n")
    for path in pictures:
        typer.echo(f"drawn: {path}")


def load(seed: int) -> Digits:
    """The digits, 20 of each for training."""
    from sklearn.datasets import load_digits

    x, y = (np.asarray(array) for array in load_digits(return_X_y=True))
    shuffled = np.random.default_rng(seed).permutation(len(y))
    train = np.concatenate([shuffled[y[shuffled] == digit][:_SHOTS] for digit in range(10)])
    test = np.setdiff1d(np.arange(len(y)), train)
    return Digits(x[train], y[train], x[test], y[test])


def evaluate(classifier: Any, digits: Digits) -> tuple[np.ndarray, float]:
    """Class probabilities of the test digits, and the seconds that fitting and predicting took."""
    from threadpoolctl import threadpool_limits

    start = time.perf_counter()
    with threadpool_limits(1):  # on matrices this small, several threads mostly wait for each other
        probabilities = classifier.fit(digits.train_x, digits.train_y).predict_proba(digits.test_x)
    return probabilities, time.perf_counter() - start


# --------------------------------------------------------------------------------------------------------- pictures


def draw(folder: Path, forest: GPForestClassifier, probabilities: dict[str, np.ndarray], digits: Digits) -> list[Path]:
    """Write the pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "tree.png": tree_figure(forest, digits),
        "reliability.png": reliability_figure(probabilities, digits.test_y),
        "confused.png": confusion_figure(probabilities["gptree forest"], digits),
    }
    for name, figure in figures.items():
        figure.savefig(folder / name, dpi=150, bbox_inches="tight", pad_inches=0.15)
    return [folder / name for name in figures]


def tree_figure(forest: GPForestClassifier, digits: Digits) -> Figure:
    """The class tree, with the mean training image of each digit beside its leaf."""
    from matplotlib.figure import Figure

    from gptree.tree import plot_tree

    figure = Figure(figsize=(7.0, 5.0))
    ax = figure.add_axes((0.0, 0.0, 0.92, 1.0))
    plot_tree(forest.tree_, forest.classes_.tolist(), ax)
    for name in ax.texts:
        mean = digits.train_x[digits.train_y == int(name.get_text())].mean(0)
        _, y = figure.transFigure.inverted().transform(ax.transData.transform(name.get_position()))
        leaf = figure.add_axes((0.92, y - 0.04, 0.06, 0.08))
        leaf.imshow(mean.reshape(8, 8), cmap="gray_r")
        leaf.set_axis_off()
    return figure


def reliability_figure(probabilities: dict[str, np.ndarray], y: np.ndarray) -> Figure:
    """A reliability diagram for each method, side by side."""
    from matplotlib.figure import Figure

    from gptree.protocols import plot_reliability, reliability_curve

    figure = Figure(figsize=(4.6 * len(probabilities), 4.2))
    for ax, (name, p) in zip(figure.subplots(1, len(probabilities)), probabilities.items(), strict=True):
        plot_reliability(reliability_curve(p, y), ax)
        ax.set_title(name)
    return figure


def confusion_figure(p: np.ndarray, digits: Digits) -> Figure:
    """The most confused pairs of digits, a row each: how often, and the images, the surest mistakes first."""
    from matplotlib.figure import Figure

    from gptree.protocols import most_confused

    predicted, confidence = p.argmax(1), p.max(1)
    pairs = most_confused(digits.test_y, predicted, _PAIRS)
    figure = Figure(figsize=(1.6 + 0.8 * _EXAMPLES, 0.6 + max(len(pairs), 1)), layout="constrained")
    mistakes = np.sum(predicted != digits.test_y)
    figure.suptitle(f"{mistakes} mistakes in {len(p):,}: the most confused pairs, with the probability of the mistake")
    if not pairs:
        return figure
    axes = figure.subplots(len(pairs), _EXAMPLES + 1, squeeze=False)
    for row, pair in zip(axes, pairs, strict=True):
        row[0].text(0.0, 0.5, f"{pair.true} taken for {pair.predicted}\n{pair.count} times", va="center")
        wrong = np.flatnonzero((digits.test_y == pair.true) & (predicted == pair.predicted))
        wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
        for ax, i in zip(row[1:], wrong, strict=False):
            ax.imshow(digits.test_x[i].reshape(8, 8), cmap="gray_r")
            ax.set_title(f"p = {confidence[i]:.2f}", fontsize=8)
        for ax in row:
            ax.set_axis_off()
    return figure
