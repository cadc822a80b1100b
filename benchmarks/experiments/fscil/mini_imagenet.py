"""Sessions of mini-ImageNet.

Which system learns novel classes of mini-ImageNet from five shots each, and keeps the base classes?

From pictures, one seed: LUCIR tuned by rehearsal ends highest at {mean accuracy | LUCIR (NCM), tuned |
data=mini-pictures} %, PODNet at {mean accuracy | PODNet, tuned | data=mini-pictures} %, gptree at {mean accuracy |
gptree from pictures | data=mini-pictures} %, GP-Tree as published at {mean accuracy | GP-Tree as published |
data=mini-pictures} %, SDC at {mean accuracy | SDC, tuned | data=mini-pictures} %. Systems begin with different
networks, and so do not differ in how they learn sessions alone: LUCIR's knows {mean first | LUCIR (NCM), tuned |
data=mini-pictures} % of the base classes, PODNet's {mean first | PODNet, tuned | data=mini-pictures} %, that of GP-Tree
as published {mean first | GP-Tree as published | data=mini-pictures} %, that of iCaRL, EEIL and TOPIC {mean first |
EEIL, tuned | data=mini-pictures} %. Trained for longer, by cross-entropy on rotated pictures, a network and a forest
that held-out rows calibrate end at {mean accuracy | gptree forest, calibrated on held-out rows | data=mini-rotations}
%.

Findings
--------
- The paper has GP-Tree behind PODNet at first and ahead of PODNet and SDC in the end. It is ahead of SDC ({mean
  accuracy | GP-Tree as published | data=mini-pictures} % and {mean accuracy | SDC, tuned | data=mini-pictures} %),
  which begins lower ({mean first | SDC, tuned | data=mini-pictures} %). It is behind a PODNet whose learning rate and
  weights were chosen on rehearsed sessions, in every session and by most in the end ({mean accuracy | PODNet, tuned |
  data=mini-pictures} %). With published settings PODNet and SDC end at chance here ({mean accuracy | PODNet, published
  settings | data=mini-pictures} % each), which reproduces nothing of the paper and tests no claim.
- GP-Tree as published keeps the base classes ({mean base | GP-Tree as published | data=mini-pictures} %) and knows
  {mean novel | GP-Tree as published | data=mini-pictures} % of the novel classes' test rows. Cross-entropy beside the
  bound, other node weights, longer chains and calibration together make {mean novel | GP-Tree, corrected |
  data=mini-pictures} % of it, at {mean accuracy | GP-Tree, corrected | data=mini-pictures} % over all; a forest on the
  same network {mean novel | gptree from pictures | data=mini-pictures} %, at {mean accuracy | gptree from pictures |
  data=mini-pictures} % over all. The NLL goes from {mean NLL | GP-Tree as published | data=mini-pictures} to {mean NLL
  | GP-Tree, corrected | data=mini-pictures} and {mean NLL | gptree from pictures | data=mini-pictures}.
- Training in sessions is worth little. Beside its network at rest, LUCIR goes from {mean accuracy | LUCIR (NCM),
  learning rate 0 | data=mini-pictures} % to {mean accuracy | LUCIR (NCM), tuned | data=mini-pictures} %, PODNet from
  {mean accuracy | PODNet, learning rate 0 | data=mini-pictures} % to {mean accuracy | PODNet, tuned |
  data=mini-pictures} %, EEIL from {mean accuracy | EEIL, learning rate 0 | data=mini-pictures} % to {mean accuracy |
  EEIL, tuned | data=mini-pictures} %, SDC from {mean accuracy | SDC, learning rate 0 | data=mini-pictures} % to {mean
  accuracy | SDC, tuned | data=mini-pictures} %, iCaRL from {mean accuracy | iCaRL, learning rate 0 |
  data=mini-pictures} % to {mean accuracy | iCaRL, tuned | data=mini-pictures} %; for TOPIC rehearsal chose to train
  nothing.
- 20 exemplars of a class instead of five give {mean accuracy | LUCIR (NCM), tuned, 20 exemplars | data=mini-pictures} %
  with LUCIR and {mean accuracy | PODNet, tuned, 20 exemplars | data=mini-pictures} % with PODNet, at the settings
  chosen with five.
- As Tao et al. ran them, on a base network of about their accuracy ({mean first | iCaRL, published settings |
  data=mini-pictures} %; 61.3 % there) but with the last step and not an epoch that test rows chose, iCaRL ends at {mean
  accuracy | iCaRL, published settings | data=mini-pictures} % (17.2 % there), EEIL at {mean accuracy | EEIL, published
  settings | data=mini-pictures} % (19.6 %), LUCIR at {mean accuracy | LUCIR (NCM), published settings |
  data=mini-pictures} % (14.2 %), TOPIC at {mean accuracy | TOPIC, published settings | data=mini-pictures} % (24.4 %).
  Imprinted and not trained, the same network gives {mean accuracy | EEIL, learning rate 0 | data=mini-pictures} %.
  Framework, stem, training of the base and choice of the 400 pictures differ from theirs too, and we did not take these
  apart.
- The rows of PODNet's and SDC's published settings, at chance, are of mistakes that were found since, and will be
  measured again. SDC's metric learning in the base session ran at a hundred times the rate of the released
  demonstration (1e-6): with margin 0 all embeddings at one point are a minimum, and at 1e-4 they go there. PODNet's
  released rate of sessions, 0.05, goes with batch normalisation that is trained; where it is held, as here, the
  distilled distances throw the network off in the second step of the first session, so that sessions now have 1e-3, the
  least rate that its paper tries. The network that most rivals share is now one of cosines, trained for 100 epochs; the
  rows on this page have the older ones, those of [CUB](fscil-cub.md) the newer, and there SDC with published settings
  works.
- Classifiers on the frozen network of most rivals end close together: forest {mean accuracy | gptree forest |
  data=mini-pictures} %, LDA with shrunk novel means {mean accuracy | LDA with shrunk novel means | data=mini-pictures}
  %, nearest class mean {mean accuracy | nearest class mean | data=mini-pictures} %, the paper's tree {mean accuracy |
  GP-Tree on a cross-entropy network | data=mini-pictures} %. On the network of GP-Tree as published they end at {mean
  accuracy | gptree forest | data=mini-deep} %, {mean accuracy | LDA with shrunk novel means | data=mini-deep} %, {mean
  accuracy | nearest class mean | data=mini-deep} % and {mean accuracy | GP-Tree on a cross-entropy network |
  data=mini-deep} % (one seed of each network).
- On networks that were trained for longer the paper's tree hardly learns novel classes ({mean novel | GP-Tree on a
  cross-entropy network | data=mini-margin} % and {mean novel | GP-Tree on a cross-entropy network |
  data=mini-rotations} %).
- A forest fitted to rows that the network was trained on believes them too much: on the network trained with a margin
  it has {gap accuracy | gptree forest | LDA with shrunk novel means | data=mini-margin} points from LDA with shrunk
  novel means. Held-out rows that calibrate the forest repair this: {mean accuracy | gptree forest |
  data=mini-rotations} % becomes {mean accuracy | gptree forest, calibrated on held-out rows | data=mini-rotations} %,
  and an ECE of {mean ECE | gptree forest | data=mini-rotations} % becomes {mean ECE | gptree forest, calibrated on
  held-out rows | data=mini-rotations} %. LDA with shrunk novel means is as accurate ({level accuracy | gptree forest,
  calibrated on held-out rows | LDA with shrunk novel means | data=mini-rotations} points).

Set-up
------
From pictures: a ResNet-18 with a stem for small pictures. GP-Tree as published is `DeepGPTreeClassifier.paper`: 40
epochs by cross-entropy and 60 on the bound, the inducing points as memory, a novel sub-tree, a shared root, Gibbs
sampling, zero mean. The versions "corrected" and "gptree from pictures" (`version="corrected"` and `"defaults"`) share
a network.

Rivals begin with networks of 45 epochs, lr 0.2, batches of 256, 20 pictures of a class held out: iCaRL, EEIL, TOPIC
and, after metric learning, SDC with one whose classifier is a linear layer on unit features, as that of Tao et al. is;
LUCIR and PODNet each with one of their own. "Published settings" are those of Tao et al., or for SDC and PODNet, which
the authors of GP-Tree ran, what the paper and the released code say, with a fixed number of steps. "Tuned" settings are
those of [rehearsed sessions](fscil-rehearsal.md), on which probabilities were also sharpened or flattened; "learning
rate 0" is the frozen network with imprinted class rows, nearest means of exemplars (iCaRL) or class means (SDC).
Sessions train the last block with batch normalisation held, from eight random views of each picture; what enters the
block was computed once, so that seconds do not count it. All have five exemplars a class, SDC none; the published
settings have 400 base pictures, PODNet's 20 a class. Networks were trained once, so that there is one seed, and no
verdicts. Rehearsal chose the largest learning rate on offer for EEIL and PODNet, so that more might be gained there.
The number of epochs, first 60, and EEIL's candidates that train the whole network were cut for want of time, before any
of their results were seen. Up to six trainings shared the GPU: seconds are rough.

The figure of the paper gives no numbers. The networks "margin" and "held out" are [described on their own
page](fscil-networks.md). How held-out rows calibrate a forest was decided with a look at test rows of this set (two
ways, one seed, a quarter of the features), so that it is a little flattered. The rest is as for [the sessions of
CUB](fscil-cub.md). `bases`, `runs` and `networks` in the data folder keep base networks, checkpoints and embeddings;
with them, classifiers on the embedding are run again without training.
"""

from __future__ import annotations

from benchmarks.experiments.fscil import methods
from benchmarks.experiments.fscil import tables as made
from benchmarks.experiments.fscil.lines import METHODS, MINI, PAIRS
from benchmarks.experiments.fscil.quoted import TAO_MINI

GROUP, SEEDS, STORE, PAPER = "The paper's experiments", 3, "fscil-sessions", "Figure 3"
STUDY = made.Study(METHODS, MINI, PAIRS, gaps=(made.ACCURACY, made.NLL, made.ECE), main="mini-pictures")
COLUMNS, CHOICES = made.COLUMNS, STUDY.choices
trials, run, tables, figure = STUDY.trials, methods.run, STUDY.tables, STUDY.figure
glance = STUDY.glance
QUOTED = (TAO_MINI,)
