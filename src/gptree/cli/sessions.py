"""`gptree fscil`, few-shot class-incremental learning on any features, and `gptree report`, a page about it."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gptree.cli import options
from gptree.cli.console import check_parent, clear_errors, print_json, print_table, say, shows_progress
from gptree.cli.data import Data, read_data
from gptree.cli.encoding import Encoding
from gptree.cli.models import check_width, class_numbers
from gptree.protocols import (
    METRICS,
    RunFolder,
    SessionMethod,
    SessionStream,
    hold_out,
    markdown_table,
    plot_curves,
    run_stream,
    stream_from_arrays,
    stream_from_lists,
    summary,
    summary_cells,
)
from gptree.protocols.folder import CONTENT, data_content
from gptree.protocols.methods import GROWING
from gptree.protocols.report import write_report
from gptree.storage import clear_left_overs, locked, write_atomically

Streams = Callable[[int], SessionStream]  # from a seed

_TABLE_WIDTH = 3  # methods side by side in 80 columns


@clear_errors
def fscil(
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the run.", metavar="RUN", show_default=False)],
    base: Annotated[int | None, typer.Option(help="Classes of the base session.", min=1)] = None,
    way: Annotated[int | None, typer.Option(help="New classes of every later session.", min=1)] = None,
    shot: Annotated[int | None, typer.Option(help="Training examples of every new class.", min=1)] = None,
    seeds: Annotated[int, typer.Option(help="Repeat with the seeds 0, 1, …: so many.", min=1)] = 5,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="forest (if none is given), tree, paper, or the name of a rival; repeat it to compare several.",
            metavar="NAME",
        ),
    ] = None,
    strategy: options.Strategy = None,
    exemplars: Annotated[int, typer.Option(help="Examples kept of every base class.", min=1)] = 5,
    lists: Annotated[
        Path | None,
        typer.Option(help="Take the sessions from session_N.txt and test_N.txt in this folder.", metavar="FOLDER"),
    ] = None,
    paths: Annotated[
        str | None,
        typer.Option(help="With --lists of files: the array or column of DATA that holds their paths.", metavar="NAME"),
    ] = None,
    test: Annotated[Path | None, typer.Option(help="File with the test rows, laid out as DATA.")] = None,
    test_share: Annotated[
        float, typer.Option(help="Without --test: the share of each class to hold out.", min=0.01, max=0.99)
    ] = 0.3,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    test_features: Annotated[str | None, typer.Option(help="--features of the test file, if others.")] = None,
    test_labels: Annotated[str | None, typer.Option(help="--labels of the test file, if others.")] = None,
    encoder: options.Encoder = None,
    weights: options.Weights = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Teach a model its classes session by session, and measure it after every session.

    A base session of --base classes, then sessions of --way new classes with --shot examples each; the seed decides
    the order of the classes, the examples, and the random choices of the model. With --lists the sessions are those of
    the lists, and the seed is the model's alone.

    A --strategy is that of forest, tree and paper, and becomes a part of their name in the run.

    RUN gets rows.jsonl (one line a method, seed and session), details.jsonl, table.md and curves.png. What RUN already
    holds is not run again, so an interrupted command goes on where it was, and further methods and seeds can be added.
    """
    check_parent(out)
    run = RunFolder.open(out)
    encoding = Encoding(encoder, weights, download)
    train = read_data(data, features, labels, ids=ids, encoding=encoding)
    test_features = test_features or features
    held_out = None if test is None else _read_test(test, (test_features, test_labels, labels, ids), train, encoding)
    split = {"base": base, "way": way, "shot": shot}
    name = next((row["data"] for row in run.all_rows()), data.stem)  # the same data may have another name by now
    if lists is None:
        streams, tested, content = _from_arrays(name, train, held_out, split, test_share)
    else:
        both = _paths(train, features, paths), _paths(held_out, test_features, paths)
        streams, tested, content = _from_lists(name, lists, train, held_out, split, both)
    first = streams(0)
    protocol = {**split, "lists": None if lists is None else lists.name, "test": tested, CONTENT: content}
    growth = {"strategy": strategy or "shared-root", "exemplars": exemplars, "shots": _shots(first)}
    methods = {_named(name, strategy): SessionMethod(name=name, **growth) for name in method or ["forest"]}
    settings = {name: {**protocol, **one.settings} for name, one in methods.items()}
    run.check(protocol, settings)

    todo = [(name, seed) for seed in range(seeds) for name in methods if not run.has(name, seed)]
    _say_plan(first, tested, len(methods) * seeds, len(todo))
    _run_all(todo, methods, settings, streams, run, shows_progress(as_json))
    with locked(out):
        clear_left_overs(out)
        rows = RunFolder.open(out).all_rows()  # with those that other commands have added meanwhile
        write_atomically(out / "table.md", markdown_table(rows))
        plot_curves(rows, out / "curves.png")
    _show(summary(rows), out, protocol, as_json)


