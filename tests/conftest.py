"""One thread for every test and the processes it starts, no deadlines, few pictures, and one browser for all."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
os.environ.setdefault("GPTREE_COMMIT", "tests")  # asking git takes two processes a row
torch.set_num_threads(1)
threadpool_limits(1)
hypothesis.settings.register_profile("gptree", deadline=None)
hypothesis.settings.load_profile("gptree")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("no-sandbox", "disable-background-networking", "disable-component-update", "disable-sync", "no-first-run")
FLAGS += ("disable-quic",)


@pytest.fixture(scope="module")
def few_random_features() -> Iterator[None]:
    """For tests of growing models on data of a few dimensions."""
    from small_sizes import small_random_features  # which imports the library

    with small_random_features():
        yield


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: install one to test pages in a browser")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[f"--{flag}" for flag in FLAGS])
        yield browser
        browser.close()


@pytest.fixture(scope="session", autouse=True)
def quick_curves() -> Iterator[None]:
    """Trainings draw an empty picture of their curves: the real one takes longer than a small training."""
    checkpoints = sys.modules.get("gptree.deep.loop.checkpoints")
    with pytest.MonkeyPatch.context() as patch:
        if checkpoints is not None:
            patch.setattr(checkpoints, "plot_curves", lambda _: Figure((1, 1)))
        yield


@pytest.fixture
def quick_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made, but not drawn: an empty one is written, for tests of what stands around them."""
    draw = Figure.savefig

    def quick(_: Figure, *where: Any, bbox_inches: Any = None, **how: Any) -> None:
        draw(Figure((1, 1)), *where, **how)

    monkeypatch.setattr(Figure, "savefig", quick)
