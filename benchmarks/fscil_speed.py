"""How long it takes to learn ten more classes, and to predict, as the classes grow from 200 to 2,000.

    python -m benchmarks.fscil_speed            # measures what has no row yet, prints the table, draws the picture

Made-up features of 512 dimensions: a base of 100 classes with 30 examples each, five of which are kept; novel classes
come with five. At each size, ten classes are added, and taken back, again and again: the median counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.rows import Row, Rows, Trial, run_trials
from benchmarks.tables import Column, line_plot, markdown
from gptree import GPForestClassifier, Growth

RESULTS = Path(__file__).parent / "results" / "fscil_speed.jsonl"
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "growth.png"
DIMENSIONS, BASE, BASE_SHOTS, WAY, SHOTS = 512, 100, 30, 10, 5
SIZES = (200, 500, 1000, 2000)
QUERIES = 10_000
SPREAD = 2.5  # of a class around its mean, in units of the spread of the means

COLUMNS = (
    Column("add 10 classes × 5 shots (s)", "metrics.add.median", digits=2),
    Column("slowest of them (s)", "metrics.add.most", digits=2),
    Column("predict 10,000 rows (s)", "metrics.predict.median", digits=2),
    Column("base session (s)", "metrics.fit", digits=1),
    Column("kept (MB)", "metrics.bytes", scale=1e-6, digits=0),
)


def trials() -> list[Trial]:
    return [
        Trial("fscil-speed", "gptree forest", "made-up", 0, {"classes": size, "threads": 2, "repeats": repeats})
        for size, repeats in zip(SIZES, (20, 5, 3, 3), strict=True)
    ]


def run(trial: Trial) -> Mapping[str, Any]:
    torch.set_num_threads(trial.settings["threads"])
    random = np.random.default_rng(trial.seed)
    size, repeats = trial.settings["classes"], trial.settings["repeats"]
    means = random.normal(size=(size, DIMENSIONS))

    def draw(first: int, last: int, shots: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(first, last), shots)
        return means[y] + SPREAD * random.normal(size=(len(y), DIMENSIONS)), y

    model = GPForestClassifier(growth=Growth(), random_state=trial.seed, device="cpu")
    base = draw(0, BASE, BASE_SHOTS)
    fit = _seconds(lambda: model.fit(*base))
    model.add_classes(*draw(BASE, size - WAY, SHOTS))
    newest = draw(size - WAY, size, SHOTS)
    added = [_seconds(lambda: model.add_classes(*newest))]
    for _ in range(repeats - 1):
        model.undo()
        added.append(_seconds(lambda: model.add_classes(*newest)))
    queries, y = draw(0, size, -(-QUERIES // size))
    predicted = [_seconds(lambda: model.predict(queries[:QUERIES])) for _ in range(3)]
    return {
        "fit": fit,
        "add": {"median": float(np.median(added)), "least": min(added), "most": max(added)},
        "predict": {"median": float(np.median(predicted)), "least": min(predicted), "most": max(predicted)},
        "accuracy": float(np.mean(model.predict(queries[:1000]) == y[:1000])),
        "bytes": model.memory_.nbytes,
    }


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def table(rows: Iterable[Row]) -> str:
    rows = sorted(rows, key=lambda row: row.trial.settings["classes"])
    return markdown(rows, ["settings.classes", "settings.repeats"], COLUMNS)


def picture(rows: Iterable[Row], path: Path) -> None:
    from matplotlib.figure import Figure

    rows = list(rows)
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    for ax, column in zip(figure.subplots(1, 2), (COLUMNS[0], COLUMNS[2]), strict=True):
        line_plot(rows, "settings.classes", column, "method", ax)
        ax.set_xlabel("classes")
        ax.set_ylim(bottom=0)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, default=RESULTS)
    parser.add_argument("--classes", type=int, nargs="*", default=SIZES, help="only these sizes")
    arguments = parser.parse_args()
    rows = Rows(arguments.rows)
    wanted = [trial for trial in trials() if trial.settings["classes"] in arguments.classes]
    run_trials(wanted, run, rows, fresh_process=True)
    print(table(rows))
    picture(rows, PICTURE)


if __name__ == "__main__":
    main()
