"""The fit of a deep classifier: the training, and then what predicts on the embedding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state

from gptree.deep import Source, Trained, train
from gptree.deep.loop.task import Rows, split_rows
from gptree.estimators.deep_checks import ClassifierRows, check_parameters, chosen_rows
from gptree.estimators.deep_growth import Embedded, base_session
from gptree.estimators.deep_inputs import Inputs, as_source, class_numbers, dtype_of, labels_of
from gptree.estimators.deep_state import DeepState
from gptree.estimators.forest import GPForestClassifier, GPTreeClassifier
from gptree.settings import require


def fit_deep(estimator: Any, X: Any, y: Any, validation: tuple[Any, Any] | None) -> DeepState:
    """What a `DeepGPTreeClassifier` learns from inputs and labels; the estimator stays as it is."""
    check_parameters(estimator)
    dtype = dtype_of(estimator.backbone)
    source, training, validation_rows = as_source(X, dtype, estimator.augment), estimator.training, None
    require(
        validation is None or (isinstance(validation, tuple | list) and len(validation) == 2),
        "validation is a pair (X, y).",
    )
    inputs = Inputs.of(source, dtype)
    labels, codes = np.unique(labels_of(source, y), return_inverse=True)
    if validation is not None:
        others = inputs.source(validation[0])
        validation_rows = others, class_numbers(labels_of(others, validation[1]), labels)
        training = replace(training, validation=None)
    seed = int(check_random_state(estimator.random_state).randint(np.iinfo(np.int32).max))
    validation_y = codes[split_rows(codes, labels.tolist(), training.validation, seed)[1]]
    if validation_rows is not None and training.calibrate:
        validation_y = validation_rows[1]
    classifier_rows = chosen_rows(estimator, validation_y, labels)
    trained = train(
        estimator.backbone,
        source,
        codes,
        labels.tolist(),
        training=training,
        head=estimator.variational,
        kernel=estimator.kernel,
        tree=estimator.tree,
        seed=seed,
        device=estimator.device,
        folder=estimator.folder,
        progress=estimator.verbose,
        validation=validation_rows,
    )
    state = DeepState(
        network=trained.network,
        labels=labels,
        inputs=inputs,
        seed=seed,
        device=trained.ensemble.weights.device,
        rows=trained.rows,
        log=trained.log,
        best_epoch=trained.best_epoch,
        ensemble=trained.ensemble,
    )
    if estimator.classifier is None:
        _finish_ensemble(estimator, state, trained, source, codes)
        return state
    learned, held_out = Rows(source, state.rows, codes[state.rows]), trained.held_out
    if validation_rows is not None and not training.calibrate:
        held_out = None  # given to be measured, and no more
    if classifier_rows == "inducing":
        classifier = _take_over_tree(estimator, state, learned, held_out)
    else:
        classifier = _fit_classifier(estimator, state, learned, held_out, classifier_rows)
    return replace(state, ensemble=None, classifier=classifier)


def _finish_ensemble(estimator: Any, state: DeepState, trained: Trained, source: Source, codes: np.ndarray) -> None:
    """Refit the variational head, and calibrate where predictions are not those of training."""
    assert state.ensemble is not None
    how = state.prediction_arguments(estimator.predict_at)
    if estimator.refit:
        state.head.refit(*state.clean(Rows(source, state.rows, codes[state.rows])), estimator.refit)
    as_trained = not estimator.refit and how in ((), ("quadrature",))  # and so were the weights chosen
    if not as_trained and estimator.training.calibrate and trained.held_out is not None:
        state.ensemble.choose(*state.clean(trained.held_out), *how)


def _take_over_tree(estimator: Any, state: DeepState, learned: Rows, held_out: Rows | None) -> Any:
    """The estimator with the trained tree as its base session."""
    trained = Embedded(*state.clean(learned))
    others = None if held_out is None else Embedded(*state.clean(held_out))
    if estimator.refit:
        state.head.refit(*trained, estimator.refit)
    how = {"calibrate": estimator.training.calibrate, "seed": state.seed}
    return base_session(estimator.classifier, state.head, state.labels, trained, state.rows, others, **how)


def _fit_classifier(
    estimator: Any, state: DeepState, learned: Rows, held_out: Rows | None, which: ClassifierRows
) -> Any:
    """The estimator on the clean embeddings of these rows; given validation rows are numbered after those of X."""
    kinds = {"trained": learned, "held_out": held_out}
    parts = [rows for name, rows in kinds.items() if rows is not None and which in (name, "all")]
    embeddings = torch.cat([state.clean(rows)[0] for rows in parts]).cpu().numpy()
    y = np.concatenate([rows.y for rows in parts])
    numbers = np.concatenate([r.rows + (0 if r.source is learned.source else len(learned.source)) for r in parts])
    named_rows = {"held_out": ~np.isin(numbers, learned.rows)} if which == "all" else {}
    classifier: Any = clone(estimator.classifier)
    if classifier.get_params(deep=False).get("random_state", 0) is None:
        classifier.set_params(random_state=state.seed)  # one seed decides everything
    classifier.fit(embeddings, state.labels[y], **named_rows)
    if isinstance(classifier, GPTreeClassifier | GPForestClassifier):  # explanations name rows of X
        origins = classifier.state_.origins.copy()
        origins[:, 1] = numbers[origins[:, 1]]
        classifier.state_ = replace(classifier.state_, origins=origins)
    return classifier
