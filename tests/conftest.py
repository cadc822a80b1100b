"""One thread for every test and the processes it starts, no deadlines, and one browser for all that need one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import torch
from threadpoolctl import threadpool_limits

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
torch.set_num_threads(1)
threadpool_limits(1)
hypothesis.settings.register_profile("gptree", deadline=None)
hypothesis.settings.load_profile("gptree")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("no-sandbox", "disable-background-networking", "disable-component-update", "disable-sync", "no-first-run")
FLAGS += ("disable-quic",)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no chromium here: install one to test pages in a browser")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[f"--{flag}" for flag in FLAGS])
        yield browser
        browser.close()
