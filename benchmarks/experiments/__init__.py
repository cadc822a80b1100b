"""The experiments of the results page, by name."""

from __future__ import annotations

from benchmarks.experiment import Experiment
from benchmarks.experiments import deep_kernels, fscil, gibbs

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for module in (gibbs, deep_kernels, fscil) for experiment in module.EXPERIMENTS
}
