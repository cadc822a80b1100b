"""What lessons, edits of classes and going back make of a state. Nothing here is saved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from gptree.estimators import GPForestClassifier
from gptree.incremental import Growth
from gptree.project.examples import Example
from gptree.project.folder import Record, journal_digest, with_mark
from gptree.project.rows import plain
from gptree.project.state import State


class Lesson(NamedTuple):
    """A label, and the ids of examples of it."""

    label: Any
    ids: Sequence[str]


def as_lessons(lessons: Iterable[Lesson | tuple[Any, Sequence[str]]]) -> list[Lesson]:
    """Lessons as values; pairs will do."""
    return [Lesson(plain(label), tuple(ids)) for label, ids in lessons]


def forest(record: Record, X: np.ndarray, y: Sequence[Any], ids: Sequence[str]) -> GPForestClassifier:
    """The first model of a project."""
    model = GPForestClassifier(growth=Growth(), random_state=record.seed).fit(X, np.array(y), ids=ids)
    model.encoder_ = record.encoder
    return model


def taught(state: State, lessons: Sequence[Lesson], note: str, author: str) -> State:
    """The state after lessons: new classes are added, known ones extended; the first lesson of all is a fit."""
    check_lessons(state, lessons)
    label_of = {name: lesson.label for lesson in lessons for name in lesson.ids}
    if state.model is None:
        model = forest(state.record, state.vectors(list(label_of)), list(label_of.values()), list(label_of))
    else:
        model, known = copy.copy(state.model), set(state.model.classes_.tolist())
        for teach, is_known in ((model.add_classes, False), (model.add_examples, True)):
            ids = [name for name, label in label_of.items() if (label in known) == is_known]
            if ids:
                y = np.array([label_of[name] for name in ids])
                teach(state.vectors(ids), y, ids, note=note, author=author)
    fitted = state.model is None

    def after(each: Example) -> Example:
        if each.id not in label_of:
            return each
        label = label_of[each.id]
        return replace(each, split="taught", label=label, fitted=label if fitted else None, who=author or each.who)

    return _changed(state, model, after)


def edited(state: State, change: Callable[[Any], Any], relabel: Mapping[Any, Any], back_to_pool: bool) -> State:
    """The state after a change of the model's classes, in which labels of examples follow."""
    if state.model is None:
        raise ValueError("there is no model yet: teach it something first.")
    model = copy.copy(state.model)
    change(model)

    def after(each: Example) -> Example:
        if each.label is None or each.label not in relabel:
            return each
        split = "pool" if back_to_pool and each.split == "taught" else each.split
        return replace(each, label=relabel[each.label], split=split)

    return _changed(state, model, after)


def gone_back(state: State, keep: int, before: Callable[[int], Mapping[str, Any]]) -> State:
    """The state with the first `keep` versions of the line alone.

    Parameters
    ----------
    before : callable
        From a version to split and label of the examples that it changed, by id.
    """
    line = state.record.line
    if keep < 1:
        raise ValueError("there is nothing to undo: the model is as it was first fitted.")
    if keep >= len(line):
        raise ValueError("there is nothing to undo since that version.")
    model, examples = copy.copy(state.model), dict(state.examples)
    for at in reversed(range(keep, len(line))):
        while len(model.journal_) > line[at - 1].entries:
            entry = model.journal_[-1]
            model.undo()
            if entry.kind == "rename_class":  # also the labels of what came after it
                old, new = entry.labels
                examples = {name: replace(e, label=old) if e.label == new else e for name, e in examples.items()}
        for name, (split, label) in before(line[at].version).items():
            if name in examples:
                examples[name] = replace(examples[name], split=split, label=label)
    digest = journal_digest(model.journal_)
    record = replace(state.record, version=state.record.version + 1, model=digest, line=line[:keep])
    return State(record, MappingProxyType(examples), state.X, model)


def _changed(state: State, model: Any, after: Callable[[Example], Example]) -> State:
    examples = {name: after(each) for name, each in state.examples.items()}
    record = with_mark(state.record, state.record.version + 1, model.journal_)
    return State(record, MappingProxyType(examples), state.X, model)


def check_lessons(state: State, lessons: Sequence[Lesson]) -> None:
    """Complain before anything is computed."""
    named = [name for lesson in lessons for name in lesson.ids]
    if not named or not all(lesson.ids for lesson in lessons):
        raise ValueError("a lesson names at least one example.")
    seen: set[str] = set()
    tests = {each.key: each.id for each in state.examples.values() if each.split == "test"}
    for lesson in lessons:
        if lesson.label is None or (isinstance(lesson.label, str) and not lesson.label.strip()):
            raise ValueError("a lesson needs a label.")
        for name in lesson.ids:
            example = state.examples.get(name)
            if example is None:
                raise ValueError(f"there is no example {name!r} in the project.")
            if name in seen:
                raise ValueError(f"the example {name!r} comes twice in the lesson.")
            if example.split == "taught":
                raise ValueError(f"{name!r} was taught as {example.label!r}: undo that first.")
            if example.key in tests:
                raise ValueError(
                    f"{name!r} has the content of the test row {tests[example.key]!r}, never to be taught."
                )
            seen.add(name)
