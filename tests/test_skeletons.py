"""The files of examples/skeletons, copied out of the repository, imported and used; and dropped into the package."""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

import gptree
import source_files
from gptree import GPForestClassifier, GPTreeClassifier, Growth, InducingPoints, load_model
from gptree.experts import ALONE, Examples, Expert, Pool
from gptree.inference import Inference, NodeProblem, fit_nodes
from gptree.maths import as_kernel, make_kernel
from gptree.settings import Settings, import_modules
from gptree.storage import Serializable, restore
from gptree.tree import TreeBuilder, permute
from slow_twins import conditional
from small_sizes import small_random_features

SKELETONS = source_files.ROOT / "examples" / "skeletons"
X, Y = load_digits(return_X_y=True)
BASE, LATER, NEW = np.flatnonzero(Y[:200] < 7), np.flatnonzero(Y[:60] >= 7), slice(300, 600)


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is forgotten after it."""
    monkeypatch.setattr(Settings, "_kinds", dict(Settings._kinds))
    monkeypatch.setattr(Serializable, "_kinds", dict(Serializable._kinds))
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if "skeleton" in name:
            del sys.modules[name]


def copied(kind: str, folder: Path) -> ModuleType:
    """A skeleton as a user's module, outside the package and the repository."""
    path = folder / f"my_{kind}_skeleton.py"
    path.write_text((SKELETONS / f"{kind}.py").read_text(encoding="utf-8"), encoding="utf-8")
    return source_files.load(path)


def check_estimator_takes_it(folder: Path, accuracy: float = 0.6, **parameters: object) -> None:
    """Fit, save, load, grow, undo; a forest as well as a tree."""
    for family in (GPTreeClassifier, GPForestClassifier):
        model = family(random_state=0, device="cpu", **parameters).fit(X[BASE], Y[BASE])
        known = Y[NEW] < 7
        assert model.score(X[NEW][known], Y[NEW][known]) > accuracy
        before = model.predict_proba(X[NEW])
        model.add_classes(X[LATER], Y[LATER])
        assert model.score(X[NEW], Y[NEW]) > accuracy - 0.1
        target = folder / family.__name__ / str(parameters.get("growth") is None)
        model.save(target)
        loaded = load_model(target)
        assert loaded.get_params() == model.get_params()
        np.testing.assert_allclose(loaded.predict_proba(X[NEW]), model.predict_proba(X[NEW]), rtol=0, atol=1e-12)
        assert np.array_equal(model.undo().predict_proba(X[NEW]), before)


# --------------------------------------------------------------------------------------------------- one file each


def test_builder(tmp_path: Path) -> None:
    copied("builder", tmp_path)
    builder = TreeBuilder.of("alphabetical")
    labels, prototypes = [f"class {c:02}" for c in range(17)], np.random.default_rng(0).normal(size=(17, 4))
    tree = builder.build(prototypes, labels, 0)
    assert tree == builder.build(prototypes, labels, 0)
    assert tree.height == 5
    for v in range(tree.n_nodes):
        subtree, classes = tree.subtree(v)
        assert tree.left(v).min() < tree.right(v).min()
        assert builder.build(prototypes[classes], [labels[c] for c in classes], 0) == subtree
    order = np.random.default_rng(1).permutation(17)
    again = builder.build(prototypes[order], [labels[c] for c in order], 0)
    assert sorted(map(sorted, (permute(again, order).left(0), permute(again, order).right(0)))) == sorted(
        map(sorted, (tree.left(0), tree.right(0)))
    )
    for X_bad, labels_bad in ((prototypes, labels[:3]), (np.full((2, 2), np.nan), ["a", "b"])):
        with pytest.raises(ValueError, match=r"[Pp]rototypes"):
            builder.build(X_bad, labels_bad, 0)
    check_estimator_takes_it(tmp_path, tree="alphabetical")


