"""Checks of arrays, labels, devices and prior means."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
import torch
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from gptree.experts import Expert, PriorScores, SklearnExpert
from gptree.inference import PredictAt

#: Bytes for Gram matrices, factors and working memory on a CPU; on a GPU a quarter of its memory.
MEMORY_BUDGET = 2**31
#: Largest weight of a row, and one over the smallest: sums of weights have to keep their digits.
LARGEST_WEIGHT = 1e6


def to_numpy(values: Any) -> Any:
    """Torch tensors from any device as arrays; everything else as it is."""
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else values


def check_targets(y: np.ndarray) -> None:
    """Raise unless y holds class labels; one or two examples a class are nothing strange here."""
    check_given(y)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%")
        check_classification_targets(y)


def check_given(y: np.ndarray) -> None:
    """Raise if a label is missing, or labels cannot be sorted because they are of several kinds."""
    if not y.dtype.hasobject:
        return
    values = y.tolist()
    missing = [row for row, label in enumerate(values) if label is None]
    if missing:
        raise ValueError(f"row {missing[0]} has no label (None): give every row one, or leave the row out.")
    kinds: dict[bool, Any] = {}
    for label in values:
        kinds.setdefault(isinstance(label, str), label)
    if len(kinds) > 1:
        both = " and ".join(map(repr, kinds.values()))
        raise ValueError(f"labels are text or numbers, but there are {both}: make all of them text, or all numbers.")


def check_held_out(held_out: Any, y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mask of held-out rows, (n,) booleans, at least two of every class.

    Parameters
    ----------
    held_out : array-like (n,)
    y : (n,) class numbers.
    labels : (C,) labels of the classes.
    """
    mask = np.asarray(to_numpy(held_out))
    if mask.shape != y.shape or mask.dtype != bool:
        raise ValueError(
            f"held_out must hold {len(y)} booleans, one per row of X, got {mask.dtype} of shape {mask.shape}."
        )
    counts = np.bincount(y[mask], minlength=len(labels))
    if counts.min() < 2:
        raise ValueError(
            f"class {labels.tolist()[counts.argmin()]!r} has too few held-out rows, {counts.min()} of the two that "
            "every class needs: hold out more rows from what makes the features, or leave held_out=None."
        )
    return mask


def check_weights(sample_weight: Any, y: np.ndarray, labels: np.ndarray) -> np.ndarray | None:
    """How many times each row counts, (n,); None where each counts once.

    Parameters
    ----------
    sample_weight : array-like (n,) or None
    y : (n,) class numbers.
    labels : (C,) labels of the classes.
    """
    if sample_weight is None:
        return None
    try:
        weights = np.array(to_numpy(sample_weight), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"sample_weight must hold {len(y)} numbers, one per row of X.") from None
    if weights.shape != y.shape:
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {y.shape}: one number for each row of X.")
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        raise ValueError(
            f"sample_weight holds {weights[bad[0]]} (row {bad[0]}): a weight says how many times a row counts, "
            "0 or more."
        )
    odd = np.flatnonzero((weights > LARGEST_WEIGHT) | ((weights > 0) & (weights < 1 / LARGEST_WEIGHT)))
    if len(odd):
        raise ValueError(
            f"sample_weight holds {weights[odd[0]]:g} (row {odd[0]}): weights other than 0 lie between "
            f"{1 / LARGEST_WEIGHT:g} and {LARGEST_WEIGHT:g}. Give 0 to leave a row out."
        )
    masses = np.bincount(y, weights, minlength=len(labels))
    if (masses == 0).any():
        raise ValueError(
            f"all rows of class {labels.tolist()[masses.argmin()]!r} have weight zero, so that nothing is known of it: "
            "leave its rows out, or give one of them a weight."
        )
    return None if (weights == 1).all() else weights


def check_ids(ids: Any, n_rows: int) -> tuple[str, ...]:
    """Ids of rows as strings, one for each; a ValueError where they are not different."""
    names = tuple(str(name) for name in to_numpy(ids))
    if len(names) != n_rows:
        raise ValueError(f"there are {n_rows} rows, but {len(names)} ids.")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"the id {twice!r} comes twice: ids name rows, and each has its own.")
    return names


def check_remark(name: str, text: Any) -> str:
    """A note or an author for the journal, which is text."""
    if not isinstance(text, str):
        raise TypeError(f"{name} is a text, not {text!r:.80}.")
    return text


