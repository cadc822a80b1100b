"""Pictures and texts as DATA: which encoder, which store, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptree.cli.console import say, shows_progress
from gptree.embed.collection import Collection, Failure
from gptree.embed.tables import IMAGE, TEXT, is_number, read_header, read_table

if TYPE_CHECKING:
    from gptree.embed import Embedding, Encoder, Store

_SHOWN = 3  # failures that a message names


@dataclass(frozen=True)
class Encoding:
    """How a command turns pictures and texts into vectors.

    Attributes
    ----------
    name : str or None
        The encoder; None is that of the model or, without a model, the default for what DATA holds.
    weights : Path or None
        File or folder of its weights.
    download : bool
    model : bool
        Whether there is a model already.
    description : dict or None
        The encoder of the model; None if it was fitted on vectors.
    """

    name: str | None = None
    weights: Path | None = None
    download: bool = False
    model: bool = False
    description: Mapping[str, Any] | None = None

    def kind(self) -> str | None:
        """What the encoder takes, if it is known."""
        from gptree.embed.encoders import encoder

        if self.description is not None:
            return str(self.description.get("kind"))
        return None if self.name is None else encoder(self.name, self.weights, download=self.download).kind

    def encoder(self, collection: Collection) -> Encoder:
        """The encoder for a collection; a ValueError says what to do where there is none."""
        from gptree.embed.encoders import DEFAULTS, encoder, encoder_of

        what = "pictures" if collection.kind == "image" else "texts"
        if self.model and self.description is None:
            raise ValueError(
                f"{collection.path} holds {what}, but the model was fitted on vectors: encode them with the encoder of "
                f"those vectors, gptree embed {collection.path} --out vectors.npz, and give vectors.npz."
            )
        try:
            if self.description is not None:
                found = encoder_of(self.description, self.weights, download=self.download)
            else:
                found = encoder(self.name or DEFAULTS[collection.kind], self.weights, download=self.download)
        except ValueError as error:
            raise ValueError(f"{collection.path} holds {what}, which cannot be encoded: {error}") from None
        return found


def is_raw(path: Path, features: str | None, known_columns: Sequence[str] | None = None) -> bool:
    """Whether DATA is to be encoded: a folder, or a table whose column of features holds text."""
    if path.is_dir():
        return True
    if path.suffix.lower() not in (".csv", ".parquet") or not path.is_file():
        return False
    if features is None and known_columns is not None:
        return False
    header = read_header(path)
    name = features or next((name for name in (TEXT, IMAGE) if name in header), None)
    if name not in header:
        return False
    cells = [cell for cell in read_table(path)[1](name) if cell]
    return sum(map(is_number, cells)) < len(cells) / 2  # a few mistakes make no text of numbers


def collection_of(
    path: Path, features: str | None, labels: str | None, ids: str | None, kind: str | None
) -> Collection:
    """The pictures of a folder, or the texts or pictures of a table; `kind` is what the encoder takes, if known."""
    from gptree.embed import ImageFolder, Table

    if path.is_dir():
        for option, name in (("--features", features), ("--labels", labels), ("--ids", ids)):
            if name is not None:
                raise ValueError(f"{path} is a folder, whose files give names and labels, so leave {option} out.")
        return ImageFolder(path)
    image = features if kind == "image" or features == IMAGE else None
    return Table(path, text=None if image else features, image=image, label=labels, id=ids)


def embedded(path: Path, features: str | None, labels: str | None, ids: str | None, encoding: Encoding) -> Embedding:
    """The vectors of DATA, from the default store where they are known."""
    from gptree.embed import Store

    collection = collection_of(path, features, labels, ids, encoding.kind())
    return encode(collection, encoding.encoder(collection), Store())


def encode(collection: Collection, encoder: Encoder, store: Store, batch_size: int | None = None) -> Embedding:
    """Encode with a bar, and say what was left out."""
    from gptree.embed import embed

    found = embed(collection, encoder, store=store, batch_size=batch_size, progress=shows_progress(False))
    if found.failed:
        say(f"warning: {left_out(found.failed, len(found.failed) + len(found))}")
    return found


def left_out(failed: Sequence[Failure], total: int) -> str:
    """What failed, in one sentence."""
    first = "; ".join(f"{each.id}: {each.reason}" for each in failed[:_SHOWN])
    more = "" if len(failed) <= _SHOWN else "; …"
    return f"{len(failed):,} of {total:,} {'was' if len(failed) == 1 else 'were'} left out: {first}{more}"
