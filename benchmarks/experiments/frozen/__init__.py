"""Classifiers on frozen features: methods in common, and an experiment a module."""
