"""`NetworkRival`, the base of methods whose network goes on training when classes arrive.

A method is one file: settings (a frozen `NetworkRivalSettings`) and a subclass of `NetworkRival` with a `name`, which
enters `NETWORK_RIVALS`. It has to write `_loss`; what else it may write, in the order in which it is called:

    _check()                        what is wrong with backbone and settings
    _classifier(layer)              the classifier of the base classes
    _begin(model, base, source, y)  the state after the base session: memory and means
    _rows(lesson)                   class rows (k, d) that the new classes of a session start with
    _train(lesson)                  gradient steps: `lesson.train(loss, …)`, once or in several phases
    _remember(model, …)             which pictures are kept
    _finished(lesson, state)        the state after a session: prototypes, drift
    _scores(state, features)        class scores, before temperature and softmax

States are values. A session works on copies, and the new state takes the place of the old one when all is done, so that
a failed session leaves everything as it was.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from gptree.deep import Arrays, Augmentation, Milestones, ObjectiveLayer, Source, Training, embed, train
from gptree.deep.data.base import key, spread
from gptree.deep.loop.checkpoints import ROWS_LOOKED_AT
from gptree.estimators.deep_inputs import Inputs, as_source, dtype_of, labels_of
from gptree.rivals.incremental.base import require_new
from gptree.rivals.networks.blocks import exemplar_means, imprinted, nearest_mean_scores
from gptree.rivals.networks.classifiers import SessionClassifier, unit_rows
from gptree.rivals.networks.lesson import ROWS, Lesson, Step
from gptree.rivals.networks.memory import Memory, herded_rows, raw_rows
from gptree.rivals.networks.model import BaseNetwork, Model, frozen, require_base, staged
from gptree.rivals.networks.sessions import SessionFolder, SessionState, lasting
from gptree.rivals.networks.settings import NetworkRivalSettings
from gptree.settings import SettingsParameters, require, require_whole

NETWORK_RIVALS: dict[str, type[NetworkRival[Any]]] = {}
"""Methods whose network goes on training, by name: each value takes a backbone and settings."""

#: Standard deviation of random class rows.
RANDOM_ROWS = 1e-3
#: Of base networks, as the GP-Tree paper trains those of its rivals.
BASE_TRAINING = Training(
    epochs=100, cross_entropy_epochs=100, schedule=Milestones((40, 60)), validation=None, calibrate=False
)

S = TypeVar("S", bound=NetworkRivalSettings)


class NetworkRival(SettingsParameters, ClassifierMixin, BaseEstimator, ABC, Generic[S]):
    """A method whose network goes on training when classes arrive.

    Parameters
    ----------
    backbone : nn.Module
        From a batch of inputs to features (B, d); copies of it are trained.
    settings : NetworkRivalSettings or None
        Of the method; None is its `tuned()`.
    training : Training
        Of the base network; its objective is that of the settings.
    augment : sequence of Augmentation
        Of pictures in the base session, where they are given in memory, and in later sessions.
    random_state : int
        The same seed gives the same probabilities.
    device : "auto", "cpu" or "cuda"
    folder : path or None
        For the training of the base network and the state after every session: a stream that was interrupted goes on
        from there, and sessions that are done are not learned again.

    Attributes
    ----------
    classes_ : ndarray (C,)
        Labels in order of arrival: the base sorted, then each session sorted.
    state_ : SessionState
    memory_bytes_ : int
        Of what is kept between sessions beside network and classifier.
    log_ : list of dict
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[NetworkRivalSettings]]

    state_: SessionState

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            other = NETWORK_RIVALS.get(cls.name)
            if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                raise TypeError(f"{other.__module__} has a rival {cls.name!r}: choose another name.")
            NETWORK_RIVALS[cls.name] = cls

    def __init__(
        self,
        backbone: nn.Module,
        settings: S | None = None,
        *,
        training: Training = BASE_TRAINING,
        augment: Sequence[Augmentation] = (),
        random_state: int = 0,
        device: str = "auto",
        folder: str | Path | None = None,
    ) -> None:
        self.backbone, self.settings, self.training, self.augment = backbone, settings, training, augment
        self.random_state, self.device, self.folder = random_state, device, folder

    # ------------------------------------------------------------------------------------------- what a method writes

    @abstractmethod
    def _loss(self, step: Step, lesson: Lesson) -> Tensor:
        """The loss of a step."""

    def _check(self) -> None:
        """Raise where backbone and settings do not go together."""
        require_whole("random_state", self.random_state, 0)
        if self._settings.session.trainable == "last-block":
            staged(self.backbone)

    def _classifier(self, layer: ObjectiveLayer) -> nn.Module:
        """The classifier of the base classes, from the layer of the objective: linear on unit features."""
        return SessionClassifier([unit_rows(layer)])

    def _begin(self, model: Model, base: BaseNetwork, source: Source, y: np.ndarray) -> SessionState:
        """The state after the base session, from the trained model and rows of classes y (n,)."""
        features = embed(model, source, np.arange(len(y)), self._device)
        quotas = self._settings.memory.quotas(len(base.labels), len(base.labels))
        chosen = herded_rows(features, y, quotas)
        memory = Memory(raw_rows(source, chosen), y[chosen])
        state = SessionState(model, base.labels, len(base.labels), memory, None, base.inputs)
        return replace(state, means=self._means(model, memory, len(base.labels), base.inputs))

    def _rows(self, lesson: Lesson) -> Tensor:
        """(k, d) the class rows that new classes start with."""
        count, old = int(lesson.y.max()) + 1 - lesson.n_old, lesson.teacher.classifier.weight
        if self._settings.new_rows == "random":
            random = torch.Generator().manual_seed(key(lesson.seed, lesson.session, ROWS))
            return RANDOM_ROWS * torch.randn(count, old.shape[1], generator=random, dtype=old.dtype).to(old.device)
        features = embed(lesson.teacher, lesson.arrays, lesson.new_rows, lesson.device)
        return imprinted(features, lesson.codes[lesson.memory :] - lesson.n_old, count, old)

    def _train(self, lesson: Lesson) -> None:
        """The steps of a session, on `lesson.student`."""
        settings = self._settings
        lesson.train(lambda step: self._loss(step, lesson), settings.session, freeze_old=settings.freeze_old)

    def _remember(self, model: Model, memory: Memory, pictures: Tensor, lesson: Lesson, n_base: int) -> Memory:
        """The memory after a session: old classes cut to their quotas, new ones herded with the model."""
        quotas = self._settings.memory.quotas(n_base, int(lesson.y.max()) + 1)
        y = lesson.y[lesson.memory :]
        features = embed(model, lesson.arrays, lesson.new_rows, self._device)
        chosen = herded_rows(features, y, quotas)
        kept = memory.cut(quotas)
        return Memory(torch.cat([kept.pictures, pictures[chosen]]), np.concatenate([kept.y, y[chosen]]))

    def _finished(self, lesson: Lesson, state: SessionState) -> SessionState:
        """The state after a session, with what the method keeps beside."""
        return state

    def _scores(self, state: SessionState, features: Tensor) -> Tensor:
        """(B, C) scores of features (B, d) before temperature and softmax, by the rule of the settings."""
        if self._settings.rule == "classifier":
            return state.model.classifier(features)
        require(state.means is not None, "nearest means need exemplars of every class: choose another memory or rule.")
        assert state.means is not None
        return nearest_mean_scores(features, state.means)

    # --------------------------------------------------------------------------------------------------------- base

    def train_base(self, X: Any, y: Any = None) -> BaseNetwork:
        """Train a network on the base classes, for this rival and for others whose settings have its objective.

        Parameters
        ----------
        X, y
            As for `fit`.

        Returns
        -------
        BaseNetwork
        """
        self._check()
        source, labels = self._base_source(X), self._labels(X, y)
        classes, codes = np.unique(labels, return_inverse=True)
        trained = train(
            self.backbone,
            source,
            codes,
            classes.tolist(),
            training=self.training.with_params(
                objective=self._settings.objective, cross_entropy_epochs=self.training.epochs
            ),
            seed=self.random_state,
            device=self.device,
            folder=None if self.folder is None else Path(self.folder) / "base",
        )
        layer = trained.objective_layer
        assert layer is not None
        inputs = Inputs.of(source, dtype_of(self.backbone))
        return BaseNetwork(trained.network, layer, classes, inputs, trained.log)

    def fit(self, X: Any, y: Any = None, *, base: BaseNetwork | None = None) -> Self:
        """The base session. A failed fit leaves the rival as it was.

        Parameters
        ----------
        X : array-like, Dataset or Source
            Pictures in uint8, (n, C, H, W), (n, H, W, C) or (n, H, W), or floats (n, …); or a data set of torch or a
            source of `gptree.deep`, whose own augmentation serves in the base session.
        y : array-like (n,), optional
            Labels; those of the source where it has them.
        base : BaseNetwork or None
            A network trained on these classes; None trains one.
        """
        self._check()
        labels = self._labels(X, y)
        classes, codes = np.unique(labels, return_inverse=True)
        require(len(classes) >= 2, "the base session needs at least two classes.")
        base = self.train_base(X, y) if base is None else base
        require_base(base, self._settings.objective, classes)
        source = base.inputs.source(X)
        base = base.to(self._device)
        before = frozen(Model(base.network, self._classifier(base.layer)))
        sessions = self._session_folder(before, labels, raw_rows(source, spread(len(labels), ROWS_LOOKED_AT)))
        state = sessions.read(0, before, base.inputs)
        if state is None:
            state = self._begin(before, base, source, codes)
            sessions.write(state, before)
        self.state_ = state
        return self

    # ----------------------------------------------------------------------------------------------------- sessions

    def add_classes(self, X: Any, y: Any = None) -> Self:
        """Learn new classes. A failed session leaves the rival as it was.

        Parameters
        ----------
        X, y
            As for `fit`; the rows are read once, without the augmentation of a source. Labels that are known already
            are an error.
        """
        check_is_fitted(self, "state_")
        source = self.state_.inputs.source(X)
        labels = labels_of(source, y)
        require(len(labels) == len(source), f"X has {len(source)} rows and y {len(labels)}.")
        new, codes = np.unique(labels, return_inverse=True)
        require_new(new, self.state_.classes)
        pictures = raw_rows(source, np.arange(len(source)))
        before = self.state_
        sessions = self._session_folder(before.model, before.classes, before.memory.pictures, pictures, labels)
        state = sessions.read(before.session + 1, before.model, before.inputs)
        if state is None:
            state = self._learn(before, pictures, new, codes)
            sessions.write(state, before.model)
        self.state_ = state
        return self

    def _learn(self, state: SessionState, pictures: Tensor, new: np.ndarray, codes: np.ndarray) -> SessionState:
        """The state after a session with new classes `new` (k,), of rows with codes (n,) among them."""
        n_old, memory, inputs = len(state.classes), state.memory, state.inputs
        lesson = Lesson(
            student=copy.deepcopy(state.model),
            teacher=state.model,
            arrays=self._arrays(torch.cat([memory.pictures, pictures]), inputs),
            y=np.concatenate([memory.y, n_old + codes]),
            memory=len(memory.y),
            n_old=n_old,
            session=state.session + 1,
            seed=self.random_state,
            device=self._device,
            log=[],
            extra=state.extra,
        )
        lesson.student.classifier.grow(self._rows(lesson))
        self._train(lesson)
        model, classes = frozen(lesson.student), np.concatenate([state.classes, new])
        memory = self._remember(model, memory, pictures, lesson, state.n_base)
        after = replace(
            state,
            model=model,
            classes=classes,
            memory=memory,
            means=self._means(model, memory, len(classes), inputs),
            log=[*state.log, *lesson.log],
        )
        return self._finished(lesson, after)

    def _means(self, model: Model, memory: Memory, n_classes: int, inputs: Inputs) -> Tensor | None:
        """Means of the exemplars with the present network, where every class has some."""
        if len(np.unique(memory.y)) < n_classes:
            return None
        rows, y = np.arange(len(memory.y)), torch.as_tensor(memory.y, device=self._device)
        features = embed(model, self._arrays(memory.pictures, inputs), rows, self._device)
        mirrored = None
        if self._settings.mirror and memory.pictures.dim() == 4:
            mirrored = embed(model, self._arrays(memory.pictures.flip(3), inputs), rows, self._device)
        return exemplar_means(features, mirrored, y, n_classes)

    # --------------------------------------------------------------------------------------------------- prediction

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Class log-probabilities (n, C), columns in the order of `classes_`."""
        check_is_fitted(self, "state_")
        state, source = self.state_, self.state_.inputs.source(X)
        with torch.no_grad():
            features = embed(state.model, source, np.arange(len(source)), self._device)
            scores = self._scores(state, features).double() / self._settings.temperature
            return scores.log_softmax(1).cpu().numpy()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities (n, C), columns in the order of `classes_`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The likeliest label of each row (n,)."""
        return self.classes_[self.predict_log_proba(X).argmax(1)]

    @property
    def classes_(self) -> np.ndarray:
        """Labels in order of arrival."""
        check_is_fitted(self, "state_")
        return self.state_.classes

    @property
    def log_(self) -> list[dict[str, Any]]:
        """A row a training of the sessions."""
        check_is_fitted(self, "state_")
        return self.state_.log

    @property
    def memory_bytes_(self) -> int:
        """Bytes kept between sessions beside network and classifier: pictures, and what the method adds."""
        check_is_fitted(self, "state_")
        return self.state_.memory.nbytes + sum(tensor.nbytes for tensor in self.state_.extra.values())

    # -------------------------------------------------------------------------------------------------------- parts

    @property
    def _settings(self) -> S:
        settings: Any = self.settings_type.tuned() if self.settings is None else self.settings
        kind = self.settings_type
        require(isinstance(settings, kind), f"settings of {type(self).__name__} are {kind.__name__}, not {settings!r}.")
        return settings

    @property
    def _device(self) -> torch.device:
        has_cuda = torch.cuda.is_available()
        require(self.device in ("auto", "cpu", "cuda"), f'device must be "auto", "cpu" or "cuda", not {self.device!r}.')
        require(self.device != "cuda" or has_cuda, 'there is no CUDA device: use device="auto" or "cpu".')
        return torch.device("cuda" if has_cuda and self.device != "cpu" else "cpu")

    def _session_folder(self, *made_from: Any) -> SessionFolder:
        return SessionFolder(
            self.folder, self.name, lasting(self._settings), self.random_state, self.augment, *made_from
        )

    def _base_source(self, X: Any) -> Source:
        in_memory = not hasattr(X, "batches") and not isinstance(X, torch.utils.data.Dataset)
        return as_source(X, dtype_of(self.backbone), self.augment if in_memory else ())

    def _labels(self, X: Any, y: Any) -> np.ndarray:
        source = as_source(X, dtype_of(self.backbone))
        labels = labels_of(source, y)
        require(len(labels) == len(source), f"X has {len(source)} rows and y {len(labels)}.")
        return labels

    def _arrays(self, pictures: Tensor, inputs: Inputs) -> Arrays:
        return Arrays(pictures, self.augment if pictures.dim() == 4 else (), mean=inputs.mean, std=inputs.std)
