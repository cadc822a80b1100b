"""What may be wrong with the parameters of a deep classifier, before any work is done; `train` looks at the others."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
from gpytorch.kernels import ScaleKernel
from torch import nn

from gptree.deep import Training, VariationalTree
from gptree.estimators.forest import GPTreeClassifier
from gptree.incremental import joined_kernels
from gptree.inference import PredictAt
from gptree.maths.kernels import as_kernel, node_kernels
from gptree.settings import require

ClassifierRows = Literal["trained", "held_out", "all", "inducing"]


def check_parameters(estimator: Any) -> None:
    """Raise unless the parameters of a `DeepGPTreeClassifier` are of their kinds, and go together."""
    for name, kind in (("backbone", nn.Module), ("training", Training), ("variational", VariationalTree)):
        if not isinstance(getattr(estimator, name), kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not {getattr(estimator, name)!r}.")
    choices = {"predict_at": get_args(PredictAt), "classifier_rows": (None, *get_args(ClassifierRows))}
    for name, names in choices.items():
        value = getattr(estimator, name)
        require(value in names, f"{name} must be one of {names}, not {value!r}.")
    refit = estimator.refit
    whole = isinstance(refit, int | np.integer) and refit is not True and refit >= 0
    require(bool(whole), f"refit is a number of sweeps, 0 for none, not {refit!r}.")
    _check_classifier(estimator.classifier, estimator.classifier_rows)
    if estimator.classifier_rows == "inducing":
        _check_base_session(estimator)
    uses_tree = estimator.classifier is None or estimator.classifier_rows == "inducing"
    require(
        (uses_tree and estimator.training.trains_head) or not refit,
        "refit is for the variational head, which must be trained (cross_entropy_epochs less than epochs) and "
        "predict (classifier=None) or be taken over: set refit=0.",
    )
    shared = estimator.folder is not None or int(os.environ.get("WORLD_SIZE", "1")) > 1
    require(
        estimator.random_state is not None or not shared,
        "training in a folder, or in several processes, needs a seed to go on with or to share: give random_state "
        "an int.",
    )


def _check_classifier(classifier: Any, rows: ClassifierRows | None) -> None:
    able = all(hasattr(classifier, name) for name in ("fit", "predict_log_proba"))
    if classifier is not None and (isinstance(classifier, type) or not able):
        raise TypeError(f"classifier must be None or a classifier with predict_log_proba, not {classifier!r}.")
    require(
        rows != "all" or classifier is None or _takes_held_out(classifier),
        f'classifier_rows="all" names the rows that the network was not trained on, and the fit of {classifier!r} has '
        'no held_out: set classifier_rows="held_out" or "trained".',
    )
    require(
        classifier is not None or rows in (None, "trained"),
        f'classifier_rows="{rows}" is about an estimator on the trained embedding: give a classifier, or leave '
        "classifier_rows.",
    )


def _check_base_session(estimator: Any) -> None:
    """Whether a classifier can take over the trained tree."""
    classifier, rows = estimator.classifier, 'classifier_rows="inducing"'
    if not isinstance(classifier, GPTreeClassifier):
        raise TypeError(
            f"{rows} hands the trained tree over to a classifier of one tree, and {classifier!r} is none: give a "
            'GPTreeClassifier, such as GPTreeClassifier.paper("rbf", 8.0, growth=Growth()).'
        )
    require(
        estimator.training.trains_head,
        f"{rows} needs a tree that was trained: set cross_entropy_epochs less than epochs.",
    )
    require(
        classifier.prior_mean is None and classifier.class_prior is None and classifier.feature_map == "unit",
        f"{rows}: the trained tree has zero prior means, on embeddings of unit length. Give a classifier with "
        'prior_mean=None, class_prior=None and feature_map="unit", as GPTreeClassifier.paper(...) has.',
    )
    classifier._check_growth()
    classifier._check_can_grow()
    classifier._large_nodes(classifier._inference())
    kernel = as_kernel("rbf" if estimator.kernel is None else estimator.kernel, *classifier._placement())
    joined_kernels(node_kernels(kernel, 1), node_kernels(classifier._kernel(), 1))
    require(
        isinstance(kernel, ScaleKernel) or not estimator.training.calibrate,
        "how confident the tree is, is chosen by the scale of its kernel: give a ScaleKernel, or "
        "Training(calibrate=False).",
    )


def require_no_weights(unknown: Mapping[str, Any]) -> None:
    """Raise a TypeError if `fit` was given more than it takes."""
    if "sample_weight" in unknown:
        raise TypeError(
            "the training of a network takes no sample_weight: its batches count every row once. Leave rows out or "
            "repeat them; or train, and then fit a forest to the embeddings of all rows: "
            "GPForestClassifier().fit(model.embed(X), y, sample_weight=…)."
        )
    if unknown:
        raise TypeError(f"fit takes X, y and validation, not {', '.join(unknown)}.")


def _takes_held_out(classifier: Any) -> bool:
    return "held_out" in inspect.signature(classifier.fit).parameters


def chosen_rows(estimator: Any, held_out: np.ndarray, labels: np.ndarray) -> ClassifierRows:
    """The rows that the classifier is fitted to, before the network is trained.

    Parameters
    ----------
    estimator : DeepGPTreeClassifier
    held_out : int array
        Class numbers of the rows that the network will not see.
    labels : array (C,)
    """
    counts = np.bincount(held_out, minlength=len(labels))
    asked, fewest = estimator.classifier_rows, labels.tolist()[counts.argmin()]
    more = "hold out more, such as Training(validation=2), or give more to fit as validation"
    if asked is None:
        if estimator.classifier is None or not _takes_held_out(estimator.classifier):
            return "trained"
        if counts.min() >= 2:
            return "all"
        warnings.warn(
            "the network knows the rows it is trained on by heart, and a classifier of them alone is too sure of "
            f"others. Two rows of every class that it does not know would tell, and there are fewer of {fewest!r}: "
            f'{more}. To fit to the rows trained on all the same, set classifier_rows="trained".',
            UserWarning,
            stacklevel=4,
        )
        return "trained"
    require(
        asked in ("trained", "inducing") or counts.max() > 0,
        f'classifier_rows="{asked}" needs rows held out to calibrate on: set Training(validation=…), or give '
        "validation to fit.",
    )
    require(
        asked != "all" or counts.min() >= 2,
        f'classifier_rows="all" needs two rows of every class held out, and there are fewer of {fewest!r}: {more}.',
    )
    return asked
