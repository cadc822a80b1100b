"""Requests that wait while others are computed are computed together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any


class BusyError(Exception):
    """Too many rows wait."""


@dataclass
class _Job:
    work: Any
    rows: int
    answer: asyncio.Future[Any] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """One thread that computes; what comes in the meantime is its next batch.

    Nobody waits for a batch to fill: an idle server answers one row at once, and a busy one joins what has gathered.

    Parameters
    ----------
    compute : callable
        From a sequence of works to a sequence of their answers; an answer that is an exception is raised to its caller
        alone.
    most : int
        Rows of a batch; a larger work is a batch by itself.
    waiting : int
        Rows that may wait; more are refused.
    """

    def __init__(
        self, compute: Callable[[Sequence[Any]], Sequence[Any]], most: int = 1024, waiting: int = 50_000
    ) -> None:
        self._compute, self._most, self._limit = compute, most, waiting
        self._jobs: list[_Job] = []
        self._running: asyncio.Task[None] | None = None
        self.thread = ThreadPoolExecutor(1, "gptree-serve")
        self.batches = 0

    @property
    def waiting(self) -> int:
        """Rows that wait."""
        return sum(job.rows for job in self._jobs)

    async def submit(self, work: Any, rows: int) -> Any:
        """The answer to a work of so many rows; `BusyError` if too many wait already."""
        if self._jobs and self.waiting + rows > self._limit:
            raise BusyError
        job = _Job(work, rows)
        self._jobs.append(job)
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await job.answer

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._jobs:
            batch = self._next()
            self.batches += 1
            try:
                answers = await loop.run_in_executor(self.thread, self._compute, [job.work for job in batch])
            except Exception as error:
                answers = [error] * len(batch)
            for job, answer in zip(batch, answers, strict=True):
                if job.answer.done():  # the client has gone
                    continue
                if isinstance(answer, Exception):
                    job.answer.set_exception(answer)
                else:
                    job.answer.set_result(answer)
        self._running = None

    def _next(self) -> list[_Job]:
        """The first jobs that fit into a batch, at least one."""
        rows, count = 0, 0
        for job in self._jobs:
            if count and rows + job.rows > self._most:
                break
            rows, count = rows + job.rows, count + 1
        batch, self._jobs = self._jobs[:count], self._jobs[count:]
        return batch

    def close(self) -> None:
        self.thread.shutdown(wait=False, cancel_futures=True)
