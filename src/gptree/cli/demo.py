"""`gptree demo`: scikit-learn's handwritten digits, taught one by one, beside nearest class mean; and pictures."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from gptree import GPForestClassifier, Growth
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json
from gptree.cli.predicting import UNKNOWN
from gptree.metrics import accuracy, most_confused, reliability_curve
from gptree.protocols import (
    IncrementalModel,
    Session,
    SessionStream,
    hold_out,
    plot_curves,
    plot_reliability,
    run_stream,
    stream_from_arrays,
)
from gptree.rivals import SessionClassMean
from gptree.storage import write_figure
from gptree.tree import plot_tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tell = Callable[[str], None]

FOREST, CLASS_MEAN = "gptree forest", "nearest class mean"
_BASE, _BASE_SHOTS, _SHOTS = 5, 20, 5  # digits of the first session, images of each, and of each digit after that
_PAIRS, _EXAMPLES = 6, 8  # confused pairs in the picture, and images of each
_NO_DIGIT = 10  # what the wrong lesson teaches
_REJECT = 0.1  # share of known images to refuse: of the few that are kept, the strangest 5 % would be one or two

#: Columns of the table: title, key in a row, factor, decimals, width.
_COLUMNS = (
    ("all", "accuracy", 100, 1, 5),
    ("base", "base_accuracy", 100, 1, 5),
    ("novel", "novel_accuracy", 100, 1, 5),
    ("NLL", "nll", 1, 2, 5),
    ("ECE", "ece", 100, 1, 4),
)
_SECONDS = ("seconds", "seconds_add", 1, 2, 8)
_WIDTH = 79  # of the text


@clear_errors
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the pictures and the model.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Which images are for training.", min=0, max=2**32 - 1)] = 0,
    as_json: options.Json = False,
) -> None:
    """Teach handwritten digits one by one, take a wrong lesson back, and draw what was learnt.

    First 0 to 4, from 20 images of each, then a digit a session from five images, beside nearest class mean.

    Everything runs offline, on data that scikit-learn carries.
    """
    check_parent(out)
    tell: Tell = (lambda _: None) if as_json else typer.echo
    stream = digits(seed)
    x, y = _of_all_sessions(stream, "X_test", "y_test")
    growth = Growth(shots=_SHOTS)
    forest, class_mean = GPForestClassifier(growth=growth, random_state=seed), SessionClassMean()
    with threadpool_limits(1):  # on matrices this small, several threads mostly wait for each other
        tell(_beginning(growth.exemplars, len(y)))
        rows, refused = teach(forest, class_mean, stream, seed, tell)
        tell(_about_refusals(refused))
        mistake = take_back_a_mistake(forest, stream, x, y)
        tell(_about_the_mistake(mistake))
        probabilities = {FOREST: forest.predict_proba(x), CLASS_MEAN: class_mean.predict_proba(x)}
        least_sure = int(probabilities[FOREST].max(1).argmin())
        why = forest.explain(x[[least_sure]])[0]
    tell(f"The image that it is least sure of is a {y[least_sure]}. Its explanation:\n{why}\n")
    pictures = draw(out, forest, stream, rows, probabilities)
    forest.save(out / "model")
    tell(f"Drawn in {out}: {', '.join(path.name for path in pictures)}")
    tell(f"Saved in {out / 'model'}; its story: gptree history {out / 'model'}")
    if as_json:
        files = {"pictures": [str(path) for path in pictures], "model": str(out / "model")}
        example = {"row": least_sure, "true_label": y[least_sure], **why.to_json()}
        print_json({"sessions": rows, "refused": refused, "mistake": mistake, "example": example, **files})


def digits(seed: int) -> SessionStream:
    """8 × 8 grey values as 64 features; half of the images of each digit are for testing."""
    x, y = (np.asarray(array) for array in load_digits(return_X_y=True))
    apart = hold_out(y, 0.5, seed)
    return stream_from_arrays(
        x[~apart],
        y[~apart],
        x[apart],
        y[apart],
        base=_BASE,
        way=1,
        shot=_SHOTS,
        seed=seed,
        order=range(10),
        base_shot=_BASE_SHOTS,
        name="digits",
    )


def _of_all_sessions(stream: SessionStream, *names: str) -> list[np.ndarray]:
    return [np.concatenate([getattr(session, name) for session in stream.sessions]) for name in names]


# ----------------------------------------------------------------------------------------------------------- lessons


def teach(
    forest: GPForestClassifier, class_mean: IncrementalModel, stream: SessionStream, seed: int, tell: Tell
) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """The rows of both methods, one a session, and what the forest refused before each new digit."""
    beside = run_stream(class_mean, stream, seed=seed, method=CLASS_MEAN).rows
    refused: list[dict[str, Any]] = []

    def after(row: dict[str, Any]) -> None:
        number = row["session"]
        labels = ("+ " if number else "") + " ".join(map(str, stream.sessions[number].labels))
        tell(f"{labels:9}  {_cells(row, *_COLUMNS, _SECONDS)}   {_cells(beside[number], *_COLUMNS)}")
        if number + 1 < len(stream.sessions):
            refused.append(refusals(forest, stream, number))

    titles = [
        " ".join(f"{title:>{width}}" for title, *_, width in columns) for columns in ((*_COLUMNS, _SECONDS), _COLUMNS)
    ]
    tell(f"{'':9}  {FOREST:^{len(titles[0])}}   {CLASS_MEAN:^{len(titles[1])}}")
    tell(f"{'taught':9}  {titles[0]}   {titles[1]}")
    rows = run_stream(forest, stream, seed=seed, method=FOREST, on_session=after).rows
    tell("Accuracy and ECE in %, over the test images of all digits taught so far.\n")
    return {FOREST: rows, CLASS_MEAN: beside}, refused


def _cells(row: dict[str, Any], *columns: tuple[str, str, int, int, int]) -> str:
    cells = ((row[key], factor, decimals, width) for _, key, factor, decimals, width in columns)
    return " ".join(
        f"{'–':>{width}}" if value is None else f"{factor * value:{width}.{decimals}f}"
        for value, factor, decimals, width in cells
    )


def refusals(forest: GPForestClassifier, stream: SessionStream, number: int) -> dict[str, Any]:
    """After a session: the share of test images of the next digit, and of known digits, that are none of the known."""

    def share(*sessions: Session) -> float:
        images = np.concatenate([session.X_test for session in sessions])
        return float(np.mean(forest.predict_open(images, _REJECT, unknown=-1) == -1))

    following = stream.sessions[number + 1]
    return {
        "digit": int(following.labels[0]),
        "new": share(following),
        "known": share(*stream.sessions[: number + 1]),
    }


def take_back_a_mistake(
    forest: GPForestClassifier, stream: SessionStream, x: np.ndarray, y: np.ndarray
) -> dict[str, Any]:
    """Teach images of 3 as another digit, and undo it: accuracy on the way, and whether all is as it was."""
    base = stream.sessions[0]
    before = forest.predict_proba(x)
    forest.add_classes(base.X[base.y == 3][:_SHOTS], np.full(_SHOTS, _NO_DIGIT))
    wrong = forest.predict_proba(x)
    after = forest.undo().predict_proba(x)
    return {
        "before": accuracy(before, y),
        "with_mistake": accuracy(wrong, y),
        "after_undo": accuracy(after, y),
        "same_to_the_last_bit": bool(np.array_equal(before, after)),
    }


# ------------------------------------------------------------------------------------------------------------- words


def _beginning(exemplars: int, tested: int) -> str:
    return _filled(
        f"Handwritten digits arrive one by one: first 0 to {_BASE - 1}, {_BASE_SHOTS} images of each, then a new digit "
        f"from {_SHOTS} images. The forest keeps {exemplars} images of each digit and sees no others again. "
        f"{tested:,} other images test it."
    )


def _about_refusals(refused: list[dict[str, Any]]) -> str:
    shares = ", ".join(f"{100 * one['new']:.0f} % of the {one['digit']}s" for one in refused)
    known = 100 * np.mean([one["known"] for one in refused])
    return _filled(
        f"Before they were taught, “{UNKNOWN}” was the answer to {shares}; and to {known:.0f} % of the images of known "
        "digits."
    )


def _about_the_mistake(mistake: dict[str, Any]) -> str:
    same = "what they were, to the last bit" if mistake["same_to_the_last_bit"] else "not all what they were"
    return _filled(
        f"A wrong lesson, {_SHOTS} images of 3 as a new digit, takes the accuracy from {100 * mistake['before']:.1f} "
        f"to {100 * mistake['with_mistake']:.1f} %. After undo it is {100 * mistake['after_undo']:.1f} %, and all "
        f"probabilities are {same}."
    )


def _filled(text: str) -> str:
    return f"{textwrap.fill(text, _WIDTH)}\n"


# --------------------------------------------------------------------------------------------------------- pictures


def draw(
    folder: Path,
    forest: GPForestClassifier,
    stream: SessionStream,
    rows: dict[str, list[dict[str, Any]]],
    probabilities: dict[str, np.ndarray],
) -> list[Path]:
    """Write the pictures into a folder."""
    folder.mkdir(exist_ok=True)
    x, y = _of_all_sessions(stream, "X_test", "y_test")
    plot_curves([row for method in rows.values() for row in method], folder / "curves.png")
    figures = {
        "tree.png": tree_figure(forest, stream),
        "reliability.png": reliability_figure(probabilities, y),
        "confused.png": confusion_figure(probabilities[FOREST], x, y),
    }
    for name, figure in figures.items():
        write_figure(folder / name, figure, dpi=150, bbox_inches="tight", pad_inches=0.15)
    return [folder / name for name in ("curves.png", *figures)]


def tree_figure(forest: GPForestClassifier, stream: SessionStream) -> Figure:
    """The class tree, later digits marked, with the mean training image of each digit beside its leaf."""
    from matplotlib.figure import Figure

    x, y = _of_all_sessions(stream, "X", "y")
    figure = Figure(figsize=(7.0, 5.0))
    ax = figure.add_axes((0.0, 0.0, 0.92, 1.0))
    plot_tree(forest.tree_, forest.classes_.tolist(), ax, highlight=range(_BASE, len(forest.classes_)))
    figure.text(
        0.03, 1.0, f"The first {_BASE} digits are grey; those taught later, from {_SHOTS} images each, are red."
    )
    for name in ax.texts:
        mean = x[y == int(name.get_text())].mean(0)
        _, height = figure.transFigure.inverted().transform(ax.transData.transform(name.get_position()))
        leaf = figure.add_axes((0.92, height - 0.04, 0.06, 0.08))
        leaf.imshow(mean.reshape(8, 8), cmap="gray_r")
        leaf.set_axis_off()
    return figure


def reliability_figure(probabilities: dict[str, np.ndarray], y: np.ndarray) -> Figure:
    """A reliability diagram for each method, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(probabilities), 4.2))
    for ax, (name, p) in zip(figure.subplots(1, len(probabilities)), probabilities.items(), strict=True):
        plot_reliability(reliability_curve(p, y), ax)
        ax.set_title(name)
    return figure


