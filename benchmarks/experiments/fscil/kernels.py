"""Kernels of the paper's tree.

Does the kernel of the paper's tree matter in sessions?

Hardly: on CUB RBF ends at {mean accuracy | RBF | data=cub-frozen} %, Matérn 5/2 at {mean accuracy | Matérn 5/2 |
data=cub-frozen} %, the linear kernel at {mean accuracy | linear | data=cub-frozen} %.

Findings
--------
- In the paper non-linear kernels are far ahead of the linear one, above all on novel classes. Here RBF is {behind
  accuracy | RBF | linear | data=cub-frozen} points from the linear kernel on CUB and {ahead accuracy | RBF | linear |
  data=mini-margin} on mini-ImageNet.
- On novel classes of mini-ImageNet the linear kernel is the best: {mean novel | linear | data=mini-margin} %, RBF
  {mean novel | RBF | data=mini-margin} %, Matérn {mean novel | Matérn 5/2 | data=mini-margin} %.
- On the network of GP-Tree as published (mini-ImageNet, one seed) the non-linear kernels lead, as in the paper: RBF
  {mean accuracy | RBF | data=mini-deep} %, Matérn 5/2 {mean accuracy | Matérn 5/2 | data=mini-deep} %, linear {mean
  accuracy | linear | data=mini-deep} %; on novel classes the linear one does ({mean novel | linear | data=mini-deep}
  %, RBF {mean novel | RBF | data=mini-deep} %).

Set-up
------
All kernels have the output scale 8. The paper's figure gives no numbers. Five shots as in the paper; Gibbs sampling of
10 chains of one step, each from a draw of the prior, of which the paper does not say the numbers. The paper trains a
ResNet-18 on the base classes of CUB, and does not study mini-ImageNet in its supplement. The rest is as for [the
sessions of CUB](fscil-cub.md).
"""

from __future__ import annotations

from benchmarks.experiments.fscil import methods
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import DEEP, KERNELS, STUDIED

GROUP, SEEDS, STORE, PAPER = "The paper's experiments", 3, "fscil-sessions", "supplement, figure of the kernel choice"
STUDY = made.Study(KERNELS, (*STUDIED, *DEEP), [(line, KERNELS[-1]) for line in KERNELS[:-1]])
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
trials, run, tables, figure = STUDY.trials, methods.run, STUDY.tables, STUDY.figure
