"""A trial, which is one thing to run, and its row, which is what came of it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

#: Version of the library's defaults, which every row carries. Raise it when a change of the defaults changes numbers;
#: rows of older defaults stay, and pages tell them apart.
DEFAULTS = 6


@dataclass(frozen=True)
class Trial:
    """One thing to run. `settings` holds plain JSON values; the trial's key is a hash of all five fields."""

    experiment: str
    method: str
    data: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Through JSON and back: a bad value fails now, and a trial equals the one read from its row.
        plain = json.loads(json.dumps(dict(self.settings), allow_nan=False))
        object.__setattr__(self, "settings", MappingProxyType(plain))

    @property
    def key(self) -> str:
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        """For people; trials that differ in their settings share it."""
        return f"{self.experiment} · {self.data} · {self.method} · {self.seed}"

    def as_json(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "method": self.method,
            "data": self.data,
            "seed": self.seed,
            "settings": dict(self.settings),
        }

    def __hash__(self) -> int:
        return hash(self.key)

    def __reduce__(self):  # a mapping proxy does not travel between processes
        return Trial, (self.experiment, self.method, self.data, self.seed, dict(self.settings))


Metrics = Callable[[Trial], Mapping[str, Any]]  # of a trial


@dataclass(frozen=True)
class Row:
    """A finished trial: its metrics, its cost, where it ran, and the version of the library's defaults.

    seconds : wall and cpu; None for a clock that was not read.
    """

    trial: Trial
    metrics: Mapping[str, Any]
    seconds: Mapping[str, float | None]
    peak_memory_bytes: int | None
    versions: Mapping[str, Any]
    machine: Mapping[str, Any]
    defaults: int = DEFAULTS

    def __str__(self) -> str:
        return f"{self.trial.name}: {self.seconds['wall']:.1f} s"

    def to_line(self) -> str:
        rest = {
            "defaults": self.defaults,
            "metrics": _plain(self.metrics),
            "seconds": dict(self.seconds),
            "peak_memory_bytes": self.peak_memory_bytes,
            "versions": dict(self.versions),
            "machine": dict(self.machine),
        }
        return json.dumps({"key": self.trial.key, "trial": self.trial.as_json(), **rest}, allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Row:
        fields = json.loads(line)
        key, trial = fields.pop("key"), Trial(**fields.pop("trial"))
        if key != trial.key:
            raise ValueError(f"the key {key} is not that of its trial, {trial.key}")
        if not isinstance(fields["defaults"], int):
            raise ValueError("defaults is no version number")
        for name in ("metrics", "seconds", "versions", "machine"):
            if not isinstance(fields[name], dict):
                raise ValueError(f"{name} is no mapping")
        numbers = (fields["seconds"]["wall"], fields["seconds"]["cpu"], fields["peak_memory_bytes"])
        if not all(value is None or _is_number(value) for value in numbers):
            raise ValueError("seconds or peak_memory_bytes is no number")
        return cls(trial=trial, **{**fields, "metrics": _with_numbers(fields["metrics"])})

    def field(self, path: str, absent: Any = None) -> Any:
        """The value at a dotted path: "method", "settings.shots", "metrics.sessions.-1.nll", "seconds.cpu", …"""
        value: Any = {**self.trial.as_json(), **vars(self)}
        for name in path.split("."):
            if isinstance(value, list):
                value = value[int(name)]
            elif name in value:
                value = value[name]
            else:
                return absent
        return value


#: What JSON has no numbers for. Null is a value that is undefined, these are results.
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_numbers(value: Any) -> Any:
    """As it was before `_plain`."""
    if isinstance(value, dict):
        return {name: _with_numbers(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_numbers(part) for part in value]
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _plain(value: Any) -> Any:
    """As JSON has it: NumPy's numbers become Python's, NaN and infinity their names."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
