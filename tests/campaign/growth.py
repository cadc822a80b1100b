"""Random operations on growing models, beside a model so simple that it is right: a list of labels and counts.

After every operation, also one that is refused, the classes and the examples kept are those of the simple model, and
probabilities are possible. `undo` gives back the probabilities that were there before, bit for bit; so does saving and
loading. At the end the same journal on a fresh copy gives the same model, and without the novel classes that were
removed the model is one that was never given them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from parts import Part

from gptree import (
    Gibbs,
    GPForestClassifier,
    GPTreeClassifier,
    Graft,
    Growth,
    RebuildTree,
    SessionTree,
    SharedRoot,
    load_model,
)

OPERATIONS = 25
BASE, WIDTH = 5, 6
KEPT = 2
CENTRES = np.random.default_rng(0).normal(size=(60, WIDTH))
QUERIES = CENTRES[:12] + 0.3 * np.random.default_rng(1).normal(size=(12, WIDTH))
ALWAYS: dict[str, Any] = {"random_state": 0, "device": "cpu"}
MODELS: dict[str, Callable[[], Any]] = {
    "forest": lambda: GPForestClassifier(n_estimators=2, growth=Growth(exemplars=KEPT), **ALWAYS),
    "forest of LDA, rebuilt": lambda: GPForestClassifier(
        n_estimators=2, prior_mean="lda", growth=Growth(exemplars=KEPT, strategy=RebuildTree()), **ALWAYS
    ),
    "tree, grafted": lambda: GPTreeClassifier(
        prior_mean=None, growth=Growth(exemplars=KEPT, strategy=Graft()), **ALWAYS
    ),
    "tree of sessions": lambda: GPTreeClassifier(growth=Growth(exemplars=KEPT, strategy=SessionTree()), **ALWAYS),
    "the paper's tree": lambda: GPTreeClassifier.paper(
        "rbf", inference=Gibbs(chains=2), growth=Growth(exemplars=KEPT, strategy=SharedRoot()), **ALWAYS
    ),
}


def rows(labels: list[str], count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Examples of labels; a label's number is where its examples lie."""
    y = np.repeat(labels, count)
    places = np.array([int(label[1:3]) for label in y])
    return CENTRES[places] + 0.4 * random.normal(size=(len(y), WIDTH)), y


def name(number: int) -> str:
    return f"c{number:02}"


@cache
def fitted(kind: str) -> Any:
    """A model after its base session."""
    return MODELS[kind]().fit(*rows([name(c) for c in range(BASE)], 4, np.random.default_rng(2)))


def fresh(kind: str) -> Any:
    """A copy of it, whose operations leave the original alone: they change the estimator, never its state."""
    return copy.copy(fitted(kind))


@dataclass
class Simple:
    """What there should be: of every label how many examples are kept, base classes first."""

    base: dict[str, int]
    novel: dict[str, int] = field(default_factory=dict)
    plain: bool = True
    """Whether classes were added, given examples and removed, and nothing else."""

    @property
    def labels(self) -> list[str]:
        return [*self.base, *self.novel]

    def more(self, label: str, count: int) -> None:
        group = self.base if label in self.base else self.novel
        group[label] += count

    def renamed(self, old: str, new: str) -> None:
        def under(group: dict[str, int]) -> dict[str, int]:
            return {new if label == old else label: count for label, count in group.items()}

        self.base, self.novel = under(self.base), under(self.novel)


