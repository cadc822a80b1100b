"""A small share of the mutated files, and whether the campaign would notice what it looks for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from corpus import Case, Corpus, Impossible
from file_changes import mutated
from mutations import check_block, check_mutation, tried

SMALL = Corpus(("v2/tree", "v2/growth_tree", "v3/paper", "v2/deep_softmax", "csv", "npz", "npy"))


def test_a_share_of_the_mutated_files() -> None:
    outcomes = check_block(0, SMALL, 40)
    assert outcomes["refused"] > 10
    assert outcomes["read"] > 0


def test_the_same_seed_makes_the_same_files() -> None:
    case = SMALL.case("v2/tree")
    first, again, other = (mutated(case, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert first == again
    assert first[0] != other[0]


class Trouble(Corpus):
    """A corpus of one case whose reader does something that it must not."""

    def __init__(self, look: Callable[..., Any]) -> None:
        super().__init__(("trouble",))
        self._cases["trouble"] = Case("trouble", {"rows.jsonl": b'{"a": 1}\n'}, look)


def impossible(*_: Any) -> None:
    raise Impossible("a probability of 2")


@pytest.mark.parametrize(
    ("look", "says"),
    [
        (lambda *_: [][1], "raw IndexError at test_mutations.py"),
        (impossible, "a probability of 2"),
        (lambda *_: np.zeros(2**27).sum(), "takes 10.. MB"),
        (lambda *_: sys.exit(3), "raw SystemExit"),
        (lambda *_: np.ones(2**40), "MemoryError"),
    ],
)
def test_trouble_is_noticed_and_can_be_done_again(look: Callable[..., Any], says: str) -> None:
    with pytest.raises(Impossible, match=rf"python tests/campaign/mutations.py 7: trouble.*{says}"):
        check_mutation(7, Trouble(look))


def test_a_hang_is_noticed_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mutations.SECONDS", 0.2)
    mark = tmp_path / "calls"
    mark.write_text("")

    def hangs_at_first(folder: Path, random: np.random.Generator, may_change: bool) -> None:
        mark.write_text(mark.read_text() + "x")
        while len(mark.read_text()) == 1:
            pass

    assert tried([1, 2, 3], Trouble(hangs_at_first)) == ["hangs", "read", "read"]
