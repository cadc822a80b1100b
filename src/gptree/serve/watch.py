"""The model of a folder: the newest that could be loaded."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gptree.storage import DOCUMENT


@dataclass(frozen=True, eq=False)
class Served:
    """A model that answers.

    Attributes
    ----------
    model : classifier
    encoder : Encoder or None
        For texts and pictures; None for a model of vectors.
    version : str
        Twelve hexadecimal digits that its document gives it.
    width : int or None
        Numbers a row; None where a network takes arrays of its own shape.
    """

    model: Any
    encoder: Any
    version: str
    width: int | None


class ModelWatch:
    """Holds the model of a folder, and replaces it when another one is saved there.

    Whoever took `current` goes on with it. A folder that no longer holds a model changes nothing but `error`.

    Parameters
    ----------
    folder : Path
    load : callable
        From the folder to a classifier.
    weights : Path or None
        Of the model's encoder.
    """

    def __init__(self, folder: Path, load: Callable[[Path], Any], weights: Path | None = None) -> None:
        self.folder, self._load, self._weights = folder, load, weights
        self._seen = self._stamp()
        self._one = threading.Lock()
        self.current = self._served()
        self.loads, self.failures = 1, 0
        self.error: str | None = None

    def look(self) -> bool:
        """Load what is new; whether another model answers now."""
        with self._one:
            stamp = self._stamp()
            if stamp == self._seen:
                return False
            self._seen = stamp
            try:
                served = self._served()
            except Exception as error:  # whatever stands there now, the old model goes on
                self.failures, self.error = self.failures + 1, str(error) or type(error).__name__
                return False
            self.current, self.error, self.loads = served, None, self.loads + 1
            return True

    def _stamp(self) -> tuple[int, ...] | None:
        """Changes with every save."""
        try:
            found = (self.folder / DOCUMENT).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    def _served(self) -> Served:
        document, model = b"", None
        while model is None or document != (self.folder / DOCUMENT).read_bytes():  # saved again meanwhile
            document = (self.folder / DOCUMENT).read_bytes()
            model = self._load(self.folder)
        description = getattr(model, "encoder_", None)
        encoder = None
        if description is not None:
            from gptree.embed.encoders import encoder_of

            encoder = encoder_of(description, self._weights)
        width = getattr(model, "n_features_in_", None)
        if width is not None:  # what is computed once is computed before the first request
            model.predict_proba(np.zeros((1, width)))
        return Served(model, encoder, hashlib.sha256(document).hexdigest()[:12], width)
