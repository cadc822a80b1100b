"""Imprinted class rows.

Why does a network that is not trained at all lose its base classes where new class rows are imprinted?

Because features are nearer to class means than to learned rows. On frozen features of CUB a test row of a base class
has a cosine of {mean own | learned rows, new ones imprinted | data=cub200} with the row that was learned for its
class, {mean mean | learned rows, new ones imprinted | data=cub200} with the mean of its class, and {mean new | learned
rows, new ones imprinted | data=cub200} with the nearest imprinted row, which is the mean of five shots: {mean base |
learned rows, new ones imprinted | data=cub200} % of the test rows of base classes keep their class, of {mean first |
learned rows, new ones imprinted | data=cub200} % before the first session. With means for base classes too it is {mean
base | means of all classes | data=cub200} %.

Findings
--------
- A part that all features share, of which the mean feature's length {mean common | learned rows, new ones imprinted |
  data=cub200} tells, is about half of it on CUB: with centred features {mean base | learned rows, new ones imprinted,
  centred | data=cub200} % of the base rows keep their class. The mean of a class of centred features is still nearer
  ({mean mean | learned rows, new ones imprinted, centred | data=cub200}) than its learned row ({mean own | learned
  rows, new ones imprinted, centred | data=cub200}).
- Where less is shared less is lost: on Banking77 ({mean common | learned rows, new ones imprinted | data=banking77})
  {mean base | learned rows, new ones imprinted | data=banking77} % remain, centred {mean base | learned rows, new ones
  imprinted, centred | data=banking77} %; on CLINC150 ({mean common | learned rows, new ones imprinted |
  data=clinc150}) {mean base | learned rows, new ones imprinted | data=clinc150} %, centred {mean base | learned rows,
  new ones imprinted, centred | data=clinc150} %.
- Means of all classes end ahead of learned rows on all three, by {ahead accuracy | means of all classes | learned
  rows, new ones imprinted | data=cub200}, {ahead accuracy | means of all classes | learned rows, new ones imprinted |
  data=banking77} and {ahead accuracy | means of all classes | learned rows, new ones imprinted | data=clinc150}
  points, though rows that were learned are the better ones before the first session ({mean first | learned rows, new
  ones imprinted | data=cub200} against {mean first | means of all classes | data=cub200} % on CUB). Centring changes
  them little ({gap accuracy | means of all classes, centred | means of all classes | data=cub200} points on CUB).
- So it is not the network that fails where [EEIL, LUCIR and TOPIC lose the base classes of CUB at learning rate
  0](fscil-cub.md), but rows of two kinds in one classifier; training in sessions has to bring them together. iCaRL and
  SDC, which answer by means of all classes, are spared.

Set-up
------
Frozen features and sessions are those of [sessions on frozen features](fscil-features.md), without a map: features of
unit length. Learned rows: cosines with a learned scale, trained by cross-entropy for 100 epochs on the base session,
which then stay; a new class gets the mean of its unit shots for a row. That is LUCIR, and on these features EEIL and
TOPIC, at learning rate 0. Means of all classes: a cosine classifier whose rows are class means for base classes too.
Centred: the mean of all base rows is taken from every feature before its length is made one. Cosines are those of test
rows of base classes after the last session. Nothing is chosen. On CUB seeds change how training begins and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.core.gaps import gap_table
from benchmarks.core.tables import Column, Table, chosen, comparison
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil.features import PROTOCOLS, make_stream
from benchmarks.experiments.fscil.methods import NAMES
from benchmarks.experiments.fscil.tables import ACCURACY, BASE, ECE, NLL, NOVEL, after
from gptree.maths.sphere import unit_length
from gptree.protocols import SessionStream, run_stream
from gptree.rivals import INCREMENTAL, LUCIR, LUCIRSettings

GROUP, SEEDS = "Classes that arrive later", 3
ROWS, MEANS = METHODS = ("learned rows, new ones imprinted", "means of all classes")
LINES = {f"{method}{', centred' * centred}": (method, centred) for centred in (False, True) for method in METHODS}
CHOICES = {name: {"method": method, "centred": centred} for name, (method, centred) in LINES.items()}
NAMED = {"cub200": "CUB-200", "clinc150": "CLINC150", "banking77": "Banking77"}
OWN, MEAN, NEW, COMMON = (
    Column("own row", "metrics.cosines.own", 1, 2),
    Column("own class mean", "metrics.cosines.mean", 1, 2),
    Column("nearest new row", "metrics.cosines.new", 1, 2, min),
    Column("length of the mean feature", "metrics.common", 1, 2, min),
)
COLUMNS = {
    "first": after(ACCURACY, 0),
    "accuracy": ACCURACY,
    "base": BASE,
    "novel": NOVEL,
    "NLL": NLL,
    "own": OWN,
    "mean": MEAN,
    "new": NEW,
    "common": COMMON,
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("fscil-imprinting", method, data, seed, {"centred": centred})
        for data in PROTOCOLS
        for seed in range(seeds)
        for method, centred in LINES.values()
    ]


class Given(nn.Identity):
    """A network that gives what it is given; features of both signs may be among it."""

    rectified = False


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    stream = make_stream(trial.data, Path(folder), trial.seed)
    if trial.settings["centred"]:
        stream = centred(stream)
    model: Any = INCREMENTAL["class-mean"]() if trial.method == MEANS else learned_rows(trial.seed)
    result = run_stream(model, stream, seed=trial.seed, method=trial.method)
    sessions = [{key: value for key, value in row.items() if key not in NAMES} for row in result.rows]
    common = float(np.linalg.norm(unit_length(stream.sessions[0].X).mean(0)))
    return {"sessions": sessions, "common": common, "cosines": cosines(model, stream) if trial.method == ROWS else {}}


def learned_rows(seed: int) -> LUCIR:
    """LUCIR that trains nothing in sessions."""
    settings = LUCIRSettings.tuned().with_params(session__learning_rate=0.0, session__trainable="all")
    return LUCIR(Given(), settings, random_state=seed, device="cpu")


def centred(stream: SessionStream) -> SessionStream:
    """The sessions, the mean of all base rows taken from every row."""
    mean = stream.sessions[0].X.mean(0)
    sessions = (replace(session, X=session.X - mean, X_test=session.X_test - mean) for session in stream.sessions)
    return SessionStream(stream.name, tuple(sessions))


def cosines(model: LUCIR, stream: SessionStream) -> dict[str, float]:
    """Of test rows of base classes with the row of their class, with its mean, and with the nearest of the new rows."""
    first = stream.sessions[0]
    x, codes = unit_length(first.X_test), np.searchsorted(model.classes_[: model.state_.n_base], first.y_test)
    rows = unit_length(model.state_.model.classifier.weight.detach().numpy())
    features = unit_length(first.X)
    means = unit_length(
        np.stack([features[first.y == label].mean(0) for label in model.classes_[: model.state_.n_base]])
    )
    return {
        "own": float((x * rows[codes]).sum(1).mean()),
        "mean": float((x * means[codes]).sum(1).mean()),
        "new": float((x @ rows[model.state_.n_base :].T).max(1).mean()),
    }


def tables(rows: list[Row]) -> list[Table]:
    made = []
    for data, name in NAMED.items():
        groups = {line: group for line, fields in CHOICES.items() if (group := chosen(rows, data=data, **fields))}
        if groups:
            made.append(comparison(f"{name}: after the last session", groups, (ACCURACY, BASE, NOVEL, NLL, ECE)))
            learned = {line: group for line, group in groups.items() if line.startswith(ROWS)}
            made.append(comparison(f"{name}: cosines of base rows", learned, (OWN, MEAN, NEW, COMMON)))
            pairs = [(f"{ROWS}, centred", ROWS), (MEANS, ROWS), (f"{MEANS}, centred", MEANS)]
            gaps = {f"{a} less {b}": (groups.get(a, []), groups.get(b, [])) for a, b in pairs}
            made.append(gap_table(f"{name}: gaps after the last session", gaps, (ACCURACY, BASE, NOVEL, NLL)))
    return made
