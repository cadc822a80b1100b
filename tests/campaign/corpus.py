"""Files of every kind that the library reads, and how each is read and looked at.

A `Case` is a folder of files and a `look`: it reads them, and asks what was read for everything that it can tell. It
raises an `Impossible` where the answer cannot be, and otherwise only errors that are documented.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from gptree import DeepGPTreeClassifier, load_model
from gptree.cli.data import read_data
from gptree.deep import Training, VariationalTree, mlp
from gptree.protocols import RunFolder, run_stream, stream_from_arrays
from gptree.protocols.report_folder import read_run
from gptree.storage import StorageError
from saved_models import make

OLD = Path(__file__).parents[1] / "saved_models" / "v2"
NEW = (
    *("tree", "forest", "labels_int", "labels_bool", "labels_float", "one_class", "paper", "gibbs_experts"),
    *("learn_kernel_per_node", "sparse_variational", "zero_mean", "pool_of_all", "class_prior_array", "no_map"),
    *("kernel_ard", "kernel_sum", "kernel_cosine", "kernel_polynomial", "class_tree", "nested_lists", "growth"),
    *("growth_tree", "growth_zero_mean", "growth_graft_forest", "growth_session_tree_tree", "growth_merge"),
    *("later_growth_history", "later_growth_one_class", "feature_names", "deep", "deep_forest", "deep_softmax"),
    *("deep_growth", "deep_per_node_kernel", "deep_pictures_float32"),
)
#: Kinds of files that are no models.
OTHERS = ("checkpoint", "run", "csv", "npz", "npy", "parquet")
WORK = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Impossible(AssertionError):
    """Something that no file may bring about."""


@dataclass
class Case:
    """Files, how they are looked at, and which errors may come of that."""

    name: str
    files: dict[str, bytes]
    look: Callable[[Path, np.random.Generator, bool], None]
    documented: tuple[type[Exception], ...] = (ValueError, OSError)
    parsed: dict[str, Any] = field(default_factory=dict)
    """What the files hold, by name, once it was needed."""

    @cached_property
    def names(self) -> list[str]:
        """Of the files that may be changed."""
        return sorted(name for name in self.files if not name.endswith((".txt", ".png")))


class Corpus:
    """Cases by name, each made when first asked for.

    Parameters
    ----------
    names : sequence of str, optional
        Such as "v2/forest", "v3/deep" or "csv". Otherwise all there are.
    """

    def __init__(self, names: tuple[str, ...] | None = None) -> None:
        old = [f"v2/{folder.parent.name}" for folder in sorted(OLD.glob("*/expected.npz"))]
        models = [*old, *(f"v3/{name}" for name in NEW)]
        self.names = list(names) if names is not None else [*models, *OTHERS * (len(models) // 20)]
        self._cases: dict[str, Case] = {}

    def case(self, name: str) -> Case:
        """The case of a name."""
        if name not in self._cases:
            with tempfile.TemporaryDirectory(dir=WORK) as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._cases[name] = _made(name, Path(folder))
        return self._cases[name]


def _made(name: str, folder: Path) -> Case:
    version, _, model = name.partition("/")
    if version == "v2":
        return _model_case(name, OLD / model / "model", OLD / model)
    if version == "v3":
        make.load(OLD / model).save(folder / "model")
        return _model_case(name, folder / "model", OLD / model)
    return {"checkpoint": _checkpoint_case, "run": _run_case}.get(name, _data_case)(name, folder)


def files_of(folder: Path) -> dict[str, bytes]:
    """The content of all files below a folder, by their names in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# ----------------------------------------------------------------------------------------------------------- models


def _model_case(name: str, folder: Path, original: Path) -> Case:
    X, kind = np.load(original / "expected.npz")["X"][:3], original.name
    novel = make.PICTURES if kind in make.OF_PICTURES else make.BLOBS

    def look(folder: Path, random: np.random.Generator, may_change: bool) -> None:
        given = make.LOAD_WITH.get(kind, dict)()
        model = load_model(folder, device="cpu", **given)
        if isinstance(model, DeepGPTreeClassifier) and np.squeeze(X[0]).shape != _squeezed(model.state_.inputs.shape):
            return  # it takes other inputs than those at hand
        with undocumented_fail("a model that was read"):
            look_at_model(model, X, random)
        if may_change and hasattr(model, "journal_") and random.random() < 0.1:
            change(model, X, novel, random)

    return Case(name, files_of(folder), look, (StorageError, OSError))


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


