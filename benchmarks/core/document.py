"""The text of an experiment: its module's docstring, whose placeholders are filled from the rows.

    Title.

    The question?

    The answer, with {mean accuracy | method=GP-Tree | classes=60} and other numbers.

    Findings
    --------
    - GP-Tree is {ahead accuracy | GP-Tree | LSM | classes=60} points from LSM.

    Set-up
    ------
    How it is measured.

A placeholder has a kind, the name of a column, and what picks the rows: `field=value` (a value as in JSON, or a text),
where fields are those of the trial, its settings, or "metrics.…". `mean` is a mean; `gap` one group of rows less
another, with its verdict; `ahead`, `behind` and `level` are gaps that must have this verdict, so that a sentence cannot
outlive its rows; `count` counts rows. A group is named as in the experiment's choices, or by its method.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.core.gaps import AHEAD, BEHIND, NO_DIFFERENCE, gap, verdict
from benchmarks.core.tables import Column, Summary, chosen
from benchmarks.core.trials import Row

CLAIMS = {"ahead": AHEAD, "behind": BEHIND, "level": NO_DIFFERENCE}


class StaleFinding(ValueError):
    """A sentence that the rows do not bear out."""


@dataclass(frozen=True)
class Document:
    title: str
    question: str
    answer: str
    findings: str
    setup: str

    @classmethod
    def parse(cls, text: str | None) -> Document:
        start, *sections = re.split(r"\n\n(\w[\w-]*)\n-{3,}\n", inspect.cleandoc(text or ""))
        title, question, answer = [*start.split("\n\n", 2), "", ""][:3]
        named = dict(zip(sections[::2], sections[1::2], strict=True))
        if not answer or named.keys() - {"Findings", "Set-up"}:
            raise ValueError(
                f"an experiment's docstring has a title, a question, an answer, Findings, Set-up: {title!r}"
            )
        rest = (named.get(name, "").strip() for name in ("Findings", "Set-up"))
        return cls(title.rstrip("."), " ".join(question.split()), answer.strip(), *rest)


@dataclass(frozen=True)
class Filler:
    """Fills placeholders from rows. columns, choices : what they may name."""

    rows: list[Row]
    columns: Mapping[str, Column]
    choices: Mapping[str, Mapping[str, Any]]

    def fill(self, text: str) -> str:
        return re.sub(r"\{([^{}]+)\}", lambda match: self._number(match[1]), text)

    def _number(self, placeholder: str) -> str:
        first, *parts = [" ".join(part.split()) for part in placeholder.split("|")]
        kind, _, name = first.partition(" ")
        groups = [self.choices.get(part, {"method": part}) for part in parts if "=" not in part]
        fields = {field: _value(value) for field, _, value in (part.partition("=") for part in parts if "=" in part)}
        if kind == "count":
            return str(len(chosen(self.rows, **fields)))
        if name not in self.columns:
            raise ValueError(f"{{{placeholder}}}: there is no column {name!r}; there are {', '.join(self.columns)}.")
        column = self.columns[name]
        if kind == "mean":
            (group,) = groups or [{}]
            mean = Summary.of(chosen(self.rows, **{**group, **fields}), column).mean
            return Summary.over([mean] if mean == mean else []).text(column.digits)
        one, other = (chosen(self.rows, **{**group, **fields}) for group in groups)
        difference = gap(one, other, column)
        text, judgement = difference.text(column.digits, "+"), verdict(difference, column.better)
        if kind == "gap":
            return f"{text} ({judgement})"
        if CLAIMS[kind] != judgement:
            raise StaleFinding(f"{{{placeholder}}}: the rows say {judgement} ({text}). Write the sentence again.")
        return text


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
