"""Rows of an earlier commit in `many-classes`: its package on the same features and rows.

    git worktree add --detach ../earlier f78fcca
    python -m benchmarks.earlier ../earlier --data DIR

Each trial is a process of its own that imports the package of the checkout, with the packages that are installed now.
The row names the commit of the checkout; for a copy without its history GPTREE_COMMIT gives it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def measure_here(estimator: str, seed: int, file: Path) -> dict[str, Any]:
    """What the process of a trial does, with whatever gptree it imports."""
    import numpy as np
    import torch

    import gptree
    from benchmarks.core.classifying import Task, measure
    from benchmarks.core.machine import measured

    torch.set_num_threads(1)
    with np.load(file) as arrays:
        task = Task(*(arrays[name] for name in Task._fields))
    result = measured(measure, getattr(gptree, estimator)(random_state=seed, device="cpu"), task)
    return {
        "package": str(gptree.__file__),
        "metrics": result.value,
        "seconds": {"wall": result.wall_seconds, "cpu": result.cpu_seconds},
        "peak_memory_bytes": result.peak_memory_bytes,
    }


def measure_there(checkout: Path, estimator: str, seed: int, task: Any) -> dict[str, Any]:
    """The same by the package of a checkout."""
    import numpy as np

    sources = checkout.resolve() / "src"
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "task.npz"
        np.savez(file, **task._asdict())
        code = "import sys, json, pathlib, benchmarks.earlier as e; _, name, seed, file = sys.argv; "
        code += "print(json.dumps(e.measure_here(name, int(seed), pathlib.Path(file))))"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(sources), str(ROOT)])}
        command = [sys.executable, "-P", "-c", code, estimator, str(seed), str(file)]
        found = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(found.stdout.splitlines()[-1])
    if not Path(result.pop("package")).is_relative_to(sources):
        raise RuntimeError(f"the package that was imported is not that of {sources}; is there one in it?")
    return result


def commit_of(checkout: Path) -> str:
    if given := os.environ.get("GPTREE_COMMIT"):
        return given
    command = ["git", "-C", str(checkout), "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    from benchmarks.core.machine import machine, versions
    from benchmarks.core.store import Rows
    from benchmarks.core.trials import Row
    from benchmarks.experiments import EXPERIMENTS, many_classes

    parser = argparse.ArgumentParser(description="Rows of an earlier commit in many-classes.")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args(arguments)
    commit = commit_of(given.checkout)
    if not commit.startswith(many_classes.EARLIER):
        parser.error(f"{given.checkout} is at commit {commit}; {many_classes.EARLIER} is wanted.")
    experiment = EXPERIMENTS["many-classes"]
    rows = Rows(experiment.results)
    for trial in experiment.wanted().values():
        if trial.method not in many_classes.EARLIER_METHODS or rows.done(trial):
            continue
        estimator = many_classes.EARLIER_METHODS[trial.method]
        task = many_classes.make_task(trial, given.data)
        result = measure_there(given.checkout, estimator, trial.seed, task)
        origin: dict[str, Any] = {"versions": {**versions(), "commit": commit}, "machine": {**machine(), "threads": 1}}
        rows.append(row := Row(trial=trial, **result, **origin))
        print(row, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