def test_expert(tmp_path: Path) -> None:
    ClassMean = copied("expert", tmp_path).ClassMean
    x = torch.randn(26, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.cat([torch.arange(24) % 4, torch.tensor([4, 4])])
    for folds in (None, torch.full_like(y, ALONE)):
        examples = Examples.of(x, y, folds=folds)
        fit = ClassMean(shrinkages=(0.3,)).fit(examples)
        for i in range(len(y)):  # the definition: class means without the fold, the mean of all as it was
            out = examples.folds == examples.folds[i] if examples.folds[i] != ALONE else torch.arange(26) == i
            means = torch.stack([x[(y == c) & ~out].mean(0) for c in range(5)])
            scores = -((x[i] - 0.7 * means - 0.3 * x.mean(0)) ** 2).sum(1)
            torch.testing.assert_close(
                fit.left_out[i], (fit.expert.temperature * scores).log_softmax(0), atol=1e-9, rtol=0
            )
    one_shot = ClassMean().fit(Examples.of(x[:5], torch.arange(5)))
    assert not one_shot.usable.any()
    assert one_shot.left_out.isfinite().all()
    stored = restore(*fit.expert.state())
    assert torch.equal(stored.log_probabilities(x), fit.expert.log_probabilities(x))
    assert fit.expert.only(torch.tensor([3, 1])).log_probabilities(x).shape == (26, 2)
    with pytest.raises(ValueError, match="shrinkages"):
        ClassMean(shrinkages=(1.0,))
    with small_random_features():
        for prior_mean in ("class-mean", Pool((ClassMean(), Expert.of("lda")))):
            for growth in (None, Growth(exemplars=3)):
                check_estimator_takes_it(tmp_path / str(prior_mean), prior_mean=prior_mean, growth=growth)


def test_inference(tmp_path: Path) -> None:
    FixedOmega = copied("inference", tmp_path).FixedOmega
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    problem = NodeProblem(torch.arange(9), torch.arange(9) % 2 == 0, seed=1, mean=x[:9, 0], weight=x[:9, 1].square())
    others = [NodeProblem(torch.arange(n), torch.arange(n) < 2, seed=n) for n in (8, 7, 12)]
    kernel = as_kernel(make_kernel("rbf", 3.0), torch.float64, torch.device("cpu"))
    fits = fit_nodes([problem, *others], kernel, x, FixedOmega(), memory_budget=2**30)
    alone = fit_nodes([problem], kernel, x, FixedOmega(), memory_budget=2**30)
    (posterior,) = alone.posteriors
    K = alone.grams.block(posterior.nodes, posterior.rows, posterior.rows)[0]
    b = problem.weight
    assert b is not None
    assert problem.mean is not None
    mean, _ = conditional(K + 1e-12 * torch.eye(9), 0.25 * b, b * (problem.left.double() - 0.5), problem.mean)
    torch.testing.assert_close(K @ posterior.weights[0, 0], mean, rtol=1e-8, atol=1e-8)
    batched = next(p for p in fits.posteriors if 0 in p.nodes)
    place = batched.nodes.tolist().index(0)
    torch.testing.assert_close(batched.weights[0, place, :9], posterior.weights[0, 0], rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="omega must be positive"):
        FixedOmega(omega=0.0)
    assert Inference.of("fixed-omega") == FixedOmega()
    with small_random_features():
        for growth in (None, Growth(exemplars=3)):
            check_estimator_takes_it(tmp_path, inference="fixed-omega", prior_mean=None, growth=growth)
    few = GPTreeClassifier(inference=FixedOmega(), node_limit=InducingPoints(30), prior_mean=None, device="cpu")
    assert "sites" in few.fit(X[BASE], Y[BASE]).diagnostics_["posterior"]


def test_rival(tmp_path: Path) -> None:
    """The conformance tests find it in the registry."""
    (tmp_path / "my_rival.py").write_text((SKELETONS / "rival.py").read_text(encoding="utf-8"), encoding="utf-8")

    def check() -> int:
        sys.modules.pop("test_rival_conformance", None)  # it may have made its list of rivals without this one
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        tests = str(source_files.ROOT / "tests/rivals/test_rival_conformance.py")
        return pytest.main(["-q", "-p", "my_rival", "-p", "no:cacheprovider", "-k", "nearest-point", tests])

    check_in_a_fork(check, tmp_path)


def check_in_a_fork(check: Callable[[], int], folder: Path) -> None:
    """A process of its own that finds the modules of a folder, and need not import all others again."""

    def work() -> None:
        with (folder / "said.txt").open("w") as said, contextlib.redirect_stdout(said):
            sys.path.insert(0, str(folder))
            sys.exit(check())

    process = get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0, (folder / "said.txt").read_text()[-3000:]


# --------------------------------------------------------------------------------------------- dropped into a folder


@pytest.mark.parametrize(
    ("kind", "package", "family", "name"),
    [
        ("builder", "gptree.tree.builders", TreeBuilder, "alphabetical"),
        ("expert", "gptree.experts", Expert, "class-mean"),
        ("inference", "gptree.inference", Inference, "fixed-omega"),
    ],
)
def test_a_file_in_the_folder_of_its_kind_is_found(
    kind: str, package: str, family: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"skeleton_{kind}.py").write_text((SKELETONS / f"{kind}.py").read_text(encoding="utf-8"), "utf-8")
    module = importlib.import_module(package)
    monkeypatch.setattr(module, "__path__", [*module.__path__, str(tmp_path)])
    assert name not in family.names()
    import_modules(module.__name__, module.__path__)
    assert name in family.names()
    assert type(family.of(name)).__module__ == f"{package}.skeleton_{kind}"


def test_files_in_the_package_are_imported_after_the_names_they_need(tmp_path: Path) -> None:
    """In a copy of the package: a builder, and rivals of all families, that import from the packages they stand in."""
    shutil.copytree(Path(gptree.__file__).parent, tmp_path / "gptree")  # with what is compiled
    builder = (SKELETONS / "builder.py").read_text(encoding="utf-8")
    (tmp_path / "gptree" / "tree" / "builders" / "mine.py").write_text(builder, encoding="utf-8")
    for family, base in (("incremental", "IncrementalRival"), ("gibbs", "GibbsRival"), ("deep", "DeepRival")):
        code = f"from gptree.rivals import {base}\n"
        (tmp_path / "gptree" / "rivals" / family / "mine.py").write_text(code, encoding="utf-8")

    def check() -> int:
        for name in [name for name in sys.modules if name.partition(".")[0] == "gptree"]:
            del sys.modules[name]
        importlib.import_module("gptree.rivals")
        kinds = importlib.import_module("gptree.tree").TreeBuilder.names()
        mine = [f"gptree.rivals.{family}.mine" for family in ("incremental", "gibbs", "deep")]
        return not ("alphabetical" in kinds and all(name in sys.modules for name in mine))

    check_in_a_fork(check, tmp_path)


# ------------------------------------------------------------------------------------------------------ grid search


def test_grids_reach_into_builders_experts_and_inferences(tmp_path: Path) -> None:
    """Of the library and of the user's files; nothing that is shared changes."""
    for kind in ("builder", "expert", "inference"):
        copied(kind, tmp_path)
    shared = {"tree": TreeBuilder.of("two-means"), "prior_mean": Expert.of("lda"), "inference": Inference.of("gibbs")}
    model = GPTreeClassifier(**shared, random_state=0, device="cpu")
    grid = {
        "tree__restarts": [1, 5],
        "prior_mean__count_weight": [0.0, 1.0],
        "inference__chains": [2, 3],
        "inference__steps": [2],
    }
    search = GridSearchCV(model, grid, cv=2).fit(X[:80], Y[:80])
    assert len(search.cv_results_["params"]) == 8
    best = search.best_estimator_
    assert best.inference.chains == search.best_params_["inference__chains"]
    assert best.tree == replace(shared["tree"], restarts=search.best_params_["tree__restarts"])
    assert shared == {"tree": model.tree, "prior_mean": model.prior_mean, "inference": model.inference}
    assert model.inference == Inference.of("gibbs")
    mine = GPTreeClassifier(
        tree=TreeBuilder.of("alphabetical"),
        prior_mean=Expert.of("class-mean"),
        inference=Inference.of("fixed-omega"),
        device="cpu",
    )
    grid = {
        "tree__descending": [False, True],
        "prior_mean__shrinkages": [(0.2,), (0.5,)],
        "inference__omega": [0.1, 0.3],
    }
    assert GridSearchCV(mine, grid, cv=2).fit(X[:80], Y[:80]).best_score_ > 0.5
    by_name = {"tree": TreeBuilder.names(), "inference": ["coordinate-ascent", "gibbs"]}
    plain = GPTreeClassifier(prior_mean="lda", device="cpu")
    assert GridSearchCV(plain, by_name, cv=2).fit(X[:80], Y[:80]).best_score_ > 0.5
    with pytest.raises(ValueError, match="restarts must be at least 1"):
        model.set_params(tree__restarts=0)
