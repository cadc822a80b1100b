"""Classifiers on frozen features: one method a file, each a `RivalClassifier` with a `name`."""
