"""Gibbs sampling on frozen features: trials and tables in common, and an experiment a module."""
