"""Inputs of a network: sources, and augmentation of pictures."""
