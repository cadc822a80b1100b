"""A small project of vectors, made once; tests that change it get a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from project_cases import draws, ids

from gptree import GPTreeClassifier, Growth
from gptree.project import Project
from small_sizes import small_random_features


@pytest.fixture(scope="module", autouse=True)
def few_random_features() -> Iterator[None]:
    with small_random_features(lda=10, ridge=12):
        yield


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ants and bees are taught; ants, bees and cows wait in the pool; ants, bees and cows test."""
    folder = tmp_path_factory.mktemp("projects") / "animals"
    X = np.concatenate([draws("ant", 6, 0), draws("bee", 6, 1)])
    labels = ["ant"] * 6 + ["bee"] * 6
    names = ids("ant", "base", 6) + ids("bee", "base", 6)
    with small_random_features(lda=10, ridge=12):  # before those of the module
        model = GPTreeClassifier(growth=Growth(), random_state=0).fit(X.astype(np.float32), labels, ids=names)
    project = Project.create(folder, X, labels=labels, ids=names, author="Ada", model=model)
    known = ("ant", "bee", "cow")
    project.import_rows(
        np.concatenate([draws(label, 5, 10 + i) for i, label in enumerate(known)]),
        ids=[name for label in known for name in ids(label, "pool", 5)],
    )
    project.import_rows(
        np.concatenate([draws(label, 4, 20 + i) for i, label in enumerate(known)]),
        ids=[name for label in known for name in ids(label, "test", 4)],
        labels=np.repeat(known, 4),
        split="test",
    )
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Project:
    shutil.copytree(made, tmp_path / "animals")
    return Project.open(tmp_path / "animals")
