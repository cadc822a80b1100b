"""Small fitted models of every kind, saved with the probabilities they predict.

    python tests/saved_models/make.py tests/saved_models/v2

writes one folder a model, or only for those named after it: `model/`, as `save` writes it, and `expected.npz`, which
`tests/storage/test_old_models.py` compares with. Run it once for every new version of the format, and commit the
result. Folders of earlier versions are never written again. `processor.txt` says on what the numbers were computed.
"""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from safetensors.torch import load_file
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))  # for small_sizes

from gptree import (
    ClassTree,
    CoordinateAscent,
    DeepGPTreeClassifier,
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    Graft,
    Growth,
    Herding,
    InducingPoints,
    KMeansExemplars,
    KMeansPlusPlusExemplars,
    LearnKernel,
    RebuildTree,
    SessionTree,
    SharedRoot,
    SparseVariational,
    SubsetOfData,
    load_model,
)
from gptree.deep import (
    ColourJitter,
    Cosine,
    CosineMargin,
    CrossEntropy,
    Cutout,
    Milestones,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Training,
    VariationalTree,
    convnet,
    mlp,
)
from gptree.experts import LDA, KernelDensity, KernelRidge, Pool, RandomFeatures, Ridge
from gptree.incremental.episodes import NOVEL_SHARES
from gptree.tree import BalancedTwoMeans, Chain, RandomBalanced, TwoMeans, Ward
from small_sizes import small_random_features

CLASSES, BASE, ROWS, WIDTH = 12, 6, 10, 5
RANDOM = np.random.default_rng(0)
NUMBERS = np.repeat(np.arange(CLASSES), ROWS)
NAMES = np.array([f"class {c:02}" for c in NUMBERS])
PLACE = np.tile(np.arange(ROWS), CLASSES)  # of a row in its class
BLOBS = RANDOM.normal(size=(CLASSES, WIDTH))[NUMBERS] + 0.6 * RANDOM.normal(size=(len(NUMBERS), WIDTH))
PATTERNS = RANDOM.uniform(40, 215, size=(CLASSES, 8, 8))
PICTURES = (PATTERNS[NUMBERS] + 40 * RANDOM.uniform(-1, 1, size=(len(NUMBERS), 8, 8))).astype(np.uint8)
QUERIES = np.flatnonzero((PLACE == ROWS - 1) & (NUMBERS % 2 == 0))
ADDED = np.flatnonzero((NUMBERS == CLASSES - 1) & (PLACE < 3))
ALWAYS = {"random_state": 0, "device": "cpu"}
FEW = Growth(exemplars=2, shots=3)


# ---------------------------------------------------------------------------------------------------------- making


def rows(*classes: int, begin: int = 0, end: int = 3, y: np.ndarray = NAMES) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of some rows of classes."""
    chosen = np.isin(NUMBERS, classes) & (begin <= PLACE) & (end > PLACE)
    return BLOBS[chosen], y[chosen]


def base(y: np.ndarray = NAMES, end: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of the base classes."""
    return rows(*range(BASE), end=end, y=y)


def name(c: int) -> str:
    """The label of class c."""
    return f"class {c:02}"


def tree(y: np.ndarray = NAMES, **parameters: Any) -> GPTreeClassifier:
    """A fitted tree."""
    return GPTreeClassifier(**{**ALWAYS, **parameters}).fit(*base(y))


def forest(y: np.ndarray = NAMES, **parameters: Any) -> GPForestClassifier:
    """A fitted forest of two trees."""
    return GPForestClassifier(**{**ALWAYS, "n_estimators": 2, **parameters}).fit(*base(y))


def paper(kernel: str = "linear", y: np.ndarray = NAMES, **parameters: Any) -> GPTreeClassifier:
    """A fitted tree with the settings of the paper."""
    return GPTreeClassifier.paper(kernel, **{**ALWAYS, "inference": Gibbs(chains=4), **parameters}).fit(*base(y))


def two_sessions(model: Any, y: np.ndarray = NAMES) -> Any:
    """A model after two sessions of novel classes."""
    return model.add_classes(*rows(6, 7, y=y)).add_classes(*rows(8, y=y))


