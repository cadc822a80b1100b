"""`gptree fit`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree import GPForestClassifier, GPTreeClassifier, Growth
from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, print_table, say, shows_progress
from gptree.cli.data import Data, read_data
from gptree.cli.encoding import Encoding
from gptree.cli.models import check_width, class_numbers, score, score_cells
from gptree.cli.options import choice
from gptree.incremental import Strategy as GrowthStrategy
from gptree.inference import Inference
from gptree.maths.kernels import KERNEL_NAMES
from gptree.storage import check_free, holds_nothing, locked
from gptree.tree import TreeBuilder

Fitted = GPTreeClassifier | GPForestClassifier


@clear_errors
def fit(
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the model.", show_default=False)],
    trees: Annotated[int | None, typer.Option(help="Number of trees; 1 is a single tree, no forest.", min=1)] = None,
    kernel: Annotated[str | None, choice(KERNEL_NAMES, "Kernel of the Gaussian processes")] = None,
    inference: Annotated[str | None, choice(Inference.names(), "Inference at the nodes")] = None,
    chains: Annotated[int | None, typer.Option(help="Gibbs: number of chains.", min=1)] = None,
    steps: Annotated[int | None, typer.Option(help="Gibbs: sweeps of each chain.", min=1)] = None,
    tree: Annotated[str | None, choice(TreeBuilder.names(), "How the class tree is built")] = None,
    predict_at: Annotated[
        str | None, choice(("mean", "quadrature"), "Decide at the latent mean, or integrate over the posterior")
    ] = None,
    grow: Annotated[
        bool,
        typer.Option(
            "--grow/--no-grow", help="Prepare for classes to come, and keep a few examples of each class only."
        ),
    ] = False,
    exemplars: Annotated[
        int | None, typer.Option(help="--grow: examples kept of every class; 5 if not given.", min=1)
    ] = None,
    session_exemplars: Annotated[
        int | None,
        typer.Option(
            help="--grow: examples that a later session keeps of every class; all if not given.",
            min=1,
        ),
    ] = None,
    strategy: options.Strategy = None,
    paper: Annotated[bool, typer.Option("--paper", help="The settings of the GP-Tree paper; one tree.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random choices.", min=0, max=2**32 - 1)] = 0,
    jobs: Annotated[
        int | None, typer.Option(help="Processes that the nodes are spread over; -1 is one for each processor.")
    ] = None,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    row_weights: options.RowWeights = None,
    encoder: options.Encoder = None,
    weights: options.Weights = None,
    download: options.Download = False,
    test: Annotated[Path | None, typer.Option(help="Score the model on this file, laid out as DATA.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the model that is in the folder.")] = False,
    as_json: options.Json = False,
) -> None:
    """Fit a model to features and labels, and save it.

    What is not given is left at the library's defaults: a forest of four trees.

    Any model can be taught more classes with gptree add; one fitted with --grow keeps a few examples a class only.

    Pictures and texts are encoded, and the model remembers by which encoder: later commands need not be told.
    """
    check_parent(out)
    _check_folder(out, force)
    encoding = Encoding(encoder, weights, download)
    train = read_data(data, features, labels, ids=ids, row_weights=row_weights, encoding=encoding)
    held_out = None if test is None else _read_held_out(test, features, labels, train, weights)
    given = {"kernel": kernel, "tree": tree, "predict_at": predict_at, "n_jobs": jobs}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    settings |= _inference(inference, chains, steps) | _growth(grow, exemplars, session_exemplars, strategy)
    model = _estimator(paper, trees, {**settings, "random_state": seed, "verbose": shows_progress(as_json)})
    with locked(out):
        _check_folder(out, force)  # another command may have made a model there meanwhile
        seconds = _fit(model, train)
        model.save(out)
    report = _report(model, train, out, seconds)
    if held_out is not None:
        report["test_data"] = str(test)
        report["test"] = score(model.predict_proba(held_out.X), class_numbers(held_out, model.classes_))
    if as_json:
        print_json(report)
    else:
        _show(report)


def _check_folder(out: Path, force: bool) -> None:
    """Complain before the work begins, not after it."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; --out names the folder of the model.")
    check_free(out)
    if not holds_nothing(out) and not force:
        raise ValueError(f"{out} holds a model: choose another folder, or replace the model with --force.")


def _read_held_out(path: Path, features: str | None, labels: str | None, train: Data, weights: Path | None) -> Data:
    if path.suffix.lower() == ".npy":
        raise ValueError("an .npy file cannot be --test: use gptree predict MODEL DATA --labels labels.npy --score.")
    encoding = Encoding(weights=weights, model=True, description=train.encoder)
    held_out = read_data(path, features, labels, known_columns=train.columns, encoding=encoding)
    check_width(held_out, train.X.shape[1])
    class_numbers(held_out, np.unique(np.asarray(train.y)))
    return held_out


def _inference(inference: str | None, chains: int | None, steps: int | None) -> dict[str, Any]:
    """The parameter `inference`, where it was given."""
    sizes = {name: value for name, value in (("chains", chains), ("steps", steps)) if value is not None}
    if sizes and inference != "gibbs":
        raise ValueError("--chains and --steps belong to Gibbs sampling: add --inference gibbs.")
    return {} if inference is None else {"inference": Inference.of(inference).with_params(**sizes)}


def _growth(grow: bool, exemplars: int | None, session_exemplars: int | None, strategy: str | None) -> dict[str, Any]:
    """The parameter `growth`, where it was asked for."""
    placing = None if strategy is None else GrowthStrategy.of(strategy)
    given = {"exemplars": exemplars, "session_exemplars": session_exemplars, "strategy": placing}
    given = {name: value for name, value in given.items() if value is not None}
    if given and not grow:
        raise ValueError("--exemplars, --session-exemplars and --strategy belong to models that grow: add --grow.")
    return {"growth": Growth(**given)} if grow else {}


def _estimator(paper: bool, trees: int | None, settings: dict[str, Any]) -> Fitted:
    if paper:
        if trees is not None and trees > 1:
            raise ValueError("the paper's model has one tree: leave --trees out, or --paper.")
        return GPTreeClassifier.paper(**settings)
    if trees == 1:
        return GPTreeClassifier(**settings)
    return GPForestClassifier(**(settings if trees is None else {**settings, "n_estimators": trees}))


def _fit(model: Fitted, train: Data) -> float:
    """Fit; returns the seconds it took."""
    start = time.perf_counter()
    model.fit(train.X, train.y, ids=train.names, sample_weight=train.weights)
    model.encoder_ = train.encoder
    seconds = time.perf_counter() - start
    model.verbose = False  # a bar is for this run; it is no property of the stored model
    if train.columns is not None:  # prediction finds the columns by name
        names = np.array(train.columns, dtype=object)
        model.feature_names_in_ = names  # pyright: ignore[reportAttributeAccessIssue]
    return seconds


def _report(model: Fitted, train: Data, out: Path, seconds: float) -> dict[str, Any]:
    rows, width = train.X.shape
    return {
        "model": str(out),
        "estimator": type(model).__name__,
        "rows": rows,
        "features": width,
        "encoder": train.encoder,
        "classes": len(model.classes_),
        "tree_height": model.tree_.height,
        "seconds": seconds,
    }


def _show(report: dict[str, Any]) -> None:
    sizes = "{rows:,} rows of {features:,} features, {classes:,} classes".format(**report)
    say(f"{report['estimator']} fitted to {sizes} in {report['seconds']:.1f} s; saved in {report['model']}")
    if "test" in report:
        cells = score_cells(report["test"])
        print_table(["test data", *cells], [[report["test_data"], *cells.values()]])
