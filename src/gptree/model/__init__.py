"""Trees and node posteriors together: class log-probabilities, and their persistence."""

from gptree.model.forest import ForestModel, TrainingData, fit_forest, node_problems
from gptree.model.prior_means import node_log_odds, training_log_odds

__all__ = [
    "ForestModel",
    "TrainingData",
    "fit_forest",
    "node_log_odds",
    "node_problems",
    "training_log_odds",
]
