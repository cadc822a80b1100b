"""Sessions of CIFAR-100.

Which classifier learns novel classes of CIFAR-100 from five shots each, and keeps the base classes?

LDA with shrunk novel means ends at {mean accuracy | LDA with shrunk novel means | data=cifar-rotations} % with an ECE
of {mean ECE | LDA with shrunk novel means | data=cifar-rotations} %, a forest that held-out rows calibrate at {mean
accuracy | gptree forest, calibrated on held-out rows | data=cifar-rotations} % with {mean ECE | gptree forest,
calibrated on held-out rows | data=cifar-rotations} %, the paper's tree at {mean accuracy | GP-Tree on a cross-entropy
network | data=cifar-rotations} %.

Findings
--------
- The paper's tree falls from {mean first | GP-Tree on a cross-entropy network | data=cifar-plain} % to {mean accuracy
  | GP-Tree on a cross-entropy network | data=cifar-plain} % on the first network, and from {mean first | GP-Tree on a
  cross-entropy network | data=cifar-rotations} % to {mean accuracy | GP-Tree on a cross-entropy network |
  data=cifar-rotations} % on the second; it hardly learns novel classes ({mean novel | GP-Tree on a cross-entropy
  network | data=cifar-plain} % and {mean novel | GP-Tree on a cross-entropy network | data=cifar-rotations} %).
- A forest fitted to rows that the network was trained on believes them too much: on the first network it has {gap
  accuracy | gptree forest | LDA with shrunk novel means | data=cifar-plain} points from LDA with shrunk novel means.
- Held-out rows that calibrate the forest repair this: {mean accuracy | gptree forest | data=cifar-rotations} % becomes
  {mean accuracy | gptree forest, calibrated on held-out rows | data=cifar-rotations} %, and an ECE of {mean ECE |
  gptree forest | data=cifar-rotations} % becomes {mean ECE | gptree forest, calibrated on held-out rows |
  data=cifar-rotations} %. Fitted to the held-out rows alone it ends at {mean accuracy | gptree forest, held-out rows
  only | data=cifar-rotations} %. LDA with shrunk novel means stays a little ahead ({behind accuracy | gptree forest,
  calibrated on held-out rows | LDA with shrunk novel means | data=cifar-rotations} points).

Set-up
------
Not in the paper. Rivals that train the network and GP-Tree from pictures have trials here and no rows yet; how they
are run stands with [the sessions of mini-ImageNet](fscil-mini-imagenet.md). Classes and test pictures of the sessions
are those of the public lists; the five shots of a new class are drawn with a fixed seed. The rows of the second
network were measured when its files were read in the order of their names, not of their numbers, so that one class has
other shots than with the first. The rest is as for [the sessions of CUB](fscil-cub.md).
"""

from __future__ import annotations

from benchmarks.experiments.fscil import methods
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import CIFAR, METHODS, PAIRS
from benchmarks.experiments.fscil.quoted import TAO_CIFAR

GROUP, SEEDS, STORE, PAPER = "The paper's experiments", 3, "fscil-sessions", "beside Table 3 and figure 3"
STUDY = made.Study(METHODS, CIFAR, PAIRS, gaps=(made.ACCURACY, made.NLL, made.ECE), main=CIFAR[1])
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
trials, run, tables, figure = STUDY.trials, methods.run, STUDY.tables, STUDY.figure
glance = STUDY.glance
QUOTED = (TAO_CIFAR,)
