"""How far a long call is: the step it is at, and how much of it is done."""

from __future__ import annotations

from collections.abc import Callable

Advance = Callable[[int], None]
"""Called with how many rows, nodes or trees have been finished since the last time."""

Progress = Callable[[str, int | None], Advance]
"""Begins a step: its name, and how many rows, nodes or trees it has; None where nobody knows."""


def silent(step: str, total: int | None) -> Advance:
    """Nobody looks."""
    return lambda count: None


def within(progress: Progress, part: str) -> Progress:
    """The same for a part of the call, whose name goes before those of its steps."""
    return lambda step, total: progress(f"{part}: {step}", total)
