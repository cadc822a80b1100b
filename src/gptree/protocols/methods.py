"""`SessionMethod`: the methods of session runs by name, for the command and the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gptree.estimators import GPForestClassifier, GPTreeClassifier
from gptree.incremental import Growth, Strategy
from gptree.protocols.run import IncrementalModel
from gptree.rivals import INCREMENTAL, Mapped
from gptree.settings import require

GROWING = ("forest", "tree", "paper")
"""Methods that grow by a strategy; all others are names of `gptree.rivals.INCREMENTAL`."""


@dataclass(frozen=True, kw_only=True)
class SessionMethod:
    """A method that learns its classes session by session.

    A rival takes `exemplars`, `shots` and the seed where it has such a parameter, and sees the features through
    `SphereMap`, fitted to the base session, as forest and tree do. `strategy` and `kernel` are not for rivals.

    Parameters
    ----------
    name : str
        "forest", "tree", "paper" (the tree with the settings of the paper), or a name of `INCREMENTAL`.
    strategy : str
        How forest, tree and paper grow: a name of a `Strategy`.
    exemplars : int
        Examples kept of every base class, by the methods that keep examples.
    shots : int
        Examples that the base session expects of a novel class.
    kernel : str
        Of the paper's tree, with output scale 8.

    Examples
    --------
    >>> from gptree.protocols import SessionMethod
    >>> model = SessionMethod(name="slda", shots=1).make(seed=0)
    """

    name: str
    strategy: str = "shared-root"
    exemplars: int = 5
    shots: int = 5
    kernel: str = "rbf"

    def __post_init__(self) -> None:
        names = (*GROWING, *INCREMENTAL)
        require(self.name in names, f"there is no method '{self.name}'; there are {', '.join(names)}.")
        strategies = Strategy.names()
        listed = ", ".join(strategies)
        require(self.strategy in strategies, f"there is no strategy '{self.strategy}'; there are {listed}.")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the method has, for the rows of its runs."""
        if self.name in GROWING:
            return {"strategy": self.strategy, "exemplars": self.exemplars}
        return {"exemplars": self.exemplars} if "exemplars" in INCREMENTAL[self.name]().get_params() else {}

    def make(self, seed: int) -> IncrementalModel:
        """The unfitted model for a seed."""
        if self.name not in GROWING:
            return self._rival(seed)
        growth = Growth(exemplars=self.exemplars, shots=self.shots, strategy=Strategy.of(self.strategy))
        if self.name == "paper":
            return GPTreeClassifier.paper(self.kernel, output_scale=8.0, growth=growth, random_state=seed)
        family = GPForestClassifier if self.name == "forest" else GPTreeClassifier
        return family(growth=growth, random_state=seed)

    def _rival(self, seed: int) -> Mapped:
        rival = INCREMENTAL[self.name]()
        values = {"exemplars": self.exemplars, "shots": self.shots, "random_state": seed}
        parameters = rival.get_params()
        return Mapped(rival.set_params(**{name: value for name, value in values.items() if name in parameters}))
