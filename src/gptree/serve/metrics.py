"""Counts and times, in the text form of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

#: Upper ends of the times of requests, in seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What was asked, what was answered, and how long it took."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.rows = 0
        self._times = [0] * (len(BUCKETS) + 1)
        self._seconds = 0.0

    def took(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[path, status] += 1
        self._seconds += seconds
        self._times[sum(seconds > end for end in BUCKETS)] += 1

    def text(self, gauges: Iterable[tuple[str, str, str, float]]) -> str:
        """All of it; gauges are names, kinds, explanations and values of what others count."""
        lines = ["# HELP gptree_requests_total Requests by path and status.", "# TYPE gptree_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'gptree_requests_total{{path="{path}",status="{status}"}} {count}')
        for name, kind, explanation, value in [
            ("gptree_rows_total", "counter", "Rows that were answered.", self.rows),
            *gauges,
        ]:
            lines += [f"# HELP {name} {explanation}", f"# TYPE {name} {kind}", f"{name} {value:g}"]
        name, total = "gptree_request_seconds", 0
        lines += [f"# HELP {name} From the request to its answer.", f"# TYPE {name} histogram"]
        for end, count in zip((*BUCKETS, "+Inf"), self._times, strict=True):
            total += count
            lines.append(f'{name}_bucket{{le="{end}"}} {total}')
        return "\n".join([*lines, f"{name}_sum {self._seconds:.6f}", f"{name}_count {total}"]) + "\n"
