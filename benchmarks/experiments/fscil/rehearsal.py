"""Rehearsed sessions.

With which settings do rivals that go on training a network learn classes best, as far as base classes can tell?

On mini-ImageNet, little better than at rest: a network that trains nothing has {mean mean | LUCIR at rest |
data=mini-pictures} % with EEIL, LUCIR and TOPIC, {mean mean | iCaRL at rest | data=mini-pictures} % with iCaRL, {mean
mean | SDC at rest | data=mini-pictures} % with SDC and {mean mean | PODNet at rest | data=mini-pictures} % with PODNet,
and the best settings of each, in bold below, are a point above or less. For EEIL and TOPIC nothing is better than rest.

On CUB a network that trains nothing has {mean mean | SDC at rest | data=cub-pictures} % with SDC and {mean mean | iCaRL
at rest | data=cub-pictures} % with iCaRL, and again the best settings are about a point above. The others fail at rest
({mean mean | LUCIR at rest | data=cub-pictures} % with EEIL, LUCIR and TOPIC, {mean mean | PODNet at rest |
data=cub-pictures} % with PODNet): [imprinted rows take all](fscil-cub.md), and training in sessions has to mend it.

On CIFAR-100 rest has {mean mean | LUCIR at rest | data=cifar-pictures} % with EEIL, LUCIR and TOPIC, {mean mean | iCaRL
at rest | data=cifar-pictures} % with iCaRL, {mean mean | SDC at rest | data=cifar-pictures} % with SDC and {mean mean |
PODNet at rest | data=cifar-pictures} % with PODNet; every rival has settings that are better, by a point at most.

Findings
--------
- On mini-ImageNet the published settings, which are rehearsed for their temperature alone, differ: iCaRL has {mean mean
  | iCaRL, published | data=mini-pictures} % and EEIL {mean mean | EEIL, published | data=mini-pictures} %, below rest;
  LUCIR ({mean mean | LUCIR, published | data=mini-pictures} %) and TOPIC ({mean mean | TOPIC, published |
  data=mini-pictures} %) [lose the base classes](fscil-mini-imagenet.md); PODNet, {mean mean | PODNet, published |
  data=mini-pictures} %, is at rest, and SDC, {mean mean | SDC, published | data=mini-pictures} %, above every setting
  that was open to the choice: it trains the whole network.
- On CUB, in two sessions, the published settings do not learn the novel classes and so keep the base classes: iCaRL
  {mean mean | iCaRL, published | data=cub-pictures} %, EEIL {mean mean | EEIL, published | data=cub-pictures} %, LUCIR
  {mean mean | LUCIR, published | data=cub-pictures} %, TOPIC {mean mean | TOPIC, published | data=cub-pictures} %. SDC
  has {mean mean | SDC, published | data=cub-pictures} %, PODNet {mean mean | PODNet, published | data=cub-pictures} %,
  more than any setting that was open to the choice: it trains the whole network.
- On CUB TOPIC is best at the largest learning rate and the smallest weight on offer, and PODNet at the smallest rate
  above none, so that more might be gained there. On CIFAR-100 TOPIC wants the largest weight on offer: with the others
  it loses the base classes.

Set-up
------
Sessions are drawn from the base classes alone, with one seed: 40 of the 60 base classes of mini-ImageNet and CIFAR-100
come first, then four sessions of five; 80 of the 100 of CUB, then two of ten; five shots each. A network is trained on
the first of them, as that of the sessions is, and a tenth of the rows of every class, a quarter on CUB, is for testing.
The settings with the highest accuracy, averaged over these sessions, are those of "tuned" in the experiments on
sessions; learning rate 0, which leaves the network as it is, is always among them. The temperature of the probabilities
is the one with the least NLL after the last rehearsed session; settings of publications are rehearsed for that alone.
Candidates are those of the library (`settings.candidates()`), but for EEIL's that train the whole network, which take
long. No test row of a data set is looked at.
"""

from __future__ import annotations

from benchmarks.core.tables import Column, Table
from benchmarks.core.trials import Row, Trial
from benchmarks.experiments.fscil import rivals
from benchmarks.experiments.fscil.lines import DATA, NETWORK_RIVALS
from benchmarks.experiments.fscil.sets import SETS

GROUP = "Classes that arrive later"
run = rivals.rehearse
COLUMNS = {
    "mean": Column("accuracy, mean over sessions (%)", "metrics.mean", 100, 1),
    "base": Column("base, last session (%)", "metrics.sessions.-1.base_accuracy", 100, 1),
    "novel": Column("novel, last session (%)", "metrics.sessions.-1.novel_accuracy", 100, 1),
}

_REST = '{"session__learning_rate": 0.0}'
CHOICES = {
    f"{title.split(' (')[0]}{which}": {"method": rival, "candidate": candidate}
    for rival, title in NETWORK_RIVALS.items()
    for which, candidate in ((" at rest", _REST), (", published", rivals.TAO))
}


def trials(seeds: int) -> list[Trial]:
    return [
        Trial("fscil-rehearsal", rival, data, seed, {"candidate": candidate})
        for seed in range(seeds)
        for data in SETS
        for rival in NETWORK_RIVALS
        for candidate in rivals.candidates(data, rival)
    ]


def tables(rows: list[Row]) -> list[Table]:
    """Of every data set: all settings of every rival, those chosen in bold."""
    made = []
    for data in SETS:
        lines = []
        for rival, title in NETWORK_RIVALS.items():
            mine = [row for row in rows if (row.trial.data, row.trial.method) == (data, rival)]
            best = max((row.metrics["mean"] for row in mine if _is_open(row)), default=None)
            for row in mine:
                cells = [title, _told(row), *(f"{column.of(row):.{column.digits}f}" for column in COLUMNS.values())]
                cells.append(f"{row.metrics['temperature']:.3g}")
                is_best = _is_open(row) and row.metrics["mean"] == best
                lines.append([f"**{cell}**" for cell in cells] if is_best else cells)
        if lines:
            titles = ["method", "settings", *(column.title for column in COLUMNS.values()), "temperature"]
            made.append(Table(f"{DATA[data]}: rehearsed", titles, lines))
    return made


def _is_open(row: Row) -> bool:
    return row.trial.settings["candidate"] != rivals.TAO


def _told(row: Row) -> str:
    candidate = row.trial.settings["candidate"]
    if candidate == rivals.TAO:
        return "published"
    if row.metrics["configuration"]["session__learning_rate"] == 0:
        return "learning rate 0"
    own = rivals.candidates(row.trial.data, row.trial.method)
    varied = dict.fromkeys(name for other in own if other != rivals.TAO for name in rivals.differences(other))
    return ", ".join(f"{name.split('__')[-1]} {row.metrics['configuration'][name]}" for name in varied)