def check_encoder(description: Any, n_features: int) -> dict[str, Any]:
    """The description of the encoder of the features; what else it says is looked at when an encoder is made of it.

    A ValueError unless JSON can hold it and its vectors have `n_features` numbers.
    """
    try:
        same = isinstance(description, Mapping) and json.loads(json.dumps(description, allow_nan=False)) == description
    except (TypeError, ValueError):
        same = False
    if not same:
        raise ValueError(f"{description!r:.80} describes no encoder: give what its describe() returns.")
    width = description.get("dimension")
    if width != n_features:
        raise ValueError(f"the encoder gives {width!r:.20} numbers a row, but the model has {n_features} features.")
    return dict(description)


def placement(dtype: str, device: str) -> tuple[torch.dtype, torch.device]:
    """Dtype and device by the names that the parameters have."""
    if dtype not in ("float32", "float64"):
        raise ValueError(f'dtype must be "float32" or "float64", not {dtype!r}.')
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return getattr(torch, dtype), torch.device(device)


def memory_bytes(memory_budget: int | None, device: torch.device) -> int:
    """The memory budget in bytes; None is a default for the device."""
    if memory_budget is None:
        on_gpu = device.type == "cuda"
        return torch.cuda.get_device_properties(device).total_memory // 4 if on_gpu else MEMORY_BUDGET
    if not memory_budget >= 2**20:
        raise ValueError(f"memory_budget is in bytes and must be at least 2**20, got {memory_budget!r}.")
    return int(memory_budget)


def check_memory(
    memory_budget: int | None,
    given: int,
    shape: tuple[int, int],
    n_classes: int,
    itemsize: int,
    expert: Expert | None,
    again: bool,
) -> int:
    """The budget in bytes for a fit of this size; a ValueError if it is too small, and says how small it may be.

    Parameters
    ----------
    memory_budget : int or None
        The parameter.
    given : int
        Bytes that it stands for. By default they grow to what is needed.
    shape : rows and features.
    n_classes, itemsize : int
    expert : the source of prior means.
    again : bool
        Whether it is fitted to a part of the rows too, while all are there.
    """
    rows, columns = shape
    copies = itemsize * rows * columns  # of the features: in the order of the model, mapped, and mapped in that order
    smallest = 3 * copies
    if expert is not None:
        smallest = max(smallest, (5 if again else 2) * copies + expert.fit_bytes(rows, columns, n_classes, itemsize))
    if given >= smallest:
        return given
    if memory_budget is None:
        return smallest
    raise ValueError(
        f"memory_budget={memory_budget} is too small for {rows} rows of {columns} features and {n_classes} classes: "
        f'the smallest is {smallest} bytes. Give at least that, dtype="float32", or experts that need less.'
    )


def check_predict_at(predict_at: Any) -> None:
    """Raise unless it is a name of how nodes predict."""
    if predict_at not in get_args(PredictAt):
        raise ValueError(f'predict_at must be "mean" or "quadrature", not {predict_at!r}.')


def as_expert(prior_mean: Any) -> Expert | None:
    """The expert behind the parameter `prior_mean`.

    None is a zero prior mean; a name such as "experts" is its expert; a classifier or a function becomes an expert.
    """
    if prior_mean is None:
        return None
    if isinstance(prior_mean, str | Expert):
        return Expert.of(prior_mean)
    if not isinstance(prior_mean, type):
        if hasattr(prior_mean, "fit") and hasattr(prior_mean, "predict"):
            return SklearnExpert(prior_mean)
        if callable(prior_mean):
            return PriorScores(prior_mean)
    raise TypeError(f'prior_mean must be "experts", None, an expert, a classifier or a function, not {prior_mean!r}.')


def class_log_prior(
    class_prior: Any, y: np.ndarray, n_classes: int, weights: np.ndarray | None = None
) -> np.ndarray | None:
    """log class prior (C,) behind the parameter `class_prior`, or None; `weights` (n,) are those of the rows."""
    if class_prior is None:
        return None
    if isinstance(class_prior, str):
        if class_prior != "empirical":
            raise ValueError(f'class_prior must be None, "empirical" or an array, not {class_prior!r}.')
        prior = np.bincount(y, weights).astype(float)
    else:
        prior = np.asarray(class_prior, dtype=float)
    if prior.shape != (n_classes,) or not np.isfinite(prior).all() or (prior <= 0).any():
        raise ValueError(f"class_prior must hold {n_classes} positive numbers, one for each of classes_ in that order.")
    return np.log(prior / prior.sum())
