"""scikit-learn estimators."""

from gptree.estimators.deep import DeepGPTreeClassifier
from gptree.estimators.explain import Decision, Explanation, Neighbour
from gptree.estimators.feature_map import SphereMap, UnitLength
from gptree.estimators.forest import GPForestClassifier, GPTreeClassifier
from gptree.estimators.loading import load_model

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