def _named(name: str, strategy: str | None) -> str:
    """A method's name in the run: methods that grow in different ways are different methods."""
    return f"{name}-{strategy}" if strategy is not None and name in GROWING else name


# ---------------------------------------------------------------------------------------------------------- streams


def _read_test(
    path: Path, names: tuple[str | None, str | None, str | None, str | None], train: Data, encoding: Encoding
) -> Data:
    """The test rows, with labels of the same type as those of the training rows.

    `names` are those of features, test labels, labels and ids.
    """
    features, test_labels, labels, ids = names
    if path.suffix.lower() == ".npy" and test_labels is None:
        raise ValueError(f"{path} holds features only: name the file of the labels with --test-labels.")
    test = read_data(path, features, test_labels or labels, ids=ids, known_columns=train.columns, encoding=encoding)
    check_width(test, train.X.shape[1])
    classes = np.unique(np.asarray(train.y))
    return replace(test, y=classes[class_numbers(test, classes)])


def _paths(data: Data | None, features: str | None, name: str | None) -> np.ndarray | None:
    """The path of the file of each row, read as labels are; None where there are none."""
    if data is None or name is None:
        return None
    return read_data(data.path, features, name, known_columns=data.columns).y


def _from_arrays(
    name: str, train: Data, held_out: Data | None, split: Mapping[str, int | None], share: float
) -> tuple[Streams, str, str]:
    """The streams by seed, what they are tested on, and the content of their data."""
    missing = [f"--{option}" for option, value in split.items() if value is None]
    if missing:
        raise ValueError(f"{', '.join(missing)} must be given, or --lists, whose sessions are listed in files.")
    X, y, names = train.X, np.asarray(train.y), train.ids
    if held_out is None:
        apart = hold_out(y, share)
        X, y, X_test, y_test = X[~apart], y[~apart], X[apart], y[apart]
        names = [names[row] for row in np.flatnonzero(apart).tolist()]
        tested = f"{100 * share:g} % of each class, held out"
    else:
        X_test, y_test, tested = held_out.X, np.asarray(held_out.y), held_out.path.name
        names = held_out.ids

    def stream(seed: int) -> SessionStream:
        sizes: dict[str, Any] = dict(split)
        return stream_from_arrays(X, y, X_test, y_test, **sizes, seed=seed, ids_test=names, name=name)

    return stream, tested, data_content(X, y, X_test, y_test)


