"""Encoders by name, and from the description that a model keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gptree.embed.collection import Kind
from gptree.embed.encoders.base import Encoder, Sources, description_key
from gptree.embed.encoders.own import OwnEncoder
from gptree.embed.encoders.sentences import minilm
from gptree.settings import import_modules

__all__ = ["DEFAULTS", "Encoder", "describes", "description_key", "encoder", "encoder_of"]

import_modules(__name__, __path__)  # each registers its family

#: The encoder of pictures and of texts where none is named.
DEFAULTS: dict[Kind, str] = {"image": "efficientnet-lite0", "text": "minilm"}


def encoder(name: str, weights: str | Path | None = None, *, device: str = "auto", download: bool = False) -> Encoder:
    """The encoder of a name.

    Parameters
    ----------
    name : str
        "efficientnet-lite0" (pictures) and "minilm" (texts), with the extras `images` and `texts`; "timm:NAME@FILE", a
        network of timm with weights from a file; "sbert:FOLDER", a model of sentence-transformers; "pixels:SIZE", the
        grey values of a picture of SIZE × SIZE pixels; or a name that was given to `Encoder.of`.
    weights : path, optional
        The file or folder of the weights, in place of those that are installed.
    device : "auto", "cpu", "cuda", …
    download : bool
        Whether weights may be fetched from the Hugging Face hub; otherwise the network is never asked.

    Returns
    -------
    Encoder

    Raises
    ------
    ValueError
        If there is none of this name, or something that it needs is not here.

    Examples
    --------
    >>> lengths = Encoder.of(lambda texts: [[len(t)] for t in texts], name="length/1", dimension=1, kind="text")
    >>> encoder("length/1") is lengths
    True
    """
    sources = Sources(None if weights is None else Path(weights).expanduser(), device, download)
    if name == "minilm":
        return minilm(sources)
    family, _, rest = name.partition(":")
    if name in OwnEncoder.known:
        return OwnEncoder.known[name]
    if family not in Encoder.families or (rest == "") != (family == DEFAULTS["image"]):
        raise ValueError(
            f"there is no encoder {name!r}: give efficientnet-lite0, minilm, timm:NAME@FILE, "
            "sbert:FOLDER or pixels:SIZE."
        )
    return Encoder.families[family].named(rest, sources)


def encoder_of(
    description: Mapping[str, Any], weights: str | Path | None = None, *, device: str = "auto", download: bool = False
) -> Encoder:
    """The encoder of a description, such as a model keeps.

    Parameters
    ----------
    description : dict
        See `Encoder.describe`.
    weights, device, download
        See `encoder`.

    Returns
    -------
    Encoder

    Raises
    ------
    ValueError
        If what can be had here is another one.
    """
    family = Encoder.families.get(str(description.get("family")))
    if family is None:
        raise ValueError(f"the encoder {describes(description)} is unknown to this gptree.")
    sources = Sources(None if weights is None else Path(weights).expanduser(), device, download)
    found = family.described(description, sources)
    if found.describe() != dict(description):
        raise ValueError(
            f"the encoder {describes(description)} is needed, but here is {describes(found.describe())}: name the "
            "right file or folder of weights with --weights."
        )
    return found


def describes(description: Mapping[str, Any]) -> str:
    """A description in short, for messages."""
    name = description.get("name") or description.get("architecture") or "?"
    weights = description.get("weights")
    family = str(description.get("family"))
    full = str(name) if family in (name, "own") else f"{family}:{name}"
    return full + (f" (weights {weights[:8]}…)" if isinstance(weights, str) else "")
