"""The base session of a model that will grow: what is fitted, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from gptree.experts.examples import MANY_CLASSES
from gptree.experts.wrong_labels import likelihood_weights
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
    ExpertPrior,
    ForestModel,
    LeftOut,
    TrainingData,
    distance_rows,
    expert_prior,
    fit_forest,
    known_signs,
    learnt_prior,
    left_out_predictions,
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
    given = _Rows(X, on_sphere(X), torch.as_tensor(y, device=X.device), weights)
    progress("choosing exemplars", None)
    how = growth.exemplars, growth.selection, hashes, seed, held_out, _numpy(weights)
    exemplars = select_exemplars(given.sphere.cpu().numpy(), y, *how)
    fit = None if expert is None else _base_experts(expert, given, len(labels), exemplars, held_out, progress)
    rows, places = _at_nodes(given, exemplars, held_out)
    prior, novel_experts = ExpertPrior(), None
    if fit is not None:
        prior = _prior(fit, rows, len(labels), trees, few_rows(len(X), len(labels)), progress)
        progress("rehearsing novel classes", None)
        rehearsed = given.sphere, given.codes, exemplars, hashes, growth, seed, fit.expert
        novel_experts = learn_novel_experts(*rehearsed, held_out, weights, prior.beliefs)
    likelihood = likelihood_weights(rows.weights, prior.weights)
    model = fit_forest(
        trees,
        TrainingData(rows.X, rows.y, labels, prior.odds, likelihood, inducing=places),
        kernel_for(prior.spread),
        inference if inference.sparse else CoordinateAscent(),
        large_nodes=FixedInducingPoints(inducing=512, fewer=InducingPoints().points),
        memory_budget=memory_budget,
        n_jobs=n_jobs,
        seed=seed,
        progress=progress,
    )
    base = _kept(labels, model, fit, prior, given, rows, places, exemplars)
    spreads = class_spreads(given.sphere, given.codes, len(labels), weights) if held_out is None else None
    base = replace(base, novel_experts=novel_experts, spreads=spreads)
    if len(places) < len(rows.y):  # the others are looked at while they are there
        base = replace(base, novelty=_all_novelty(model, prior, rows, likelihood, places, predict_at, progress))
    if len(labels) <= LOOKS_AT_ONCE:
        base_novelty(base, predict_at, on_sphere, prior.log_frequencies)  # most of a first `predict_open`
    return base, exemplars.rows, prior.log_frequencies


class _Rows(NamedTuple):
    """Examples of a base session."""

    X: Tensor
    sphere: Tensor
    """As the experts see them."""
    codes: Tensor
    """Class numbers."""
    weights: Tensor | None
    """How many times each counts."""

    def some(self, rows: Tensor) -> _Rows:
        return _Rows(*(None if each is None else each[rows] for each in self))  # pyright: ignore[reportArgumentType]

    @property
    def y(self) -> np.ndarray:
        return self.codes.cpu().numpy()


def _at_nodes(given: _Rows, exemplars: Exemplars, held_out: np.ndarray | None) -> tuple[_Rows, np.ndarray]:
    """The examples that the nodes see, and which of them are the exemplars."""
    if held_out is None:
        return given, exemplars.rows
    return given.some(torch.as_tensor(held_out, device=given.X.device)), np.cumsum(held_out)[exemplars.rows] - 1


def _prior(
    fit: Fit, rows: _Rows, n_classes: int, trees: Sequence[ClassTree], few: bool, progress: Progress
) -> ExpertPrior:
    """What the experts say of the examples that the nodes see."""
    advance = progress("scoring rows", len(rows.codes))
    left_out = FitScores(fit.expert, rows.sphere, rows.codes, n_classes, fit=fit)
    if n_classes == 1:
        return ExpertPrior(left_out=left_out)
    about = in_chunks(left_out), fit.usable, rows.y, rows.X, trees, n_classes, few
    prior = expert_prior(*about, counts=rows.weights, more_to_come=True, advance=advance)
    return replace(prior, left_out=left_out)


def _all_novelty(
    model: ForestModel,
    prior: ExpertPrior,
    rows: _Rows,
    likelihood: Tensor | None,
    places: np.ndarray,
    predict_at: PredictAt,
    progress: Progress,
) -> Novelty:
    """How strange all examples were that the nodes saw; the exemplars are at `places` among them."""
    progress("looking for strangers", None)
    learnt = learnt_prior(prior.log_frequencies)
    found = left_out_predictions(
        model, rows.y, prior.left_out, likelihood, predict_at, dense=False, learnt_prior=learnt
    )
    points = places[distance_rows(rows.y[places], model.trees[0].n_classes)]
    return _novelty(found, rows.sphere, rows.codes, points, torch.as_tensor(places, device=rows.X.device))


def _kept(
    labels: Sequence[Any],
    model: ForestModel,
    fit: Fit | None,
    prior: ExpertPrior,
    given: _Rows,
    rows: _Rows,
    places: np.ndarray,
    exemplars: Exemplars,
) -> BaseState:
    """The exemplars alone, which are at `places` among the rows that the nodes saw of those that were given."""
    several = torch.bincount(given.codes, minlength=len(labels)) > 1
    at = torch.as_tensor(places, device=rows.X.device)
    kept, masses = rows.some(at), torch.as_tensor(exemplars.weights).to(rows.X)
    return BaseState(
        keys=tuple(labels),
        model=_on_rows(model, at),
        expert=None if fit is None else fit.expert,
        y=kept.codes,
        stands_for=masses,
        exemplars=torch.arange(len(at), device=at.device),
        exemplar_weights=masses,
        left_out=None if fit is None else _scores_kept(fit, at, kept, masses, several, prior.left_out),
        novel_experts=None,
        weights=kept.weights,
        beliefs=None if prior.beliefs is None else prior.beliefs[at],
        likelihood=likelihood_weights(kept.weights, None if prior.weights is None else prior.weights[at]),
    )


def _scores_kept(
    fit: Fit, rows: Tensor, kept: _Rows, masses: Tensor, several: Tensor, seen: Tensor | LeftOutScores | None
) -> Tensor | LeftOutScores:
    """Left-out scores of the exemplars `rows`: computed from the experts where these have them, or as they are.

    If they are all that was `seen`, they are known already.
    """
    scores = exemplar_scores(fit.expert, kept.sphere, kept.codes, len(several), masses, kept.weights)
    if scores is not None and torch.equal(scores.sizes > 1, several):
        return scores.knowing_rows(seen, rows) if isinstance(seen, LeftOutScores) and len(seen) == len(rows) else scores
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
        learnt = None if base.left_out is None else learnt_prior(log_frequencies)
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
        likelihood=likelihood_weights(weights, beliefs),
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
    expert: Expert,
    given: _Rows,
    n_classes: int,
    exemplars: Exemplars,
    held_out: np.ndarray | None,
    progress: Progress,
) -> Fit:
    """The expert fitted to base examples, keeping exemplars alone; scores of those that the nodes see, each alone."""
    progress("fitting experts", None)
    calibration = None if held_out is None else torch.as_tensor(held_out, device=given.X.device)
    if n_classes == 1:
        none = torch.zeros_like(given.codes, dtype=torch.bool)
        fit = Fit(FittedSingle(), given.sphere.new_zeros(len(given.codes), 1), none)
    else:
        rows, masses = (torch.as_tensor(values, device=given.X.device) for values in exemplars)
        alone = torch.full_like(given.codes, ALONE)
        about = {"folds": alone, "calibration": calibration, "weights": given.weights, "more_to_come": True}
        examples = Examples.of(given.sphere, given.codes, n_classes, **about)
        fit = expert.on_exemplars(rows, masses).fit(examples)
        fit = replace(fit, expert=_lighter(fit.expert))
    return fit if calibration is None else fit.some(calibration.nonzero()[:, 0])


def _lighter(expert: FittedExpert) -> FittedExpert:
    """Random features in single precision: the widest of all that is kept and computed, and rough by nature."""
    if isinstance(expert, FittedPool):
        return replace(expert, experts=tuple(map(_lighter, expert.experts)))
    return expert.single() if isinstance(expert, FittedRandomFeatures) else expert


def _on_rows(model: ForestModel, rows: Tensor) -> ForestModel:
    """A model whose posteriors need these rows of its features only, over them only."""
    grams, posteriors = model.predictor.grams, model.predictor.posteriors
    place = rows.new_zeros(len(grams.X))  # padding, which says nothing, may be a row that is gone
    place[rows] = torch.arange(len(rows), device=rows.device)
    fewer = Grams(grams.kernel, grams.X[rows].clone(), model.memory_budget)
    moved = [on_rows(p, place) for p in posteriors]
    return replace(model, predictor=NodePredictor(fewer, moved, model.memory_budget))
