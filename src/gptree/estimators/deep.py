"""Deep classifier: a network and a GP-Tree on its embeddings, trained together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import nn

from gptree.deep import Augmentation, Training, VariationalTree, plot_curves
from gptree.estimators.deep_checks import ClassifierRows, require_no_weights
from gptree.estimators.deep_fit import fit_deep
from gptree.estimators.deep_frozen import freeze_deep
from gptree.estimators.deep_operations import classifier_with, of_classifier, of_fitted_classifier
from gptree.estimators.deep_presets import Experiment, Version, preset
from gptree.estimators.deep_state import DeepState
from gptree.estimators.deep_storage import load_deep, save_deep
from gptree.estimators.explain import path_matrix
from gptree.estimators.frozen import FrozenClassifier
from gptree.estimators.state import fitted_value
from gptree.estimators.top_k import TopK, check_top, top_k
from gptree.incremental import Growth
from gptree.inference import PredictAt
from gptree.settings import SettingsParameters
from gptree.storage import write_figure
from gptree.tree import ClassTree, TreeBuilder


@dataclass(eq=False, repr=False)
class DeepGPTreeClassifier(SettingsParameters, ClassifierMixin, BaseEstimator):
    """A network that gives embeddings, and a GP-Tree on them, trained together.

    Parameters
    ----------
    backbone : nn.Module
        From a batch of inputs to embeddings (B, d); a copy of it is trained.
    training : Training
        How the network is trained.
    variational : VariationalTree
        The variational head that is trained with it.
    kernel : None, "linear", "rbf", "matern52" or a GPyTorch kernel
        Of that head. None is an RBF kernel with length-scale 1 and output scale 4, the paper's; the forest, whose
        Gaussian processes start from experts, has 10.
    tree : None, a builder, its name, a ClassTree or nested lists of labels
        None is 2-means on the class means of the embeddings after the epochs of cross-entropy.
    augment : sequence of augmentations
        Random changes of training pictures, where they are given in memory.
    predict_at : "quadrature" or "mean"
        Node probabilities integrated over the latent posterior, or at the latent mean. The head has no experts, so
        that it integrates, as the paper does.
    refit : int
        Sweeps of coordinate ascent, after training, that fit the variational head to the clean embeddings of the rows
        trained on; 0 for none. For a head that predicts, or that `classifier` takes over.
    classifier : None or an estimator
        None predicts with the variational head. An estimator, such as `GPForestClassifier(growth=Growth())`, is fitted
        to the clean embeddings of `classifier_rows`, and predicts instead. Then classes may arrive later: `add_classes`
        and the other operations are those of this estimator. If it has no random_state it gets one from here.
    classifier_rows : None, "trained", "held_out", "all" or "inducing"
        Whose embeddings `classifier` is fitted to. The network knows the rows it was trained on by heart, so that a
        classifier fitted to them is too sure of others; the validation rows are few, but like those to come. "all" fits
        to all rows and names those held out: the estimator's `fit` must take `held_out`, as those of GPForestClassifier
        and GPTreeClassifier do. None is "all" for such an estimator where two rows of every class are held out, and
        "trained" otherwise. "inducing" fits nothing: a GPTreeClassifier with zero
        prior means takes over the trained tree as its base session, and the inducing points as its exemplars, as in the
        paper. Its kernel and inference are for the nodes of classes that arrive; `Training(calibrate=True)` chooses how
        confident the tree is on the rows held out.
    random_state : int, RandomState or None
        Training in a folder, or in several processes, needs an int.
    device : "auto", "cpu" or "cuda"
    folder : path, optional
        For checkpoints, log and curves. An interrupted `fit` goes on from there, and one that is done is not trained
        again: another `classifier`, `refit` or `predict_at` costs no training.
    verbose : bool
        Show a progress bar while training.

    Attributes
    ----------
    classes_ : ndarray (C,)
        Labels in the order of the columns of `predict_proba`.
    network_ : nn.Module
        The trained network.
    ensemble_ : WeightedEnsemble or None
        The layers on top of the network that predict; None where `classifier` predicts.
    classifier_ : estimator or None
        The fitted `classifier`.
    tree_, kernel_, diagnostics_
        As on `GPTreeClassifier`, of what predicts.
    log_ : list of dict
        A row an epoch, see `gptree.deep.Trained`.
    best_epoch_ : int
    rows_ : ndarray
        The rows trained on.
    state_ : DeepState
        Everything that was learnt, as one frozen value.

    Examples
    --------
    >>> from gptree import DeepGPTreeClassifier
    >>> from gptree.deep import convnet
    >>> model = DeepGPTreeClassifier(convnet(embedding=32, channels=1))
    """

    families: ClassVar[Mapping[str, Any]] = {"tree": TreeBuilder}

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
    classifier_rows: ClassifierRows | None = None
    random_state: Any = None
    device: str = "auto"
    folder: str | Path | None = None
    verbose: bool = False
    state_: DeepState = field(init=False)

    @classmethod
    def paper(
        cls,
        experiment: Experiment,
        backbone: nn.Module | None = None,
        *,
        growth: bool | Growth = False,
        version: Version = "published",
        **changes: Any,
    ) -> Self:
        """The settings of an experiment of the GP-Tree paper.

        What the paper does not say: weight decay (5e-4), the crops for "cub" and "mini-imagenet" (random resized ones),
        the stem of the network for pictures of 84 pixels ("small"), the number of chains (10 of one step). For "cub" it
        begins with ImageNet weights: give a backbone that has them.

        Parameters
        ----------
        experiment : "cifar", "cub" or "mini-imagenet"
        backbone : nn.Module, optional
            None is the paper's ResNet-18.
        growth : bool or Growth
            Whether classes may arrive after `fit`. In the paper the inducing points are what is kept of the base
            classes, and new nodes are sampled, with an RBF kernel of length-scale 1 and output scale 8.
        version : "published", "corrected" or "defaults"
            As published; the same model trained with cross-entropy beside the bound, calibrated on rows held out and
            with chains of 20 steps; or the network of that with a forest around experts on its embedding.
        **changes : dict
            Parameters that take the place of these.

        Returns
        -------
        DeepGPTreeClassifier

        Examples
        --------
        >>> from gptree import DeepGPTreeClassifier
        >>> from gptree.deep import convnet
        >>> model = DeepGPTreeClassifier.paper("cub", convnet(), growth=True)
        >>> model.classifier_rows
        'inducing'
        """
        return cls(**{**preset(experiment, version, growth, backbone), **changes})

    # ------------------------------------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any = None, *, validation: tuple[Any, Any] | None = None, **unknown: Any) -> Self:
        """Fit to inputs and labels. A failed fit leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, Dataset or Source
            Pictures in uint8, (n, C, H, W), (n, H, W, C) or (n, H, W), or floats (n, …), in an array or a tensor; or a
            torch Dataset of (x, label), or a source of `gptree.deep`, which may leave y to their own labels.
        y : array-like (n,), optional
            Labels.
        validation : (X, y), optional
            In place of the share of X that `Training(validation=…)` sets aside to be measured after every epoch and to
            calibrate in the end; none of them in X, unless `Training(calibrate=False)` has them measured and no more.
        **unknown : dict
            Nothing else: weights of rows are refused, since the batches of a training count every row once.

        Returns
        -------
        self
        """
        require_no_weights(unknown)
        self.state_ = fit_deep(self, X, y, validation)
        return self

    # --------------------------------------------------------------------------------------------- prediction

    def embed(self, X: Any) -> np.ndarray:
        """Embeddings of inputs, as the trained network gives them.

        Parameters
        ----------
        X : inputs, as in `fit`

        Returns
        -------
        ndarray (n, d)
        """
        return self._state().embed(X).cpu().numpy()

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Class log-probabilities.

        Parameters
        ----------
        X : inputs, as in `fit`

        Returns
        -------
        ndarray (n, C)
            Columns as in `classes_`.
        """
        return self._state().predict_log_proba(X, self.predict_at)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities.

        Parameters
        ----------
        X : inputs, as in `fit`

        Returns
        -------
        ndarray (n, C)
            Columns as in `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable label of each input.

        Parameters
        ----------
        X : inputs, as in `fit`

        Returns
        -------
        ndarray (n,)
        """
        state = self._state()
        return state.classes[state.predict_log_proba(X, self.predict_at).argmax(1)]

    def predict_top_k(self, X: Any, k: int) -> TopK:
        """The k most probable labels of each input, and what is left for all others.

        Parameters
        ----------
        X : inputs, as in `fit`
        k : int
            At most the number of classes.

        Returns
        -------
        TopK
            Named tuple of `classes` (n, k), `probabilities` (n, k) and `outside` (n,).
        """
        state = self._state()
        check_top(k, len(state.classes))
        return top_k(state.classes, np.exp(state.predict_log_proba(X, self.predict_at)), k)

    def freeze(self, dtype: str | None = None) -> FrozenClassifier:
        """The prediction alone, as a torch module: inputs (n, …) in, class probabilities (n, C) out.

        Network and what predicts on its embeddings, as they are now. Pictures in uint8 are (n, C, H, W) and are
        normalised as those of `fit` were.

        Parameters
        ----------
        dtype : "float64", "float32" or None
            What it computes in; None is as network and classifier do. Where these compute in double precision it
            equals `predict_proba` to 1e-12, otherwise to about 1e-5.

        Returns
        -------
        FrozenClassifier

        Raises
        ------
        NotFrozenError
            A TypeError that names the part that is code: a kernel or a `classifier` of your own. A network of your own
            goes along.
        """
        return freeze_deep(self._state(), self.predict_at, dtype)

    def decision_path(self, X: Any) -> scipy.sparse.csr_array:
        """The nodes of `tree_` on the path of each input's predicted class.

        Parameters
        ----------
        X : inputs, as in `fit`

        Returns
        -------
        sparse array of bool (n, nodes)
        """
        return path_matrix(self.tree_, self.predict_log_proba(X).argmax(1))

    def curves(self, path: str | Path) -> None:
        """Draw loss, bound, accuracy and calibration over the epochs.

        Parameters
        ----------
        path : path
            Of the picture.
        """
        write_figure(Path(path), plot_curves(self._state().log))

    # ------------------------------------------------------------------------------------------------ fitted values

    def _state(self) -> DeepState:
        check_is_fitted(self)
        return self.state_

    classes_ = fitted_value("classes", "Labels: sorted, and after them those that arrived later.")
    network_ = fitted_value("network", "The trained network.")
    ensemble_ = fitted_value("ensemble", "The layers on top of the network that predict; None where `classifier` does.")
    classifier_ = fitted_value("classifier", "The fitted `classifier`, or None.")
    log_ = fitted_value("log", "A row an epoch, see `gptree.deep.Trained`.")
    best_epoch_ = fitted_value("best_epoch", "The epoch whose state was kept.")
    rows_ = fitted_value("rows", "The rows trained on.")

    @property
    def tree_(self) -> ClassTree:
        """The class tree; node and class numbers refer to `classes_`."""
        state = self._state()
        return classifier_with(self, "tree_").tree_ if state.ensemble is None else state.head.tree

    @property
    def kernel_(self) -> Kernel:
        """The kernel that was fitted."""
        state = self._state()
        return classifier_with(self, "kernel_").kernel_ if state.ensemble is None else state.head.kernel

    @property
    def diagnostics_(self) -> dict[str, np.ndarray]:
        """Of the fitted `classifier`; of the variational head the inducing points and the kind of each node."""
        state = self._state()
        if state.ensemble is None:
            return classifier_with(self, "diagnostics_").diagnostics_
        points = np.bincount(state.head.point_class.cpu().numpy(), minlength=len(state.labels))
        members = [points[state.head.tree.members(node)].sum() for node in range(state.head.tree.n_nodes)]
        return {"inducing_points": np.array(members), "posterior": np.full(len(members), "sparse")}

    @property
    def n_features_in_(self) -> int:
        """Numbers in an input, where inputs are vectors."""
        shape = self._state().inputs.shape
        if len(shape) != 1:
            raise AttributeError(f"inputs are no vectors of features: they have shape {shape}.")
        return shape[0]

    # ------------------------------------------------------------------------------------------ classes that arrive

    add_classes = of_classifier("add_classes")
    add_examples = of_classifier("add_examples")
    remove_classes = of_classifier("remove_classes")
    rename_class = of_classifier("rename_class")
    merge_classes = of_classifier("merge_classes")
    undo = of_classifier("undo")
    predict_set = of_classifier("predict_set")
    predict_coarse = of_classifier("predict_coarse")
    predict_open = of_classifier("predict_open")
    novelty_score = of_classifier("novelty_score")
    predict_with_novelty = of_classifier("predict_with_novelty")
    novelty_threshold = of_classifier("novelty_threshold")
    suggest = of_classifier("suggest")
    explain = of_classifier("explain")
    posterior = of_classifier("posterior")
    journal_ = of_fitted_classifier("journal_")
    sessions_ = of_fitted_classifier("sessions_")
    memory_ = of_fitted_classifier("memory_")

    # -------------------------------------------------------------------------------------------- save and load

    def save(self, folder: str | Path) -> None:
        """Write the fitted estimator into a folder: JSON and safetensors, no code. Safe against interruption.

        A fitted `classifier` is a model of its own in a folder within.

        Parameters
        ----------
        folder : path
            New, empty, or one that holds a model already, which is replaced as a whole.
        """
        self._state()
        save_deep(self, folder)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        backbone: nn.Module | None = None,
        *,
        kernel: Kernel | None = None,
        settings: Sequence[type] = (),
        device: str | None = None,
    ) -> Self:
        """Read an estimator of this class; see `gptree.load_model`, which reads any."""
        return load_deep(cls, folder, backbone, kernel, settings, device)
