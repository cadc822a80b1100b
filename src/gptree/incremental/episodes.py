"""Episodes: base classes play novel ones, so that the experts for novel classes can be chosen in the base session.

An episode takes some of the base classes for novel ones: they keep as many examples as a novel class comes with, the
others most of theirs, and held-out examples of both are queries. Every setting of the experts for novel classes is
chosen by the log-likelihood of the queries of all episodes, in the base session; nothing is tuned later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from gptree.experts import (
    LDA,
    Examples,
    FittedExpert,
    FittedKernelDensity,
    FittedLDA,
    FittedPool,
    FittedRandomFeatures,
    KernelDensity,
    KernelRidge,
    NovelClassExperts,
    RandomFeatures,
    best_temperature,
    distances_to_classes,
    exemplar_density,
    fit_weights,
    lda_scores,
    root_log_odds,
    temperature_centre,
    weighted_mean,
)
from gptree.experts.calibration import TIE
from gptree.experts.novel import RIDGE
from gptree.experts.products import working_dtype
from gptree.incremental.exemplars import Exemplars, root_rows, select_exemplars
from gptree.incremental.strategies import Growth

#: Shares of the base classes that become novel, one episode each; of more classes than this, only the first and last.
NOVEL_SHARES = (0.1, 0.2, 0.35, 0.5)
MANY_CLASSES = 100
#: Queries of a class, at most; base classes keep at least four fifths of their examples.
MAX_QUERIES = 12
KEPT_SHARE = 0.8
#: Queries × classes of an episode, at most, unless that leaves fewer than the second number of queries.
MAX_SCORES = 2**17
MIN_QUERIES = 500
#: Base classes that take part in episodes, at most; their labels choose which.
MOST_CLASSES = 2_000
#: Points on which penalties of ridge regression are compared, at most.
RIDGE_POINTS = 1_000

SHRINKAGES = (0.05, 0.2, 0.5, 0.7, 0.9, 1.0)
COUNT_WEIGHTS = (0.0, 0.15, 0.5, 1.0)
RANDOM_LDA = RandomFeatures(LDA(), count=1_000)


@dataclass(frozen=True, eq=False)
class Episode:
    """Base classes are numbered 0 … B − 1 here, those taken for novel B … C − 1."""

    base: Examples
    exemplars: Exemplars
    shots: Tensor
    shot_labels: Tensor
    shot_weights: Tensor
    queries: Tensor
    labels: Tensor
    weights: Tensor
    n_classes: int
    rows: tuple[Tensor, Tensor, Tensor]
    """Which of all examples the base, the shots and the queries are."""

    @property
    def n_base(self) -> int:
        return self.base.n_classes


def learn_novel_experts(
    X: Tensor,
    y: Tensor,
    exemplars: Exemplars,
    hashes: np.ndarray,
    growth: Growth,
    seed: int,
    base: FittedExpert,
    held_out: np.ndarray | None = None,
    weights: Tensor | None = None,
    beliefs: Tensor | None = None,
) -> NovelClassExperts:
    """Rehearse on base examples X (n, d) of unit length with class numbers y (n,).

    Where some are `held_out` (n,), novel classes and queries are made of these. What the experts
    of base and novel classes have in common is taken from `base`, once for both. `weights` (n,) say how many times each
    example counts, and `beliefs`, of all of them or of those held out, that their labels are right: queries count so.
    """
    examples = Examples.of(X, y, len(hashes), weights=weights)
    rows = torch.as_tensor(exemplars.rows, device=X.device)
    masses = torch.as_tensor(exemplars.weights, device=X.device)
    lda, random_lda = _discriminants(examples, base)
    density = exemplar_density(X[rows], y[rows], masses, len(hashes))

    shares = list(enumerate(NOVEL_SHARES))
    shares = shares if len(hashes) <= MANY_CLASSES else [shares[0], shares[-1]]
    asked = X.new_ones(len(X)) if weights is None else weights.to(X)
    if beliefs is not None:
        believed = slice(None) if held_out is None else torch.as_tensor(held_out, device=X.device)
        asked = asked.clone()
        asked[believed] *= beliefs.to(X)
    players = _players(X, y, hashes, held_out, weights, asked)
    episodes = [make_episode(*players[:3], share, growth, [seed, k], *players[3:]) for k, share in shares]
    episodes = [episode for episode in episodes if episode is not None]
    choices = [
        _choose_lda(episodes, lda, players[0]),
        _choose_lda(episodes, random_lda.expert, random_lda.features(players[0]).to(working_dtype(len(X), X.dtype))),
        _choose_density(episodes, density),
    ]
    ridge: dict[str, float] = {}
    if RIDGE.pays(len(hashes)):
        choices.append(_choose_ridge(episodes, X[rows]))
        ridge = choices[-1].settings
    logs = [torch.stack([choice.logs[e] for choice in choices]) for e in range(len(episodes))]
    root_weights, bias = _root_pool(logs, episodes, len(choices), X)
    learnt = NovelClassExperts(
        lda=choices[0].apply(lda),
        random_lda=replace(random_lda, expert=choices[1].apply(random_lda.expert)),
        density=choices[2].apply(density),
        ridge_penalty=ridge.get("penalty"),
        ridge_temperature=ridge.get("temperature"),
        root_weights=root_weights,
        bias=bias,
        novel_weights=_novel_pool(logs, episodes, len(choices), X),
        trusts_labels=False,
    )
    asked = root_rows(y[rows], hashes)
    return learnt.with_base_mass(examples.weights[rows], asked if len(asked) < len(rows) else None)


def _discriminants(examples: Examples, base: FittedExpert) -> tuple[FittedLDA, FittedRandomFeatures]:
    """LDA on the features and on random features: those among the base experts, or else new ones.

    Experts that learned from other examples too, which are no longer there, have another covariance than the episodes.
    """

    def usable(expert: FittedExpert) -> bool:
        return isinstance(expert, FittedLDA) and torch.equal(expert.counts.to(examples.counts), examples.counts)

    parts = _parts(base)
    lda: Any = next(filter(usable, parts), None) or FittedLDA.of(examples)
    random = [e for e in parts if isinstance(e, FittedRandomFeatures) and usable(e.expert)]
    if random:
        return lda, random[0]
    like = examples.X[:1].to(working_dtype(len(examples), examples.X.dtype))
    empty = FittedRandomFeatures(lda, RANDOM_LDA.projection(like), RANDOM_LDA.unit_length)
    features = Examples.of(empty.features(examples.X), examples.y, examples.n_classes, weights=examples.weights)
    return lda, replace(empty, expert=FittedLDA.of(features)).single()


def _parts(expert: FittedExpert) -> list[FittedExpert]:
    """The experts of a pool, also of pools in it; a single expert alone."""
    parts, waiting = [], [expert]
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, FittedPool):
            waiting.extend(part.experts)
        else:
            parts.append(part)
    return parts


Players = tuple[Tensor, Tensor, np.ndarray, np.ndarray | None, Tensor | None, Tensor]


def _players(
    X: Tensor, y: Tensor, hashes: np.ndarray, held_out: np.ndarray | None, weights: Tensor | None, asked: Tensor
) -> Players:
    """The same of at most `MOST_CLASSES` classes, numbered anew."""
    if len(hashes) <= MOST_CLASSES:
        return X, y, hashes, held_out, weights, asked
    classes = np.sort(np.argsort(hashes)[:MOST_CLASSES])
    chosen = torch.as_tensor(classes, device=y.device)
    rows = torch.isin(y, chosen)
    held_out = None if held_out is None else held_out[rows.cpu().numpy()]
    weights = None if weights is None else weights[rows]
    return X[rows], torch.searchsorted(chosen, y[rows]), hashes[classes], held_out, weights, asked[rows]


def make_episode(
    X: Tensor,
    y: Tensor,
    hashes: np.ndarray,
    share: float,
    growth: Growth,
    seed: list[int],
    held_out: np.ndarray | None = None,
    weights: Tensor | None = None,
    asked_weights: Tensor | None = None,
) -> Episode | None:
    """One episode, or None if there is only one class; as a query an example may count another number of times."""
    C = len(hashes)
    if C < 2:
        return None
    random = np.random.default_rng(seed)
    n_novel = min(max(1, round(share * C)), C - 1)
    order = random.permutation(C)
    order = np.concatenate([np.sort(order[n_novel:]), np.sort(order[:n_novel])])
    n_base = C - n_novel
    codes = y.cpu().numpy()
    counted = X.new_ones(len(X)) if weights is None else weights.to(X)
    usable = np.ones(len(codes), dtype=bool) if held_out is None else held_out
    by_class = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes, minlength=C))[:-1])
    kept, shots, queries = [], [], []
    for place, c in enumerate(order):
        drawn = random.permutation(by_class[c])
        rows = drawn[usable[drawn]]
        n = len(rows)
        if place < n_base:
            asked = len(drawn) - max(int(KEPT_SHARE * len(drawn)), 1)
            keep = max(n - min(asked, MAX_QUERIES), (n + 1) // 2)  # exemplars come from these
            kept.append(np.concatenate([rows[:keep], drawn[~usable[drawn]]]))
        else:
            keep = min(growth.shots, max(n - 1, 1))
            shots.append(rows[:keep])
        queries.append(rows[keep : keep + MAX_QUERIES])
    numbers = torch.as_tensor(np.argsort(order)[codes], device=X.device)
    counted_as = counted if asked_weights is None else asked_weights
    asked = np.concatenate(queries)
    asked = asked[counted_as.cpu().numpy()[asked] > 0]  # those whose label is not believed at all ask nothing
    asked = np.sort(random.permutation(asked)[: max(MAX_SCORES // C, MIN_QUERIES)])

    known = np.concatenate(kept)
    at_base, at_shots, at_queries = (
        torch.as_tensor(each, device=X.device) for each in (known, np.concatenate(shots), asked)
    )

    def taken(at: Tensor, weights: Tensor = counted) -> tuple[Tensor, Tensor, Tensor]:
        return X[at], numbers[at], weights[at]

    base_X, base_y, base_weights = taken(at_base)
    base = Examples.of(base_X, base_y, n_base, weights=base_weights)
    exemplars = select_exemplars(
        base.X.cpu().numpy(),
        base.y.cpu().numpy(),
        growth.exemplars,
        growth.selection,
        hashes[order[:n_base]],
        seed[0],
        among=usable[known],
        weights=None if weights is None else base_weights.cpu().numpy(),
    )
    queries_of = taken(at_queries, counted_as)
    return Episode(base, exemplars, *taken(at_shots), *queries_of, C, (at_base, at_shots, at_queries))


# ------------------------------------------------------------------------------------------------- settings of experts


@dataclass(frozen=True)
class _Choice:
    settings: dict[str, float]
    logs: list[Tensor]
    """For each episode, log-probabilities of its queries (Q, C)."""

    def apply(self, fitted: Any) -> Any:
        return replace(fitted, **self.settings)


def _best(
    candidates: list[tuple[dict[str, float], list[Tensor]]], episodes: list[Episode], probe: Callable[[], Tensor]
) -> _Choice:
    """Of settings and the scores they give the queries, those with the least NLL, and the temperature.

    Where there is no query the last candidate is taken, the smoothest, with the temperature that the spread of the
    scores of `probe` suggests.
    """
    labels, weights = (
        torch.cat([getattr(e, name) for e in episodes]) if episodes else torch.tensor([])
        for name in ("labels", "weights")
    )
    if not len(labels):
        settings, scores = candidates[-1]
        temperature = temperature_centre(probe(), spread=2.0)
    else:
        tempered = []
        for settings, scores in candidates:
            together = torch.cat(scores)
            centre = temperature_centre(together, 2.0, weights)
            tempered.append((*best_temperature(together, labels, centre, weights), settings, scores))
        least = min(nll for _, nll, *_ in tempered)  # of settings that say the same, the first
        temperature, _, settings, scores = next(each for each in tempered if each[1] <= least + TIE)
    logs = [(temperature * each).log_softmax(1) for each in scores]
    return _Choice({**settings, "temperature": temperature}, logs)


def _choose_lda(episodes: list[Episode], whole: FittedExpert, X: Tensor) -> _Choice:
    """λ, the weight of the count term and the temperature, for features X (n, d) of all examples.

    D, the mean of n/(n+1)·(distance) over queries of base classes and their own class, is averaged over the episodes.
    """
    assert isinstance(whole, FittedLDA)
    kind = episodes[0].queries.dtype if episodes else whole.means.dtype
    counts, distances_at = [], []
    for e in episodes:
        base, shots, queries = (X[rows] for rows in e.rows)
        later = shots, e.shot_labels, e.n_classes, e.shot_weights
        found = distances_to_classes(replace(e.base, X=base), *later, queries)
        counts.append(found[0])
        distances_at.append(found[1])
    # of classes that have as many examples each, the count term tells queries nothing
    asked, uneven = any(len(e.labels) for e in episodes), any(bool((n != n[0]).any()) for n in counts)
    count_weights = COUNT_WEIGHTS[:1] if asked and not uneven else COUNT_WEIGHTS
    candidates = []
    for shrinkage in SHRINKAGES:
        distances = [at(shrinkage) for at in distances_at]
        spread = []
        for e, of_class, d in zip(episodes, counts, distances, strict=True):
            old = e.labels < e.n_base
            n = of_class[e.labels[old]].clamp(min=1)
            spread.append(weighted_mean(n / (n + 1) * d[old, e.labels[old]], e.weights[old]))
        D = float(torch.stack(spread).nanmean().nan_to_num(len(whole.centre))) if spread else len(whole.centre)
        for weight in count_weights:
            scores = [lda_scores(d, n, weight * D).to(kind) for d, n in zip(distances, counts, strict=True)]
            candidates.append(({"shrinkage": shrinkage, "count_penalty": weight * D}, scores))
    return _best(candidates, episodes, lambda: lda_scores(whole.distances(whole.means + whole.centre), whole.counts, 0))


def _choose_density(episodes: list[Episode], whole: FittedKernelDensity) -> _Choice:
    grid = KernelDensity().sharpnesses[::-1]
    by_episode = []
    for e in episodes:
        rows = torch.as_tensor(e.exemplars.rows, device=e.queries.device)
        weights = torch.as_tensor(e.exemplars.weights, device=e.queries.device)
        density = exemplar_density(e.base.X[rows], e.base.y[rows], weights, e.n_base)
        by_episode.append(density.grown(e.shots, e.shot_labels, e.n_classes, e.shot_weights).scores(e.queries, grid))
    candidates = [({"sharpness": beta}, [scores[k] for scores in by_episode]) for k, beta in enumerate(grid)]
    return _best(candidates, episodes, lambda: whole.scores(whole.points, (grid[-1],))[0])


def _choose_ridge(episodes: list[Episode], exemplars: Tensor) -> _Choice:
    points = []
    for e in episodes:
        rows = torch.as_tensor(e.exemplars.rows, device=e.queries.device)
        labels = torch.cat([e.base.y[rows], e.shot_labels])
        weights = torch.cat([e.base.weights[rows], e.shot_weights])
        points.append(Examples.of(torch.cat([e.base.X[rows], e.shots]), labels, e.n_classes, weights=weights))

    def best(ridge: KernelRidge) -> _Choice:
        by_episode = [ridge.scores_at(e.queries, memory) for e, memory in zip(episodes, points, strict=True)]
        candidates = [({"penalty": p}, [scores[k] for scores in by_episode]) for k, p in enumerate(ridge.penalties)]
        return _best(candidates, episodes, lambda: (exemplars @ exemplars.T).sub(1).exp())

    few = replace(RIDGE, at_most=RIDGE_POINTS)
    if all(len(memory) <= RIDGE_POINTS for memory in points):
        return best(few)
    return best(replace(RIDGE, penalties=(best(few).settings["penalty"],)))


# -------------------------------------------------------------------------------------------------------------- pools


def _root_pool(logs: list[Tensor], episodes: list[Episode], experts: int, like: Tensor) -> tuple[Tensor, float]:
    """Weights and bias of the decision between novel and base classes, by its log-likelihood over all queries."""

    def loss(parameters: Tensor) -> Tensor:
        losses = []
        for log, e in zip(logs, episodes, strict=True):
            odds = root_log_odds(log, parameters[:-1], e.n_base) + parameters[-1]
            losses.append(softplus(torch.where(e.labels >= e.n_base, -odds, odds)))
        return weighted_mean(torch.cat(losses), torch.cat([e.weights for e in episodes]))

    values = fit_weights(loss, experts, 1, like, empty=sum(len(e.labels) for e in episodes) == 0)
    return values[:-1], float(values[-1])


def _novel_pool(logs: list[Tensor], episodes: list[Episode], experts: int, like: Tensor) -> Tensor:
    """Weights of the decision among novel classes, by its log-likelihood over their queries."""
    parts = []
    for log, e in zip(logs, episodes, strict=True):
        asked = (e.labels >= e.n_base).nonzero()[:, 0]
        parts.append((log[:, asked, e.n_base :], e.labels[asked] - e.n_base, e.weights[asked]))

    def loss(weights: Tensor) -> Tensor:
        losses = []
        for log, labels, _ in parts:
            pool = torch.einsum("k,ktc->tc", weights, log).log_softmax(1)
            losses.append(-pool.gather(1, labels[:, None])[:, 0])
        return weighted_mean(torch.cat(losses), torch.cat([weights for *_, weights in parts]))

    return fit_weights(loss, experts, 0, like, empty=sum(len(labels) for _, labels, _ in parts) == 0)
