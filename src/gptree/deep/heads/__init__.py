"""Heads on a network: their interface, and the variational GP-Tree."""
