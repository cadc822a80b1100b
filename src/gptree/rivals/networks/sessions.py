"""States after sessions as values, and on disk, from where an interrupted stream goes on."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gptree.deep.loop.checkpoints import stable_repr
from gptree.estimators.deep_inputs import Inputs
from gptree.rivals.networks.memory import Memory
from gptree.rivals.networks.model import Model, frozen
from gptree.rivals.networks.settings import NetworkRivalSettings
from gptree.storage import DOCUMENT, StorageError, below, labels_from_json, labels_to_json, read_folder, write_folder

KIND = "session of a network"
#: Settings that change predictions only.
_FREE = ("rule", "temperature")


@dataclass(frozen=True, eq=False)
class SessionState:
    """All that a rival knows after a session.

    Attributes
    ----------
    model : Model
        In eval mode, without gradients; never changed.
    classes : ndarray (C,)
        Labels in order of arrival.
    n_base : int
        Classes of the base session.
    memory : Memory
    means : Tensor (C, d) or None
        Unit means of the exemplars; None unless there are some of every class.
    inputs : Inputs
        What inputs have to be.
    extra : dict of Tensor
        What a method keeps beside: prototypes, anchors.
    log : list of dict
        A row a training of the sessions.
    """

    model: Model
    classes: np.ndarray
    n_base: int
    memory: Memory
    means: Tensor | None
    inputs: Inputs
    extra: Mapping[str, Tensor] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)

    @property
    def session(self) -> int:
        """0 after the base."""
        return len(self.model.classifier.rows) - 1


class SessionFolder:
    """States in `folder/session-NNN`, each with an identity of all it was made from; without a folder there are none.

    A state is stored as what differs from the model before: of a network the tensors that were trained.
    """

    def __init__(self, folder: str | Path | None, *made_from: Any) -> None:
        self._folder = None if folder is None else Path(folder)
        self._identity = "" if folder is None else digest(*made_from)

    def read(self, number: int, before: Model, inputs: Inputs) -> SessionState | None:
        """The state after a session, if it is there; `before` is the model that the session began with."""
        if self._folder is None or not (self._path(number) / DOCUMENT).exists():
            return None
        document, tensors = read_folder(self._path(number))
        if document.get("kind") != KIND:
            raise StorageError(f"{self._path(number)} holds no session of a network.")
        if document["identity"] != self._identity:
            raise ValueError(
                f"{self._path(number)} holds a session with other data, settings or sessions before it: go on with the "
                "same ones, or choose another folder."
            )
        device = next(before.parameters()).device
        model, stored = copy.deepcopy(before), below("model", tensors)
        while f"classifier.rows.{len(model.classifier.rows)}" in stored:
            model.classifier.grow(stored[f"classifier.rows.{len(model.classifier.rows)}"].to(device))
        model.load_state_dict(model.state_dict() | stored)
        means = tensors.get("means")
        return SessionState(
            model=frozen(model),
            classes=labels_from_json(document["labels"]),
            n_base=document["n_base"],
            memory=Memory(tensors["pictures"], tensors["y"].numpy()),
            means=None if means is None else means.to(device),
            inputs=inputs,
            extra={name: value.to(device) for name, value in below("extra", tensors).items()},
            log=document["log"],
        )

    def write(self, state: SessionState, before: Model) -> None:
        """Store a state that was reached from the model `before`."""
        if self._folder is None:
            return
        old = before.state_dict()
        tensors = {
            f"model.{name}": value
            for name, value in state.model.state_dict().items()
            if name not in old or not torch.equal(value, old[name])
        }
        tensors |= {f"extra.{name}": value for name, value in state.extra.items()}
        tensors |= {"pictures": state.memory.pictures, "y": torch.from_numpy(state.memory.y)}
        tensors |= {} if state.means is None else {"means": state.means}
        document = {
            "kind": KIND,
            "identity": self._identity,
            "labels": labels_to_json(state.classes),
            "n_base": state.n_base,
            "log": state.log,
        }
        write_folder(self._path(state.session), document, tensors)

    def _path(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"session-{number:03d}"


def digest(*parts: Any) -> str:
    """Of values, arrays and tensors, and modules by their tensors."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, torch.nn.Module):
            content = digest(*part.state_dict().values()).encode()
        elif isinstance(part, Tensor):
            content = part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        elif isinstance(part, np.ndarray):
            content = repr(part.tolist()).encode()
        else:
            content = stable_repr(part).encode()
        found.update(content)
    return found.hexdigest()[:16]


def lasting(settings: NetworkRivalSettings) -> list[tuple[str, Any]]:
    """The settings that sessions depend on."""
    return [(name, value) for name, value in settings.get_params(deep=False).items() if name not in _FREE]
