"""Classifiers that learn further classes after they were fitted: one method a file, each an `IncrementalRival`."""

from gptree.settings import import_modules

import_modules(__name__, __path__)
