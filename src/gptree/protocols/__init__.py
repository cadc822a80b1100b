"""Session protocols: streams, methods, runs over them, tables and pictures. The metrics are in `gptree.metrics`."""

from gptree.protocols.folder import RunFolder
from gptree.protocols.methods import SessionMethod
from gptree.protocols.plots import plot_curves, plot_reliability
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
from gptree.protocols.tables import METRICS, Estimate, markdown_table, summary, summary_cells

__all__ = [
    "METRICS",
    "Estimate",
    "IncrementalModel",
    "RunFolder",
    "Session",
    "SessionMethod",
    "SessionStream",
    "StreamResult",
    "average_forgetting",
    "harmonic_mean",
    "hold_out",
    "markdown_table",
    "memory_bytes",
    "performance_drop",
    "plot_curves",
    "plot_reliability",
    "run_stream",
    "session_scores",
    "stream_from_arrays",
    "stream_from_lists",
    "summary",
    "summary_cells",
]
