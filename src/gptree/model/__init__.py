"""Trees and node posteriors together: class log-probabilities, left-out predictions, files."""

from gptree.model.forest import ForestModel, fit_forest
from gptree.model.leave_one_out import (
    LeftOut,
    StayingNodes,
    left_out_predictions,
    novelty,
    novelty_threshold,
    smallest_share,
)
from gptree.model.node_data import TrainingData, node_problems
from gptree.model.prior_means import node_log_odds, training_log_odds

__all__ = [
    "ForestModel",
    "LeftOut",
    "StayingNodes",
    "TrainingData",
    "fit_forest",
    "left_out_predictions",
    "node_log_odds",
    "node_problems",
    "novelty",
    "novelty_threshold",
    "smallest_share",
    "training_log_odds",
]
