"""Reading whichever model a folder holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpytorch.kernels import Kernel
from torch import nn

from gptree.estimators.deep import DeepGPTreeClassifier
from gptree.estimators.forest import TREE_CLASSIFIERS
from gptree.estimators.storage import load_estimator
from gptree.settings import require
from gptree.storage import DOCUMENT, parse_document


def load_model(
    folder: str | Path,
    *,
    backbone: nn.Module | None = None,
    kernel: Kernel | None = None,
    settings: Sequence[type] = (),
    device: str | None = None,
) -> Any:
    """Read the estimator that a folder holds: a tree, a forest or a deep classifier.

    Parameters
    ----------
    folder : path
        Written by `save`.
    backbone : nn.Module, optional
        A network like the saved one, where only your own code can make it; its parameters are set from the file.
    kernel : gpytorch.kernels.Kernel, optional
        A kernel like the saved one, where only your own code can make it; its parameters are set from the file.
    settings : list of classes
        Settings classes of your own that the model was fitted with, such as an inference, unless their module has been
        imported.
    device : "auto", "cpu" or "cuda", optional
        Where the model goes; None is the device it was saved with.

    Returns
    -------
    GPTreeClassifier, GPForestClassifier or DeepGPTreeClassifier

    Raises
    ------
    gptree.storage.StorageError
        If the folder holds no model, a damaged one, or one of a version that cannot be read.
    """
    try:
        name = parse_document((Path(folder) / DOCUMENT).read_bytes(), folder)["estimator"]
    except (OSError, ValueError, LookupError, TypeError):
        name = None  # reading it below raises the right error
    if name == DeepGPTreeClassifier.__name__:
        return DeepGPTreeClassifier.load(folder, backbone, kernel=kernel, settings=settings, device=device)
    require(backbone is None, f"{folder} holds no network, and needs no backbone.")
    return load_estimator(folder, TREE_CLASSIFIERS, kernel, settings, device)
