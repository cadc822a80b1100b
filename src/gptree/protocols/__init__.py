"""How models are measured: calibration, streams of sessions, and runs over them."""

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
from gptree.protocols.incremental import (
    IncrementalModel,
    StreamResult,
    average_forgetting,
    harmonic_mean,
    memory_bytes,
    performance_drop,
    run_stream,
    session_scores,
)
from gptree.protocols.run_folder import RunFolder
from gptree.protocols.session_tables import METRICS, Estimate, markdown_table, plot_curves, summary, summary_cells
from gptree.protocols.streams import Session, SessionStream, hold_out, stream_from_arrays, stream_from_lists

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
