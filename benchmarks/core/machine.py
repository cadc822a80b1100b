"""Provenance of a row: versions, machine, time and memory.

gptree is imported late: an earlier version of it, which has no `provenance`, can be measured (`benchmarks.earlier`).
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages that matter; the commit of the code, with "+" if it was changed."""
    from gptree import provenance

    return {**provenance.versions(), "commit": provenance.commit()}


def machine() -> dict[str, Any]:
    """The kind of machine: processor, cores, torch's threads, GPU, memory."""
    from gptree import provenance

    return {**provenance.machine(), "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def peak_memory() -> int:
    """The most memory (resident set, bytes) that this process has held so far."""
    # On Linux ru_maxrss is inherited from the parent across fork and exec; VmHWM is this process's own.
    own = _status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit if own is None else own


def held_memory() -> int | None:
    """The memory (resident set, bytes) that this process holds now; None where the system does not say."""
    return _status("VmRSS")


def _status(name: str) -> int | None:
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) * 1024
    except (OSError, StopIteration):
        return None


@dataclass(frozen=True)
class Measured:
    """What a call returned and cost. CPU seconds are those of this process, all threads, without children."""

    value: Any
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int | None
    """The most memory that the process held during the call; None where an earlier peak cannot be forgotten."""


def measured(function: Callable[..., Any], *arguments: Any) -> Measured:
    """Call `function` and measure it."""
    own_peak = forget_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    value = function(*arguments)
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return Measured(value, *seconds, peak_memory() if own_peak else None)


def forget_peak() -> bool:
    """Count the process's peak of memory from here on; False where the system has no way to."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True
