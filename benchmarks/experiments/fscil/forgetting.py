"""Average forgetting.

How much of what it knew does the paper's tree forget?

Little: {mean forgetting | GP-Tree on a cross-entropy network | data=cub-frozen} % on CUB. But it then knows {mean novel
| GP-Tree on a cross-entropy network | data=cub-frozen} % of the novel classes' test rows and {mean base | GP-Tree on a
cross-entropy network | data=cub-frozen} % of the base classes': what was not learned is not forgotten.

Findings
--------
- Only RanPAC, which learns still less of the novel classes, forgets as little: on CUB the paper's tree is {level
  forgetting | GP-Tree on a cross-entropy network | RanPAC | data=cub-frozen} points from it.
- In the paper GP-Tree forgets less than SDC and PODNet. So it does here, on mini-ImageNet and from pictures (one seed):
  as published {mean forgetting | GP-Tree as published | data=mini-pictures} %, SDC {mean forgetting | SDC, tuned |
  data=mini-pictures} %, PODNet {mean forgetting | PODNet, tuned | data=mini-pictures} %. It then knows {mean novel |
  GP-Tree as published | data=mini-pictures} % of the novel classes' test rows, SDC {mean novel | SDC, tuned |
  data=mini-pictures} % and PODNet {mean novel | PODNet, tuned | data=mini-pictures} %.
- On CUB from pictures (one seed) it is SDC alone that forgets more: GP-Tree as published {mean forgetting | GP-Tree as
  published | data=cub-pictures} %, SDC {mean forgetting | SDC, tuned | data=cub-pictures} %, PODNet {mean forgetting |
  PODNet, tuned | data=cub-pictures} %; they know {mean novel | GP-Tree as published | data=cub-pictures} %, {mean novel
  | SDC, tuned | data=cub-pictures} % and {mean novel | PODNet, tuned | data=cub-pictures} % of the novel classes' test
  rows. gptree from pictures forgets {mean forgetting | gptree from pictures | data=cub-pictures} % and knows {mean
  novel | gptree from pictures | data=cub-pictures} %.
- iCaRL, which ends highest on mini-ImageNet, forgets {mean forgetting | iCaRL, tuned | data=mini-pictures} %; gptree
  from pictures {mean forgetting | gptree from pictures | data=mini-pictures} %.

Set-up
------
The paper's figure gives no numbers. Five shots as in the paper; Gibbs sampling of 10 chains of one step, each from a
draw of the prior, of which the paper does not say the numbers. The paper trains a ResNet-18 on the base classes of CUB,
and does not study mini-ImageNet in its supplement. In the picture, where a method forgets more than 25 %, the scale is
logarithmic above 10. The rest is as for [the sessions of CUB](fscil-cub.md).
"""

from __future__ import annotations

from benchmarks.experiments.fscil import methods
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import DEEP, METHODS, PAPERS_TREE, STUDIED

GROUP, SEEDS, STORE, PAPER = "The paper's experiments", 3, "fscil-sessions", "supplement, figure of average forgetting"
PAIRS = [(PAPERS_TREE, line) for line in METHODS if line != PAPERS_TREE]
STUDY = made.Study(METHODS, (*STUDIED, *DEEP.values()), PAIRS, made.FORGETTING, (made.FORGETTING,))
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
trials, run, tables, figure = STUDY.trials, methods.run, STUDY.tables, STUDY.figure
