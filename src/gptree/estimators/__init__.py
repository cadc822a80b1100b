"""scikit-learn estimators."""

from gptree.estimators.classifier import GPForestClassifier, GPTreeClassifier
from gptree.estimators.deep import DeepGPTreeClassifier, load_model
from gptree.estimators.explanation import Decision, Explanation, Neighbour
from gptree.estimators.feature_map import SphereMap, UnitLength

__all__ = [
    "Decision",
    "DeepGPTreeClassifier",
    "Explanation",
    "GPForestClassifier",
    "GPTreeClassifier",
    "Neighbour",
    "SphereMap",
    "UnitLength",
    "load_model",
]
