"""Documents of experiments: their parts, and the numbers that the rows give."""

from __future__ import annotations

import pytest

from benchmarks.core.document import Document, Filler, StaleFinding
from benchmarks.core.tables import Column
from benchmarks.core.trials import Row, Trial

TEXT = """A title.

A question
in two lines?

An answer.

A second paragraph.

Findings
--------
- One.

Set-up
------
First.

Second.
"""
COLUMNS = {
    "accuracy": Column("accuracy %", "metrics.accuracy", 100, 1),
    "NLL": Column("NLL", "metrics.nll", digits=2, better=min),
}


def row(method: str, seed: int, accuracy: float, **settings) -> Row:
    trial = Trial("e", method, "digits", seed, settings)
    return Row(trial, {"accuracy": accuracy, "nll": 1 - accuracy, "kernel": "rbf"}, {}, None, {}, {})


ROWS = [
    *(row("tree, all", seed, 0.8 + 0.01 * seed, shots=5) for seed in range(3)),
    *(row("rival: knn", seed, 0.7 + 0.01 * seed, shots=5) for seed in range(3)),
    row("tree, all", 0, 0.9),
]


def fill(text: str, rows: list[Row] = ROWS) -> str:
    return Filler(rows, COLUMNS, {"ours": {"method": "tree, all", "shots": 5}}).fill(text)


def test_parts():
    document = Document.parse(TEXT)
    assert (document.title, document.question) == ("A title", "A question in two lines?")
    assert document.answer == "An answer.\n\nA second paragraph."
    assert (document.findings, document.setup) == ("- One.", "First.\n\nSecond.")
    with pytest.raises(ValueError, match="a title, a question, an answer"):
        Document.parse("Only a title.")
    with pytest.raises(ValueError, match="a title, a question, an answer"):
        Document.parse("T.\n\nQ?\n\nA.\n\nOther\n-----\nText.")


def test_means_and_counts():
    assert fill("{mean accuracy | tree, all | shots=5} %") == "81.0 %"
    assert fill("{mean accuracy | ours}") == "81.0"
    assert fill("{mean NLL | method=rival: knn}, {mean accuracy\n  | tree, all | shots=null}") == "0.29, 90.0"
    assert fill("{count | shots=5 | metrics.kernel=rbf}") == "6"
    assert fill("{mean accuracy | nobody}") == "–"


def test_gaps_have_their_verdict():
    assert fill("{gap accuracy | ours | rival: knn}") == "+10.0 ± 0.0 (ahead)"
    assert fill("{gap NLL | rival: knn | ours | data=digits}") == "+0.10 ± 0.00 (behind)"
    assert fill("{gap accuracy | ours | rival: knn | seed=0}") == "+10.0 (one seed, no verdict)"


def test_a_sentence_that_the_rows_do_not_bear_out_is_told():
    assert fill("{ahead accuracy | ours | rival: knn}") == "+10.0 ± 0.0"
    assert fill("{behind NLL | rival: knn | ours}") == "+0.10 ± 0.00"
    assert fill("{level accuracy | ours | ours}") == "+0.0 ± 0.0"
    with pytest.raises(StaleFinding, match=r"the rows say ahead \(\+10.0 ± 0.0\). Write the sentence again"):
        fill("{behind accuracy | ours | rival: knn}")
    with pytest.raises(StaleFinding, match="one seed"):
        fill("{ahead accuracy | ours | rival: knn}", [ROWS[0], ROWS[3]])


def test_an_unknown_column_is_told():
    with pytest.raises(ValueError, match="no column 'F1'; there are accuracy, NLL"):
        fill("{mean F1 | ours}")
