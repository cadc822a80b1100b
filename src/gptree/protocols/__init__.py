"""How models are measured."""

from gptree.protocols.calibration import (
    LEAST_PROBABILITY,
    Confusion,
    ReliabilityCurve,
    accuracy,
    auroc,
    brier,
    columns,
    ece,
    most_confused,
    nll,
    plot_reliability,
    reliability_curve,
)

__all__ = [
    "LEAST_PROBABILITY",
    "Confusion",
    "ReliabilityCurve",
    "accuracy",
    "auroc",
    "brier",
    "columns",
    "ece",
    "most_confused",
    "nll",
    "plot_reliability",
    "reliability_curve",
]
