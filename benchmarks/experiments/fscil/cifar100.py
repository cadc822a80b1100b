"""Sessions of CIFAR-100.

Which system learns novel classes of CIFAR-100 from five shots each, and keeps the base classes?

From pictures, one seed: TOPIC tuned by rehearsal ends highest at {mean accuracy | TOPIC, tuned | data=cifar-pictures}
%, iCaRL at {mean accuracy | iCaRL, tuned | data=cifar-pictures} %, EEIL and LUCIR at {mean accuracy | EEIL, tuned |
data=cifar-pictures} and {mean accuracy | LUCIR (NCM), tuned | data=cifar-pictures} %, gptree at {mean accuracy | gptree
from pictures | data=cifar-pictures} %, SDC at {mean accuracy | SDC, tuned | data=cifar-pictures} %, PODNet at {mean
accuracy | PODNet, tuned | data=cifar-pictures} %, GP-Tree as published at {mean accuracy | GP-Tree as published |
data=cifar-pictures} %. On the rivals' network, a forest that held-out rows calibrate ends at {mean accuracy | gptree
forest, calibrated on held-out rows | data=cifar-pictures} %; on one trained with rotated pictures at {mean accuracy |
gptree forest, calibrated on held-out rows | data=cifar-rotations} %.

Findings
--------
- GP-Tree as published keeps the base classes ({mean base | GP-Tree as published | data=cifar-pictures} %) and hardly
  learns novel ones ({mean novel | GP-Tree as published | data=cifar-pictures} %). Our corrections bring {mean novel |
  GP-Tree, corrected | data=cifar-pictures} %, a forest on the same network {mean novel | gptree from pictures |
  data=cifar-pictures} %, and the NLL goes from {mean NLL | GP-Tree as published | data=cifar-pictures} over {mean NLL |
  GP-Tree, corrected | data=cifar-pictures} to {mean NLL | gptree from pictures | data=cifar-pictures}. The paper's
  claim, ahead of SDC and PODNet in the end, does not hold here.
- What training in sessions is worth, tuned against learning rate 0: TOPIC {mean accuracy | TOPIC, tuned |
  data=cifar-pictures} against {mean accuracy | TOPIC, learning rate 0 | data=cifar-pictures} %, PODNet {mean accuracy |
  PODNet, tuned | data=cifar-pictures} against {mean accuracy | PODNet, learning rate 0 | data=cifar-pictures} %, the
  others half a point. EEIL and TOPIC pay with base classes ({mean base | EEIL, tuned | data=cifar-pictures} and {mean
  base | TOPIC, tuned | data=cifar-pictures} %) for novel ones ({mean novel | EEIL, tuned | data=cifar-pictures} and
  {mean novel | TOPIC, tuned | data=cifar-pictures} %).
- The rivals' probabilities are good once rehearsed sessions have chosen their temperature: TOPIC's NLL is {mean NLL |
  TOPIC, tuned | data=cifar-pictures}, the least of all systems from pictures, LUCIR's ECE {mean ECE | LUCIR (NCM),
  tuned | data=cifar-pictures} %. Among classifiers on the frozen network the forest with held-out rows has the least
  NLL, {mean NLL | gptree forest, calibrated on held-out rows | data=cifar-pictures}; streaming LDA is as accurate
  ({mean accuracy | streaming LDA | data=cifar-pictures} %) with an NLL of {mean NLL | streaming LDA |
  data=cifar-pictures}.
- The paper's tree falls from {mean first | GP-Tree on a cross-entropy network | data=cifar-plain} % to {mean accuracy |
  GP-Tree on a cross-entropy network | data=cifar-plain} % on a network of 150 epochs, and from {mean first | GP-Tree on
  a cross-entropy network | data=cifar-rotations} % to {mean accuracy | GP-Tree on a cross-entropy network |
  data=cifar-rotations} % on one trained with rotated pictures; it hardly learns novel classes ({mean novel | GP-Tree on
  a cross-entropy network | data=cifar-plain} % and {mean novel | GP-Tree on a cross-entropy network |
  data=cifar-rotations} %).
- A forest fitted to rows that the network was trained on believes them too much: on the network of 150 epochs it has
  {gap accuracy | gptree forest | LDA with shrunk novel means | data=cifar-plain} points from LDA with shrunk novel
  means. Held-out rows that calibrate the forest repair this: on rotated pictures {mean accuracy | gptree forest |
  data=cifar-rotations} % becomes {mean accuracy | gptree forest, calibrated on held-out rows | data=cifar-rotations} %,
  and an ECE of {mean ECE | gptree forest | data=cifar-rotations} % becomes {mean ECE | gptree forest, calibrated on
  held-out rows | data=cifar-rotations} %. Fitted to the held-out rows alone it ends at {mean accuracy | gptree forest,
  held-out rows only | data=cifar-rotations} %. LDA with shrunk novel means stays a little ahead there ({behind accuracy
  | gptree forest, calibrated on held-out rows | LDA with shrunk novel means | data=cifar-rotations} points).

Set-up
------
Not in the paper. From pictures: a ResNet-18 with a stem for 32 × 32 pixels; the rest is as for [the sessions of
mini-ImageNet](fscil-mini-imagenet.md), 25 pictures of a base class held out, without published settings of rivals. One
seed, hence no verdicts; up to seven trainings shared the GPU, so that seconds are rough. Classes and test pictures of
the sessions are those of the public lists; the five shots of a new class are drawn with a fixed seed. The rows of the
network with rotated pictures were measured when its files were read in the order of their names, not of their numbers,
so that one class has other shots there. The rest is as for [the sessions of CUB](fscil-cub.md).
"""

from __future__ import annotations

from benchmarks.experiments.fscil import methods
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import CIFAR, METHODS, PAIRS
from benchmarks.experiments.fscil.quoted import TAO_CIFAR

GROUP, SEEDS, STORE, PAPER = "The paper's experiments", 3, "fscil-sessions", "beside Table 3 and figure 3"
STUDY = made.Study(METHODS, CIFAR, PAIRS, gaps=(made.ACCURACY, made.NLL, made.ECE), main="cifar-pictures")
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
trials, run, tables, figure = STUDY.trials, methods.run, STUDY.tables, STUDY.figure
glance = STUDY.glance
QUOTED = (TAO_CIFAR,)
