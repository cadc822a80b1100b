"""Base networks that rivals share, and settings chosen on rehearsed sessions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from network_cases import base_network, digits, fitted, known, network, rival_of, settings_of
from torch import Tensor
from torch.utils.data import TensorDataset

from gptree.deep import Arrays, Batch, Source
from gptree.rivals import BaseNetwork, ICaRL, RehearsedSessions, rehearse, rehearsed_sessions
from gptree.rivals.networks.rehearsal import rows_of
from gptree.storage import StorageError, write_folder

UNIT = settings_of("icarl tuned").objective

# ------------------------------------------------------------------------------------------------------ base networks


def test_a_base_network_serves_several_rivals_and_none_of_them_changes_it() -> None:
    base = base_network(UNIT)
    before = {name: tensor.clone() for name, tensor in base.network.state_dict().items()}
    for case in ("icarl tuned", "eeil tuned", "lucir tuned", "lucir tao"):
        assert known(case).state_.model.network is not base.network
    for name, tensor in base.network.state_dict().items():
        assert torch.equal(tensor, before[name])
    with pytest.raises(ValueError, match="this method needs ProxyNCA"):
        rival_of("podnet tuned").fit(*digits().base, base=base)


@pytest.mark.parametrize("case", ["icarl tuned", "podnet tuned"])
def test_a_base_network_is_the_same_after_saving(case: str, tmp_path: Path) -> None:
    base = base_network(settings_of(case).objective)
    base.save(tmp_path / "base")
    again = BaseNetwork.load(tmp_path / "base", network(seed=5))
    assert (again.objective, again.inputs, again.log) == (base.objective, base.inputs, base.log)
    rival = rival_of(case).fit(*digits().base, base=again).add_classes(*digits().sessions[0])
    np.testing.assert_array_equal(rival.predict_proba(digits().X), known(case, 1).predict_proba(digits().X))
    write_folder(tmp_path / "other", {"kind": "another"}, {})
    with pytest.raises(StorageError, match="no base network"):
        BaseNetwork.load(tmp_path / "other", network())


def test_fit_trains_a_base_network_where_none_is_given(tmp_path: Path) -> None:
    rival = rival_of("icarl tuned", folder=tmp_path).fit(*digits().base)
    np.testing.assert_array_equal(rival.predict_proba(digits().X), fitted("icarl tuned").predict_proba(digits().X))
    assert (tmp_path / "base" / "last" / "model.json").exists()


def test_a_data_set_serves_as_an_array_does() -> None:
    base = base_network(UNIT)
    arrays = Arrays(digits().base[0], mean=base.inputs.mean, std=base.inputs.std)
    floats = replace(base, inputs=replace(base.inputs, mean=None, std=None))
    rival = rival_of("icarl tuned").fit(TensorDataset(clean(arrays), torch.from_numpy(digits().base[1])), base=floats)
    found, wanted = rival.state_, fitted("icarl tuned").state_
    assert found.means is not None
    assert wanted.means is not None
    torch.testing.assert_close(found.means, wanted.means)
    assert found.memory.pictures.dtype == torch.float32


def clean(source: Source) -> Tensor:
    (x,) = source.batches([Batch(np.arange(len(source)))], torch.device("cpu"))
    return x


# ---------------------------------------------------------------------------------------------------------- rehearsal


def test_rehearsed_rows_keep_apart_what_is_learned_and_asked() -> None:
    y = np.repeat(["a", "b", "c", "d", "e", "f"], 12)
    rows = rehearsed_sessions(y, sessions=2, way=2, shots=3, queries=4, draws=3, seed=1)
    assert len(rows.base) == 2 * 8
    assert len(rows.queries) == 6 * 4
    assert len(np.unique(y[rows.base])) == 2
    for draw in rows.draws:
        learned = np.concatenate([rows.base, *draw])
        assert len(np.unique(learned)) == len(learned)
        assert not np.intersect1d(learned, rows.queries).size
        assert [len(session) for session in draw] == [6, 6]
        assert sorted(np.unique(y[np.concatenate(draw)])) == sorted(set("abcdef") - set(y[rows.base]))
    assert len({tuple(np.concatenate(draw)) for draw in rows.draws}) == 3
    for message, wrong in (("leave", {"way": 3}), ("too many", {"queries": 10}), ("at least 1", {"draws": 0})):
        with pytest.raises(ValueError, match=message):
            rehearsed_sessions(y, **{"sessions": 2, "way": 2, "shots": 3, "queries": 4, **wrong})


@pytest.fixture(scope="module")
def rehearsal() -> tuple[RehearsedSessions, BaseNetwork]:
    X, y = digits().base
    rows = rehearsed_sessions(y, sessions=1, way=2, queries=10, draws=2)
    return rows, rival_of("icarl tuned").train_base(X[rows.base], y[rows.base])


@pytest.mark.parametrize("name", ["icarl", "eeil"])
def test_the_best_candidate_is_chosen_and_rate_zero_wins_ties(name: str, rehearsal: Any) -> None:
    rows, base = rehearsal
    rival = rival_of(f"{name} tuned")
    settings = rival.settings
    frozen, good = settings.with_params(session__learning_rate=0.0), settings
    ruined = settings.with_params(session__learning_rate=10.0, session__weight_decay=0.05)
    found = rehearse(rival, *digits().base, rows, base=base, candidates=[frozen, ruined, good, frozen])
    assert found.scores[0] == found.scores[3]
    assert found.scores[0] > found.scores[1]
    chosen = (frozen, ruined, good)[int(found.scores[:3].argmax())]
    assert found.settings == chosen.with_params(temperature=found.settings.temperature)
    assert found.settings.temperature != settings.temperature
    tied = rehearse(rival, *digits().base, rows, base=base, candidates=[frozen, frozen.with_params(session__steps=9)])
    assert tied.scores[0] == tied.scores[1]
    assert tied.settings.session.steps == frozen.session.steps
    assert not hasattr(rival, "state_")


def test_the_temperature_has_the_least_nll_on_the_queries(rehearsal: Any) -> None:
    rows, base = rehearsal
    rival = rival_of("icarl tuned")
    frozen = rival.settings.with_params(session__learning_rate=0.0)
    found = rehearse(rival, *digits().base, rows, base=base, candidates=[frozen]).settings
    X, y = digits().base

    def nll(temperature: float) -> float:
        total = []
        for draw in rows.draws:
            trial = rival_of("icarl tuned", session__learning_rate=0.0, temperature=temperature)
            trial.fit(X[rows.base], y[rows.base], base=base).add_classes(X[draw[0]], y[draw[0]])
            log_p = trial.predict_log_proba(X[rows.queries])
            order = {label: column for column, label in enumerate(trial.classes_.tolist())}
            total += [-log_p[i, order[label]] for i, label in enumerate(y[rows.queries].tolist())]
        return float(np.mean(total))

    best = nll(found.temperature)  # up to the smoothing of labels
    assert best <= min(nll(0.8 * found.temperature), nll(1.25 * found.temperature)) + 1e-3


def test_what_cannot_be_rehearsed(rehearsal: Any) -> None:
    rows, base = rehearsal
    rival = rival_of("icarl tuned")
    other = rival.settings.with_params(memory__base=3)
    with pytest.raises(ValueError, match="rehearse each memory"):
        rehearse(rival, *digits().base, rows, base=base, candidates=[other])
    with pytest.raises(ValueError, match="no candidate"):
        rehearse(rival, *digits().base, rows, base=base, candidates=[])


def test_rows_of_inputs_of_every_kind() -> None:
    X, rows = digits().base[0], np.array([5, 1, 7])
    np.testing.assert_array_equal(rows_of(X, rows), X[rows])
    assert torch.equal(rows_of(torch.from_numpy(X), rows), torch.from_numpy(X[rows]))
    arrays = Arrays(X)
    few = rows_of(arrays, rows)
    assert (few.mean, few.std) == (arrays.mean, arrays.std)
    wanted, y = clean(arrays), torch.from_numpy(digits().base[1])
    for source in (few, rows_of(TensorDataset(wanted, y), rows)):
        assert len(source) == 3
        torch.testing.assert_close(clean(source), wanted[rows])
    np.testing.assert_array_equal(source.labels, y[rows])


def test_the_rule_may_change_after_the_sessions() -> None:
    rival, X = known("icarl tuned"), digits().X
    assert isinstance(rival, ICaRL)
    nearest = rival.predict_proba(X)
    rival.set_params(settings__rule="classifier", settings__temperature=1.0)
    assert not np.allclose(rival.predict_proba(X), nearest)
    assert known("icarl tuned").settings.rule == "nearest-mean"
    tao = known("icarl tao").set_params(settings__rule="nearest-mean")
    with pytest.raises(ValueError, match="exemplars of every class"):
        tao.predict(X)
