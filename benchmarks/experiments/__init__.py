"""Experiments: a module below this package that has a GROUP is one; its path is the experiment's name."""

from __future__ import annotations

import importlib
import pkgutil

from benchmarks.core.experiment import Experiment

__all__ = ["EXPERIMENTS"]

#: Sections of the index, in their order; other groups follow.
GROUPS = ("The paper's experiments", "Frozen features", "Classes that arrive later", "Speed and size")


def _found() -> dict[str, Experiment]:
    experiments = []
    for each in pkgutil.walk_packages(__path__, f"{__name__}."):
        module = importlib.import_module(each.name)
        if hasattr(module, "GROUP"):
            name = each.name.removeprefix(f"{__name__}.").replace(".", "-").replace("_", "-")
            experiments.append(Experiment.of_module(module, name))
    order = {group: place for place, group in enumerate(GROUPS)}
    experiments.sort(key=lambda experiment: order.get(experiment.group, len(order)))
    return {experiment.name: experiment for experiment in experiments}


EXPERIMENTS = _found()