def confusion_figure(p: np.ndarray, x: np.ndarray, y: np.ndarray) -> Figure:
    """The most confused pairs of digits, a row each: how often, and the images, the surest mistakes first."""
    from matplotlib.figure import Figure

    predicted, confidence = p.argmax(1), p.max(1)
    pairs = most_confused(y, predicted, _PAIRS)
    figure = Figure(figsize=(1.6 + 0.8 * _EXAMPLES, 0.6 + max(len(pairs), 1)), layout="constrained")
    mistakes = np.sum(predicted != y)
    figure.suptitle(f"{mistakes} mistakes in {len(p):,}: the most confused pairs, with the probability of the mistake")
    if not pairs:
        return figure
    axes = figure.subplots(len(pairs), _EXAMPLES + 1, squeeze=False)
    for row, pair in zip(axes, pairs, strict=True):
        row[0].text(0.0, 0.5, f"{pair.true} taken for {pair.predicted}\n{pair.count} times", va="center")
        wrong = np.flatnonzero((y == pair.true) & (predicted == pair.predicted))
        wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
        for ax, i in zip(row[1:], wrong, strict=False):
            ax.imshow(x[i].reshape(8, 8), cmap="gray_r")
            ax.set_title(f"p = {confidence[i]:.2f}", fontsize=8)
        for ax in row:
            ax.set_axis_off()
    return figure