def _from_lists(
    name: str,
    folder: Path,
    train: Data,
    held_out: Data | None,
    split: Mapping[str, int | None],
    paths: tuple[Any, Any],
) -> tuple[Streams, str, str]:
    """The one stream of the lists for every seed, what it is tested on, and the content of its data."""
    given = [f"--{option}" for option, value in split.items() if value is not None]
    if given:
        raise ValueError(f"the sessions are those of --lists: leave {', '.join(given)} out.")
    if paths[0] is None and held_out is None:
        raise ValueError(
            f"name the array or column of {train.path} that holds the paths of the files with --paths, or, if the "
            "lists hold row numbers, the file of the test rows with --test."
        )
    tests = {} if held_out is None else {"X_test": held_out.X, "y_test": held_out.y, "paths_test": paths[1]}
    tests["ids_test"] = (held_out or train).ids
    stream = stream_from_lists(folder, train.X, train.y, paths=paths[0], **tests, name=name)
    arrays = (array for one in stream.sessions for array in (one.X, one.y, one.X_test, one.y_test))
    return lambda _: stream, f"the test lists of {folder.name}", data_content(*arrays)


def _shots(stream: SessionStream) -> int:
    """The fewest examples of any class that arrives later: what the base session should prepare for."""
    later = [np.unique(session.y, return_counts=True)[1].min() for session in stream.sessions[1:]]
    return int(min(later, default=1))


# ------------------------------------------------------------------------------------------------------------- runs


def _run_all(
    todo: list[tuple[str, int]],
    methods: Mapping[str, SessionMethod],
    settings: Mapping[str, dict[str, Any]],
    streams: Streams,
    run: RunFolder,
    visible: bool,
) -> None:
    """Run what is to be done; each run is on the disk when the next one begins."""
    with _progress(visible, len(todo) * len(streams(0).sessions)) as advance:
        for method, seed in todo:
            model = methods[method].make(seed)
            run.add(
                run_stream(
                    model,
                    streams(seed),
                    seed=seed,
                    method=method,
                    settings=settings[method],
                    on_session=lambda row: advance(f"{row['method']}, seed {row['seed']}, session {row['session']}"),
                )
            )


@contextmanager
def _progress(visible: bool, sessions: int) -> Iterator[Callable[[str], None]]:
    if not visible or not sessions:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("base session", total=sessions)
        yield lambda done: bar.update(task, advance=1, description=done)


# --------------------------------------------------------------------------------------------------------- messages


def _say_plan(stream: SessionStream, tested: str, runs: int, todo: int) -> None:
    sizes = [len(session.labels) for session in stream.sessions]
    later = f"{sum(sizes[1:])} in {len(sizes) - 1} sessions"
    say(f"{stream.name}: {sizes[0]} base classes, then {later}; tested on {tested}")
    if todo < runs:
        say(f"{runs - todo} of {runs} runs are there already")


def _show(lines: list[dict[str, Any]], out: Path, protocol: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        for line in lines:
            line |= {name: line[name] and line[name]._asdict() for name in METRICS}
        print_json({"run": str(out), "protocol": protocol, "summary": lines})
        return
    for start in range(0, len(lines), _TABLE_WIDTH):
        beside = lines[start : start + _TABLE_WIDTH]
        cells = [{"seeds": str(line["seeds"]), **summary_cells(line)} for line in beside]
        header = [beside[0]["data"], *(line["method"] for line in beside)]
        print_table(header, [[name, *(column[name] for column in cells)] for name in cells[0]])
    say(f"rows, details, table and curves are in {out}")


# ----------------------------------------------------------------------------------------------------------- report


@clear_errors
def report(
    run: Annotated[
        Path, typer.Argument(help="Folder that gptree fscil has written.", metavar="RUN", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write to this file; report.html in RUN if not given.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Show the page in the web browser.")] = False,
) -> None:
    """Write one HTML page about a run: summary, session curves, forgetting, reliability, confusion, class trees.

    The page needs no network and no other file: it can be mailed, printed, or read on a phone. Lines of RUN that are
    damaged, or hold impossible numbers, are left out, which the page says.
    """
    if out is not None:
        check_parent(out)
    page = write_report(run, out)
    say(f"report written to {page}")
    if open_it and not webbrowser.open(page.resolve().as_uri()):
        say(f"no web browser was found: open {page} yourself")
