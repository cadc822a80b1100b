"""Pictures and texts as DATA: which encoder, which store, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptree.cli.console import say, shows_progress
from gptree.embed.collection import Collection, Failure

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
            raise ValueError(
                f"{collection.path} holds {what}, which cannot be encoded: {str(error).rstrip('.')}. Elsewhere, gptree "
                f"embed {collection.path} --out vectors.npz makes vectors of them, which every command takes."
            ) from None
        return found


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
