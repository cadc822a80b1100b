"""Threads that ask while another teaches: an answer is that of one of the models there were, never of half a change."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from growth import BASE, QUERIES, fresh, name, rows
from parts import Part

CHANGES, READERS = 12, 3
KINDS = ("forest", "the paper's tree", "tree, grafted")


def check_threads(unit: int, folder: Path) -> int:
    random = np.random.default_rng([unit, 13])
    model = fresh(KINDS[unit % len(KINDS)])
    published = [(model.classes_, model.predict_proba(QUERIES))]
    answers: list[tuple[np.ndarray, np.ndarray]] = []
    troubles: list[BaseException] = []
    done = threading.Event()

    def teach() -> None:
        beside = fresh(KINDS[unit % len(KINDS)])  # says what each change should give
        try:
            for change in range(CHANGES):
                operation = random.choice(["add", "more", "undo"]) if change else "add"
                apply(model, beside, str(operation), change, random)
                published.append((beside.classes_, beside.predict_proba(QUERIES)))
        except BaseException as error:
            troubles.append(error)
        finally:
            done.set()

    def ask() -> None:
        try:
            while not done.is_set():
                reader = model.predict_proba(QUERIES)
                answers.append((model.classes_, reader))
                model.novelty_score(QUERIES)
                model.predict_open(QUERIES)
                model.explain(QUERIES[:1])
        except BaseException as error:
            troubles.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=teach), *(threading.Thread(target=ask) for _ in range(READERS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if troubles:
        raise troubles[0]
    known = {probabilities.tobytes() for _, probabilities in published}
    for _, probabilities in answers:
        assert probabilities.tobytes() in known, "an answer of no model that there was"
    return CHANGES + len(answers)


def apply(model: Any, beside: Any, operation: str, change: int, random: np.random.Generator) -> None:
    if operation == "undo" and len(model.journal_) > 1:
        model.undo()
        beside.undo()
        return
    if operation == "more":
        examples = rows([name(int(random.integers(BASE)))], 2, random)
        model.add_examples(*examples)
        beside.add_examples(*examples)
        return
    examples = rows([name(BASE + change)], 3, random)
    model.add_classes(*examples)
    beside.add_classes(*examples)


PARTS = (
    Part(
        "threads",
        "Threads that predict, explain and ask for strangers while another teaches and takes back",
        200,
        check_threads,
    ),
)
