"""SBM-GP: the stick-breaking multinomial Gaussian process (Linderman, Johnson and Adams, 2015).

The stick of length one is broken class after class, p(y = k | f) = σ(f_k) Π_{j<k} (1 − σ(f_j)), with C − 1 latent
functions, the rest of the stick for the last class. The k-th break is a binary decision between class k and all that
follow, seen by the points of those classes: the likelihood is that of a tree that is a chain, and so are the
Pólya-Gamma conditionals. Hence this rival is `GPTreeClassifier.paper` on a `Chain` in the order of `classes_`.
"""

from __future__ import annotations

import numpy as np

from gptree.estimators import GPTreeClassifier
from gptree.rivals.gibbs.base import GibbsRival
from gptree.tree import Chain


class StickBreakingGP(GibbsRival):
    """SBM-GP by Gibbs sampling; see this module's account of the model, and `GibbsRival` for the parameters.

    Attributes
    ----------
    model_ : GPTreeClassifier
        The chain.

    Examples
    --------
    >>> from gptree.rivals import StickBreakingGP
    >>> StickBreakingGP("rbf", chains=4).fit([[1.0, 0.0], [0.0, 1.0]], [0, 1]).predict([[0.9, 0.1]])
    array([0])
    """

    name = "sbm-gp"

    def _fit(self, x: np.ndarray, y: np.ndarray) -> None:
        chain = GPTreeClassifier.paper(
            inference=self._gibbs(),
            # paper (8)
            tree=Chain(),
            device="cpu",
            memory_budget=self.memory_budget,
            random_state=self._seed(),
        )
        self.model_ = chain.set_params(kernel=self._make_kernel()).fit(x, y)

    def _logits(self, x: np.ndarray) -> np.ndarray:
        return self.model_.set_params(predict_at=self._predict_at()).predict_log_proba(x)
