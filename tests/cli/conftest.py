"""The files of a small problem, a model fitted to it, and a way to run the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from animals import COLUMNS, animals, csv_text

from command_runs import run_command

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The problem in every format; `npy` and `npy_labels` are a pair."""
    import pandas

    X, y = animals()
    folder = tmp_path_factory.mktemp("data")
    paths = {kind: folder / f"animals.{kind}" for kind in ("npz", "npy", "csv", "parquet")}
    paths["npy_labels"] = folder / "names.npy"
    np.savez(paths["npz"], X=X, y=y)
    np.save(paths["npy"], X)
    np.save(paths["npy_labels"], y)
    paths["csv"].write_text(csv_text(X, y), encoding="utf-8")
    pandas.DataFrame(X, columns=list(COLUMNS)).assign(label=y).to_parquet(paths["parquet"])
    return paths


@pytest.fixture(scope="session")
def run() -> Run:
    """`run_command`."""
    return run_command


@pytest.fixture(scope="session")
def model(files: dict[str, Path], run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that was fitted to the .csv file."""
    folder = tmp_path_factory.mktemp("models") / "animals"
    run("fit", files["csv"], "--out", folder)
    return folder