def history(model: Any) -> Any:
    """A model after operations of every kind."""
    model = two_sessions(model).add_examples(*rows(1, 7, begin=6, end=8)).add_classes(*rows(9, 10))
    model.remove_classes([name(6)]).remove_classes([name(2)])  # a novel class, and one of the base session
    return model.rename_class(name(9), "another, longer name").merge_classes([name(7), name(8)], into=name(7))


def weights(n: int) -> np.ndarray:
    """How many times n rows count."""
    return np.resize([1.0, 2.5, 0.5, 3.0, 1.0], n)


def weighted(model: Any, lessons: bool = True) -> Any:
    """A model fitted to rows with weights, some of them equal, and taught such rows."""
    X, y = (np.concatenate([part, part[:2]]) for part in base())
    model.fit(X, y, sample_weight=weights(len(y)))
    if lessons:
        for step, given in ((model.add_classes, rows(6, 7)), (model.add_examples, rows(1, 7, begin=5, end=8))):
            step(*given, sample_weight=weights(len(given[1])))
    return model


def held_out() -> np.ndarray:
    """Every second row of the base classes, (n,) booleans."""
    return np.arange(len(base()[0])) % 2 == 0


def set_scale(kernel: Kernel, scale: float = 4.0) -> Kernel:
    """A kernel times an output scale."""
    scaled = ScaleKernel(kernel)
    scaled.outputscale = scale
    return scaled


def own_kernel() -> Kernel:
    """A kernel that only its author's code can make."""
    return set_scale(RBFKernel(active_dims=(0, 1, 2, 3)))


def vectors() -> nn.Module:
    """A network on the blobs, in double precision."""
    return mlp(WIDTH, hidden=(12,), embedding=6).double()


