"""Classifiers on frozen features: one method a file, each a `RivalClassifier` with a `name`."""

from gptree.settings import import_modules

import_modules(__name__, __path__)
