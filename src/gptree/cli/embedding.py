"""`gptree embed`, `encoders` and `cache`: pictures and texts as vectors, what can encode them, and what was encoded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gptree.cli import options
from gptree.cli.console import BAD_INPUT, check_parent, clear_errors, print_json, print_table, say
from gptree.cli.encoding import Encoding, encode
from gptree.embed import Embedding, Store, encoder
from gptree.embed.encoders import DEFAULTS, describes
from gptree.embed.opening import collection_of
from gptree.embed.vectors import Names

_Store = Annotated[
    Path | None,
    typer.Option(
        help="Folder of what was encoded; if not given, that of the variable GPTREE_CACHE, else ~/.cache/gptree.",
        metavar="FOLDER",
        show_default=False,
    ),
]
_ACTIONS = ("info", "clear", "merge")


@clear_errors
def embed(
    data: options.Data,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write vectors, labels and ids into this .npz file; otherwise they are only stored."
        ),
    ] = None,
    encoder: options.Encoder = None,
    weights: options.Weights = None,
    download: options.Download = False,
    features: options.Features = None,
    labels: options.Labels = None,
    ids: options.Ids = None,
    store: _Store = None,
    batch: Annotated[int | None, typer.Option(help="How many are encoded at a time.", min=1)] = None,
    shard: options.Shard = None,
    strict: Annotated[bool, typer.Option("--strict", help="End with exit code 2 if anything was left out.")] = False,
    as_json: options.Json = False,
) -> None:
    """Encode a folder of pictures or a table of texts.

    What was encoded before is found by its content, and is not encoded again; a run that was killed goes on where it
    was. A file or a text that cannot be encoded is left out, and reported.

    Rows without a label, where others have one, go into a second file, such as photos.unlabelled.npz.
    """
    if out is not None:
        if out.suffix.lower() != ".npz":
            raise ValueError(f"{out}: vectors are written as .npz; name such a file with --out.")
        check_parent(out)
    encoding = Encoding(encoder, weights, download)
    collection = collection_of(data, Names(features, labels, ids), encoding.kind())
    if shard is not None:
        collection = collection.part(*options.part(shard))
    found = encode(collection, encoding.encoder(collection), Store(store), batch)
    files = [] if out is None else _write(found, out)
    if as_json:
        print_json(_facts(found, files))
    else:
        say(
            f"{len(found):,} vectors of {found.X.shape[1]:,} numbers by {describes(found.encoder)}; "
            f"{found.encoded:,} were encoded now" + (f"; written to {' and '.join(map(str, files))}" if files else "")
        )
    if strict and found.failed:
        raise typer.Exit(BAD_INPUT)


def _write(found: Embedding, out: Path) -> list[Path]:
    """The files that were written."""
    rest = found.unlabelled()
    if not 0 < len(rest) < len(found):
        found.save(out)
        return [out]
    other = out.with_suffix(".unlabelled.npz")
    found.labelled().save(out)
    rest.save(other)
    return [out, other]


def _facts(found: Embedding, files: list[Path]) -> dict[str, Any]:
    return {
        "rows": len(found),
        "features": found.X.shape[1],
        "encoded": found.encoded,
        "encoder": found.encoder,
        "failed": [each._asdict() for each in found.failed],
        "files": [str(path) for path in files],
    }


@clear_errors
def encoders(as_json: options.Json = False) -> None:
    """List the encoders that need no file: what they take, whether they are installed, how long their vectors are."""
    rows = []
    for kind, name in DEFAULTS.items():
        row: dict[str, Any] = {"name": name, "takes": "pictures" if kind == "image" else "texts", "default": True}
        try:
            found = encoder(name)
            row |= {"installed": True, "features": found.dimension, "description": found.describe()}
        except ValueError as error:
            row |= {"installed": False, "install": str(error)}
        rows.append(row)
    if as_json:
        print_json({"encoders": rows})
        return
    cells = [
        [row["name"], row["takes"], f"{row['features']:,} numbers" if row["installed"] else row["install"]]
        for row in rows
    ]
    print_table(["encoder", "takes", "gives"], cells)
    say("others, from files: timm:NAME@FILE for pictures (needs timm), sbert:FOLDER for texts (needs gptree[texts])")


@clear_errors
def cache(
    action: Annotated[str, typer.Argument(help="info, clear or merge.", metavar="ACTION", show_default=False)],
    stores: Annotated[
        list[Path] | None, typer.Argument(help="merge: other stores to take in.", metavar="STORE", show_default=False)
    ] = None,
    store: _Store = None,
    as_json: options.Json = False,
) -> None:
    """Show, clear or merge stores of what was encoded.

    merge copies what other stores hold, such as those of several machines, into this one.
    """
    if action not in _ACTIONS:
        raise ValueError(f"'{action}' is not one of {', '.join(_ACTIONS)}.")
    if bool(stores) != (action == "merge"):
        raise ValueError("merge takes the folders of other stores, and the other actions none.")
    here = Store(store)
    for other in stores or ():
        if not other.is_dir():
            raise ValueError(f"{other} is not a folder: name the folder of a store.")
        copied = here.merge(Store(other))
        say(f"{copied:,} vectors copied from {other}")
    if action == "clear":
        here.clear()
        say(f"{here.folder} is empty now")
    shelves = here.shelves()
    if as_json:
        print_json({"store": str(here.folder), "encoders": [vars(shelf) for shelf in shelves]})
    elif action != "clear":
        rows = [[describes(s.description), f"{s.rows:,}", f"{s.nbytes / 1e6:,.1f} MB", s.key] for s in shelves]
        print_table([str(here.folder), "vectors", "size", "key"], rows)
