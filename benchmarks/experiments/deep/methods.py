"""The methods of the experiment on deep kernels, and the settings of each."""

from __future__ import annotations

from typing import Any

from benchmarks.core.trials import Trial

NAME = "deep-kernels"
DATA = ("cifar100", "cifar10")
NAMES = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}
CLASSES = {"cifar100": 100, "cifar10": 10}
LONG, SHORT = 200, 30
REFIT_SWEEPS = 10
MEASURED = ("accuracy", "nll", "ece")
SOFTMAX, SMOOTHED = "softmax", "softmax, label smoothing 0.1"
OURS, ALONE = "GP-Tree", "GP-Tree, bound alone"
OURS_CALIBRATED, SOFTMAX_CALIBRATED = "GP-Tree, 10 % held out", "softmax, 10 % held out"
OURS_CUT, SOFTMAX_CUT = "GP-Tree, cutout, 2 % held out", "softmax, cutout, 2 % held out"
TWICE_CUT = "two softmax layers, cutout, 2 % held out"
TREE_PUBLISHED, SV_DKL_PUBLISHED, GPDNN_PUBLISHED = PUBLISHED = tuple(
    f"{method}, as published" for method in ("GP-Tree", "SV-DKL", "GPDNN")
)
#: Pixels a side, as in the paper on cutout.
CUTOUT = {"cifar100": 8, "cifar10": 16}
#: Of GP-Tree by our training: at most 1,024 inducing points a node, and the kernel as it is.
HEAD: dict[str, Any] = {"inducing": 40, "cap": 1024, "learn_kernel": "no", "dtype": "float32"}
SV_DKL: dict[str, Any] = {"grid_size": 64, "features": 64}
DNN: dict[str, Any] = {"inducing": 40, "epsilon": 1e-3}
METHODS: dict[str, dict[str, Any]] = {
    SOFTMAX: {},
    SMOOTHED: {"label_smoothing": 0.1},
    ALONE: {"inducing": 40, "cap": 1024, "learn_kernel": "shared"},
    OURS: {**HEAD, "objective_weight": 3.0, "label_smoothing": 0.1},
    SOFTMAX_CALIBRATED: {"validation": 0.1},
    OURS_CALIBRATED: {**HEAD, "objective_weight": 1.0, "validation": 0.1},
    SOFTMAX_CUT: {"validation": 0.02},
    OURS_CUT: {**HEAD, "objective_weight": 1.0, "head_weight": 0.1, "validation": 0.02},
    TWICE_CUT: {"objective_weight": 1.0, "head_weight": 0.1, "validation": 0.02},
    "SV-DKL": SV_DKL,
    "GPDNN": DNN,
    TREE_PUBLISHED: {"inducing": 40, "step": 0.05, "learn_kernel": "shared", "node_weights": "size"},
    SV_DKL_PUBLISHED: SV_DKL,
    GPDNN_PUBLISHED: DNN,
}
#: Trained for all of the paper's epochs, and for a few.
TRAINED_LONG = (
    *(SOFTMAX, SMOOTHED, ALONE, OURS, SOFTMAX_CALIBRATED, OURS_CALIBRATED, SOFTMAX_CUT, OURS_CUT),
    *(TWICE_CUT, *PUBLISHED),
)
TRAINED_SHORT = (SOFTMAX, SMOOTHED, ALONE, OURS, "SV-DKL", "GPDNN")
#: The others have one, for they take minutes on a large GPU.
SEVERAL_SEEDS = (SOFTMAX_CUT, OURS_CUT)


def settings_of(method: str, data: str, epochs: int) -> dict[str, Any]:
    shared = {"epochs": epochs, "batch": 256, "embedding": 1024, "learning_rate": 0.2, "warmup": 5}
    if method in PUBLISHED:  # the paper's appendix
        del shared["warmup"]
        shared |= {"learning_rate": 0.01, "milestones": [epochs // 2, 3 * epochs // 4], "validation": 0.1}
    settings = {**shared, **METHODS[method]}
    if "cutout" in method:
        settings["cutout"] = CUTOUT[data]
    if method.startswith("GPDNN") and CLASSES[data] > 10:
        settings["covariance"] = "diagonal"  # a full one takes 13 GB, and as much for its gradient and its momentum
    return settings


def all_trials(seeds: int) -> list[Trial]:
    return [
        Trial(NAME, method, data, seed, settings_of(method, data, epochs))
        for seed in range(seeds)
        for data in DATA
        for epochs in (LONG, SHORT)
        for method in (TRAINED_LONG if epochs == LONG else TRAINED_SHORT)
        if seed == 0 or method in SEVERAL_SEEDS
    ]
