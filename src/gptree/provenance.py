"""Provenance of a measured row: versions, kind of machine, commit. Nothing that names the machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("gptree", "torch", "numpy", "gpytorch", "scikit-learn")


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that matter."""
    return {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """The kind of machine: processor, cores, torch's threads, GPU."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str | None:
    """The commit of the code, with "+" if it was changed; None where the package is no checkout.

    The environment variable GPTREE_COMMIT gives it for a copy without its history.
    """
    if given := os.environ.get("GPTREE_COMMIT"):
        return given
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():  # installed: a repository further up would be someone else's
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        return git("rev-parse", "--short=12", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return None
