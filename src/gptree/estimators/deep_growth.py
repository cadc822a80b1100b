"""The tree that was trained with a network, as the base session of a `GPTreeClassifier` that grows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils import check_random_state
from torch import Tensor

from gptree.deep import TreeHead
from gptree.deep.heads.forest import as_forest, latent_scale
from gptree.estimators.feature_map import make_feature_map
from gptree.estimators.forest import GPTreeClassifier
from gptree.estimators.known_rows import query_signs
from gptree.estimators.state import FittedState
from gptree.incremental import BaseState, Entry, Growth, Novelty
from gptree.incremental.exemplars import select_exemplars
from gptree.maths.sphere import unit_length
from gptree.model import distance_rows, known_signs, left_out_predictions
from gptree.tree import label_hashes


class Embedded(NamedTuple):
    """Inputs without augmentation, on the device of the head."""

    x: Tensor
    """(n, d) embeddings."""
    y: Tensor
    """(n,) class numbers."""


def base_session(
    classifier: GPTreeClassifier,
    head: TreeHead,
    labels: np.ndarray,
    trained: Embedded,
    rows: np.ndarray,
    held_out: Embedded | None,
    *,
    calibrate: bool,
    seed: int,
) -> GPTreeClassifier:
    """A classifier with the parameters given whose base session is the trained tree; no node is fitted.

    Parameters
    ----------
    classifier : GPTreeClassifier
        With zero prior means, on features of unit length. Its kernel and inference are for nodes to come.
    head : TreeHead
        Its posteriors are those of the base nodes; of its inducing points, at most as many of each class as the
        classifier's growth says are exemplars.
    labels : (C,)
    trained, rows : Embedded and int array (n,)
        The rows trained on, and their numbers.
    held_out : Embedded or None
        Rows not trained on: how strange these are to the tree is how strange known rows are.
    calibrate : bool
        Whether they also choose how confident the tree is.
    seed : int
        Where the classifier has no random_state.
    """
    fitted: Any = clone(classifier)
    if fitted.random_state is None:
        fitted.random_state = seed
    scale = latent_scale(head, *held_out, fitted.predict_at) if calibrate and held_out is not None else 1.0
    # paper section 3.4
    model = as_forest(head, fitted._placement(), fitted._memory_bytes(), scale)
    Z = model.predictor.grams.X
    points, y, keys = Z.cpu().numpy(), head.point_class.cpu().numpy(), tuple(labels.tolist())
    examples, codes = unit_length(trained.x.cpu().numpy()), trained.y.cpu().numpy()
    seed = int(check_random_state(fitted.random_state).randint(np.iinfo(np.int32).max))
    growth = Growth() if fitted.growth is None else fitted.growth
    chosen = select_exemplars(points, y, growth.exemplars, growth.selection, label_hashes(keys), seed).rows
    counts, nearest = _examples(points, y, examples, codes)
    base = BaseState(
        keys=keys,
        model=model,
        expert=None,
        y=torch.as_tensor(y, device=Z.device),
        stands_for=torch.as_tensor(counts + 0.5).to(Z),
        exemplars=torch.as_tensor(chosen, device=Z.device),
        exemplar_weights=torch.as_tensor(_examples(points[chosen], y[chosen], examples, codes)[0] + 0.5).to(Z),
        left_out=None,
        novel_experts=None,
    )
    fitted.n_features_in_ = points.shape[1]
    fitted.state_ = FittedState(
        classes=labels,
        seed=seed,
        feature_map=make_feature_map("unit").fit(points),
        model=model,
        experts=None,
        left_out=None,
        y=y,
        origins=np.stack([np.zeros_like(nearest), rows[nearest]], 1),
        journal=(Entry("fit", keys, tuple(np.bincount(codes).tolist())),),
        base=base,
    )
    novelty = _novelty(fitted, base, trained if held_out is None else held_out)
    fitted.state_ = replace(fitted.state_, base=replace(base, novelty=novelty))
    return fitted


def _examples(points: np.ndarray, y: np.ndarray, X: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For points (P, d) of classes y: how many examples X (n, d) of their class are nearest to each, and its nearest.

    Everything is of unit length.
    """
    counts, nearest = np.zeros(len(y)), np.zeros(len(y), dtype=np.int64)
    for c in np.unique(y):
        of_class, members = np.flatnonzero(y == c), np.flatnonzero(codes == c)
        similarity = X[members] @ points[of_class].T
        counts[of_class] = np.bincount(similarity.argmax(1), minlength=len(of_class))
        nearest[of_class] = members[similarity.argmax(0)]
    return counts, nearest


def _novelty(fitted: GPTreeClassifier, base: BaseState, known: Embedded) -> Novelty:
    """How strange known rows are to the base session, and its points, each left out as growing leaves them out."""
    y, X = base.y.cpu().numpy(), known.x.cpu().numpy()
    points = left_out_predictions(base.model, y, predict_at=fitted.predict_at, dense=False)
    found = known_signs(points, fitted.state_.on_sphere(base.X), y, distance_rows(y, base.n_classes))
    query, classes = fitted._query(X), known.y.to(base.y.device)
    familiarity = base.model.familiarity(query.features, query.log_p.argmax(1))
    strange = query_signs(query, familiarity, found.distances)
    own = torch.as_tensor(query.log_p).to(points.familiarity).gather(1, classes[:, None])[:, 0]
    return Novelty(
        torch.cat([found.known, strange]).to(points.own),
        found.variance_weight,
        torch.cat([base.y, classes]),
        base.exemplars,
        torch.cat([points.own, own]),
    )
