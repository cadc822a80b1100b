"""The progress bar of a fit, or of a change: a line for each of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gptree.progress import Advance, Progress, silent


@contextmanager
def progress_bar(shown: bool) -> Iterator[Progress]:
    """Show the steps of a call as they begin; when the call ends nothing is left of them."""
    if not shown:
        yield silent
        return
    from rich import progress as rich

    columns = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(24),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*columns, transient=True) as bar:

        def begin(step: str, total: int | None) -> Advance:
            for task in bar.tasks:  # a step ends where the next one begins
                if not task.finished:
                    bar.update(task.id, total=task.total or 1, completed=task.total or 1)
            task = bar.add_task(step, total=total)
            return lambda count: bar.advance(task, count)

        yield begin
