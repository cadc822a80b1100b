"""Encoders: values that turn pictures or texts into vectors, and say exactly which network does it."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin

from gptree.embed.collection import Kind
from gptree.embed.pictures import Preprocessing, UnreadableError, decoded, read_file

Description = dict[str, Any]


class Sources(NamedTuple):
    """Where an encoder may take its weights from.

    Attributes
    ----------
    weights : Path or None
        A file or a folder; None is what is installed.
    device : str
        "auto", "cpu", "cuda", …
    download : bool
        Whether the network may be asked.
    """

    weights: Path | None = None
    device: str = "auto"
    download: bool = False


class Encoder(TransformerMixin, BaseEstimator, ABC):
    """Pictures or texts → vectors. A value: it never changes, and `describe` tells it from all others.

    It is also a transformer of scikit-learn, which needs no fit: ``make_pipeline(encoder("minilm"),
    GPForestClassifier())`` takes texts.

    Attributes
    ----------
    name : str
        What it is called, such as "minilm".
    kind : "image" or "text"
        What it takes.
    dimension : int
        The length of its vectors.
    """

    family: ClassVar[str] = ""
    families: ClassVar[dict[str, type[Encoder]]] = {}

    name: str
    kind: Kind
    dimension: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__dict__.get("family"):
            Encoder.families[cls.family] = cls

    # ------------------------------------------------------------------------------------------ what a family defines

    @classmethod
    @abstractmethod
    def named(cls, rest: str, sources: Sources) -> Encoder:
        """The encoder ``family:rest``."""

    @classmethod
    @abstractmethod
    def described(cls, description: Mapping[str, Any], sources: Sources) -> Encoder:
        """The encoder of a description, or the nearest to it that can be had here."""

    @abstractmethod
    def describe(self) -> Description:
        """Which network this is, as JSON: family, architecture, pre-processing, SHA-256 of the weights.

        Two encoders with one description give the same vectors, up to rounding (about 1e-6 between batch sizes).
        """

    @abstractmethod
    def prepare(self, source: Any) -> Any:
        """One picture or text as `encode` takes it; `UnreadableError` where it cannot be encoded.

        Runs in several threads.
        """

    @abstractmethod
    def encode(self, batch: Sequence[Any]) -> np.ndarray:
        """Vectors (n, dimension) of what `prepare` gave."""

    @staticmethod
    def of(
        function: Callable[[Any], Any],
        *,
        name: str,
        dimension: int,
        kind: Kind = "image",
        preprocessing: Preprocessing | None = None,
    ) -> Encoder:
        """An encoder from a function or a network of your own. It is found by its name from now on.

        Parameters
        ----------
        function : callable or nn.Module
            Of a float tensor (B, 3, size, size) or, for texts, of a list of strings; gives (B, dimension).
        name : str
            Stands for the function in models and stores: give another function another name, such as "mine/2". The
            weights of a network are part of the description besides.
        dimension : int
        kind : "image" or "text"
        preprocessing : Preprocessing, optional
            Of pictures.

        Returns
        -------
        Encoder

        Examples
        --------
        >>> colours = Encoder.of(lambda x: x.mean((2, 3)), name="colours/1", dimension=3)
        >>> colours.transform([Image.new("RGB", (9, 9), "red")])
        array([[1., 0., 0.]], dtype=float32)
        """
        from gptree.embed.encoders.own import OwnEncoder

        return OwnEncoder(function, name, dimension, kind, preprocessing)

    # ------------------------------------------------------------------------------------------------- what all share

    @property
    def key(self) -> str:
        """A name made of the description, 16 hexadecimal digits."""
        return description_key(self.describe())

    def batch_size(self) -> int:
        """How much is encoded at a time, if nobody says: larger batches gain nothing on a CPU."""
        return 16

    def content(self, source: Any) -> bytes | str | Image.Image:
        """What is to be encoded: the content of a file, a text."""
        if self.kind == "text":
            return checked_text(source)
        if isinstance(source, Image.Image | bytes):
            return source
        return read_file(Path(source))

    def fit(self, X: Any, y: Any = None) -> Self:
        """Nothing to do; for scikit-learn.

        Parameters
        ----------
        X, y : ignored

        Returns
        -------
        self
        """
        return self

    def transform(self, X: Sequence[Any]) -> np.ndarray:
        """Vectors of pictures or texts.

        Parameters
        ----------
        X : sequence
            Texts; or paths, contents (bytes) or PIL images of pictures.

        Returns
        -------
        ndarray (n, dimension)
            float32.

        Raises
        ------
        ValueError
            If one of them cannot be encoded; `gptree.embed.embed` leaves such ones out.
        """
        prepared = []
        for row, source in enumerate(X):
            try:
                prepared.append(self.prepare(self.content(source)))
            except UnreadableError as error:
                raise ValueError(f"row {row} cannot be encoded: {error}.") from None
        size = self.batch_size()
        parts = [checked_vectors(self, prepared[i : i + size]) for i in range(0, len(prepared), size)]
        return np.concatenate([np.empty((0, self.dimension), dtype=np.float32), *parts])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Nothing can be set.

        Parameters
        ----------
        deep : bool
            Ignored.

        Returns
        -------
        dict
        """
        return {}

    def __sklearn_clone__(self) -> Self:
        return self  # a value

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array, tags.input_tags.string = False, True
        return tags

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return f"<encoder {self.name!r} of kind {self.kind!r}: {self.dimension} numbers>"


def description_key(description: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits of the SHA-256 of a description."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def checked_text(source: Any) -> str:
    """The text itself; `UnreadableError` where there is nothing to encode."""
    if not isinstance(source, str):
        raise UnreadableError(f"a text was expected, not a {type(source).__name__}")
    if not source.strip():
        raise UnreadableError("the text is empty")
    try:
        source.encode("utf-8")
    except UnicodeEncodeError:
        raise UnreadableError("the text is not valid Unicode") from None
    return source


def checked_vectors(encoder: Encoder, batch: Sequence[Any]) -> np.ndarray:
    """What the encoder gives for a batch, float32; a ValueError unless it is a vector for each of its items."""
    vectors = np.asarray(encoder.encode(batch), dtype=np.float32)
    if vectors.shape != (len(batch), encoder.dimension):
        raise ValueError(
            f"the encoder {encoder.name!r} gave an array of shape {vectors.shape} for {len(batch)} items; it should "
            f"be ({len(batch)}, {encoder.dimension})."
        )
    return vectors


class PictureEncoder(Encoder):
    """An encoder of pictures by a network whose input `preprocessing` describes."""

    kind = "image"
    preprocessing: Preprocessing
    device: str = "cpu"

    def prepare(self, source: bytes | Image.Image) -> np.ndarray:
        """Pixels (size, size, 3)."""
        return self.preprocessing(decoded(source))

    def encode(self, batch: Sequence[np.ndarray]) -> np.ndarray:
        import torch

        with torch.inference_mode():
            pixels = torch.as_tensor(np.stack(batch), device=self.device)
            return np.asarray(torch.as_tensor(self.embed(self.preprocessing.standardised(pixels))).float().cpu())

    def batch_size(self) -> int:
        return 64 if self.device.startswith("cuda") else 16

    @abstractmethod
    def embed(self, pixels: Any) -> Any:
        """Vectors (B, dimension) of a float tensor (B, 3, size, size)."""


def place(device: str) -> str:
    """The device that "auto" stands for; a ValueError where there is none such."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except Exception:
        raise ValueError(f"there is no device {device!r} here; give cpu.") from None
    return device