def own_backbone() -> nn.Module:
    """A network that only its author's code can make."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 6), nn.Tanh()).double()


def deep(backbone: nn.Module | None = None, how: dict[str, Any] | None = None, **parameters: Any) -> Any:
    """A fitted deep classifier: on the blobs, or on the pictures if its backbone is a convolutional network."""
    training = {"epochs": 3, "cross_entropy_epochs": 1, "batch_size": 16, "learning_rate": 0.05, "validation": 2}
    settings = {"training": Training(**(training | (how or {}))), "variational": VariationalTree(inducing=2), **ALWAYS}
    model = DeepGPTreeClassifier(vectors() if backbone is None else backbone, **{**settings, **parameters})
    chosen = (NUMBERS < BASE) & (PLACE < ROWS - 1)
    inputs = BLOBS if backbone is None or isinstance(backbone, nn.Sequential) else PICTURES
    return model.fit(inputs[chosen], NAMES[chosen])


def deep_pictures(**parameters: Any) -> Any:
    """A fitted deep classifier of pictures, in single precision."""
    return deep(convnet(1, width=6, depth=2, embedding=6), **parameters)


def with_names() -> Any:
    """A tree fitted to a table with named columns."""
    import pandas as pd

    X, y = base()
    table = pd.DataFrame(X, columns=[f"feature {k}" for k in range(WIDTH)])
    return GPTreeClassifier(**ALWAYS).fit(table, y)


# ---------------------------------------------------------------------------------------------------------- models

SHALLOW: dict[str, Callable[[], Any]] = {
    "tree": tree,
    "forest": lambda: GPForestClassifier(random_state=0).fit(*base()),
    "tree_float32": lambda: tree(dtype="float32"),
    "forest_quadrature": lambda: forest(predict_at="quadrature", memory_budget=2**24, n_jobs=1),
    "forest_random_state": lambda: forest(random_state=np.random.RandomState(0), n_estimators=np.int64(3)),
    # labels
    "labels_int": lambda: tree(NUMBERS),
    "labels_int32": lambda: tree(NUMBERS.astype(np.int32) - 3),
    "labels_float": lambda: forest(NUMBERS.astype(float)),
    "labels_bool": lambda: tree(NUMBERS % 2 == 0),
    "labels_object": lambda: tree(NAMES.astype(object)),
    "one_class": lambda: GPTreeClassifier(**ALWAYS).fit(*rows(0)),
    "one_class_forest": lambda: GPForestClassifier(prior_mean=None, **ALWAYS).fit(*rows(0, y=NUMBERS)),
    "one_shot": lambda: GPForestClassifier(n_estimators=2, **ALWAYS).fit(*base(end=1)),
    "feature_names": with_names,
    # inference
    "paper": paper,
    "paper_rbf": lambda: paper("rbf", inference=Gibbs(chains=2, steps=5, keep=3), y=NUMBERS),
    "gibbs_experts": lambda: forest(inference=Gibbs(chains=3, steps=4, keep=2), node_limit=12),
    "coordinate_ascent": lambda: tree(inference=CoordinateAscent()),
    "coordinate_ascent_linear": lambda: tree(kernel="linear", inference=CoordinateAscent(20, 1e-3), prior_mean=None),
    "learn_kernel": lambda: forest(inference=CoordinateAscent(learn=LearnKernel(steps=4, per_node=False))),
    "learn_kernel_per_node": lambda: tree(
        inference=CoordinateAscent(learn=LearnKernel(4, 0.05, per_node=True, node_weights="size")), prior_mean=None
    ),
    "sparse_variational": lambda: tree(inference=SparseVariational(inducing=3)),
    "sparse_variational_batches": lambda: forest(
        inference=SparseVariational(inducing=2, cap=10, batch_size=9, step=0.8, epochs=3, sweeps=6)
    ),
    "sparse_variational_learn": lambda: paper(
        "rbf", inference=SparseVariational(inducing=2, learn=LearnKernel(steps=3, per_node=True))
    ),
    "inducing_points": lambda: forest(node_limit=InducingPoints(10)),
    "subset_of_data": lambda: forest(node_limit=SubsetOfData(10)),
    "no_limit": lambda: tree(node_limit=None),
    # prior means
    "zero_mean": lambda: forest(prior_mean=None),
    "lda": lambda: tree(prior_mean=LDA(shrinkages=(0.1, 0.5), count_weight=0.3)),
    "kernel_ridge": lambda: tree(prior_mean=KernelRidge()),
    "kernel_ridge_part": lambda: tree(prior_mean=KernelRidge(penalties=(0.1, 1.0), choose_on=12, at_most=16)),
    "ridge": lambda: tree(prior_mean=Ridge(penalties=(0.1, 1.0))),
    "kernel_density": lambda: tree(prior_mean=KernelDensity(sharpnesses=(5.0, 20.0))),
    "random_lda": lambda: tree(prior_mean=RandomFeatures(LDA(), count=20)),
    "random_ridge": lambda: tree(prior_mean=RandomFeatures(Ridge(), count=60, unit_length=False, seed=3)),
    "pool": lambda: forest(prior_mean=Pool()),
    "pool_of_all": lambda: forest(
        prior_mean=Pool((LDA(), Ridge(), KernelRidge(), KernelDensity(), RandomFeatures(LDA(), 20)))
    ),
    "class_prior_empirical": lambda: GPForestClassifier(n_estimators=2, class_prior="empirical", **ALWAYS).fit(
        *(part[:-4] for part in base())
    ),
    "class_prior_array": lambda: tree(class_prior=np.arange(1, BASE + 1) / 21, prior_mean=None),
    # feature maps
    "no_map": lambda: forest(feature_map=None),
    "unit": lambda: forest(feature_map="unit"),
    "sphere_non_negative": lambda: GPTreeClassifier(**ALWAYS).fit(np.abs(base()[0]), base()[1]),
    "sphere_single": lambda: GPTreeClassifier(**ALWAYS).fit(base()[0].astype(np.float32), base()[1]),
    # trees
    "two_means": lambda: tree(tree=TwoMeans(restarts=3)),
    "balanced": lambda: tree(tree=BalancedTwoMeans(restarts=2)),
    "random_balanced": lambda: forest(tree=RandomBalanced()),
    "chain": lambda: tree(tree=Chain()),
    "ward": lambda: tree(tree=Ward()),
    **{
        f"tree_by_name_{key.replace('-', '_')}": lambda key=key: tree(tree=key, prior_mean=None)
        for key in ("two-means", "balanced", "random", "chain", "ward")
    },
    "class_tree": lambda: tree(NUMBERS, tree=ClassTree.from_nested([[0, [1, 5]], [[2, 4], 3]], range(BASE))),
    "nested_lists": lambda: tree(tree=[[name(0), [name(1), name(5)]], [[name(2), name(4)], name(3)]]),
    # kernels
    **{f"kernel_{key}": lambda key=key: tree(kernel=key) for key in ("linear", "rbf", "matern52")},
    "kernel_matern": lambda: forest(kernel=set_scale(MaternKernel(nu=1.5))),
    "kernel_ard": lambda: tree(
        kernel=set_scale(RBFKernel(ard_num_dims=WIDTH)),
        inference=CoordinateAscent(learn=LearnKernel(steps=3)),
        prior_mean=None,
    ),
    "kernel_sum": lambda: tree(kernel=set_scale(RBFKernel()) + LinearKernel() + ConstantKernel()),
    "kernel_product": lambda: tree(kernel=set_scale(RQKernel() * PeriodicKernel())),
    "kernel_polynomial": lambda: tree(kernel=PolynomialKernel(power=2), prior_mean=None),
    "kernel_cosine": lambda: tree(kernel=set_scale(CosineKernel(), 0.01) + set_scale(MaternKernel(nu=0.5))),
    "kernel_own": lambda: tree(kernel=own_kernel()),
    # rows that whatever made the features was not trained on
    "held_out": lambda: GPForestClassifier(n_estimators=2, **ALWAYS).fit(*base(), held_out()),
    "held_out_growth": lambda: two_sessions(
        GPForestClassifier(n_estimators=2, growth=FEW, **ALWAYS).fit(*base(), held_out())
    ),
}

GROWN: dict[str, Callable[[], Any]] = {
    "growth": lambda: GPForestClassifier(n_estimators=2, growth=Growth(), **ALWAYS).fit(*base(end=7)),
    "growth_tree": lambda: two_sessions(tree(NUMBERS, growth=FEW), NUMBERS),
    "growth_float32": lambda: two_sessions(forest(growth=FEW, dtype="float32")),
    "growth_object_labels": lambda: two_sessions(tree(NAMES.astype(object), growth=FEW)),
    "growth_one_class": lambda: two_sessions(GPTreeClassifier(growth=FEW, **ALWAYS).fit(*rows(0))),
    "growth_zero_mean": lambda: history(forest(growth=FEW, prior_mean=None)),
    "growth_given_tree": lambda: two_sessions(
        tree(NUMBERS, growth=FEW, tree=[[0, [1, 5]], [[2, 4], 3]], feature_map=None), NUMBERS
    ),
    "growth_learn_kernel": lambda: two_sessions(
        tree(growth=FEW, kernel="rbf", inference=CoordinateAscent(learn=LearnKernel(steps=3)))
    ),
    "growth_sparse_variational": lambda: two_sessions(tree(growth=FEW, inference=SparseVariational(inducing=2))),
    "growth_own_kernel": lambda: two_sessions(tree(growth=FEW, kernel=own_kernel())),
    **{
        f"growth_{key}_{shape.__name__}": lambda strategy=strategy, shape=shape: history(
            shape(growth=Growth(2, 3, strategy))
        )
        for key, strategy in {
            "shared_root": SharedRoot(),
            "session_tree": SessionTree(),
            "rebuild_tree": RebuildTree(),
            "graft": Graft(),
        }.items()
        for shape in (tree, forest, paper)
    },
    **{
        f"growth_{key}": lambda selection=selection: two_sessions(tree(growth=Growth(3, 3, SharedRoot(), selection)))
        for key, selection in {
            "k_means": KMeansExemplars(),
            "herding": Herding(),
            "k_means_plus_plus": KMeansPlusPlusExemplars(),
        }.items()
    },
    "growth_add_examples": lambda: forest(growth=FEW).add_examples(*rows(0, 3, begin=6, end=8)),
    "growth_remove_novel": lambda: two_sessions(tree(growth=FEW)).remove_classes([name(7)]),
    "growth_remove_base": lambda: forest(growth=FEW).remove_classes([name(1)]),
    "growth_rename": lambda: tree(growth=FEW).rename_class(name(0), "another, longer name"),
    "growth_merge": lambda: two_sessions(forest(growth=FEW)).merge_classes([name(6), name(2)], into=name(2)),
    # fitted without growth
    "later_growth": lambda: two_sessions(forest()),
    "later_growth_history": lambda: history(tree(inference=CoordinateAscent(sweeps=5))),
    "later_growth_paper": lambda: two_sessions(paper()),
    "later_growth_one_class": lambda: two_sessions(GPForestClassifier(n_estimators=2, **ALWAYS).fit(*rows(0))),
    "later_growth_zero_mean": lambda: two_sessions(forest(NUMBERS, prior_mean=None), NUMBERS),
    "later_growth_undone": lambda: tree().add_classes(*rows(6)).undo(),
}

DEEP: dict[str, Callable[[], Any]] = {
    "deep": deep,
    "deep_float32": lambda: DeepGPTreeClassifier(
        mlp(WIDTH, hidden=(12,), embedding=6),
        training=Training(epochs=2, cross_entropy_epochs=1, batch_size=16),
        random_state=0,
    ).fit(*base(end=8)),
    "deep_no_validation": lambda: deep(how={"validation": None}),
    "deep_no_calibration": lambda: deep(how={"calibrate": False, "best": "nll"}),
    "deep_mean": lambda: deep(predict_at="mean", how={"validation": 0.2}),
    "deep_refit": lambda: deep(refit=2),
    "deep_head_alone": lambda: deep(how={"objective_weight": 0.0, "schedule": Milestones((1, 2), 0.5)}),
    "deep_cosine_margin": lambda: deep(how={"objective": CosineMargin(scale=8.0), "schedule": Cosine(1.0)}),
    "deep_softmax": lambda: deep(how={"cross_entropy_epochs": 3, "objective": CrossEntropy(label_smoothing=0.1)}),
    "deep_fixed_kernel": lambda: deep(
        variational=VariationalTree(2, learn_kernel="no", learn_points=False, node_weights="size")
    ),
    "deep_per_node_kernel": lambda: deep(
        variational=VariationalTree(3, 8, learn_kernel="per-node", node_weights="equal")
    ),
    "deep_kernel": lambda: deep(kernel=set_scale(MaternKernel(nu=1.5)), tree=BalancedTwoMeans(3)),
    "deep_kernel_by_name": lambda: deep(kernel="matern52", tree="chain"),
    "deep_own_kernel": lambda: deep(kernel=own_kernel()),
    "deep_own_backbone": lambda: deep(own_backbone()),
    "deep_single_head_float32": lambda: deep(variational=VariationalTree(2, dtype="float32")),
    "deep_forest": lambda: deep(classifier=GPForestClassifier(n_estimators=2)),
    "deep_forest_held_out": lambda: deep(classifier=GPForestClassifier(n_estimators=2), classifier_rows="held_out"),
    "deep_forest_all": lambda: deep(classifier=GPForestClassifier(n_estimators=2), classifier_rows="all"),
    "deep_paper_tree": lambda: deep(classifier=GPTreeClassifier.paper(inference=Gibbs(chains=3))),
    "deep_growth": lambda: two_sessions(deep(classifier=GPForestClassifier(n_estimators=2, growth=FEW))),
    "deep_growth_all": lambda: deep(
        classifier=GPForestClassifier(n_estimators=2, growth=FEW), classifier_rows="all"
    ).add_classes(*rows(6, 7)),
}

OF_PICTURES: dict[str, Callable[[], Any]] = {
    "deep_pictures_float32": deep_pictures,
    "deep_augmented_float32": lambda: deep_pictures(
        augment=[RandomCrop(1), RandomFlip(), RandomResizedCrop(), ColourJitter(), Cutout(2)]
    ),
    "deep_rotations_float32": lambda: deep_pictures(how={"objective": CosineMargin(rotations=True, mixup=0.5)}),
    "deep_pictures_growth_float32": lambda: deep_pictures(
        classifier=GPForestClassifier(n_estimators=2, growth=FEW), classifier_rows="all"
    ),
}

#: All that version 5 added.
WEIGHTED: dict[str, Callable[[], Any]] = {
    "weights_tree": lambda: weighted(GPTreeClassifier(**ALWAYS), lessons=False),
    "weights_lessons": lambda: weighted(GPForestClassifier(**ALWAYS, n_estimators=2)),
    "weights_growth": lambda: weighted(GPTreeClassifier(**ALWAYS, growth=FEW)),
    "weights_gibbs": lambda: weighted(GPTreeClassifier.paper("rbf", **ALWAYS, inference=Gibbs(chains=3), growth=FEW)),
}

MODELS = SHALLOW | GROWN | DEEP | OF_PICTURES | WEIGHTED

#: What `load_model` must be given, of models that only their author's code can make.
LOAD_WITH: dict[str, Callable[[], dict[str, Any]]] = {
    "kernel_own": lambda: {"kernel": own_kernel()},
    "growth_own_kernel": lambda: {"kernel": own_kernel()},
    "deep_own_kernel": lambda: {"kernel": own_kernel()},
    "deep_own_backbone": lambda: {"backbone": own_backbone()},
}


# --------------------------------------------------------------------------------------------------------- writing


def load(folder: Path) -> Any:
    """Read the model of a folder with `model/` in it, onto the CPU."""
    return load_model(folder / "model", device="cpu", **LOAD_WITH.get(folder.name, dict)())


def processor() -> str:
    """Return the processor, its instructions and the version of PyTorch, on which the last bits depend."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line for line in lines if line.startswith("model name")), platform.processor())
    instructions = torch.backends.cpu.get_cpu_capability()
    return f"{model.split(':')[-1].strip()}, {instructions}, torch {torch.__version__}"


