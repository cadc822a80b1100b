"""Trees and node posteriors together: class log-probabilities, left-out predictions, files."""

from gptree.model.beam import Beam
from gptree.model.cavities import StayingNodes
from gptree.model.expert_prior import ExpertPrior, expert_prior
from gptree.model.forest import ForestModel, fit_forest
from gptree.model.leave_one_out import (
    LeftOut,
    left_out_predictions,
    novelty,
    novelty_threshold,
    smallest_share,
)
from gptree.model.node_data import TrainingData, node_problems
from gptree.model.prediction import Prediction, unit_rows
from gptree.model.prior_means import PathOdds, PathTable, RowScores, even, learnt_prior, row_scores, training_log_odds
from gptree.model.strangers import (
    Distances,
    KnownSigns,
    NoveltyScore,
    choose_weight,
    distance_rows,
    known_signs,
    signs,
)

__all__ = [
    "Beam",
    "Distances",
    "ExpertPrior",
    "ForestModel",
    "KnownSigns",
    "LeftOut",
    "NoveltyScore",
    "PathOdds",
    "PathTable",
    "Prediction",
    "RowScores",
    "StayingNodes",
    "TrainingData",
    "choose_weight",
    "distance_rows",
    "even",
    "expert_prior",
    "fit_forest",
    "known_signs",
    "learnt_prior",
    "left_out_predictions",
    "node_problems",
    "novelty",
    "novelty_threshold",
    "row_scores",
    "signs",
    "smallest_share",
    "training_log_odds",
    "unit_rows",
]
