"""Forgetting examples for good: the model is then one that was never shown them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone

from gptree.estimators.base import change
from gptree.estimators.incremental import IncrementalMixin
from gptree.estimators.validation import check_ids, check_weights, to_numpy
from gptree.incremental import Entry
from gptree.incremental.forgetting import without_examples


class Rows(NamedTuple):
    """Rows that a model was fitted to and taught, as they were given."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    place: dict[str, int]
    """Of each id."""


class ForgetMixin(IncrementalMixin):
    """A classifier that can forget single examples."""

    @change
    def forget(self, ids: Sequence[str], rows: Any = None, *, remove_class: bool = False) -> Self:
        """Forget examples: the model is then one that was never shown them, and nothing can bring them back.

        Examples that were taught leave the journal, which is replayed. For those of `fit`, the base session is fitted
        again, and what was taught since is taught again.

        Parameters
        ----------
        ids : list of str
            As they were given to `fit`, `add_classes` or `add_examples`. An id that came several times goes every time.
        rows : tuple (X, y, ids) or (X, y, ids, sample_weight), optional
            All rows that the model was fitted to and taught, as they were then; needed to forget examples of `fit`.
            Those that are to be forgotten may be missing, but for rows that equal others of their class. The labels of
            taught rows are not looked at. A model that was fitted with `held_out` cannot be fitted again this way; one
            without a `random_state` draws anew.
        remove_class : bool
            Whether a class may go with its last example.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If an id is unknown, rows are missing, or a class would lose its last example. Nothing is changed then.
        """
        state, names = self._state(), set(check_ids(ids, len(ids)))
        taught = {name for entry in state.journal[1:] for name in entry.ids}
        of_base = names - taught | names & set(state.journal[0].ids)
        if not of_base:
            journal, empty = without_examples(state.journal, names)
            _check_empty(empty, remove_class)
            return self._become(journal)
        self.__dict__ = self._fitted_again(names, of_base, rows, remove_class).__dict__
        return self

    def _fitted_again(self, names: set[str], of_base: set[str], rows: Any, remove_class: bool) -> Self:
        """Another estimator, fitted and taught without some examples."""
        state = self._state()
        kept = state.journal[0].ids
        if not kept:
            raise ValueError("the rows of this model have no ids: forgetting needs those that fit was given.")
        if self.growth is None:
            unknown = sorted(of_base - set(kept))
            if len(kept) < sum(state.journal[0].counts):
                raise ValueError("the model was fitted with held_out, and cannot be fitted again: fit a new one.")
            if unknown and state.weights is None:  # an example that equals others goes by the id of one of them
                raise ValueError(f"there is no example {unknown[0]!r} in the model.")
        if rows is None:
            raise ValueError(
                f"{min(of_base)!r} is an example of fit, or unknown: give all rows that the model was fitted to and "
                "taught, so that it can be fitted again."
            )
        X, y, ids, *sample_weight = rows
        X, y = np.asarray(to_numpy(X)), np.asarray(to_numpy(y))
        labels, codes = np.unique(y, return_inverse=True)
        weights = check_weights(sample_weight[0], codes, labels) if sample_weight else None
        weights = np.ones(len(X)) if weights is None else weights
        given = Rows(X, y, weights, {name: i for i, name in enumerate(check_ids(ids, len(X)))})
        before = None if state.weights is None else dict(zip(kept, state.weights.tolist(), strict=False))
        base = _base_rows(state.journal, given, weighted=before is not None)
        _check_base(state.journal[0], given, base, of_base, before)
        stay = [given.place[name] for name in base if name not in names]
        first = state.journal[0].labels
        empty = set(first) - set(y[stay].tolist())
        journal, empty = without_examples(state.journal, names, empty)
        _check_empty(empty, remove_class)
        _check_lessons(journal[1:], given)
        fresh: Any = clone(self)
        stays = [name for name in base if name not in names]
        fresh.fit(X[stay], y[stay], ids=stays, sample_weight=weights[stay])
        fresh.encoder_ = self.encoder_
        fit = replace(fresh.state_.journal[0], time=state.journal[0].time)
        fresh.state_ = replace(fresh.state_, journal=(fit,))
        lessons = tuple(_told_again(fresh, entry, given) for entry in journal[1:])
        if lessons:
            fresh._become((fit, *lessons))
        if hasattr(self, "feature_names_in_"):  # of a table
            fresh.feature_names_in_ = getattr(self, "feature_names_in_", None)
        return fresh


