"""How many exemplars of a base class are kept.

How many examples of a base class does the paper's tree have to keep?

Two are enough for the paper's tree on CUB; one costs {behind accuracy | 1 kept | 5 kept | data=cub-frozen} points of
accuracy after the last session.

Findings
--------
- In the paper fewer exemplars cost a little, more in later sessions. Here three instead of five gain {ahead accuracy |
  3 kept | 5 kept | data=cub-frozen} points on CUB, four {ahead accuracy | 4 kept | 5 kept | data=cub-frozen}, and two
  make no difference ({level accuracy | 2 kept | 5 kept | data=cub-frozen}).
- On mini-ImageNet one exemplar instead of five gains {ahead accuracy | 1 kept | 5 kept | data=mini-margin} points.
- On the network of GP-Tree as published (mini-ImageNet, one seed) five, four, three, two and one end at {mean accuracy
  | 5 kept | data=mini-deep}, {mean accuracy | 4 kept | data=mini-deep}, {mean accuracy | 3 kept | data=mini-deep},
  {mean accuracy | 2 kept | data=mini-deep} and {mean accuracy | 1 kept | data=mini-deep} %: fewer move accuracy from
  base to novel classes ({mean novel | 5 kept | data=mini-deep} % of novel rows with five, {mean novel | 1 kept |
  data=mini-deep} % with one).

Set-up
------
Exemplars are the examples nearest to k-means centres; the paper learns them. Its figure gives no numbers. Five shots
as in the paper; Gibbs sampling of 10 chains of one step, each from a draw of the prior, of which the paper does not
say the numbers. The paper trains a ResNet-18 on the base classes of CUB, and does not study mini-ImageNet in its
supplement. The rest is as for [the sessions of CUB](fscil-cub.md).
"""

from __future__ import annotations

from benchmarks.experiments.fscil import methods
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import DEEP, EXEMPLARS, STUDIED

GROUP, SEEDS, STORE, PAPER = (
    "The paper's experiments",
    3,
    "fscil-sessions",
    "supplement, figure of the number of representative samples",
)
STUDY = made.Study(EXEMPLARS, (*STUDIED, *DEEP), [(line, EXEMPLARS[0]) for line in EXEMPLARS[1:]])
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
trials, run, tables, figure = STUDY.trials, methods.run, STUDY.tables, STUDY.figure
