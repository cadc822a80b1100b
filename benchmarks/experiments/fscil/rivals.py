"""Rivals that go on training a network in sessions: base networks, settings chosen by rehearsal, and trials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from benchmarks.core.experiment import RESULTS
from benchmarks.core.pictures import Pictures
from benchmarks.core.store import Rows
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil.networks import write
from benchmarks.experiments.fscil.remembered import Memory, OfTokens, RandomView, tokens
from benchmarks.experiments.fscil.sets import SETS, pictures_of, sessions_of
from benchmarks.experiments.fscil.streams import HELD_OUT
from gptree.deep import Arrays, embed
from gptree.deep.loop.task import split_rows
from gptree.estimators.deep_inputs import Inputs
from gptree.metrics import columns, nll
from gptree.protocols import SessionStream, run_stream
from gptree.rivals import NETWORK_RIVALS, BaseNetwork, ICaRLSettings
from gptree.rivals.networks.sessions import SessionState
from gptree.rivals.networks.settings import NetworkRivalSettings, PerClass

#: Of a session's row, what names the run: the trial has it already.
NAMES = ("data", "method", "settings", "seed", "versions", "machine", "commit")
TAO, TUNED, FROZEN = "tao", "tuned", "learning rate 0"
#: Rows of rehearsed sessions.
REHEARSED = RESULTS / "fscil-rehearsal.jsonl"
#: Temperatures to choose from.
TEMPERATURES = np.geomspace(1e-3, 30.0, 181)


# ------------------------------------------------------------------------------------------------------ base networks


def base_name(data: str, settings: NetworkRivalSettings, rival: str, seed: int, rehearsal: bool) -> str:
    kind = settings.objective.name
    if rival == "sdc":
        kind = "metric-published" if is_published(settings) else "metric"
    return f"{data}-{kind}{'-rehearsal' if rehearsal else ''}-{seed}"


def base_network(
    data: str, rival: str, settings: NetworkRivalSettings, seed: int, rehearsal: bool, folder: Path
) -> BaseNetwork:
    """The network that a rival begins with; trained when it is first asked for, and kept in `bases`.

    All but PODNet begin with the same, SDC after its epochs of metric learning. It has no last rectifier, for LUCIR
    and PODNet compare features of both signs.
    """
    own, name = SETS[data], base_name(data, settings, rival, seed, rehearsal)
    backbone = own.backbone(folder, seed, rectified=False)
    path = folder / "bases" / name
    if path.exists():
        return BaseNetwork.load(path, backbone)
    first = sessions_of(data, folder, rehearsal).sessions[0]
    X = pictures_of(data, folder).X[first.X[:, 0]]
    if rival == "sdc":
        base = base_network(data, "icarl", ICaRLSettings.tuned(), seed, rehearsal, folder)
        learned = NETWORK_RIVALS[rival](base.network, settings, augment=own.augment, random_state=seed)
        learned.fit(X, first.y, base=base)
        base = replace(base, network=learned.state_.model.network.cpu())
    else:
        training = own.training.with_params(validation=None, validate_every=1) if rehearsal else own.training
        trainer = NETWORK_RIVALS[rival](
            backbone, settings, training=training, augment=own.augment, random_state=seed, folder=folder / "runs" / name
        )
        base = trainer.train_base(Arrays(X, augment=own.augment, **own.scaling), first.y)
    base.save(path)
    if not rehearsal and name == base_name(data, ICaRLSettings.tuned(), "icarl", seed, False):
        write_embeddings(base, data, seed, folder)
    return base


def held_out_rows(data: str, seed: int, y: np.ndarray) -> np.ndarray:
    """Which rows of the base session its network was not trained on."""
    labels, codes = np.unique(y, return_inverse=True)
    _, held_out = split_rows(codes, labels.tolist(), SETS[data].training.validation, seed)
    return np.isin(np.arange(len(y)), held_out)


# ------------------------------------------------------------------------------------------------------------- models


_MEMORIES: dict[tuple[str, Path], Memory] = {}


def of_tokens(base: BaseNetwork, name: str, data: str, folder: Path) -> BaseNetwork:
    """The base network for numbers of pictures. What enters its last block is shared by all that begin with it."""
    if (name, folder) not in _MEMORIES:
        while len(_MEMORIES) > 1:  # of two networks at a time
            del _MEMORIES[next(iter(_MEMORIES))]
        own, pictures = SETS[data], pictures_of(data, folder)
        mean, std = torch.tensor([base.inputs.mean, base.inputs.std])[:, :, None, None]
        X = torch.from_numpy(np.ascontiguousarray(pictures.X.transpose(0, 3, 1, 2)))
        memory = Memory(X.to(_device()), own.augment, own.views, 1 / (255 * std), -mean / std)
        _MEMORIES[name, folder] = memory
    network = OfTokens(base.network, _MEMORIES[name, folder])
    return replace(base, network=network, inputs=Inputs((1, 1, 2), None, None, "float32"))


def _device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ByNumber:
    """A rival that is given numbers of pictures, (n, 1): as tokens where its last block alone is trained.

    States after the base session are shared by all whose settings have the same memory and are of the same form: what
    candidates vary comes later.
    """

    _fitted: ClassVar[dict[tuple[Any, ...], SessionState]] = {}

    def __init__(self, rival: Any, base: BaseNetwork, pictures: np.ndarray, shared: tuple[Any, ...]) -> None:
        self.rival, self.base, self.pictures, self.shared = rival, base, pictures, shared

    def inputs(self, X: np.ndarray) -> np.ndarray:
        return tokens(X[:, 0]) if isinstance(self.base.network, OfTokens) else self.pictures[X[:, 0]]

    def fit(self, X: np.ndarray, y: np.ndarray) -> Any:
        if self.shared not in self._fitted:
            self.rival.fit(self.inputs(X), y, base=self.base)
            while len(self._fitted) > 3:
                del self._fitted[next(iter(self._fitted))]
            self._fitted[self.shared] = self.rival.state_
        self.rival.state_ = self._fitted[self.shared]
        return self

    def add_classes(self, X: np.ndarray, y: np.ndarray) -> Any:
        return self.rival.add_classes(self.inputs(X), y)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: np.ndarray) -> np.ndarray:
        return self.rival.predict_log_proba(self.inputs(X))

    @property
    def classes_(self) -> np.ndarray:
        return self.rival.classes_

    @property
    def memory_bytes_(self) -> int:
        """With pictures in the place of their numbers."""
        kept = self.rival.state_.memory.pictures
        return self.rival.memory_bytes_ - kept.nbytes + len(kept) * self.pictures[0].nbytes


def make(
    data: str, rival: str, settings: NetworkRivalSettings, seed: int, folder: Path, rehearsal: bool = False
) -> ByNumber:
    """A rival that is yet to learn the base session."""
    base = base_network(data, rival, settings, seed, rehearsal, folder)
    name, pictures = base_name(data, settings, rival, seed, rehearsal), pictures_of(data, folder)
    views: Any = SETS[data].augment
    if settings.session.trainable == "last-block":
        base = of_tokens(base, name, data, folder)
        views = (RandomView(len(pictures.y), SETS[data].views),)
    if rival == "sdc":
        settings = settings.with_params(base_epochs=0)  # which its base network has behind it
    shared = (name, folder, rival, repr(settings.memory), settings.session.trainable, is_published(settings))
    model = NETWORK_RIVALS[rival](base.network, settings, augment=views, random_state=seed)
    return ByNumber(model, base, pictures.X, shared)


def is_published(settings: NetworkRivalSettings) -> bool:
    """Whether settings are those of a publication, which shows in what a network learns from in sessions."""
    return settings.new_rows == "random" or settings.session.trainable == "all"


def learn(
    data: str, rival: str, settings: NetworkRivalSettings, seed: int, folder: Path, rehearsal: bool = False
) -> tuple[ByNumber, dict[str, Any]]:
    """Teach a rival the sessions; the model, and the metrics of a trial."""
    model = make(data, rival, settings, seed, folder, rehearsal)
    stream, others = sessions_of(data, folder, rehearsal), []
    result = run_stream(
        model, stream, seed=seed, method=rival, on_session=lambda row: others.append(nearest_mean(model, stream, row))
    )
    sessions = [{key: value for key, value in row.items() if key not in NAMES} for row in result.rows]
    return model, {
        "sessions": sessions,
        "reliability": result.details["reliability"],
        "nearest_mean": others,
        "configuration": configuration(settings),
        "base_seconds": sum(row.get("seconds", 0.0) for row in model.base.log),
    }


def nearest_mean(model: ByNumber, stream: SessionStream, row: Mapping[str, Any]) -> float | None:
    """Accuracy by nearest means of exemplars, where the classifier is what the method answers by."""
    settings = model.rival.settings
    if settings.rule != "classifier" or model.rival.state_.means is None:
        return None
    seen = stream.sessions[: row["session"] + 1]
    X, y = (np.concatenate([getattr(session, name) for session in seen]) for name in ("X_test", "y_test"))
    model.rival.settings = settings.with_params(rule="nearest-mean")
    right = model.rival.predict(model.inputs(X)) == y
    model.rival.settings = settings
    return float(right.mean())


def configuration(settings: NetworkRivalSettings) -> dict[str, Any]:
    """All settings, as JSON can hold them."""
    plain = (int, float, str, bool, type(None))
    return {name: value if isinstance(value, plain) else repr(value) for name, value in settings.get_params().items()}


def embedding_name(data: str, seed: int) -> str:
    """Of the embeddings that classifiers on a frozen network see: those of the network of most rivals."""
    return f"{data}-cross-entropy-{seed}"


def write_embeddings(base: BaseNetwork, data: str, seed: int, folder: Path) -> None:
    """Of all pictures, without augmentation."""
    pictures, first = pictures_of(data, folder), sessions_of(data, folder).sessions[0]
    split = pictures.split.copy()
    split[first.X[held_out_rows(data, seed, first.y), 0]] = HELD_OUT
    source = Arrays(pictures.X, mean=base.inputs.mean, std=base.inputs.std)
    x = embed(base.network.to(_device()), source, np.arange(len(pictures.y)), _device()).cpu().numpy()
    known = Pictures(pictures.X, pictures.y, pictures.names, split, pictures.path)
    write(x, known, folder / "networks", embedding_name(data, seed))


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """A rival on all sessions, in one of its forms."""
    rival, form = trial.method.removeprefix("network: ").split(", ")
    settings = chosen(list(Rows(REHEARSED)), trial.data, rival, form)
    if "exemplars" in trial.settings:
        each = trial.settings["exemplars"]
        settings = settings.with_params(memory=PerClass(base=each, novel=each))
    _, metrics = learn(trial.data, rival, settings, trial.seed, folder)
    return metrics


# ---------------------------------------------------------------------------------------------------------- rehearsal


def candidates(data: str, rival: str) -> dict[str, NetworkRivalSettings]:
    """Settings to rehearse, by what sets them apart; the published ones are rehearsed for their temperature alone."""
    kind = NETWORK_RIVALS[rival].settings_type
    start = kind.tuned()
    # a whole network is trained by published settings alone: it takes long
    every = [settings for settings in start.candidates() if settings.session.trainable == "last-block"]
    found = {_difference(settings, start): settings for settings in every}
    return found | ({TAO: kind.tao(SETS[data].published)} if data != "cifar-pictures" else {})


def _difference(settings: NetworkRivalSettings, start: NetworkRivalSettings) -> str:
    ours, theirs = configuration(settings), configuration(start)
    changed = {name: value for name, value in ours.items() if value != theirs[name] and not _is_value(value)}
    return json.dumps(changed, sort_keys=True)


def differences(candidate: str) -> dict[str, Any]:
    """Of a candidate, the settings that set it apart."""
    return json.loads(candidate)


def _is_value(value: Any) -> bool:
    """Whether it is the text of settings, whose fields are listed too."""
    return isinstance(value, str) and value.endswith(")")


def rehearse(trial: Trial, folder: Path) -> Mapping[str, Any]:
    """A candidate on the rehearsed sessions: its mean accuracy after them, and the best temperature after the last."""
    settings = candidates(trial.data, trial.method)[trial.settings["candidate"]]
    model, metrics = learn(trial.data, trial.method, settings, trial.seed, folder, rehearsal=True)
    stream = sessions_of(trial.data, folder, rehearsal=True)
    X, y = (np.concatenate([getattr(s, name) for s in stream.sessions]) for name in ("X_test", "y_test"))
    codes = columns(y, model.classes_.tolist())
    mean = float(np.mean([row["accuracy"] for row in metrics["sessions"][1:]]))
    return {
        **metrics,
        "mean": mean,
        "temperature": best_temperature(model.predict_log_proba(X), codes) * settings.temperature,
    }


def best_temperature(log_p: np.ndarray, y: np.ndarray) -> float:
    """By which to divide log-probabilities (n, C), for the lowest NLL of classes y (n,)."""

    def cost(temperature: float) -> float:
        z = log_p / temperature
        z = z - z.max(1, keepdims=True)
        return nll(np.exp(z) / np.exp(z).sum(1, keepdims=True), y)

    return float(min(TEMPERATURES, key=cost))


def chosen(rows: list[Row], data: str, rival: str, form: str) -> NetworkRivalSettings:
    """The settings of a form of a rival, as rows of rehearsed sessions say."""
    mine = [row for row in rows if (row.trial.data, row.trial.method) == (data, rival)]
    own = candidates(data, rival)
    open_to = {TAO: [TAO], FROZEN: [next(iter(own))], TUNED: [name for name in own if name != TAO]}[form]
    found = {row.trial.settings["candidate"]: row for row in mine if row.trial.settings["candidate"] in open_to}
    missing = [name for name in open_to if name not in found]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} settings of {rival} on {data} have not been rehearsed; run `python -m benchmarks run "
            f"fscil-rehearsal --data DIR --methods {rival}` first."
        )
    best = max(open_to, key=lambda name: found[name].metrics["mean"])
    return own[best].with_params(temperature=found[best].metrics["temperature"])
