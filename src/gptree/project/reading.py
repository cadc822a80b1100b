"""What can be asked of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from gptree.embed.folders import SUFFIXES
from gptree.project.answers import Changes, changes
from gptree.project.base import Versions
from gptree.project.checks import Findings, findings
from gptree.project.examples import Example
from gptree.project.folder import Event, read_events
from gptree.project.quality import Quality, left_out_quality
from gptree.project.state import Snapshot

#: Orders of the queue.
Order = Literal["suggest", "strangest", "least-sure", "newest"]


class Reading(Versions):
    """A project as whoever looks at it sees it; each call answers from one version."""

    def __repr__(self) -> str:
        state = self._state
        classes = 0 if state.model is None else len(state.model.classes_)
        size = f"{len(state.examples):,} examples, {classes:,} classes"
        return f"<project {state.record.name!r}: {size}, version {self.version}>"

    @property
    def name(self) -> str:
        return self._state.record.name

    @property
    def kind(self) -> str:
        """What the examples are: "image", "text" or "vector"."""
        return self._state.record.kind

    @property
    def encoder(self) -> Mapping[str, Any] | None:
        """The description of the encoder; None for bare vectors."""
        return self._state.record.encoder

    @property
    def model(self) -> Any:
        """The fitted classifier, None before the first lesson. Never change it: copy it."""
        return self._state.model

    @property
    def examples(self) -> Mapping[str, Example]:
        """Examples by id, in the order of arrival."""
        return self._state.examples

    @property
    def events(self) -> tuple[Event, ...]:
        """Who did what when, the oldest first."""
        return read_events(self.folder)

    @property
    def standing(self) -> frozenset[int]:
        """Versions that changed the model and were not taken back; the first of them is the base, which cannot be."""
        return frozenset(mark.version for mark in self._state.record.line)

    def vectors(self, ids: Sequence[str]) -> np.ndarray:
        """Vectors (n, d) of examples."""
        return self._state.vectors(ids)

    def path_of(self, name: str) -> Path | None:
        """The file of a picture; None for texts and vectors."""
        example = self._state.examples[name]
        is_picture = Path(example.source).suffix.lower() in SUFFIXES
        return self.folder / example.source if example.text is None and is_picture else None

    def sources(self) -> dict[str, Path | str]:
        """What examples look like, by id: the paths of pictures, or texts; nothing of vectors."""
        found = {name: each.text or self.path_of(name) for name, each in self._state.examples.items()}
        return {name: source for name, source in found.items() if source is not None}

    def check(self, progress: bool = False) -> Findings:
        """Trouble in the examples: labels that are probably wrong, duplicates, outliers.

        Parameters
        ----------
        progress : bool
            Show a bar while labels are judged.

        Returns
        -------
        Findings
        """
        state, examples = self._state, self._state.examples.values()
        labels, keys = [each.label for each in examples], [each.key for each in examples]
        return findings(state.X, labels, list(state.examples), keys, seed=state.record.seed, progress=progress)

    def snapshot(self) -> Snapshot:
        """The present version, as a value that never changes. Computed once a version."""
        state = self._state
        return state.snapshot(*self._answers(state))

    def first_look(self) -> Snapshot:
        """The present version without novelty where that is not known yet: no answer is "none of these" then."""
        state = self._state
        known = self._known.get(state.record.version)
        return state.snapshot(*(known or (state.labels(), None)))

    def quality(self) -> Quality:
        """How good the model is: on the test rows, else on its own examples, each left out, which `note` says."""
        state = self._state
        found = self._answers(state)[1]
        if found is not None:
            return found
        if state.model is None:
            return Quality("nothing", "there is no model yet: teach it something")
        return left_out_quality(state.model)

    def queue(self, order: Order = "suggest", n: int = 20) -> tuple[str, ...]:
        """Ids of pool examples to look at next.

        Parameters
        ----------
        order : "suggest", "strangest", "least-sure" or "newest"
            Worth a label; most novel; least probable; last to come. Without a model they come in the order of arrival.
        n : int

        Returns
        -------
        tuple of str
            At most n.
        """
        state = self._state
        pool = [each.id for each in state.examples.values() if each.split == "pool"]
        if order == "newest":
            return tuple(pool[::-1][:n])
        if order not in ("suggest", "strangest", "least-sure"):
            raise ValueError(f"order is suggest, strangest, least-sure or newest, not {order!r:.80}.")
        if state.model is None or not pool:
            return tuple(pool[:n])
        if order == "suggest":
            chosen = state.model.suggest(state.vectors(pool), min(n, len(pool)))
            return tuple(pool[row] for row in chosen)
        answers = self._answers(state)[0]
        rows = [answers._rows[name] for name in pool]
        score = -answers.novelty[rows] if order == "strangest" else answers.probability[rows]
        return tuple(pool[row] for row in np.argsort(score, kind="stable")[:n])

    def diff(self, before: int, after: int | None = None) -> Changes:
        """What changed between two versions.

        Parameters
        ----------
        before, after : int
            Versions; after is the present one if not given.

        Returns
        -------
        Changes

        Raises
        ------
        ValueError
            If there is no such version, or its answers were not kept and it is no part of the present history.
        """
        state = self._state
        now, quality = self._answers(state) if after in (None, self.version) else self._answers_at(after)
        return changes(self._answers_at(before)[0], now, quality)
