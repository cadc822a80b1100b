"""What trained networks answer: class log-probabilities, and scores that say how strange a picture is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.experiments.deep.last_layer import ByClass, Kronecker
from gptree.deep import Trained, TreeHead, WeightedEnsemble
from gptree.maths import gram_diagonal
from gptree.model import novelty

SOFTMAX, TEMPERATURE, LAPLACE = "softmax", "softmax, temperature", "last-layer Laplace"
MEMBERS = 3
ENSEMBLE, ENSEMBLE_TEMPERATURE = "ensemble of three", "ensemble of three, temperature"
TREE, TREE_ALONE = "GP-Tree", "GP-Tree, tree alone"
SNGP = "SNGP-like"
#: Each answer's score of its own.
OWN = {
    TREE: "novelty",
    TREE_ALONE: "novelty",
    SOFTMAX: "energy",
    TEMPERATURE: "energy",
    LAPLACE: "variance",
    ENSEMBLE: "mutual information",
    ENSEMBLE_TEMPERATURE: "mutual information",
    SNGP: "Dempster–Shafer",
}
#: Scores that every answer has.
MOST, ENTROPY = "max probability", "entropy"


@dataclass(frozen=True, eq=False)
class Answer:
    """Class log-probabilities (T, C), and scores (T,) by name, larger where a picture is stranger."""

    log_p: Tensor
    scores: Mapping[str, Tensor]

    def all_scores(self) -> dict[str, Tensor]:
        return {MOST: -self.log_p.amax(-1), ENTROPY: entropy(self.log_p), **self.scores}


Answering = Callable[[Sequence[Tensor]], dict[str, Answer]]
"""From the embeddings of some pictures by each network to the answers by name."""


@dataclass(frozen=True, eq=False)
class Known:
    """A trained network, the embeddings of its training rows, and those of the rows that it held out."""

    result: Trained[Any]
    learned: Tensor
    held_out: Tensor
    held_out_y: Tensor


def softmax_answers(known: Sequence[Known]) -> Answering:
    """The layer alone, with a temperature chosen on the held-out rows, and with a Laplace approximation."""
    (one,) = known
    layer, ensemble = one.result.objective_layer, one.result.ensemble
    assert layer is not None
    laplace = Kronecker(layer.weight, layer.bias).learn(one.learned).choose(one.held_out, one.held_out_y)

    def answers(embeddings: Sequence[Tensor]) -> dict[str, Answer]:
        (x,) = embeddings
        with torch.no_grad():
            logits = layer.scores(x).double()
        inverse = ensemble.weights[0]
        return {
            SOFTMAX: Answer(logits.log_softmax(-1), {"energy": -logits.logsumexp(-1)}),
            TEMPERATURE: Answer(ensemble.log_probabilities(x), {"energy": -(inverse * logits).logsumexp(-1) / inverse}),
            LAPLACE: Answer(laplace.damped(x).log_softmax(-1), {"variance": laplace.variances(x).mean(-1)}),
        }

    return answers


def ensemble_answers(known: Sequence[Known]) -> Answering:
    """The mean of the networks' probabilities, as they are and with a temperature of each."""

    def answers(embeddings: Sequence[Tensor]) -> dict[str, Answer]:
        pairs = list(zip(known, embeddings, strict=True))
        plain = [one.result.ensemble.first.log_probabilities(x).double() for one, x in pairs]
        scaled = [one.result.log_probabilities(x) for one, x in pairs]
        return {ENSEMBLE: mixture(plain), ENSEMBLE_TEMPERATURE: mixture(scaled)}

    return answers


def mixture(members: Sequence[Tensor]) -> Answer:
    """The mean of probabilities; its own score is the mutual information of class and member."""
    logs = torch.stack(list(members))
    together = logs.logsumexp(0) - torch.tensor(float(len(members))).log()
    return Answer(together, {"mutual information": entropy(together) - entropy(logs).mean(0)})


def tree_answers(known: Sequence[Known]) -> Answering:
    """The tree together with the layer that was trained beside it, and the tree alone; weights from held-out rows."""
    (one,) = known
    head: Any = one.result.head
    alone = WeightedEnsemble(head)
    alone.choose(one.held_out, one.held_out_y)

    def answers(embeddings: Sequence[Tensor]) -> dict[str, Answer]:
        (x,) = embeddings
        shares = explained(head, x)

        def answer(log_p: Tensor) -> Answer:
            best, winner = log_p.max(-1)
            familiarity = shares.gather(1, winner[:, None])[:, 0]
            return Answer(log_p, {"novelty": novelty(best.exp(), familiarity), "variance": 1 - familiarity})

        return {TREE: answer(one.result.log_probabilities(x)), TREE_ALONE: answer(alone.log_probabilities(x))}

    return answers


@torch.no_grad()
def explained(head: TreeHead, embeddings: Tensor) -> Tensor:
    """The share of the prior variance that is explained at the last decision on the way to each class, (T, C)."""
    tree = head.tree
    last = torch.as_tensor(tree.parent[tree.n_nodes + tree.position], device=embeddings.device)
    variance = torch.cat([v for _, v in head._latents(embeddings)], 1)
    prior = gram_diagonal(head.kernel, embeddings[:1].to(variance))  # the same everywhere
    return (1 - variance / prior)[last].mT.clamp(0, 1)


def sngp_answers(known: Sequence[Known]) -> Answering:
    """Mean-field logits; its own score is Dempster and Shafer's C / (C + Σ exp f)."""
    (one,) = known
    layer = one.result.objective_layer
    assert layer is not None
    posterior = ByClass(layer.weight, layer.bias).learn(one.learned).choose(one.held_out, one.held_out_y)

    def answers(embeddings: Sequence[Tensor]) -> dict[str, Answer]:
        (x,) = embeddings
        logits, variance = posterior.damped(x), posterior.variances(x).mean(-1)
        # C / (C + Σ exp f) falls as Σ exp f grows
        return {SNGP: Answer(logits.log_softmax(-1), {"Dempster–Shafer": -logits.logsumexp(-1), "variance": variance})}

    return answers


def entropy(log_p: Tensor) -> Tensor:
    return torch.special.entr(log_p.exp()).sum(-1)
