"""Few-shot class-incremental learning on frozen features: every strategy, the paper's settings, and rivals.

    python -m benchmarks.fscil_features --data DIR [--jobs N]     # measures what has no row yet, prints the tables

`DIR` holds the feature files that `benchmarks.data` names, and the public lists of CUB-200 in `fscil/cub200`. CUB: 100
base classes and 10 sessions of 10 classes with 5 shots, which the lists fix; seeds then change the method's own choices
only. CLINC150: 100 and 10 × 5 classes; Banking77: 37 and 8 × 5; classes and shots are drawn with the seed. Five
examples of a base class are kept by the methods that keep examples. The rivals see the features through the map that
the forest uses, fitted to the base session.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.data import load
from benchmarks.rows import Row, Rows, Trial, run_trials
from gptree import (
    GPForestClassifier,
    GPTreeClassifier,
    Graft,
    Growth,
    RebuildTree,
    SessionTree,
    SharedRoot,
)
from gptree.protocols import SessionStream, run_stream, stream_from_arrays, stream_from_lists, summary, summary_cells
from gptree.rivals import INCREMENTAL, Mapped

RESULTS = Path(__file__).parent / "results" / "fscil_features.jsonl"
SEEDS = 5
PROTOCOLS: dict[str, dict[str, Any]] = {
    "cub200": {"base": 100, "way": 10, "shot": 5},
    "clinc150": {"base": 100, "way": 5, "shot": 5},
    "banking77": {"base": 37, "way": 5, "shot": 5},
}
STRATEGIES = {"shared root": SharedRoot(), "session tree": SessionTree(), "rebuild": RebuildTree(), "graft": Graft()}
METHODS = (
    *(f"forest, {name}" for name in STRATEGIES),
    "tree, shared root",
    *(f"paper, {name}" for name in STRATEGIES),
    *(f"rival: {name}" for name in INCREMENTAL),
)
#: Of a session's row, what names the run: the trial has it already.
NAMES = ("data", "method", "settings", "seed", "versions", "machine", "commit")


def make_method(name: str, seed: int, exemplars: int = 5, kernel: str = "rbf") -> Any:
    """A method of `METHODS`. The kernel is that of the paper's tree; rivals take neither of the two settings."""
    family, _, variant = name.partition(", ")
    if family.startswith("rival: "):
        rival = INCREMENTAL[family.removeprefix("rival: ")]()
        if "random_state" in rival.get_params():
            rival.set_params(random_state=seed)
        return Mapped(rival)
    growth = Growth(exemplars, strategy=STRATEGIES[variant])
    if family == "paper":
        return GPTreeClassifier.paper(kernel, output_scale=8.0, growth=growth, random_state=seed)
    return {"forest": GPForestClassifier, "tree": GPTreeClassifier}[family](growth=growth, random_state=seed)


def make_stream(data: str, folder: str, seed: int) -> SessionStream:
    if data == "cub200":
        with np.load(Path(folder) / "cub_efficientnet_lite2.npz", allow_pickle=False) as file:
            x, y, paths = file["x"].astype(np.float32), file["y"].astype(int), file["path"]
        return stream_from_lists(Path(folder) / "fscil" / "cub200", x, y, paths=paths, name=data)
    found = load(data, folder)
    arrays = (found.train_x, found.train_y, found.test_x, found.test_y)
    return stream_from_arrays(*arrays, **PROTOCOLS[data], seed=seed, name=data)


def trials() -> list[Trial]:
    return [
        Trial("fscil-features", method, data, seed, {**protocol, "exemplars": 5})
        for data, protocol in PROTOCOLS.items()
        for seed in range(SEEDS)
        for method in METHODS
    ]


def run(trial: Trial, folder: str) -> Mapping[str, Any]:
    return run_method(trial, make_stream(trial.data, folder, trial.seed))


class Informed:
    """A method with more to tell its `fit` than examples."""

    def __init__(self, method: Any, told: Mapping[str, Any]) -> None:
        self.method, self.told = method, told

    def fit(self, X: Any, y: Any) -> Any:
        return self.method.fit(X, y, **self.told)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)


def run_method(trial: Trial, stream: SessionStream, told: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
    """Teach the trial's method the stream; of its settings, `exemplars` and `kernel` are the method's."""
    torch.set_num_threads(1)
    chosen = {name: value for name, value in trial.settings.items() if name in ("exemplars", "kernel")}
    method: Any = Informed(make_method(trial.method, trial.seed, **chosen), told or {})
    result = run_stream(method, stream, seed=trial.seed, method=trial.method)
    sessions = [{key: value for key, value in row.items() if key not in NAMES} for row in result.rows]
    return {"sessions": sessions, "reliability": result.details["reliability"]}


def session_rows(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """One dictionary a session, as `run_stream` makes them."""
    order = {method: k for k, method in enumerate(METHODS)}
    for row in sorted(rows, key=lambda row: (order.get(row.trial.method, len(order)), row.trial.seed)):
        named = {"data": row.trial.data, "method": row.trial.method, "seed": row.trial.seed}
        for session in row.metrics["sessions"]:
            yield {**named, **session}


def table(rows: Iterable[Row], data: str) -> str:
    """Every method on one data set, mean ± standard error over the seeds, and the worst session's ECE."""
    sessions = [row for row in session_rows(rows) if row["data"] == data]
    lines: list[list[str]] = []
    for line in summary(sessions):
        cells = summary_cells(line)
        by_seed: dict[int, list[float]] = {}
        for row in sessions:
            if row["method"] == line["method"]:
                by_seed.setdefault(row["session"], []).append(row["ece"])
        worst = max(float(np.mean(values)) for values in by_seed.values())
        if not lines:
            lines = [["method", "seeds", *cells, "worst ECE"], ["---", *["---:"] * (len(cells) + 2)]]
        lines.append([line["method"], str(line["seeds"]), *cells.values(), f"{100 * worst:.1f}"])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the feature files and lists")
    parser.add_argument("--rows", type=Path, default=RESULTS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--methods", nargs="*", default=None, help="only methods whose names start so")
    arguments = parser.parse_args()
    rows = Rows(arguments.rows)
    wanted = [t for t in trials() if arguments.methods is None or t.method.startswith(tuple(arguments.methods))]
    run_trials(wanted, functools.partial(run, folder=arguments.data), rows, n_jobs=arguments.jobs)
    for data in PROTOCOLS:
        print(f"\n{data}\n\n{table(rows, data)}")


if __name__ == "__main__":
    main()
