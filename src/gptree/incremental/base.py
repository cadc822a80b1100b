"""The base session of a model that will grow: what is fitted, and what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from gptree.experts import (
    ALONE,
    LDA,
    Examples,
    ExemplarScores,
    Expert,
    Fit,
    FitScores,
    FittedExpert,
    FittedPool,
    FittedRandomFeatures,
    FittedSingle,
    KernelDensity,
    LeftOutScores,
    Pool,
    RandomFeatures,
    Ridge,
    few_rows,
    in_chunks,
)
from gptree.experts.calibration import weighted_mean
from gptree.experts.examples import MANY_CLASSES
from gptree.experts.wrong_labels import ONE_SHOT_WEIGHT, label_beliefs, likelihood_weights
from gptree.incremental.episodes import RANDOM_LDA, learn_novel_experts
from gptree.incremental.exemplars import Exemplars, select_exemplars
from gptree.incremental.memorised import class_spreads
from gptree.incremental.state import BaseState, Novelty
from gptree.incremental.strategies import Growth
from gptree.inference import (
    CoordinateAscent,
    FixedInducingPoints,
    Grams,
    InducingPoints,
    Inference,
    NodePredictor,
    PredictAt,
    on_rows,
)
from gptree.model import (
    Distances,
    ForestModel,
    LeftOut,
    PathOdds,
    TrainingData,
    distance_rows,
    even,
    fit_forest,
    known_signs,
    left_out_predictions,
    row_scores,
)
from gptree.progress import Progress, silent
from gptree.tree import ClassTree, label_hashes

#: Many examples a class and one covariance: less shrinkage is needed than with few.
BASE_LDA = LDA(shrinkages=(0.02, 0.05, 0.1, 0.2, 0.5, 0.9))
#: Up to so many classes a base session looks at its examples when it is fitted, which takes a fifth longer; with
#: more, when it is first asked.
LOOKS_AT_ONCE = 500
#: With 180 classes of CUB it was a third of a base session, for an NLL of 0.005 at left-out rows.
BASE_RIDGE = RandomFeatures(
    Ridge(penalties=(10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4), most_classes=150), count=2_000, unit_length=False
)


def base_experts(n_classes: int) -> Pool:
    """What ``prior_mean="experts"`` is in a base session: experts for many examples a class.

    Of very many classes two experts, which score rows fast.
    """
    if n_classes > MANY_CLASSES:
        return Pool((BASE_LDA, KernelDensity()), eases=False)
    return Pool((BASE_LDA, replace(RANDOM_LDA, expert=BASE_LDA), BASE_RIDGE, KernelDensity()), eases=False)


def fit_base(
    X: Tensor,
    y: np.ndarray,
    labels: Sequence[Any],
    trees: Sequence[ClassTree],
    kernel_for: Callable[[float], Kernel],
    inference: Inference,
    growth: Growth,
    *,
    expert: Expert | None,
    predict_at: PredictAt,
    on_sphere: Callable[[Tensor], Tensor],
    held_out: np.ndarray | None = None,
    weights: Tensor | None = None,
    memory_budget: int,
    n_jobs: int | None,
    seed: int,
    progress: Progress = silent,
) -> tuple[BaseState, np.ndarray, np.ndarray | None]:
    """Fit the base classes, learn what novel classes will need, and keep the exemplars alone; also their rows in X.

    The third are the log-frequencies (C,) of the classes, which prior means at the examples express, if there are any.

    Nodes see all examples, through the exemplars of their classes as inducing points. An inference without such a
    form (Gibbs sampling) leaves the base to coordinate ascent, as in the paper, and is for classes that arrive later.
    Where some examples are `held_out` (n,), the others are for the experts alone. `expert` gives the prior means of the
    base classes, or None for zero means. `weights` (n,) say how many times each example counts; at the nodes, times the
    belief that its label is right. `kernel_for` gives the kernel, from the mean number of nats by which the experts'
    left-out scores of an example differ over the classes; infinity unless classes have few examples.
    """
    hashes = label_hashes(labels)
    seen = _Seen(X, on_sphere(X), torch.as_tensor(y, device=X.device), weights)
    progress("choosing exemplars", None)
    exemplars = select_exemplars(
        seen.sphere.cpu().numpy(), y, growth.exemplars, growth.selection, hashes, seed, held_out, _numpy(weights)
    )
    fit = None
    if expert is not None:
        progress("fitting experts", None)
        fit = _base_experts(expert, seen, len(labels), exemplars, held_out)
    several = torch.bincount(seen.codes, minlength=len(labels)) > 1
    spreads = class_spreads(seen.sphere, seen.codes, len(labels), weights) if held_out is None else None
    everyone, places, few = seen, exemplars.rows, few_rows(len(X), len(labels))
    if held_out is not None:
        chosen = torch.as_tensor(held_out, device=X.device)
        seen = seen.some(chosen)
        fit = None if fit is None else fit.some(chosen.nonzero()[:, 0])
        places = np.cumsum(held_out)[places] - 1
    said, novel_experts = _Said(), None
    if fit is not None:
        said = _said(fit, seen, len(labels), trees, few, progress)
        progress("rehearsing novel classes", None)
        of_base = everyone.sphere, everyone.codes, exemplars, hashes
        novel_experts = learn_novel_experts(*of_base, growth, seed, fit.expert, held_out, weights, said.beliefs)
    likelihood = likelihood_weights(seen.weights, said.weights)
    model = fit_forest(
        trees,
        TrainingData(seen.X, seen.y, labels, said.odds, likelihood, inducing=places),
        kernel_for(said.spread),
        inference if inference.sparse else CoordinateAscent(),
        large_nodes=FixedInducingPoints(inducing=512, fewer=InducingPoints().points),
        memory_budget=memory_budget,
        n_jobs=n_jobs,
        seed=seed,
        progress=progress,
    )
    rows = torch.as_tensor(places, device=X.device)
    kept, masses = seen.some(rows), torch.as_tensor(exemplars.weights).to(X)
    novelty = None
    if len(rows) < len(seen.codes):  # the others are looked at while they are there
        progress("looking for strangers", None)
        found = left_out_predictions(
            model, seen.y, said.left_out, likelihood, predict_at, dense=False, learnt_prior=said.learnt
        )
        novelty = _novelty(found, seen.sphere, seen.codes, places[distance_rows(kept.y, len(labels))], rows)
    base = BaseState(
        keys=tuple(labels),
        model=_on_rows(model, rows),
        expert=None if fit is None else fit.expert,
        y=kept.codes,
        stands_for=masses,
        exemplars=torch.arange(len(rows), device=X.device),
        exemplar_weights=masses,
        left_out=None if fit is None else _scores_kept(fit, rows, kept, masses, several, said.left_out),
        novel_experts=novel_experts,
        novelty=novelty,
        spreads=spreads,
        weights=kept.weights,
        beliefs=None if said.beliefs is None else said.beliefs[rows],
    )
    if len(labels) <= LOOKS_AT_ONCE:
        base_novelty(base, predict_at, on_sphere, said.frequencies)  # most of a first `predict_open`
    return base, exemplars.rows, said.frequencies


class _Seen(NamedTuple):
    """Examples of a base session."""

    X: Tensor
    sphere: Tensor
    """As the experts see them."""
    codes: Tensor
    """Class numbers."""
    weights: Tensor | None
    """How many times each counts."""

    def some(self, rows: Tensor) -> _Seen:
        return _Seen(*(None if each is None else each[rows] for each in self))  # pyright: ignore[reportArgumentType]

    @property
    def y(self) -> np.ndarray:
        return self.codes.cpu().numpy()


@dataclass(frozen=True)
class _Said:
    """What the experts say of the examples that the nodes see; by default there are none."""

    left_out: FitScores | None = None
    odds: PathOdds | None = None
    weights: Tensor | None = None
    """Likelihood weights: the beliefs, or next to nothing where no class has two examples."""
    beliefs: Tensor | None = None
    """That their labels are right."""
    frequencies: np.ndarray | None = None
    """The log-frequencies (C,) of the classes, which are in the odds."""
    spread: float = math.inf

    @property
    def learnt(self) -> Tensor | None:
        """The same where they are not even."""
        none = self.frequencies is None or even(self.frequencies)
        return None if none else torch.as_tensor(self.frequencies)


def _said(fit: Fit, seen: _Seen, n_classes: int, trees: Sequence[ClassTree], few: bool, progress: Progress) -> _Said:
    """The left-out scores of the examples, and what they say about the decisions of the trees and about the labels."""
    y = seen.y
    advance = progress("scoring rows", len(y))
    left_out = FitScores(fit.expert, seen.sphere, seen.codes, n_classes, fit=fit)
    if n_classes == 1:
        return _Said(left_out)
    counts = np.bincount(y, _numpy(seen.weights))
    said = _Said(left_out, frequencies=np.log(counts / counts.sum()))
    # nodes must not learn how large classes are, see `fit_prior`
    prior = None if said.learnt is None else said.learnt.to(seen.X)
    found = row_scores(in_chunks(left_out), y, seen.X, trees, prior, spread=few, unsure=True, advance=advance)
    said = replace(said, odds=found.odds)
    if not bool(fit.usable.any()):  # as in `fit_prior`
        return replace(said, weights=torch.full_like(seen.sphere[:, 0], ONE_SHOT_WEIGHT))
    about = found.own, n_classes, fit.usable, few
    _, beliefs = label_beliefs(*about, counts=seen.weights, unsure=found.unsure)
    spread = math.inf if found.spread is None else float(weighted_mean(found.spread, seen.weights))
    return replace(said, weights=beliefs, beliefs=beliefs, spread=spread)


def _scores_kept(
    fit: Fit, rows: Tensor, kept: _Seen, masses: Tensor, several: Tensor, seen: FitScores | None
) -> Tensor | LeftOutScores:
    """Left-out scores of the exemplars `rows`: computed from the experts where these have them, or as they are.

    If they are all that was `seen`, they are known already.
    """
    scores = exemplar_scores(fit.expert, kept.sphere, kept.codes, len(several), masses, kept.weights)
    if scores is not None and torch.equal(scores.sizes > 1, several):
        return scores if seen is None or len(seen) > len(rows) else scores.knowing(seen[rows])
    return fit.some(rows).left_out.to(kept.X.dtype)


def base_novelty(
    base: BaseState,
    predict_at: PredictAt,
    on_sphere: Callable[[Tensor], Tensor],
    log_frequencies: np.ndarray | None = None,
    distances: Distances | None = None,
) -> Novelty:
    """How strange the examples of the base session were to its model.

    A base session that kept exemplars alone has looked at all its examples. One of few classes that has them all looks
    when it is fitted; once loaded, or for another `predict_at`, when it is first asked, as a model fitted without
    growth does.
    `log_frequencies` (C,) are those that prior means at its rows express, and `distances` those from its rows, where
    they are there already.
    """
    if base.novelty is not None:
        return base.novelty
    if predict_at not in base._novelty:
        y = base.y.cpu().numpy()
        learnt = None
        if base.left_out is not None and log_frequencies is not None and not even(log_frequencies):
            learnt = torch.as_tensor(log_frequencies)
        given = y, base.left_out, base.likelihood, predict_at
        seen = left_out_predictions(base.model, *given, base.staying, dense=False, learnt_prior=learnt)
        points = distance_rows(y, base.n_classes)
        base._novelty[predict_at] = _novelty(seen, on_sphere(base.X), base.y, points, base.exemplars, distances)
    return base._novelty[predict_at]


def _novelty(
    seen: LeftOut,
    sphere: Tensor,
    y: Tensor,
    points: np.ndarray,
    exemplars: Tensor,
    distances: Distances | None = None,
) -> Novelty:
    """Of examples of classes y (n,), the regression of the signs being on some of them (m,)."""
    found = known_signs(seen, sphere, y.cpu().numpy(), points, distances)
    return Novelty(found.known.to(seen.own), found.variance_weight, y, exemplars, seen.own)


def base_of(
    model: ForestModel,
    expert: FittedExpert | None,
    left_out: Tensor | LeftOutScores | None,
    y: np.ndarray,
    labels: Sequence[Any],
    growth: Growth,
    seed: int,
    on_sphere: Callable[[Tensor], Tensor],
    held_out: bool,
    weights: Tensor | None = None,
    beliefs: Tensor | None = None,
) -> BaseState:
    """A model that was fitted without growth, with all its examples, as the base of one that grows."""
    X = model.predictor.grams.X
    sphere, hashes = on_sphere(X), label_hashes(labels)
    exemplars = select_exemplars(
        sphere.cpu().numpy(), y, growth.exemplars, growth.selection, hashes, seed, weights=_numpy(weights)
    )
    if expert is not None and left_out is None:
        left_out = expert.log_probabilities(sphere)
    codes = torch.as_tensor(y, device=X.device)
    return BaseState(
        keys=tuple(labels),
        model=model,
        expert=expert,
        y=codes,
        stands_for=X.new_ones(len(X)) if weights is None else weights,
        exemplars=torch.as_tensor(exemplars.rows, device=X.device),
        exemplar_weights=torch.as_tensor(exemplars.weights).to(X),
        left_out=left_out,
        novel_experts=None,
        spreads=None if held_out else class_spreads(sphere, codes, len(labels), weights),
        weights=weights,
        beliefs=beliefs,
    )


def with_novel_experts(base: BaseState, growth: Growth, seed: int, on_sphere: Callable[[Tensor], Tensor]) -> BaseState:
    """The base of a model that still has all its examples, after rehearsing with them for classes to come."""
    assert base.expert is not None
    exemplars = Exemplars(base.exemplars.cpu().numpy(), base.exemplar_weights.cpu().numpy())
    hashes = label_hashes(base.keys)
    about = on_sphere(base.X), base.y, exemplars, hashes, growth, seed, base.expert
    novel_experts = learn_novel_experts(*about, weights=base.weights, beliefs=base.beliefs)
    return replace(base, novel_experts=novel_experts)


def exemplar_scores(
    expert: FittedExpert, X: Tensor, y: Tensor, n_classes: int, stands_for: Tensor, weights: Tensor | None
) -> ExemplarScores | None:
    """Left-out log-probabilities at the exemplars of a base session; None if the expert does not have them.

    A class of one example has one exemplar, which stands for no other, see `Exemplars`.
    """
    own = torch.ones_like(stands_for) if weights is None else weights
    others = stands_for.new_zeros(n_classes).index_add_(0, y, stands_for - own - own.clamp(max=1) / 2)
    several = (torch.bincount(y, minlength=n_classes) > 1) | (others > 1e-3 * own.min())
    scores = ExemplarScores(expert, X, y, n_classes, weights, sizes=1 + several.long())
    return scores if scores.known else None


def left_out_again(base: BaseState, on_sphere: Callable[[Tensor], Tensor]) -> LeftOutScores | None:
    """Left-out log-probabilities at the rows of a base from its experts; None if these do not have them."""
    assert base.expert is not None
    about = base.expert, on_sphere(base.X), base.y, base.n_classes
    if torch.equal(base.stands_for, base.exemplar_weights):  # a base session, of which exemplars alone are kept
        return exemplar_scores(*about, base.stands_for, base.weights)
    return LeftOutScores(*about, base.weights) if base.expert.knows_left_out(*about[1:3]) else None


def _numpy(weights: Tensor | None) -> np.ndarray | None:
    return None if weights is None else weights.cpu().numpy()


def _base_experts(
    expert: Expert, seen: _Seen, n_classes: int, exemplars: Exemplars, held_out: np.ndarray | None
) -> Fit:
    """The expert fitted to base examples, keeping exemplars alone; left out by single examples."""
    if n_classes == 1:
        none = torch.zeros_like(seen.codes, dtype=torch.bool)
        return Fit(FittedSingle(), seen.sphere.new_zeros(len(seen.codes), 1), none)
    rows, masses = (torch.as_tensor(values, device=seen.X.device) for values in exemplars)
    calibration = None if held_out is None else torch.as_tensor(held_out, device=seen.X.device)
    alone = torch.full_like(seen.codes, ALONE)
    about = {"folds": alone, "calibration": calibration, "weights": seen.weights, "more_to_come": True}
    examples = Examples.of(seen.sphere, seen.codes, n_classes, **about)
    fit = expert.on_exemplars(rows, masses).fit(examples)
    return replace(fit, expert=_lighter(fit.expert))


def _lighter(expert: FittedExpert) -> FittedExpert:
    """Random features in single precision: the widest of all that is kept and computed, and rough by nature."""
    if isinstance(expert, FittedPool):
        return replace(expert, experts=tuple(map(_lighter, expert.experts)))
    return expert.single() if isinstance(expert, FittedRandomFeatures) else expert


def _on_rows(model: ForestModel, rows: Tensor) -> ForestModel:
    """A model whose posteriors need these rows of its features only, over them only."""
    grams, posteriors = model.predictor.grams, model.predictor.posteriors
    place = rows.new_full((len(grams.X),), len(rows))  # where there is none
    place[rows] = torch.arange(len(rows), device=rows.device)
    fewer = Grams(grams.kernel, grams.X[rows].clone(), model.memory_budget)
    moved = [on_rows(p, place) for p in posteriors]
    return replace(model, predictor=NodePredictor(fewer, moved, model.memory_budget))