def _base_rows(journal: Sequence[Entry], given: Rows, weighted: bool) -> list[str]:
    """Which of the rows at hand the base session was fitted to; in a `weighted` one, equal rows go by one id."""
    fit, kept = journal[0], set(journal[0].ids)
    if len(kept) == sum(fit.counts) and not weighted:
        return [name for name in given.place if name in kept]
    taught = {name for entry in journal[1:] for name in entry.ids}  # only some rows of fit are kept
    others = (name for name in given.place if name in kept or name not in taught)
    return [name for name in others if name in kept or given.y[given.place[name]] in fit.labels]


def _check_empty(labels: set[Any], remove_class: bool) -> None:
    if labels and not remove_class:
        label = min(labels, key=str)
        raise ValueError(f"it is the last example of {label!r}: say that the class may go with it (remove_class).")


def _check_base(fit: Entry, given: Rows, base: list[str], of_base: set[str], weights: dict[str, float] | None) -> None:
    """Complain unless all rows of the base session are at hand, but for those to forget, with the labels of then.

    `weights` are those of the rows that are kept; None where each counts once, and none equals another.
    """
    missing = sorted(set(fit.ids) - given.place.keys() - of_base)
    if missing:
        raise ValueError(f"the row {missing[0]!r} that the model was fitted to is not at hand; nothing was changed.")
    absent = of_base - given.place.keys()
    rows = [given.place[name] for name in base]
    counts = Counter(given.y[rows].tolist())
    if weights is not None:
        if absent - weights.keys():
            raise ValueError(f"there is no example {min(absent - weights.keys())!r} in the model, nor at hand.")
        counts = _check_weights(given, rows, weights)
    before = dict(zip(fit.labels, fit.counts, strict=True))
    there, fitted = sum(counts.values()) + len(absent), sum(fit.counts)
    if there != fitted or any(count > before.get(label, 0) for label, count in counts.items()):
        raise ValueError(
            f"the model was fitted to {fitted:,} rows, and {there:,} are at hand or to be forgotten, or have another "
            "label now: give all of them, with the labels of then; nothing was changed."
        )


def _check_weights(given: Rows, rows: list[int], weights: dict[str, float]) -> Counter[Any]:
    """Distinct rows of each label; a complaint unless they count as often as they did in the model."""
    keys = {row: (given.y[row].item(), (given.X[row] + 0.0).tobytes()) for row in rows if given.weights[row] > 0}
    totals: Counter[Any] = Counter()
    for row, key in keys.items():
        totals[key] += given.weights[row]
    for name, weight in weights.items():
        row = given.place.get(name)
        if row is not None and not math.isclose(totals[keys.get(row)], weight, rel_tol=1e-5):
            raise ValueError(
                f"the row {name!r} counted {weight:g} times when the model was fitted, with those that equal it, and "
                f"{totals[keys.get(row)]:g} times now: give (X, y, ids, sample_weight) of then; nothing was changed."
            )
    return Counter(label for label, _ in totals)


def _check_lessons(lessons: Sequence[Entry], given: Rows) -> None:
    """Complain unless all examples that were taught are at hand."""
    for entry in lessons:
        missing = [name for name in entry.ids if name not in given.place]
        if entry.features is not None and (missing or not entry.ids):
            which = f"the example {missing[0]!r}" if missing else "an example without an id"
            raise ValueError(f"{which} that the model was taught is not at hand; nothing was changed.")


def _told_again(fresh: Any, entry: Entry, given: Rows) -> Entry:
    """An entry with the features that the new base session makes of its examples."""
    if entry.features is None:
        return entry
    rows = [given.place[name] for name in entry.ids]
    again = fresh._examples(given.X[rows], np.array(entry.y), entry.ids, entry.weights)
    at = dict(zip(entry.ids, entry.rows, strict=True))
    return replace(entry, **{**again, "rows": tuple(at[name] for name in again["ids"])})
