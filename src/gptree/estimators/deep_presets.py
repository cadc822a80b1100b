"""The paper's experiments with networks, as it did them, corrected, and with what this library does instead.

    published   the tree is trained by the bound alone; its inducing points are the memory, new nodes are sampled, one
                step of ten chains
    corrected   the same model, with what was wrong about its training put right: cross-entropy stays beside the bound,
                nodes count as in `VariationalTree()`, the last epoch is kept, rows held out choose how confident the
                tree is, and the chains are run until they forget where they began
    defaults    the network of "corrected", and a forest around experts on its embedding, calibrated by the held-out
                rows

The last two train the same network: with one `folder`, the second of them trains nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, get_args

from torch import nn

from gptree.deep import (
    Milestones,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Training,
    VariationalTree,
    resnet18,
)
from gptree.estimators.forest import GPForestClassifier, GPTreeClassifier
from gptree.incremental import Growth
from gptree.inference import Gibbs
from gptree.settings import require

Experiment = Literal["cifar", "cub", "mini-imagenet"]
Version = Literal["published", "corrected", "defaults"]

#: Sweeps after which chains that began at the prior no longer know where.
STEPS = 20
#: Output scale of the RBF kernel of new nodes; its length-scale is 1.
NOVEL_SCALE = 8.0


def preset(
    experiment: Experiment, version: Version, growth: bool | Growth, backbone: nn.Module | None
) -> dict[str, Any]:
    """Parameters of `DeepGPTreeClassifier`."""
    for name, value, kind in (("experiment", experiment, Experiment), ("version", version, Version)):
        require(value in get_args(kind), f"{name} must be one of {get_args(kind)}, got {value!r}.")
    if not isinstance(growth, bool | Growth):
        raise TypeError(f"growth must be True, False or Growth(...), not {growth!r}.")
    network, parameters = _published(experiment)
    if version != "published":
        parameters |= _corrected(experiment, parameters)
    settings = Growth() if growth is True else growth or None
    if version == "defaults":
        parameters |= {"classifier": GPForestClassifier(growth=settings), "classifier_rows": "all"}
    elif settings is not None:
        # paper section C.3
        inference = Gibbs() if version == "published" else Gibbs(steps=STEPS)
        sessions = GPTreeClassifier.paper("rbf", NOVEL_SCALE, inference=inference, growth=settings)
        parameters |= {"classifier": sessions, "classifier_rows": "inducing"}
    return {"backbone": resnet18(**network) if backbone is None else backbone, **parameters}


def _published(experiment: Experiment) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the network, and of the estimator."""
    crop = RandomCrop(4) if experiment == "cifar" else RandomResizedCrop()
    network, training, inducing = {
        "cifar": (
            {"embedding": 1024, "stem": "cifar"},
            {"epochs": 200, "cross_entropy_epochs": 80, "learning_rate": 0.01, "batch_size": 256, "validation": 0.1},
            40,
        ),
        "cub": (
            {"embedding": 512, "stem": "imagenet"},
            {"epochs": 100, "cross_entropy_epochs": 20, "learning_rate": 0.01, "batch_size": 128, "validation": 2},
            5,
        ),
        "mini-imagenet": (
            {"embedding": 512, "stem": "small"},
            {"epochs": 100, "cross_entropy_epochs": 40, "learning_rate": 0.1, "batch_size": 128, "validation": 0.05},
            5,
        ),
    }[experiment]
    shared = {"momentum": 0.9, "nesterov": False, "weight_decay": 5e-4, "best": "accuracy", "calibrate": False}
    shared |= {"objective_weight": 0.0}  # the head alone trains the network
    schedule = Milestones((100, 150) if experiment == "cifar" else (40, 60), factor=0.1)
    # paper section C.2, section C.3
    return network, {
        "training": Training(**training, **shared, schedule=schedule),
        "variational": VariationalTree(inducing, step=0.05, learn_kernel="shared", node_weights="size"),
        "augment": (crop, RandomFlip()),
    }


def _corrected(experiment: Experiment, published: dict[str, Any]) -> dict[str, Any]:
    """What takes the place of the published settings."""
    training, inducing = published["training"], published["variational"].inducing
    training = replace(training, objective_weight=Training().objective_weight, best="last", calibrate=True)
    if experiment == "cub":  # of thirty: two rows of a class are too few to fit nodes to
        training = replace(training, validation=5)
    return {"training": training, "variational": VariationalTree(inducing)}
