"""How models are measured: calibration, streams of sessions, and runs over them."""

from gptree.metrics import (
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
from gptree.protocols.folder import RunFolder
from gptree.protocols.run import (
    IncrementalModel,
    StreamResult,
    average_forgetting,
    harmonic_mean,
    memory_bytes,
    performance_drop,
    run_stream,
    session_scores,
)
from gptree.protocols.streams import Session, SessionStream, hold_out, stream_from_arrays, stream_from_lists
from gptree.protocols.tables import METRICS, Estimate, markdown_table, plot_curves, summary, summary_cells

__all__ = [
    "LEAST_PROBABILITY",
    "METRICS",
    "Confusion",
    "Estimate",
    "IncrementalModel",
    "ReliabilityCurve",
    "RunFolder",
    "Session",
    "SessionStream",
    "StreamResult",
    "accuracy",
    "auroc",
    "average_forgetting",
    "brier",
    "columns",
    "ece",
    "harmonic_mean",
    "hold_out",
    "markdown_table",
    "memory_bytes",
    "most_confused",
    "nll",
    "performance_drop",
    "plot_curves",
    "plot_reliability",
    "reliability_curve",
    "run_stream",
    "session_scores",
    "stream_from_arrays",
    "stream_from_lists",
    "summary",
    "summary_cells",
]