class Run:
    """One sequence of operations on one model."""

    def __init__(self, unit: int, folder: Path) -> None:
        self.random = np.random.default_rng([unit, 7])
        self.kind = list(MODELS)[unit % len(MODELS)]
        self.folder = folder
        self.model = fresh(self.kind)
        self.simple = Simple({name(c): KEPT for c in range(BASE)})
        self.unused = [name(c) for c in range(BASE, len(CENTRES))]
        self.past: list[tuple[Simple, np.ndarray]] = []
        self.done: list[str] = []

    def operate(self) -> None:
        names = ("add", "add", "more", "more", "remove", "rename", "merge", "undo", "undo", "reload", "refused")
        operation = str(self.random.choice(names))
        before = self.probabilities()
        simple = copy.deepcopy(self.simple)
        self.done.append(operation)
        if getattr(self, operation)():
            self.past.append((simple, before))
        self.check()

    def some(self, labels: list[str], most: int = 2) -> list[str]:
        count = int(self.random.integers(1, 1 + min(most, len(labels))))
        return [str(label) for label in self.random.choice(labels, count, replace=False)]

    # ------------------------------------------------------------------------------------------------- operations

    def add(self) -> bool:
        labels = sorted(self.some(self.unused, 3))
        self.unused = [label for label in self.unused if label not in labels]
        count = int(self.random.integers(1, 4))
        self.model.add_classes(*self.shuffled(rows(labels, count, self.random)))
        self.simple.novel.update(dict.fromkeys(labels, count))
        return True

    def more(self) -> bool:
        labels, count = self.some(self.simple.labels), int(self.random.integers(1, 3))
        self.model.add_examples(*self.shuffled(rows(labels, count, self.random)))
        for label in labels:
            self.simple.more(label, count)
        return True

    def remove(self) -> bool:
        labels = self.some(self.simple.labels)
        if set(self.simple.base) <= set(labels):
            return self.refused_by(lambda: self.model.remove_classes(labels))
        self.simple.plain &= not set(labels) & set(self.simple.base)
        self.model.remove_classes(labels)
        for label in labels:
            (self.simple.base if label in self.simple.base else self.simple.novel).pop(label)
        return True

    def rename(self) -> bool:
        old = self.some(self.simple.labels, 1)[0]
        new = f"{old[:3]} called {len(self.past)}"
        self.model.rename_class(old, new)
        self.simple.renamed(old, new)
        self.simple.plain = False
        return True

    def merge(self) -> bool:
        pair = self.some(self.simple.labels, 2)
        into = str(self.random.choice([*pair, f"{pair[0][:3]} merged {len(self.past)}"]))
        if len(pair) < 2 or set(pair) <= set(self.simple.base):
            return self.refused_by(lambda: self.model.merge_classes(pair, into=into))
        self.model.merge_classes(pair, into=into)
        base = [label for label in self.simple.base if label in pair]
        novel = [label for label in self.simple.novel if label in pair]
        host = base[0] if base else into if into in pair else novel[0]
        for guest in novel:
            if guest != host:
                self.simple.more(host, self.simple.novel.pop(guest))
        self.simple.renamed(host, into)
        self.simple.plain = False
        return True

    def undo(self) -> bool:
        if not self.past:
            return self.refused_by(self.model.undo)
        simple, before = self.past.pop()
        self.model.undo()
        self.simple = simple
        assert np.array_equal(self.probabilities(), before), "undo is not what was before"
        return False

    def reload(self) -> bool:
        before = self.probabilities()
        self.model.save(self.folder / "model")
        self.model = load_model(self.folder / "model")
        assert np.array_equal(self.probabilities(), before), "loading changed the model"
        return False

    def refused(self) -> bool:
        known, unknown = self.simple.labels[-1], "c59 never seen"
        X, y = rows([known], 2, self.random)
        wrong: list[Callable[[], Any]] = [
            lambda: self.model.add_classes(X, y),
            lambda: self.model.add_examples(X, [unknown] * 2),
            lambda: self.model.add_examples(X * np.nan, y),
            lambda: self.model.add_classes(X[:, 1:], [unknown] * 2),
            lambda: self.model.remove_classes([unknown]),
            lambda: self.model.rename_class(unknown, "x"),
            lambda: self.model.merge_classes([known], into=known),
        ]
        return self.refused_by(wrong[int(self.random.integers(len(wrong)))])

    # ----------------------------------------------------------------------------------------------------- checks

    def refused_by(self, operation: Callable[[], Any]) -> bool:
        before, state = self.probabilities(), self.model.state_
        try:
            operation()
        except ValueError:
            assert self.model.state_ is state, "a refused operation changed the model"
            assert np.array_equal(self.probabilities(), before), "a refused operation changed the probabilities"
            return False
        raise AssertionError("an operation that cannot be done was not refused")

    def probabilities(self) -> np.ndarray:
        return self.model.predict_proba(QUERIES)

    def shuffled(self, examples: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        X, y = examples
        order = self.random.permutation(len(y))
        return X[order], y[order]

    def check(self) -> None:
        check_possible(self.probabilities())
        assert list(self.model.classes_) == self.simple.labels, "the classes are not those that were taught"
        assert self.model.memory_.counts == {**self.simple.base, **self.simple.novel}, "an example was lost"

    def finish(self) -> None:
        """The same journal from the base on; and, if that can be said, without what was removed."""
        again = fresh(self.kind)
        again._become((*again.journal_[:1], *self.model.journal_[1:]))
        assert np.array_equal(again.predict_proba(QUERIES), self.probabilities()), "the journal gives another model"
        if self.simple.plain:
            never = never_added(fresh(self.kind), self.model.journal_, set(self.simple.labels))
            assert np.array_equal(never.predict_proba(QUERIES), self.probabilities()), "what was removed left a trace"


def never_added(model: Any, journal: tuple[Any, ...], stays: set[str]) -> Any:
    """The model of a journal that never speaks of classes that are gone."""
    kept = list(model.journal_[:1])
    for entry in journal[1:]:
        labels = tuple(label for label in entry.labels if label in stays)
        if entry.kind == "remove_classes" or not labels:
            continue
        there = np.isin(entry.y, labels)
        counts = tuple(n for label, n in zip(entry.labels, entry.counts, strict=True) if label in stays)
        rows = tuple(row for row, keep in zip(entry.rows, there, strict=True) if keep)
        kept.append(replace(entry, labels=labels, counts=counts, features=entry.features[there], rows=rows))
    return model._become(tuple(kept))


def check_possible(probabilities: np.ndarray) -> None:
    """Finite, from 0 to 1, and a row adds up to 1."""
    assert np.isfinite(probabilities).all(), "a probability is not finite"
    assert (probabilities >= 0).all(), "a probability is negative"
    assert (probabilities <= 1 + 1e-12).all(), "a probability is above one"
    assert np.allclose(probabilities.sum(1), 1, atol=1e-9), "probabilities do not add up"


def check_growth(unit: int, folder: Path) -> int:
    run = Run(unit, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _ in range(OPERATIONS):
                run.operate()
            run.finish()
        except Exception as error:
            error.add_note(f"{run.kind}: {' '.join(run.done)}")
            raise
    return OPERATIONS


PARTS = (
    Part(
        "growth",
        "Random operations on growing models, refused ones among them, beside a list of labels and counts",
        2_000,
        check_growth,
        share=(0, 2, 4),
    ),
)
