"""`RehearsedRival`: a setting chosen for classes that are still to come, on sessions rehearsed within the base.

Points left out of the base are classified best by settings that trust the data much, since every base class
has many examples. Classes of a few shots need more caution, and the base can show how much: some of its classes
play the novel ones.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from gptree.rivals.incremental.base import IncrementalRival
from gptree.rivals.left_out import fit_temperature, shot_folds
from gptree.settings import require

NOVEL_SHARES = (0.2, 0.5)  # of the base classes, one rehearsal each
QUERY_FOLDS = 5  # one fifth of each class is asked about


class Statistics(Protocol):
    """Sums over the classes seen so far: enough to add classes, and to solve for the weights."""

    def add(self, h: np.ndarray, y: np.ndarray) -> Statistics:
        """With k new classes behind those before, from features h (n, D) and codes y (n,) in 0 … k−1."""
        ...

    def weights(self, setting: float) -> tuple[np.ndarray, np.ndarray]:
        """Weights (D, C) and intercepts (C,) of the class scores."""
        ...


Begin = Callable[[np.ndarray, np.ndarray], Statistics]


class RehearsedRival(IncrementalRival):
    """Scores that are linear in mapped features, with one setting, chosen by `rehearse`, and a temperature.

    The temperature has the least NLL on left-out base points at that setting.

    Attributes
    ----------
    setting_, temperature_ : float
    statistics_ : Statistics
    coef_, intercept_ : ndarray (D, C) and (C,)
    """

    shots: int
    random_state: int

    @abstractmethod
    def _settings(self) -> tuple[float, ...]:
        """The settings to choose from."""

    @abstractmethod
    def _begin(self, h: np.ndarray, y: np.ndarray) -> Statistics:
        """The statistics of a base session."""

    @abstractmethod
    def _temperature(self, h: np.ndarray, y: np.ndarray) -> float:
        """The temperature at `setting_`."""

    @abstractmethod
    def _one_shot(self, h: np.ndarray) -> tuple[float, float]:
        """Setting and temperature where no base class has two examples."""

    @abstractmethod
    def _map(self, x: np.ndarray) -> np.ndarray:
        """The features (n, D) that the scores are linear in."""

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        h = self._map(x)
        if y.max() + 1 == len(y):
            self.setting_, self.temperature_ = self._one_shot(h)
        else:
            self.setting_ = rehearse(self._begin, h, y, self._settings(), self.shots, self.random_state)
            self.temperature_ = self._temperature(h, y)
        self._keep(self._begin(h, y))

    def _add(self, x: np.ndarray, y: np.ndarray) -> None:
        self._keep(self.statistics_.add(self._map(x), y))

    def _keep(self, statistics: Statistics) -> None:
        self.coef_, self.intercept_ = statistics.weights(self.setting_)
        self.statistics_ = statistics

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.temperature_ * (self._map(x) @ self.coef_ + self.intercept_)


class Rehearsal(NamedTuple):
    codes: np.ndarray  # (n,) of the classes in order of arrival
    n_base: int  # classes of the base session
    base: np.ndarray  # its rows
    few: np.ndarray  # rows of the novel classes
    queries: np.ndarray  # rows of all classes


def rehearsals(y: np.ndarray, shots: int, seed: int) -> Iterator[Rehearsal]:
    """A share of the classes, drawn at random, gets `shots` examples each; two classes at least stay as they are."""
    rng = np.random.default_rng(seed)
    folds, n_classes = shot_folds(y, limit=QUERY_FOLDS), int(y.max()) + 1
    for number, share in enumerate(NOVEL_SHARES):
        order = rng.permutation(n_classes)
        n_base = max(n_classes - round(share * n_classes), 2)
        codes, queries = np.argsort(order)[y], folds == number
        rest = rng.permutation(np.flatnonzero(~queries & (codes >= n_base)))
        few = [rest[codes[rest] == c][:shots] for c in range(n_base, n_classes)]
        base = np.flatnonzero(~queries & (codes < n_base))
        yield Rehearsal(codes, n_base, base, np.concatenate([base[:0], *few]), np.flatnonzero(queries))


def rehearse(begin: Begin, h: np.ndarray, y: np.ndarray, settings: tuple[float, ...], shots: int, seed: int) -> float:
    """The setting of least NLL over queries of all classes, each rehearsal at its best temperature.

    Of equal settings the largest is taken, which is the most cautious of a penalty or a shrinkage.
    """
    require(len(settings) > 0, "there is no setting to choose from; give at least one.")
    require(shots >= 1, f"shots must be at least 1, got {shots}.")
    settings = tuple(sorted(settings, reverse=True))
    if len(settings) == 1:
        return settings[0]
    losses = np.zeros(len(settings))
    for codes, n_base, base, few, queries in rehearsals(y, shots, seed):
        statistics = begin(h[base], codes[base])
        if len(few):
            statistics = statistics.add(h[few], codes[few] - n_base)
        for index, setting in enumerate(settings):
            coef, intercept = statistics.weights(setting)
            losses[index] += fit_temperature(h[queries] @ coef + intercept, codes[queries])[1]
    return settings[int(losses.argmin())]
