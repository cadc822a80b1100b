"""No array of rows × classes is made: not by a fit, not where classes arrive, and none is in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch.utils._python_dispatch import TorchDispatchMode

from gptree import GPTreeClassifier, Graft, Growth, Logarithmic, RebuildTree, SharedRoot
from gptree.experts import KernelRidge, base, calibration, examples, left_out
from gptree.incremental import sessions
from gptree.model import forest, strangers

C, NOVEL, SHOTS, D = 263, 2, 4, 6
#: Some have one row: no fold, with one row of each of the others, is as large as there are classes.
Y = np.repeat(np.arange(C + NOVEL), [1] * 9 + [SHOTS] * (C + NOVEL - 9))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(C + NOVEL, D))[Y] + 0.4 * RNG.normal(size=(len(Y), D))
OLD = Y < C
#: So many rows are many: a part of them is left out where the output scale is chosen.
MANY = 2 * C * SHOTS // 3

pytestmark = pytest.mark.usefixtures("few_random_features")


class Watch(TorchDispatchMode):
    """Remembers the shapes of all arrays of rows × classes, each a score."""

    def __init__(self) -> None:
        super().__init__()
        self.large: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for each in found if isinstance(found, list | tuple) else [found]:
            if isinstance(each, torch.Tensor) and each.layout == torch.strided and is_large(tuple(each.shape)):
                self.large.add(tuple(each.shape))
        return found


def is_large(shape: tuple[int, ...]) -> bool:
    """Of nodes no side is as long as there are classes: they have 256 inducing points, or a few rows."""
    few, many = sorted((1, 1, *shape)[-2:])
    return C <= few <= C + NOVEL and many >= MANY


@contextmanager
def as_with_many() -> Iterator[None]:
    """What is done beyond 500 classes, where an array would be large."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (base, left_out):
            patch.setattr(module, "MOST_KEPT", 0)
        patch.setattr(sessions, "KEPT_TABLE", 0)
        patch.setattr(forest, "PIECE_NUMBERS", 0)
        patch.setattr(strangers, "MOST_POINTS", 600)
        for name, value in {"CHUNK_SIZE": 2**15, "CHUNK_ROWS": 8}.items():
            patch.setattr(examples, name, value)
        for name in ("MAX_CALIBRATION_SIZE", "MIN_CALIBRATION_ROWS"):
            patch.setattr(calibration, name, 200)
        patch.setattr(KernelRidge, "pays", lambda self, n_classes: False)
        yield


@pytest.mark.parametrize("growth", [None, Growth()], ids=["plain", "growth"])
def test_a_fit_makes_none(growth: Growth | None, tmp_path: Path) -> None:
    with as_with_many(), Watch() as watch:
        model = GPTreeClassifier(growth=growth, random_state=0, device="cpu").fit(X[OLD], Y[OLD])
    assert watch.large == set()
    model.save(tmp_path / "model")
    (file,) = (tmp_path / "model").glob("*.safetensors")
    with safe_open(file, "pt") as arrays:
        shapes = [tuple(arrays.get_slice(name).get_shape()) for name in arrays.keys()]  # noqa: SIM118
    assert not any(map(is_large, shapes))


@pytest.mark.parametrize("strategy", [SharedRoot(), Logarithmic(), Graft(), RebuildTree()])
def test_classes_that_arrive_make_none(strategy: Any) -> None:
    with as_with_many():
        model = GPTreeClassifier(growth=Growth(strategy=strategy), random_state=0, device="cpu")
        model.fit(X[OLD], Y[OLD])
        with Watch() as watch:
            for c in range(C, C + NOVEL):
                model.add_classes(X[c == Y], Y[c == Y])
    assert watch.large == set()


def test_where_they_are_few_one_is_made() -> None:
    """What is watched for is seen."""
    with Watch() as watch:
        GPTreeClassifier(random_state=0, device="cpu").fit(X[OLD], Y[OLD])
    assert watch.large
