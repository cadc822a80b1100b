"""The memory budget holds for everything that a fit and a prediction do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gptree import GPTreeClassifier
from gptree.experts import LDA, KernelDensity, KernelRidge, Pool, RandomFeatures, Ridge

RNG = np.random.default_rng(0)
Y = np.arange(600) % 3
X = RNG.normal(size=(3, 64))[Y] + RNG.normal(size=(600, 64))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="looks at /proc")
def test_the_peak_stays_within_the_smallest_budget() -> None:
    """In a process of its own. The whole size takes minutes, see `memory_peak.py`."""
    script = Path(__file__).with_name("memory_peak.py")
    arguments = [sys.executable, str(script), "2000", "384", "4", "0", "lda"]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(2**20)}  # arrays go back as soon as nobody holds them
    process = subprocess.run(arguments, capture_output=True, text=True, timeout=300, env=environment)
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    assert found["budget"] < 10 * X.itemsize * 2_000 * 384  # a handful of copies of the features
    assert found["fit"] <= 1.1 * found["budget"]
    assert found["predict_proba"] <= 1.1 * found["budget"]


@pytest.mark.parametrize("expert", [None, "experts", "kernel-ridge", RandomFeatures(Ridge(), 300)])
def test_a_budget_that_is_too_small_is_an_error_that_names_the_smallest(expert) -> None:
    rows = np.tile(np.arange(600), 2)
    model = GPTreeClassifier(prior_mean=expert, node_limit=60, memory_budget=2**20, random_state=0)
    with pytest.raises(ValueError, match=r"memory_budget=1048576 is too small for \d+ rows of 64 features") as error:
        model.fit(X[rows], Y[rows])
    assert not hasattr(model, "state_")
    found = re.search(r"smallest is (\d+) bytes", str(error.value))
    assert found is not None
    smallest = int(found[1])
    assert model.set_params(memory_budget=smallest).fit(X[rows], Y[rows]).score(X, Y) > 0.8
    with pytest.raises(ValueError, match=f"the smallest is {smallest} bytes"):
        model.set_params(memory_budget=smallest - 1).fit(X[rows], Y[rows])


def test_by_default_the_budget_grows_with_what_is_needed(monkeypatch) -> None:
    monkeypatch.setattr("gptree.estimators.validation.MEMORY_BUDGET", 2**20)
    model = GPTreeClassifier(random_state=0, device="cpu").fit(X, Y)
    assert model.model_.memory_budget == 5 * X.nbytes + Pool().fit_bytes(600, 64, 3, 8) > 2**20


def test_what_experts_need() -> None:
    """A pool fits one expert after the other, keeps the features of each, and compares them on some rows."""
    size = (1000, 50, 4, 8)
    experts = (LDA(), KernelRidge(), KernelDensity())
    beside = 3 * 8 * 1000 * 50 + 6 * 3 * 8 * 1000 * 4
    assert Pool(experts).fit_bytes(*size) == max(e.fit_bytes(*size) for e in experts) + beside
    few = KernelRidge(most_classes=3)
    assert Pool((LDA(), few)).fit_bytes(*size) == Pool((LDA(),)).fit_bytes(*size)
    assert RandomFeatures(LDA(), 200).fit_bytes(*size) == 2 * 8 * 1000 * 200 + LDA().fit_bytes(1000, 200, 4, 8)
    few, many = (KernelRidge(at_most=n, choose_on=10).fit_bytes(20_000, 50, 4, 8) for n in (2000, 4000))
    assert many - few == 4 * (2 * (4000**2 - 2000**2) + 2000 * (50 + 12))
