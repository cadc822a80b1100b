"""Why a class was predicted: the decisions on its path, and the nearest training examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
    """Row of the training data given to `fit`."""
    similarity: float
    """Cosine of the mapped features."""


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
        nearest = ", ".join(f"row {n.row} (similarity {n.similarity:.2f})" for n in self.neighbours)
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
            "neighbours": [{"row": n.row, "similarity": n.similarity} for n in self.neighbours],
        }


def _names(labels: tuple[Any, ...], most: int = 4) -> str:
    shown = ", ".join(str(label) for label in labels[:most])
    return shown if len(labels) <= most else f"{shown} and {len(labels) - most} more"
