"""What there is to embed: items with an identity, a source and perhaps a label."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Self

from gptree.settings import require

#: What an encoder takes, and what a collection holds.
Kind = Literal["image", "text"]
Label = str | int


class Failure(NamedTuple):
    """Something that was left out, and why."""

    id: str
    reason: str


@dataclass(frozen=True)
class Item:
    """One picture or text.

    Attributes
    ----------
    id : str
        Its name: for a picture of a folder the path below it.
    source : Path or str
        The file of a picture; a text itself.
    label : str, int or None
        None where it is not known.
    """

    id: str
    source: Path | str
    label: Label | None = None


class Collection:
    """Items in an order that does not depend on the machine, and what could not be one.

    Attributes
    ----------
    path : Path
        The folder or the file that they come from.
    kind : "image" or "text"
    items : tuple of Item
    failed : tuple of Failure
    """

    path: Path
    kind: Kind
    items: tuple[Item, ...]
    failed: tuple[Failure, ...]

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r}): {len(self.items):,} of kind {self.kind!r}"

    def part(self, number: int, of: int) -> Self:
        """Every `of`-th item, beginning with the `number`-th: the share of one of several machines.

        Parameters
        ----------
        number : int
            1 … of.
        of : int

        Returns
        -------
        Collection
        """
        require(1 <= number <= of, f"there is no part {number} of {of}: parts are numbered 1 to {of}.")
        share = copy.copy(self)
        share.items = self.items[number - 1 :: of]
        return share


def check_ids(path: Path, ids: Sequence[str]) -> None:
    """A ValueError if two items have the same id."""
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(each for each in ids if each in seen or seen.add(each))
        raise ValueError(f"{path}: the id {twice!r} comes twice; ids name rows, and each has its own.")


def parsed_labels(cells: Sequence[str]) -> list[Label]:
    """Whole numbers where every label is written as one (007 is a name), else text."""
    if all(re.fullmatch(r"0|-?[1-9]\d{0,17}", cell) for cell in cells):
        return [int(cell) for cell in cells]
    return list(cells)
