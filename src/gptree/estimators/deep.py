"""A network and a GP-Tree on its embeddings, trained together: the scikit-learn face of `gptree.deep`."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gptree.deep import (
    Augmentation,
    Milestones,
    ObjectiveLayer,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Source,
    Trained,
    Training,
    TreeHead,
    VariationalTree,
    WeightedEnsemble,
    plot_curves,
    resnet18,
    train,
)
from gptree.deep import embed as embed_rows
from gptree.deep.loop.rows import split_rows
from gptree.deep.loop.task import Rows
from gptree.estimators import forest
from gptree.estimators.deep_inputs import Inputs, as_source, class_numbers, dtype_of, labels_of
from gptree.estimators.deep_storage import load_deep, save_deep
from gptree.estimators.forest import GPForestClassifier, GPTreeClassifier
from gptree.inference import PredictAt
from gptree.settings import require
from gptree.storage import DOCUMENT
from gptree.tree import ClassTree

Experiment = Literal["cifar", "cub", "mini-imagenet"]
ClassifierRows = Literal["trained", "held_out", "all"]


def _of_classifier(name: str) -> Callable[..., Any]:
    """A method of the fitted `classifier`, as one of the deep classifier: of its X it sees the embeddings."""
    method = getattr(GPForestClassifier, name)

    @wraps(method)
    def delegated(self: DeepGPTreeClassifier, *arguments: Any, **named: Any) -> Any:
        classifier = self._classifier_with(name)
        given = inspect.signature(method).bind(classifier, *arguments, **named)
        if "X" in given.arguments:
            given.arguments["X"] = self.embed(given.arguments["X"])
        result = getattr(classifier, name)(*given.args[1:], **given.kwargs)
        return self if result is classifier else result

    return delegated


def _of_fitted_classifier(name: str) -> property:
    """What the fitted `classifier` shows under a name."""
    return property(
        lambda self: getattr(self._classifier_with(name), name), doc=f"`{name}` of the fitted `classifier`."
    )


@dataclass(eq=False, repr=False)
class DeepGPTreeClassifier(ClassifierMixin, BaseEstimator):
    """A network that gives embeddings, and a GP-Tree on them; the fields are the parameters.

    backbone : any `nn.Module` from a batch of inputs to embeddings (B, d); a copy of it is trained.
    training : how the network is trained.
    variational : the variational head that is trained with it.
    kernel : of that head, by name or a GPyTorch kernel; None is RBF with output scale 4 and length-scale 1.
    tree : None, a builder, its name, a ClassTree or nested lists of labels; None is 2-means on the class means of the
        embeddings after the epochs of cross-entropy.
    augment : random changes of training pictures, where they are given in memory.
    predict_at : "quadrature" or "mean"
        Node probabilities integrated over the latent posterior, or at the latent mean.
    refit : sweeps of coordinate ascent, after training, that fit the variational head to the clean embeddings of the
        rows trained on; 0 for none.
    classifier : None, or an estimator
        None predicts with the variational head. An estimator, such as `GPForestClassifier(growth=Growth())`, is fitted
        to the clean embeddings of `classifier_rows`, and predicts instead. Then classes may arrive later: `add_classes`
        and the other operations are those of this estimator. If it has no random_state it gets one from here.
    classifier_rows : "trained", "held_out" or "all"
        Whose embeddings `classifier` is fitted to. The network knows the rows it was trained on by heart, so that a
        classifier fitted to them is too sure of others; the rows that `Training(validation=…)` held out are few,
        but like those to come. "all" tells it which were held out (its `fit` must take `held_out`, as those of
        GPForestClassifier and GPTreeClassifier do).
    random_state : int, RandomState or None; training in a folder, or in several processes, needs an int.
    device : "auto", "cpu" or "cuda".
    folder : for checkpoints, log and curves. An interrupted `fit` goes on from there, and one that is done is not
        trained again: another `classifier`, `refit` or `predict_at` costs no training.
    verbose : show a progress bar while training.

    Fitted, it has `network_`, `classes_`, `tree_`, `log_` (a row an epoch, see `gptree.deep.Trained`), `best_epoch_`,
    `rows_` (those trained on), `ensemble_` (the layers trained on top of the network that predict, a
    `gptree.deep.WeightedEnsemble`; None where `classifier` predicts), and `classifier_`, the fitted
    `classifier` or None.
    """

    backbone: nn.Module
    _: KW_ONLY
    training: Training = field(default_factory=Training)
    variational: VariationalTree = field(default_factory=VariationalTree)
    kernel: str | Kernel | None = None
    tree: Any = None
    augment: Sequence[Augmentation] = ()
    predict_at: PredictAt = "quadrature"
    refit: int = 0
    classifier: Any = None
    classifier_rows: ClassifierRows = "trained"
    random_state: Any = None
    device: str = "auto"
    folder: str | Path | None = None
    verbose: bool = False

    @classmethod
    def paper(cls, experiment: Experiment, backbone: nn.Module | None = None, **changes: Any) -> Self:
        """The settings of an experiment of the GP-Tree paper; parameters given by name take the place of its own.

        What the paper does not say: weight decay (5e-4), the crops for "cub" and "mini-imagenet" (random resized ones),
        the stem of the network for pictures of 84 pixels ("small"). For "cub" it begins with ImageNet weights: give a
        backbone that has them.
        """
        known = get_args(Experiment)
        require(experiment in known, f"experiment must be one of {known}, got {experiment!r}.")
        network, settings = _paper(experiment)
        return cls(resnet18(**network) if backbone is None else backbone, **{**settings, **changes})

    # ------------------------------------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, *, validation: tuple[Any, Any] | None = None) -> Self:
        """Fit to inputs X and labels y (n,). A failed fit leaves the estimator as it was.

        X : pictures in uint8, (n, C, H, W), (n, H, W, C) or (n, H, W), or floats (n, …), in an array or a tensor; or a
            torch Dataset of (x, label), or a source of `gptree.deep`, which may leave y to their own labels.
        validation : (X, y), in place of the share of X that `Training(validation=…)` sets aside to be measured after
            every epoch and to calibrate in the end; none of them in X, unless `Training(calibrate=False)` has them
            measured and no more.
        """
        before = dict(self.__dict__)
        try:
            self._fit(X, y, validation)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def _fit(self, X: Any, y: Any, validation: tuple[Any, Any] | None) -> None:
        self._check_parameters()
        dtype = dtype_of(self.backbone)
        source, training, validation_rows = as_source(X, dtype, self.augment), replace(self.training), None
        require(
            validation is None or (isinstance(validation, tuple | list) and len(validation) == 2),
            "validation is a pair (X, y).",
        )
        self.inputs_ = Inputs.of(source, dtype)
        self.labels_, codes = np.unique(labels_of(source, y), return_inverse=True)
        if validation is not None:
            others = self.inputs_.source(validation[0])
            validation_rows = others, class_numbers(labels_of(others, validation[1]), self.labels_)
            training = replace(training, validation=None)
        require(
            self.classifier_rows == "trained" or training.validation is not None,
            f'classifier_rows="{self.classifier_rows}" needs rows held out: set Training(validation=…), and give no '
            "validation to fit.",
        )
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        if self.classifier_rows == "all":
            self._check_held_back(codes, training)
        trained = train(
            self.backbone,
            source,
            codes,
            self.labels_.tolist(),
            training=training,
            head=replace(self.variational),  # `set_params` changes settings in place, and the fitted head has its own
            kernel=self.kernel,
            tree=self.tree,
            seed=self.seed_,
            device=self.device,
            folder=self.folder,
            progress=self.verbose,
            validation=validation_rows,
        )
        self.network_, self.log_, self.best_epoch_ = trained.network, trained.log, trained.best_epoch
        self.rows_ = trained.rows
        self._finish(trained, source, codes)

    def _finish(self, trained: Trained, source: Source, codes: np.ndarray) -> None:
        """What predicts, and what it still has to learn from the clean embeddings."""
        self.ensemble_: WeightedEnsemble | None = trained.ensemble if self.classifier is None else None
        self.classifier_: Any = None
        self.device_ = trained.ensemble.weights.device
        if self.ensemble_ is not None:
            if self.refit:
                self.ensemble_.first.refit(*self._clean(Rows(source, self.rows_, codes[self.rows_])), self.refit)
            as_trained = not self.refit and self._how in ((), ("quadrature",))  # and so were the weights chosen
            if not as_trained and self.training.calibrate and trained.held_out is not None:
                self.ensemble_.choose(*self._clean(trained.held_out), *self._how)
        else:
            everyone = np.arange(len(codes))
            held_out = np.setdiff1d(everyone, self.rows_)
            rows = {"trained": self.rows_, "held_out": held_out, "all": everyone}[self.classifier_rows]
            named = {"held_out": np.isin(everyone, held_out)} if self.classifier_rows == "all" else {}
            embeddings, _ = self._clean(Rows(source, rows, codes[rows]))
            classifier: Any = clone(self.classifier)
            if classifier.get_params(deep=False).get("random_state", 0) is None:
                classifier.set_params(random_state=self.seed_)  # one seed decides everything
            self.classifier_ = classifier.fit(embeddings.cpu().numpy(), self.labels_[codes[rows]], **named)
            if isinstance(self.classifier_, GPTreeClassifier | GPForestClassifier):  # explanations name rows of X
                self.classifier_.origins_[:, 1] = rows[self.classifier_.origins_[:, 1]]

    def _clean(self, some: Rows) -> tuple[Tensor, Tensor]:
        """Embeddings of clean inputs, and their classes."""
        classes = torch.as_tensor(some.y, device=self.device_)
        return embed_rows(self.network_, some.source, some.rows, self.device_), classes

    def _check_parameters(self) -> None:
        """What `train` does not look at, before any work is done."""
        for name, kind in (("backbone", nn.Module), ("training", Training), ("variational", VariationalTree)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, not {getattr(self, name)!r}.")
        for name, known in (("predict_at", get_args(PredictAt)), ("classifier_rows", get_args(ClassifierRows))):
            require(getattr(self, name) in known, f"{name} must be one of {known}, not {getattr(self, name)!r}.")
        whole = isinstance(self.refit, int | np.integer) and self.refit is not True and self.refit >= 0
        require(whole, f"refit is a number of sweeps, 0 for none, not {self.refit!r}.")
        able = all(hasattr(self.classifier, name) for name in ("fit", "predict_log_proba"))
        if self.classifier is not None and (isinstance(self.classifier, type) or not able):
            raise TypeError(f"classifier must be None or a classifier with predict_log_proba, not {self.classifier!r}.")
        require(
            self.classifier_rows != "all"
            or self.classifier is None
            or "held_out" in inspect.signature(self.classifier.fit).parameters,
            f'classifier_rows="all" names the rows that the network was not trained on, and the fit of '
            f'{self.classifier!r} has no held_out: set classifier_rows="held_out" or "trained".',
        )
        trained = self.classifier is None and self.training.trains_head
        require(
            trained or not self.refit,
            "refit is for the variational head, which must be trained (cross_entropy_epochs less than epochs) and "
            "predict (classifier=None): set refit=0.",
        )
        require(
            self.classifier is not None or self.classifier_rows == "trained",
            f'classifier_rows="{self.classifier_rows}" is about an estimator on the trained embedding: give a '
            "classifier, or leave classifier_rows.",
        )
        shared = self.folder is not None or int(os.environ.get("WORLD_SIZE", "1")) > 1
        require(
            self.random_state is not None or not shared,
            "training in a folder, or in several processes, needs a seed to go on with or to share: give random_state "
            "an int.",
        )

    def _check_held_back(self, codes: np.ndarray, training: Training) -> None:
        """What `held_out` asks for, before the network is trained."""
        _, held_out = split_rows(codes, self.labels_.tolist(), training.validation, self.seed_)
        counts = np.bincount(codes[held_out], minlength=len(self.labels_))
        require(
            counts.min() >= 2,
            'classifier_rows="all" needs two rows of every class held out, and there are fewer of '
            f"{self.labels_.tolist()[counts.argmin()]!r}: hold more back, such as Training(validation=2).",
        )

    # --------------------------------------------------------------------------------------------- prediction

    def embed(self, X: Any) -> np.ndarray:
        """Embeddings (n, d) of inputs, as the trained network gives them."""
        return self._embedded(X).cpu().numpy()

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Class log-probabilities (n, C), columns as in `classes_`."""
        embeddings, ensemble = self._embedded(X), self.ensemble_
        if ensemble is None:
            return self.classifier_.predict_log_proba(embeddings.cpu().numpy())
        return ensemble.log_probabilities(embeddings, *self._how).cpu().numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns as in `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each input."""
        return self.classes_[self.predict_log_proba(X).argmax(1)]

    @property
    def _how(self) -> tuple[str, ...]:
        """What `ensemble_` must know of how to predict."""
        return (self.predict_at,) if self.ensemble_ is not None and isinstance(self.ensemble_.first, TreeHead) else ()

    @property
    def classes_(self) -> np.ndarray:
        """Labels: sorted, and after them those that arrived later."""
        check_is_fitted(self)
        return self.labels_ if self.classifier_ is None else self.classifier_.classes_

    @property
    def tree_(self) -> ClassTree:
        """The class tree; node and class numbers refer to `classes_`."""
        check_is_fitted(self)
        if self.ensemble_ is None:
            return self.classifier_.tree_
        if isinstance(self.ensemble_.first, ObjectiveLayer):
            raise AttributeError("there is no tree: all epochs were cross-entropy (cross_entropy_epochs=epochs).")
        return self.ensemble_.first.tree

    @property
    def n_features_in_(self) -> int:
        """Numbers in an input, where inputs are vectors."""
        check_is_fitted(self)
        if len(self.inputs_.shape) != 1:
            raise AttributeError(f"inputs are no vectors of features: they have shape {self.inputs_.shape}.")
        return self.inputs_.shape[0]

    def curves(self, path: str | Path) -> None:
        """Draw loss, bound, accuracy and calibration over the epochs into a file."""
        check_is_fitted(self)
        plot_curves(self.log_).savefig(path)

    def _embedded(self, X: Any) -> Tensor:
        check_is_fitted(self)
        source = self.inputs_.source(X)
        return embed_rows(self.network_, source, np.arange(len(source)), self.device_)

    # ------------------------------------------------------------------------------------------ classes that arrive

    add_classes = _of_classifier("add_classes")
    add_examples = _of_classifier("add_examples")
    remove_classes = _of_classifier("remove_classes")
    rename_class = _of_classifier("rename_class")
    merge_classes = _of_classifier("merge_classes")
    undo = _of_classifier("undo")
    predict_open = _of_classifier("predict_open")
    novelty_score = _of_classifier("novelty_score")
    novelty_threshold = _of_classifier("novelty_threshold")
    suggest = _of_classifier("suggest")
    explain = _of_classifier("explain")
    journal_ = _of_fitted_classifier("journal_")
    sessions_ = _of_fitted_classifier("sessions_")
    memory_ = _of_fitted_classifier("memory_")

    def _classifier_with(self, name: str) -> Any:
        """The fitted `classifier`, which must have an attribute."""
        check_is_fitted(self)
        if not hasattr(self.classifier_, name):
            raise AttributeError(
                f"{name} needs a classifier that can do it, such as classifier=GPForestClassifier(growth=Growth()); "
                f"this model has classifier={self.classifier!r}. With a folder=…, fitting again with another "
                "classifier trains nothing again."
            )
        return self.classifier_

    # -------------------------------------------------------------------------------------------- save and load

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder: JSON and safetensors, no code. Safe against interruption.

        A fitted `classifier` is a model of its own in a folder within.
        """
        check_is_fitted(self)
        save_deep(self, folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        backbone: nn.Module | None = None,
        *,
        kernel: Kernel | None = None,
        device: str | None = None,
    ) -> Self:
        """Read an estimator; networks of your own code need one like it as `backbone`, kernels one as `kernel`."""
        return load_deep(cls, folder, backbone, kernel, device)


def load_model(
    folder: str | Path, *, backbone: nn.Module | None = None, kernel: Kernel | None = None, device: str | None = None
) -> Any:
    """Read whichever estimator a folder holds; its `load` says when a backbone or a kernel is needed."""
    path = Path(folder) / DOCUMENT
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["estimator"]
    except (OSError, ValueError, LookupError, TypeError):
        name = None  # reading it says what is wrong
    if name == DeepGPTreeClassifier.__name__:
        return DeepGPTreeClassifier.load(folder, backbone, kernel=kernel, device=device)
    require(backbone is None, f"{folder} holds no network, and needs no backbone.")
    return forest.load_model(folder, kernel=kernel, device=device)


def _paper(experiment: Experiment) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of the network, and of the estimator: new values every time, since `set_params` changes them in place."""
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
    return network, {
        "training": Training(**training, **shared, schedule=schedule),
        "variational": VariationalTree(inducing, step=0.05, learn_kernel="shared", node_weights="size"),
        "augment": (crop, RandomFlip()),
    }
