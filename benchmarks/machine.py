"""What a result depends on besides its trial: versions, machine, time and memory."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("gptree", "torch", "numpy", "gpytorch", "scikit-learn")


def versions() -> dict[str, str | None]:
    """Versions of Python and the packages that matter; the commit of the code, with "+" if it was changed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "commit": _commit()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def machine() -> dict[str, Any]:
    """The kind of machine: processor, cores, torch's threads, memory, GPU. Nothing that names the machine."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def peak_memory() -> int:
    """The most memory (resident set, bytes) that this process has held so far."""
    # On Linux ru_maxrss is inherited from the parent across fork and exec; VmHWM is this process's own.
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@dataclass(frozen=True)
class Measured:
    """What a call returned and cost. CPU seconds are those of this process, all threads, without children."""

    value: Any
    wall_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int


def measured(function: Callable[..., Any], *arguments: Any) -> Measured:
    """Call `function` and measure it. The peak is the process's: only in a fresh process is it the call's."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = function(*arguments)
    return Measured(value, time.perf_counter() - wall, time.process_time() - cpu, peak_memory())


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the code; a copy without its history is told by the environment variable GPTREE_COMMIT."""
    if told := os.environ.get("GPTREE_COMMIT"):
        return told

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return None
