"""Explanations of predictions: the decisions on the path of a class, and its nearest training examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import torch
from torch import Tensor

from gptree.estimators.base import TreeEstimator
from gptree.estimators.state import FittedState
from gptree.tree import ClassTree


@dataclass(frozen=True)
class Decision:
    """One decision on the path of the predicted class."""

    node: int
    towards: tuple[Any, ...]
    """Labels on the side that the path takes."""
    away: tuple[Any, ...]
    """Labels on the other side."""
    probability: float
    """Probability of the side taken."""
    prior_probability: float
    """What it was before the GP saw the data at this node: the experts' word, or ½ with a zero prior mean."""


@dataclass(frozen=True)
class Neighbour:
    """A training example of the predicted class."""

    row: int
    """Row of the data given to `fit`, or to the operation that brought the example."""
    similarity: float
    """Cosine of the mapped features."""
    entry: int = 0
    """Which entry of `journal_` brought it; 0 is `fit`."""
    id: str = ""
    """What it is called; its row number where nothing was said."""


@dataclass(frozen=True)
class Explanation:
    """Why one row was given its label."""

    label: Any
    probability: float
    runner_up: Any
    runner_up_probability: float
    path: tuple[Decision, ...]
    neighbours: tuple[Neighbour, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.label}  p = {self.probability:.3f}   (next: {self.runner_up}, p = {self.runner_up_probability:.3f})"
        ]
        for depth, step in enumerate(self.path):
            lines.append(
                f"{'  ' * min(depth, 12)}└ {step.probability:.3f} (prior {step.prior_probability:.3f})  "
                f"{_names(step.towards)}   rather than   {_names(step.away)}"
            )
        nearest = ", ".join(f"{_origin(n)} (similarity {n.similarity:.2f})" for n in self.neighbours)
        return "\n".join([*lines, f"nearest training examples: {nearest}"])

    def to_json(self) -> dict[str, Any]:
        """Plain data, for machines."""
        return {
            "label": self.label,
            "probability": self.probability,
            "runner_up": self.runner_up,
            "runner_up_probability": self.runner_up_probability,
            "path": [
                {
                    "node": step.node,
                    "towards": list(step.towards),
                    "away": list(step.away),
                    "probability": step.probability,
                    "prior_probability": step.prior_probability,
                }
                for step in self.path
            ],
            "neighbours": [
                {"id": n.id, "row": n.row, "similarity": n.similarity, "entry": n.entry} for n in self.neighbours
            ],
        }


def decisions(
    tree: ClassTree, labels: Sequence[Any], winner: int, left: np.ndarray, right: np.ndarray, prior: np.ndarray
) -> tuple[Decision, ...]:
    """The path of a class: log p(left), log p(right) and prior log-odds of left at each node, (nodes,) each."""
    path = []
    for node, goes_left in tree.path(winner):
        on_left, on_right = (tuple(labels[c] for c in side(node)) for side in (tree.left, tree.right))
        sign = 1.0 if goes_left else -1.0
        path.append(
            Decision(
                node=node,
                towards=on_left if goes_left else on_right,
                away=on_right if goes_left else on_left,
                probability=float(np.exp((left if goes_left else right)[node])),
                prior_probability=float(1.0 / (1.0 + np.exp(-sign * prior[node]))),
            )
        )
    return tuple(path)


def explanation(
    labels: Sequence[Any], log_p: np.ndarray, path: tuple[Decision, ...], neighbours: tuple[Neighbour, ...]
) -> Explanation:
    """From class log-probabilities (C,), the winner's path and its nearest examples; with one class, no runner-up."""
    ranked = np.argsort(-log_p, kind="stable")
    first, second = int(ranked[0]), int(ranked[min(1, len(ranked) - 1)])
    return Explanation(
        label=labels[first],
        probability=float(np.exp(log_p[first])),
        runner_up=labels[second],
        runner_up_probability=float(np.exp(log_p[second])) if len(ranked) > 1 else 0.0,
        path=path,
        neighbours=neighbours,
    )


def _names(labels: tuple[Any, ...], most: int = 4) -> str:
    shown = ", ".join(str(label) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown} and {len(labels) - most} more"


def _origin(neighbour: Neighbour) -> str:
    if neighbour.id not in ("", str(neighbour.row)):
        return neighbour.id
    return f"row {neighbour.row}" + (f" of journal entry {neighbour.entry}" if neighbour.entry else "")


class ExplainMixin(TreeEstimator):
    """A classifier that gives the reasons of its predictions."""

    def decision_path(self, X: Any) -> scipy.sparse.csr_array:
        """The nodes of `tree_` on the path of each row's predicted class.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        sparse array of bool (n, nodes)
        """
        query = self._query(X)
        return path_matrix(query.state.model.trees[0], query.log_p.argmax(1))

    def explain(self, X: Any, n_neighbours: int = 3) -> list[Explanation]:
        """The path of each row's predicted class in `tree_`, and the nearest training examples of that class.

        In a forest the path is that of the first tree, so that its product is not quite the forest's probability.

        Parameters
        ----------
        X : array-like (n, d)
        n_neighbours : int

        Returns
        -------
        list of Explanation
            One for each row: the probability of each decision with the labels on both sides, and the neighbours.
        """
        query = self._query(X)
        state, model = query.state, query.state.model
        scores = state.class_scores(query.features, query.raw)
        left, right = model.node_log_probabilities(query.features, scores, self.predict_at)
        prior = model.prior_means(scores)
        prior = torch.zeros_like(left) if prior is None else prior
        left, right, prior = (values[model.node_of[0]].cpu().numpy() for values in (left, right, prior))
        labels = state.classes.tolist()
        return [
            explanation(
                labels,
                query.log_p[i],
                decisions(model.trees[0], labels, int(winner), left[:, i], right[:, i], prior[:, i]),
                _neighbours(state, query.features[i], int(winner), n_neighbours),
            )
            for i, winner in enumerate(query.log_p.argmax(1))
        ]


def path_matrix(tree: ClassTree, classes: np.ndarray) -> scipy.sparse.csr_array:
    """Which nodes lie on the path of each class number (n,): sparse booleans (n, nodes)."""
    paths = [[node for node, _ in tree.path(c)] for c in range(tree.n_classes)]
    indices = [paths[c] for c in classes]
    pointers = np.cumsum([0, *map(len, indices)])
    flat = np.concatenate([*indices, []]).astype(np.int64)
    return scipy.sparse.csr_array((np.ones(len(flat), dtype=bool), flat, pointers), shape=(len(classes), tree.n_nodes))


def _neighbours(state: FittedState, x: Tensor, winner: int, count: int) -> tuple[Neighbour, ...]:
    """The kept examples of a class that are nearest to x (d,)."""
    rows = np.flatnonzero(state.y == winner)
    similarity = torch.nn.functional.cosine_similarity(state.X[torch.as_tensor(rows)], x[None], dim=1)
    nearest = similarity.argsort(descending=True)[:count]
    found = []
    for j in nearest.tolist():
        entry, row = state.origins[rows[j]].tolist()
        found.append(Neighbour(row, float(similarity[j]), entry, state.ids[rows[j]]))
    return tuple(found)
