"""Where new classes go in the tree.

Where should new classes go in the paper's tree?

It matters little among the paper's three: on CUB a tree a session ends at {mean accuracy | session tree |
data=cub-frozen} %, a rebuilt tree at {mean accuracy | rebuild tree | data=cub-frozen} %, a shared root at {mean
accuracy | shared root (GP-Tree) | data=cub-frozen} %. Grafting new classes beside similar base classes is far worse:
{mean accuracy | graft | data=cub-frozen} %.

Findings
--------
- In the paper the shared root is first, 1.15 points from a tree a session, which is 0.13 from rebuilding. On CUB it is
  {behind accuracy | shared root (GP-Tree) | session tree | data=cub-frozen} points from a tree a session here, and a
  tree a session {level accuracy | session tree | rebuild tree | data=cub-frozen} from rebuilding.
- Rebuilding gains on novel classes what it loses on base classes: {mean novel | rebuild tree | data=cub-frozen} % and
  {mean base | rebuild tree | data=cub-frozen} %, with a shared root {mean novel | shared root (GP-Tree) |
  data=cub-frozen} % and {mean base | shared root (GP-Tree) | data=cub-frozen} %.
- On the network of GP-Tree as published (mini-ImageNet, one seed) rebuilding comes first: {mean accuracy | rebuild
  tree | data=mini-deep} %, {mean novel | rebuild tree | data=mini-deep} % on novel classes; shared root {mean accuracy
  | shared root (GP-Tree) | data=mini-deep} % and {mean novel | shared root (GP-Tree) | data=mini-deep} %, a tree a
  session {mean accuracy | session tree | data=mini-deep} % and {mean novel | session tree | data=mini-deep} %.
  Grafting does no harm there: {mean accuracy | graft | data=mini-deep} %.
- Grafting, which is not in the paper, knows {mean novel | graft | data=cub-frozen} % of the novel classes' test rows.

Set-up
------
Five shots as in the paper; Gibbs sampling of 10 chains of one step, each from a draw of the prior, of which the paper
does not say the numbers. The paper trains a ResNet-18 on the base classes of CUB, and does not study mini-ImageNet in
its supplement. The rest is as for [the sessions of CUB](fscil-cub.md).
"""

from __future__ import annotations

from itertools import pairwise

from benchmarks.experiments.fscil import methods
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import DEEP, STUDIED, TREES
from benchmarks.experiments.fscil.quoted import TREE_VARIANTS

GROUP, SEEDS, STORE, PAPER = (
    "The paper's experiments",
    3,
    "fscil-sessions",
    "supplement, table of tree construction variants",
)
*PUBLISHED, GRAFT = TREES
STUDY = made.Study(TREES, (*STUDIED, *DEEP), [*pairwise(PUBLISHED), *((GRAFT, line) for line in PUBLISHED)])
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
trials, run, tables, figure = STUDY.trials, methods.run, STUDY.tables, STUDY.figure
QUOTED = (TREE_VARIANTS,)
