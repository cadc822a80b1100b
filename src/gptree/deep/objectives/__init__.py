"""Objectives that a network learns before the head joins, one a file; a new file is found by the name it gives."""

from gptree.deep.objectives.base import Objective, ObjectiveLayer
from gptree.deep.objectives.cosine_margin import CosineMargin
from gptree.deep.objectives.cross_entropy import CrossEntropy
from gptree.settings import import_modules

import_modules(__name__, __path__)

__all__ = ["CosineMargin", "CrossEntropy", "Objective", "ObjectiveLayer"]
