"""The interface of inference at the nodes: a batch of nodes in, their posterior and diagnostics out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from gptree.inference.grams import Grams
from gptree.inference.nodes import NodeBatch, NodeProblem
from gptree.inference.posterior import NodePosterior
from gptree.settings import NamedSettings

if TYPE_CHECKING:
    from gptree.inference.learn_kernel import LearnKernel


@dataclass(frozen=True)
class Diagnostics:
    """How inference went at each of V nodes; None where a value does not apply.

    Attributes
    ----------
    nodes : int64 (V,)
        Node numbers.
    sweeps : int64 (V,)
        Sweeps, steps or epochs taken.
    bound : (V,) or None
        Variational bound on log p(y) of the node's binary problem.
    change : (V,) or None
        Largest change of a latent mean in the last sweep.
    converged : bool (V,) or None
        Whether the node settled; the estimators warn if many did not.
    r_hat : (V,) or None
        Largest split R̂ of the latent values at the training points; near 1 when the chains agree.
    jitter : (V,) or None
        What was added to the diagonal of K_mm so that it factorises; 0 at nodes without inducing points.
    """

    nodes: Tensor
    sweeps: Tensor
    bound: Tensor | None = None
    change: Tensor | None = None
    converged: Tensor | None = None
    r_hat: Tensor | None = None
    jitter: Tensor | None = None


class Inference(NamedSettings, ABC):
    """A way to the posterior of the node GPs: a frozen dataclass that subclasses this and has `fit`.

    The fields of the dataclass are the settings: both estimators take a value of the class as `inference=`, files
    store it, and a grid search reaches its fields (``inference__steps``). With a `name` it is found by that name. The
    attributes below say what else a method can do; their defaults are right for one that can do no more than `fit`.

    Attributes
    ----------
    sparse : bool, default False
        Whether `fit` takes batches whose nodes have inducing points (``batch.inducing``). If not, large nodes see a
        subset of their points, and the base session of a growing model, whose nodes see all rows through exemplars,
        is fitted by `CoordinateAscent`; the method then fits the nodes of classes that arrive later.
    inducing : int or None, default None
        Inducing points of each class that every node has, large or small, in place of what `node_limit` would do.
        Needs `sparse`.
    cap : int, default 1024
        Most inducing points of a node, where `inducing` is given.
    learn : LearnKernel or None, default None
        How the kernel's hyper-parameters are learnt before the nodes are fitted. A field, if it is a setting.

    Notes
    -----
    `gptree.inference.make_posterior` makes the posterior from Gaussian sites; examples/own_inference.py is a Laplace
    approximation in a screen, examples/skeletons/inference.py a file to begin with.

    Examples
    --------
    >>> from gptree.inference import Inference
    >>> Inference.of("gibbs")
    Gibbs(chains=10, steps=1, keep=1, pooled=False)
    """

    family: ClassVar[str] = "inference"
    example: ClassVar[str] = "Gibbs(...), CoordinateAscent(...) or SparseVariational(...)"

    # this class is no dataclass, so these are no fields; a dataclass below may make fields of them
    sparse: bool = False
    inducing: int | None = None
    cap: int = 1024
    learn: LearnKernel | None = None

    @abstractmethod
    def fit(self, batch: NodeBatch, grams: Grams, work: int) -> tuple[NodePosterior, Diagnostics]:
        """The posterior of a batch of nodes.

        Parameters
        ----------
        batch : NodeBatch
            V padded problems: rows, κ = b (y − ½), likelihood weights b and prior means μ, (V, N) each. A padded point
            has b = κ = μ = 0; with ω = 0 it changes nothing. What is random at node v is drawn from
            ``generators(batch.seeds, device)[v]``.
        grams : Grams
            ``grams.space(batch)`` is the conditional of f given Gaussian sites, in the form that suits the batch.
        work : int
            Numbers that may be held at a time, roughly.

        Returns
        -------
        NodePosterior, Diagnostics
            Of all nodes of the batch. A node's result must not depend on the nodes beside it.
        """

    def learning_problems(self, problems: Sequence[NodeProblem]) -> Sequence[NodeProblem]:
        """The problems on which `learn` learns the kernel: all of them, unless a method says otherwise."""
        return problems