class undocumented_fail:
    """What has been read without complaint must work: whatever is raised inside is `Impossible`."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, Impossible):
            raise Impossible(f"{self.what} fails: {type(error).__name__}: {error}") from error


def check(condition: Any, message: str) -> None:
    """Raise `Impossible(message)` unless a condition holds."""
    if not bool(condition):
        raise Impossible(message)


def check_probabilities(p: np.ndarray, rows: int, classes: int) -> None:
    """Raise unless p holds a distribution over the classes in each of the rows."""
    check(p.shape == (rows, classes), f"probabilities have the shape {p.shape}, not {(rows, classes)}")
    check(np.isfinite(p).all() and (p >= 0).all() and (p <= 1 + 1e-6).all(), f"probabilities are {p}")
    check((abs(p.sum(1) - 1) < 1e-3).all(), f"probabilities sum to {p.sum(1)}")


def look_at_model(model: Any, X: np.ndarray, random: np.random.Generator) -> None:
    """Ask a model for what it can tell about rows X."""
    classes = model.classes_
    check(len(set(classes.tolist())) == len(classes), "a label comes twice")
    check_probabilities(model.predict_proba(X), len(X), len(classes))
    if random.random() < 0.6 or not hasattr(model, "journal_"):
        return
    strange = model.novelty_score(X)
    check(np.isfinite(strange).all() and (strange >= -1e-9).all() and (strange <= 1 + 1e-9).all(), f"novelty {strange}")
    if random.random() < 0.5:
        threshold = model.novelty_threshold()
        check(0 <= threshold <= 1, f"the threshold is {threshold}")
        check(len(model.predict_open(X)) == len(X), "predict_open leaves out rows")
    for one in model.explain(X[:1]):
        probabilities = [decision.probability for decision in one.path]
        check(all(0 <= p <= 1 + 1e-9 for p in probabilities), f"a path has the probabilities {probabilities}")
        check(all(abs(near.similarity) <= 1 + 1e-6 for near in one.neighbours), "a neighbour is too similar")
    model.memory_, model.sessions_, model.diagnostics_  # noqa: B018


def change(model: Any, X: np.ndarray, rows: np.ndarray, random: np.random.Generator) -> None:
    """Take back, or add a class; a model may say by a ValueError that it cannot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if random.random() < 0.5 and len(model.journal_) > 1:
                model.undo()
            else:
                label = model.classes_.dtype.type(999 if model.classes_.dtype.kind in "iuf" else "another class")
                model.add_classes(rows[-3:], np.array([label] * 3))
        except ValueError:
            return
        except Exception as error:
            raise Impossible(f"a change fails: {type(error).__name__}: {error}") from error
    with undocumented_fail("a model that was changed"):
        check_probabilities(model.predict_proba(X), len(X), len(model.classes_))


# ---------------------------------------------------------------------------------------------------------- others


def _checkpoint_case(name: str, folder: Path) -> Case:
    X, y = make.base(end=8)

    def fitted(where: Path) -> Any:
        torch.manual_seed(0)
        training = Training(epochs=2, cross_entropy_epochs=1, batch_size=16)
        settings = {"training": training, "variational": VariationalTree(inducing=2), "random_state": 0}
        return DeepGPTreeClassifier(mlp(make.WIDTH, hidden=(6,), embedding=4), folder=where, **settings).fit(X, y)

    def look(where: Path, random: np.random.Generator, may_change: bool) -> None:
        model = fitted(where)
        with undocumented_fail("a training that went on"):
            check_probabilities(model.predict_proba(X[:3]), 3, len(model.classes_))

    fitted(folder / "training")
    return Case(name, files_of(folder / "training"), look)


def _run_case(name: str, folder: Path) -> Case:
    from gptree import GPTreeClassifier, Growth

    data = (*make.rows(*range(8), end=6, y=make.NUMBERS), *make.rows(*range(8), begin=6, end=9, y=make.NUMBERS))
    stream = stream_from_arrays(*data, base=4, way=2, shot=3, seed=0)
    run = RunFolder.open(folder / "run")
    for seed in range(2):
        model = GPTreeClassifier(growth=Growth(2, 3), prior_mean=None, random_state=seed, device="cpu")
        run.add(run_stream(model, stream, seed=seed, method="mine"))

    def look(where: Path, random: np.random.Generator, may_change: bool) -> None:
        if random.random() < 0.5:
            opened = RunFolder.open(where)
            opened.check({}, {})
            check(all(isinstance(row, dict) for row in opened.all_rows()), "a row is no row")
        else:
            read = read_run(where)
            scores = [row["accuracy"] for row in read.all_rows]
            check(all(0 <= score <= 1 for score in scores), f"accuracies are {scores}")

    return Case(name, files_of(folder / "run"), look)


def _data_case(name: str, folder: Path) -> Case:
    X, y = make.base(end=3)
    path = folder / f"data.{name}"
    if name == "npz":
        np.savez(path, X=X, y=y)
    elif name == "npy":
        np.save(path, X)
        np.save(folder / "labels.npy", y)
    else:
        import pandas

        frame = pandas.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])]).assign(label=y)
        frame.to_csv(path, index=False) if name == "csv" else frame.to_parquet(path)
    labels = "labels.npy" if name == "npy" else None

    def look(where: Path, random: np.random.Generator, may_change: bool) -> None:
        data = read_data(where / path.name, labels=labels and str(where / labels))
        check(np.isfinite(data.X).all() and data.X.ndim == 2, "features are no finite numbers")
        check(data.y is not None and len(data.y) == len(data.X), "labels and features differ in number")

    return Case(name, files_of(folder), look)


def written(files: dict[str, bytes], folder: Path) -> Path:
    """Files in a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder
