"""What the examples in memory teach new nodes: which are seen, what each counts for, and prior means there."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gptree.experts import FEW_ROWS, GrownScores
from gptree.experts.examples import row_chunks
from gptree.experts.wrong_labels import label_beliefs
from gptree.incremental.exemplars import root_rows
from gptree.incremental.memory import Memory
from gptree.incremental.state import BaseState, GrowthConfig
from gptree.model import PathOdds, PathTable, row_scores
from gptree.progress import Advance
from gptree.tree import ClassTree, join


def seen_rows(memory: Memory, first: int | None, hashes: np.ndarray) -> Tensor:
    """Which examples in memory new nodes are fitted to: all, or of those below class `first` some, see `root_rows`."""
    everyone = torch.arange(len(memory.y), device=memory.y.device)
    if first is None:
        return everyone
    before = everyone[memory.y < first]
    chosen = before[root_rows(memory.y[before], hashes[:first])]
    return torch.cat([chosen, everyone[memory.y >= first]]).sort().values


def counted(memory: Memory, n_base: int, config: GrowthConfig) -> Tensor:
    """How many times each example in memory counts at new nodes, (n,), whatever its label is worth.

    A class counts for no more than a novel one does on average; one whose rows stand for others, as its rows do.
    """
    y = memory.y.cpu().numpy()
    counts = np.bincount(y, memory.weights.double().cpu().numpy())
    most = counts if config.session_exemplars is None else np.minimum(counts, np.bincount(y))
    return torch.as_tensor((np.minimum(most, most[n_base:].mean()) / counts)[y]).to(memory.features) * memory.weights


def log_sizes_of(y: Tensor, weights: Tensor, n_classes: int, n_base: int, first: int | None) -> Tensor:
    """What the rows of each class count for (C,), as logarithms, base classes 0 on average.

    New nodes must not learn it, see `expert_prior`: prior means at their rows express it, those at new rows do not.
    Classes below `first` are one to them, and not all rows of those may be seen: each counts as one does on average.
    """
    mass = torch.as_tensor(np.bincount(y.cpu().numpy(), weights.double().cpu().numpy(), n_classes))
    if first is not None:
        mass[:first] = mass[:first].mean()
    logs = mass.log() - mass[:n_base].mean().log()
    alike = logs.max() - logs.min() < 1e-9
    return torch.where(alike, torch.zeros_like(logs), logs).to(y.device)


def all_odds(
    trees: tuple[ClassTree, ...],
    left_out: GrownScores,
    memory: Memory,
    seen: Tensor,
    log_sizes: Tensor | None,
    advance: Advance,
) -> tuple[PathOdds, Tensor]:
    """Prior means at all nodes of the trees, and the probability that each row has in its own class."""
    chunks = row_chunks(torch.arange(len(seen), device=seen.device), trees[0].n_classes)
    parts = ((rows, left_out.at(seen[rows])) for rows in chunks)
    y, prior = memory.y[seen].cpu().numpy(), None if log_sizes is None else log_sizes.to(memory.features)
    found = row_scores(parts, y, memory.features, trees, prior, spread=False, advance=advance)
    assert found.odds is not None
    return found.odds, found.own


def path_odds(
    novel: list[ClassTree],
    left_out: GrownScores,
    memory: Memory,
    seen: Tensor,
    first: int,
    n_base: int,
    log_sizes: Tensor | None,
) -> tuple[PathOdds, Tensor]:
    """Prior means at the root and in the trees `novel` of the classes from `first` on: all other classes are one.

    And the probability that each row has in its own class.
    """
    leaf = ClassTree.from_preorder([0])
    y = (memory.y[seen] - first + 1).clamp(min=0)
    table, own = PathTable([join(leaf, tree) for tree in novel], y.cpu().numpy(), memory.features), []
    for rows in left_out.chunks(torch.arange(len(seen), device=seen.device)):
        scores = left_out.against(seen[rows], first - n_base).to(memory.features.dtype)
        own.append(scores.gather(1, y[rows, None])[:, 0].exp())
        table.add(rows, scores if log_sizes is None else scores + log_sizes[first - 1 :].to(scores))
    return table.done(), torch.cat(own)


def beliefs_in_labels(
    base: BaseState, memory: Memory, seen: Tensor, own: Tensor, n_classes: int, first: int | None
) -> Tensor:
    """The belief that the label of each row that is seen is right, from left-out probabilities `own` of the labels.

    Rows of base classes have theirs from the base session. Where all classes below `first` are one to the new nodes,
    `own` is the probability of these together, and a row with a wrong label is still on their side unless it is of a
    newer class. Labels of few rows are not in question: of two, each is predicted from the other alone.
    """
    assert base.novel_experts is not None
    if base.novel_experts.trusts_labels:
        return torch.ones_like(own)
    y, n_base = memory.y[seen], len(memory.kept)
    asked = (y >= (n_base if first is None else first)) & (torch.bincount(y)[y] >= FEW_ROWS)
    _, found = label_beliefs(own, n_classes, asked, counts=memory.weights[seen])
    beliefs = torch.ones_like(own) if found is None else found
    if base.beliefs is not None:
        exemplars = seen < memory.n_exemplars
        right = base.beliefs[memory.rows[seen[exemplars]]]
        beliefs[exemplars] = right if first is None else right + (1 - right) * own[exemplars]
    return beliefs
