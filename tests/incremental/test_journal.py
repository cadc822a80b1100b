"""What a journal says the model holds, against plain lists and dictionaries."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gptree.incremental import ClassRegistry, Entry, replay

BASE = ("a", "b", "c")
LABELS = "abcdefgh"
FIT = Entry("fit", BASE, (4, 4, 4))


def read(*entries: Entry) -> ClassRegistry:
    return replay(BASE, (FIT, *entries), 1, torch.zeros(0))


def bring(kind, start: int = 0, **numbers: int) -> Entry:
    """An entry with so many examples of each label; the features are running numbers, given in reverse."""
    total = sum(numbers.values())
    features = torch.arange(start, start + total, dtype=torch.float64)[:, None]
    return Entry(kind, tuple(numbers), tuple(numbers.values()), features=features, rows=tuple(range(total))[::-1])


def numbers(features: torch.Tensor) -> list[int]:
    return features[:, 0].int().tolist()


class Model:
    """What should be there. A class is a dictionary; its examples are (running number, entry, row it was given in)."""

    def __init__(self) -> None:
        self.classes = [{"label": c, "born": c, "base": i, "first": [], "more": []} for i, c in enumerate(BASE)]

    def find(self, label: str) -> dict:
        return next(c for c in self.classes if c["label"] == label)

    @property
    def labels(self) -> list[str]:
        return [c["label"] for c in self.classes]

    def add_classes(self, number: int, examples: dict[str, list]) -> None:
        for label, rows in examples.items():
            self.classes.append({"label": label, "born": label, "session": number, "first": rows, "more": []})

    def add_examples(self, number: int, examples: dict[str, list]) -> None:
        for label, rows in examples.items():
            self.find(label)["more"] = self.find(label)["more"] + rows

    def remove_classes(self, labels: tuple[str, ...]) -> None:
        self.classes = [c for c in self.classes if c["label"] not in labels]

    def rename_class(self, labels: tuple[str, ...]) -> None:
        self.find(labels[0])["label"] = labels[1]

    def merge_classes(self, labels: tuple[str, ...]) -> None:
        *labels, into = labels
        members = [c for c in self.classes if c["label"] in labels]
        host = next((c for c in members if "base" in c), None)
        host = host or next((c for c in members if c["label"] == into), members[0])
        guests = [c for c in members if c is not host]
        if "base" in host:
            host["more"] = host["more"] + [row for c in guests for row in c["first"] + c["more"]]
        else:
            host["first"] = host["first"] + [row for c in guests for row in c["first"]]
            host["more"] = host["more"] + [row for c in guests for row in c["more"]]
        self.classes = [c for c in self.classes if c not in guests]
        host["label"] = into

    def allows(self, kind: str, labels: tuple[str, ...]) -> bool:
        here = self.labels
        base = {c["label"] for c in self.classes if "base" in c}
        if kind == "add_classes":
            return not set(labels) & set(here)
        if kind in ("add_examples", "remove_classes"):
            return len(labels) > 0 and set(labels) <= set(here) and (kind == "add_examples" or not base <= set(labels))
        if kind == "rename_class":
            return labels[0] in here and labels[1] not in here
        *merged, into = labels
        enough = set(merged) <= set(here) and len(set(merged)) > 1
        return enough and (into in merged or into not in here) and len(base & set(merged)) < 2


def check(state: ClassRegistry, model: Model) -> None:
    assert state.labels == model.labels
    base = [c for c in model.classes if "base" in c]
    novel = [c for c in model.classes if "base" not in c]
    assert [(c.number, numbers(c.extra), list(c.origins)) for c in state.base] == [
        (c["base"], [row[0] for row in c["more"]], [row[1:] for row in c["more"]]) for c in base
    ]
    assert [(c.first, numbers(c.features), list(c.origins)) for c in state.novel] == [
        (len(c["first"]), [row[0] for row in c["first"] + c["more"]], [row[1:] for row in c["first"] + c["more"]])
        for c in novel
    ]
    sessions = sorted({c["session"] for c in novel})
    assert state.sessions == [[i for i, c in enumerate(novel) if c["session"] == s] for s in sessions]
    keys = [c.key for c in state.novel]
    assert len({*keys, *BASE}) == len(keys) + len(BASE)
    for key, c, i in zip(keys, novel, count(), strict=False):
        if c["born"] not in {*BASE, *(other["born"] for other in novel[:i])}:
            assert key == c["born"]


def some_labels(kind: str, model: Model, random) -> tuple[str, ...]:
    """Labels for an operation: mostly such that it can be done, now and then any."""
    here, free = model.labels, [c for c in LABELS if c not in model.labels]
    anything = random.random() < 0.15

    def pick(good: list[str], least: int, most: int) -> list[str]:
        good = list(LABELS) if anything or len(good) < least else good
        return random.sample(good, random.randint(least, min(most, len(good))))

    if kind in ("add_classes", "add_examples"):
        return tuple(sorted(pick(free if kind == "add_classes" else here, 1, 3)))
    if kind == "remove_classes":
        return tuple(pick(here, 0 if anything else 1, 2))
    if kind == "rename_class":
        return (*pick(here, 1, 1), *pick(free, 1, 1))
    novel = [c["label"] for c in model.classes if "base" not in c]
    labels = pick(novel + random.sample(here, 1), 2, 4)
    return (*labels, random.choice(pick(labels + free, 1, 1) + labels))


KINDS = [
    "add_classes",
    "add_classes",
    "add_examples",
    "add_examples",
    "remove_classes",
    "rename_class",
    "merge_classes",
]


@settings(deadline=None, max_examples=120)
@given(st.lists(st.sampled_from(KINDS), max_size=16), st.randoms(use_true_random=False))
def test_any_sequence_of_operations(sequence, random) -> None:
    """What cannot be done is refused; everything else happens as it would to plain lists."""
    journal, model, running = [FIT], Model(), count(100)
    for kind in sequence:
        labels = some_labels(kind, model, random)
        counts = [random.randint(1, 3) for _ in labels] if kind.startswith("add_") else []
        ids = [[next(running) for _ in range(n)] for n in counts]
        places = list(range(sum(counts)))
        random.shuffle(places)
        features = torch.tensor([[float(i)] for group in ids for i in group]) if counts else None
        entry = Entry(kind, labels, tuple(counts), features=features, rows=tuple(places))
        if not model.allows(kind, labels):
            with pytest.raises(ValueError, match=r"[a-z]"):
                replay(BASE, (*journal, entry), 1, torch.zeros(0))
            continue
        if counts:
            origin = iter(places)
            rows = {c: [(i, len(journal), next(origin)) for i in group] for c, group in zip(labels, ids, strict=True)}
            getattr(model, kind)(len(journal), rows)
        else:
            getattr(model, kind)(labels)
        journal.append(entry)
        check(replay(BASE, journal, 1, torch.zeros(0)), model)


def test_what_a_merged_class_came_with_goes_before_what_came_later() -> None:
    first, later = bring("add_classes", d=2, e=1), bring("add_examples", start=10, d=1, e=2)
    (merged,) = read(first, later, Entry("merge_classes", ("d", "e", "e"))).novel
    assert numbers(merged.features) == [2, 0, 1, 11, 12, 10]  # the host is the class whose label it keeps
    assert merged.origins == ((1, 0), (1, 2), (1, 1), (2, 1), (2, 0), (2, 2))
    assert (merged.first, merged.label, merged.key, merged.session) == (3, "e", "e", 1)
    host = read(first, later, Entry("merge_classes", ("b", "d", "e", "z"))).base[1]
    assert (host.label, host.number, numbers(host.extra)) == ("z", 1, [0, 1, 10, 2, 11, 12])


# ---------------------------------------------------------------------------------------------------------------- keys


def keys(*entries: Entry) -> list[str]:
    return [c.key for c in read(*entries).novel]


def test_a_key_survives_a_new_name() -> None:
    assert keys(bring("add_classes", d=1), Entry("rename_class", ("d", "z"))) == ["d"]
    assert keys(bring("add_classes", d=1, e=1), Entry("merge_classes", ("d", "e", "z"))) == ["d"]


def test_a_label_that_is_used_again_gets_a_key_of_its_own() -> None:
    again = [bring("add_classes", d=1), Entry("rename_class", ("d", "z")), bring("add_classes", start=5, d=1)]
    assert keys(*again) == ["d", "d\x002"]
    once_more = [*again, Entry("rename_class", ("d", "y")), bring("add_classes", start=7, d=1)]
    assert keys(*once_more) == ["d", "d\x002", "d\x003"]
    # without the first, the second is what it would be had the first never been
    assert keys(*again, Entry("remove_classes", ("z",))) == ["d"]


def test_a_base_label_stays_with_the_base_class() -> None:
    for gone in (Entry("remove_classes", ("b",)), Entry("rename_class", ("b", "z"))):
        assert keys(gone, bring("add_classes", b=1)) == ["b\x002"]


def test_whole_numbers_as_labels() -> None:
    journal = (
        Entry("fit", (0, 1)),
        Entry("add_classes", (5,), (1,), features=torch.ones(1, 1), rows=(0,)),
        Entry("rename_class", (5, 7)),
        Entry("add_classes", (5,), (1,), features=torch.ones(1, 1), rows=(0,)),
    )
    assert [c.key for c in replay((0, 1), journal, 1, torch.zeros(0)).novel] == [5, "5\x002"]


# -------------------------------------------------------------------------------------------------------------- entries


def test_an_entry_knows_its_examples() -> None:
    entry = bring("add_classes", start=10, d=2, e=3)
    assert entry.y == ["d", "d", "e", "e", "e"]
    assert numbers(entry.examples("e")) == [12, 13, 14]
    (d, e) = read(entry).novel
    assert (d.origins, e.origins) == (((1, 4), (1, 3)), ((1, 2), (1, 1), (1, 0)))


def test_the_time_is_utc() -> None:
    then = datetime.fromisoformat(Entry("fit", ()).time)
    assert then.tzinfo == UTC
    assert abs((datetime.now(UTC) - then).total_seconds()) < 60


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (bring("add_classes", b=1, x=1), "the label 'b' is already known.*add_examples"),
        (bring("add_classes", b=1, c=1), "the labels 'b', 'c' are already known"),
        (bring("add_examples", b=1, x=1), "the label 'x' is unknown.*add_classes"),
        (Entry("remove_classes", ("x",)), "the label 'x' is unknown: only known classes can be removed"),
        (Entry("remove_classes", ()), "at least one class"),
        (Entry("remove_classes", BASE), "at least one class of the base session has to stay"),
        (Entry("rename_class", ("x", "y")), "'x' is unknown"),
        (Entry("rename_class", ("a", "b")), "'b' is taken.*merge_classes"),
        (Entry("merge_classes", ("a", "x", "a")), "'x' is unknown"),
        (Entry("merge_classes", ("a", "a", "a")), "two different classes"),
        (Entry("merge_classes", ("a", "b", "a")), "at most one base class"),
        (Entry("merge_classes", ("a", "d", "c")), "'c' is another class"),
    ],
)
def test_messages_say_what_to_do(entry: Entry, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(bring("add_classes", d=1), entry)
