"""scikit-learn estimators."""

from gptree.estimators.classifier import GPForestClassifier, GPTreeClassifier, load_model
from gptree.estimators.explanation import Decision, Explanation, Neighbour
from gptree.estimators.feature_map import SphereMap, UnitLength

__all__ = [
    "Decision",
    "Explanation",
    "GPForestClassifier",
    "GPTreeClassifier",
    "Neighbour",
    "SphereMap",
    "UnitLength",
    "load_model",
]