def in_single_precision(folder: Path) -> bool:
    """Whether arrays of a saved model, other than the hyper-parameters of kernels, are in single precision."""
    arrays = [array for file in folder.rglob("*.safetensors") for array in load_file(file).items()]
    return any(values.dtype == torch.float32 and "kernel" not in key for key, values in arrays)


def expected(folder: Path) -> dict[str, np.ndarray]:
    """Compute what the saved model of a folder predicts, and what it predicts once it has changed.

    Parameters
    ----------
    folder : Path
        Holds the model in `model/`.

    Returns
    -------
    dict of arrays
        `X` are n query rows, and `log_proba` (n, C), `classes` (C,) and `classes_dtype` what is predicted; `single` is
        `in_single_precision`. Where the model has them: `feature_names`; `novelty` (n,), and `neighbours`
        (k, 2), entries and rows of the nearest examples of the first query; `log_proba_after_undo`; and
        `log_proba_after_add`, after further classes `X_add`, `y_add`.
    """
    model, inputs = load(folder), PICTURES if folder.name in OF_PICTURES else BLOBS
    X, classes = inputs[QUERIES], model.classes_
    out = {
        "X": X,
        "log_proba": model.predict_log_proba(X),
        "classes": classes.astype(str) if classes.dtype == object else classes,
        "classes_dtype": np.array(classes.dtype.str),
        "single": np.array(in_single_precision(folder)),
    }
    if hasattr(model, "feature_names_in_"):
        out["feature_names"] = model.feature_names_in_.astype(str)
    if not hasattr(model, "journal_"):
        return out
    out["novelty"] = model.novelty_score(X)
    out["neighbours"] = np.array([(near.entry, near.row) for near in model.explain(X[:1])[0].neighbours])
    if len(model.journal_) > 1:
        out["log_proba_after_undo"] = load(folder).undo().predict_log_proba(X)
    if folder.name in GROWN or len(model.journal_) > 1:
        out["X_add"] = inputs[ADDED]
        out["y_add"] = NUMBERS[ADDED].astype(classes.dtype) if classes.dtype.kind in "if" else NAMES[ADDED]
        out["log_proba_after_add"] = model.add_classes(out["X_add"], out["y_add"]).predict_log_proba(X)
    return out


def main(out: Path, *names: str) -> None:
    """Write all models into a new folder, or those that are named."""
    torch.set_num_threads(1)  # as the tests
    out.mkdir(parents=True)
    (out / "processor.txt").write_text(processor() + "\n", encoding="utf-8")
    for key, make in MODELS.items():
        if names and key not in names:
            continue
        with warnings.catch_warnings(), small_random_features(lda=25, ridge=25, shares=NOVEL_SHARES):
            warnings.simplefilter("ignore")
            make().save(out / key / "model")
            np.savez_compressed(out / key / "expected.npz", **expected(out / key))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
