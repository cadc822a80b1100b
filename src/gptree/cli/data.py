"""Reading DATA: vectors (see `gptree.embed.vectors`), a folder of pictures, a table of texts or paths of pictures.

A table whose column `--features` (default text, else image) holds text gives texts, or paths of pictures, to encode.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gptree.cli.encoding import Encoding, encode
from gptree.embed.collection import Collection
from gptree.embed.opening import opened
from gptree.embed.vectors import Data, Names, read_vectors

__all__ = ["Data", "read_data"]


def read_data(
    path: Path,
    features: str | None = None,
    labels: str | None = None,
    *,
    ids: str | None = None,
    row_weights: str | None = None,
    need_labels: bool = True,
    known_columns: Sequence[str] | None = None,
    pictures: bool = False,
    encoding: Encoding | None = None,
    part: tuple[int, int] | None = None,
) -> Data:
    """Read and check a file; encode a folder of pictures or a table of texts.

    Parameters
    ----------
    path : Path
    features, labels, ids, row_weights : str or None
        The options of these names; None is the default.
    need_labels : bool
        Without it, labels that are not there are None, unless they were asked for by name.
    known_columns : sequence of str or None
        Columns that a model was fitted on: a table then gives these, in this order, whatever else it holds.
    pictures : bool
        Whether features may have more than two axes.
    encoding : Encoding, optional
        How pictures and texts are encoded.
    part : (int, int) or None
        Only every n-th row, beginning with the k-th, for (k, n).
    """
    names, encoding = Names(features, labels, ids, row_weights), encoding or Encoding()
    found = opened(path, names, encoding.kind, known_columns)
    if isinstance(found, Collection):
        return _encoded(found if part is None else found.part(*part), need_labels, encoding)
    data = read_vectors(path, names, need_labels, known_columns, pictures, found)
    return data if part is None else data.part(*part)


def _encoded(collection: Collection, need_labels: bool, encoding: Encoding) -> Data:
    """Vectors of pictures or texts; where labels are needed, of those that have one."""
    from gptree.embed import Store

    found = encode(collection, encoding.encoder(collection), Store())
    if need_labels:
        if found.y is None:
            raise ValueError(
                f"{collection.path} gives no labels: put the pictures of each class into a folder of its name, or name "
                "the column of a table with --labels."
            )
        found = found.labelled()
    given = None if found.y is None else tuple(found.y.tolist())
    is_partial = given is not None and None in given
    return Data(
        path=collection.path,
        X=found.X,
        y=None if is_partial else found.y,
        names=found.ids,
        encoder=found.encoder,
        given=given if is_partial else None,
        sources={item.id: item.source for item in collection.items},
        keys=found.keys,
        failed=found.failed,
    )
