"""The paper's experiments with Gibbs sampling on frozen features: Table 1 and figure 4 of the supplement."""

from __future__ import annotations

from benchmarks.experiment import Experiment
from benchmarks.experiments.gibbs_findings import chains_findings, classes_findings, inference_findings
from benchmarks.experiments.gibbs_quoted import CHAINS_DIFFER, CLASSES, CLASSES_DIFFER, INFERENCE_DIFFER, QUOTED
from benchmarks.experiments.gibbs_shown import (
    NAMES,
    chains_called,
    chains_figure,
    chains_tables,
    classes_figure,
    method_tables,
)
from benchmarks.experiments.gibbs_trials import (
    GIBBS_METHODS,
    INFERENCES,
    PLAIN_METHODS,
    run_chains,
    run_classes,
    run_inference,
    settings_of,
)
from benchmarks.rows import Trial

#: (chains, steps): along the chains at one step, then along the steps at four chains.
CHAINS = (*((chains, 1) for chains in (1, 2, 4, 8, 16, 32)), (4, 2), (4, 5), (4, 10))


def classes_trials(seeds: int) -> list[Trial]:
    return _trials("gibbs-classes", seeds, (*GIBBS_METHODS, *PLAIN_METHODS))


def inference_trials(seeds: int) -> list[Trial]:
    return _trials("gibbs-vs-vi", seeds, tuple(INFERENCES))


def chains_trials(seeds: int) -> list[Trial]:
    return [
        Trial(
            "gibbs-chains",
            "GP-Tree",
            data,
            seed,
            {**settings_of("GP-Tree", data, classes), "chains": chains, "steps": steps},
        )
        for seed in range(seeds)
        for data in NAMES
        for classes in CLASSES
        for chains, steps in CHAINS
    ]


def _trials(experiment: str, seeds: int, methods: tuple[str, ...]) -> list[Trial]:
    return [
        Trial(experiment, method, data, seed, settings_of(method, data, classes))
        for seed in range(seeds)
        for data in NAMES
        for classes in CLASSES
        for method in methods
    ]


EXPERIMENTS = (
    Experiment(
        name="gibbs-classes",
        title="Gibbs sampling with more and more classes",
        paper="Table 1",
        seeds=10,
        trials=classes_trials,
        run=run_classes,
        tables=method_tables,
        findings=classes_findings,
        figure=classes_figure,
        quoted=(QUOTED,),
        differs=CLASSES_DIFFER,
        data_called=NAMES.__getitem__,
    ),
    Experiment(
        name="gibbs-vs-vi",
        title="Gibbs sampling and variational inference",
        paper="supplement, figure 4, left",
        seeds=5,
        trials=inference_trials,
        run=run_inference,
        tables=method_tables,
        findings=inference_findings,
        figure=classes_figure,
        differs=INFERENCE_DIFFER,
        data_called=NAMES.__getitem__,
    ),
    Experiment(
        name="gibbs-chains",
        title="Chains and steps of Gibbs sampling",
        paper="supplement, figure 4, right",
        seeds=5,
        trials=chains_trials,
        run=run_chains,
        tables=chains_tables,
        findings=chains_findings,
        figure=chains_figure,
        differs=CHAINS_DIFFER,
        called=chains_called,
        data_called=NAMES.__getitem__,
    ),
)
