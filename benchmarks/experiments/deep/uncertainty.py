"""Uncertainty of deep kernels.

Does a tree of Gaussian processes on a network know better what it does not know than softmax and its rivals do?

Than softmax as it is, yes; than softmax with a temperature, hardly. NLL on corrupted pictures is {mean corrupted NLL of
GP-Tree | data=cifar10} on CIFAR-10 and {mean corrupted NLL of GP-Tree | data=cifar100} on CIFAR-100 for GP-Tree, {mean
corrupted NLL of softmax | data=cifar10} and {mean corrupted NLL of softmax | data=cifar100} for softmax, {mean
corrupted NLL of softmax, temperature | data=cifar10} and {mean corrupted NLL of softmax, temperature | data=cifar100}
with a temperature. An ensemble of three, for three times the work, is best: {mean corrupted NLL of ensemble of three,
temperature | data=cifar10} and {mean corrupted NLL of ensemble of three, temperature | data=cifar100}. One seed (three
of softmax): differences of a hundredth mean nothing.

Findings
--------
- Near strangers: by the maximum probability the other CIFAR is told with an AUROC of {mean CIFAR-100 AUROC by
  probability of GP-Tree | data=cifar10} (CIFAR-10) and {mean CIFAR-10 AUROC by probability of GP-Tree | data=cifar100}
  (CIFAR-100) by GP-Tree, {mean CIFAR-100 AUROC by probability of softmax, temperature | data=cifar10} and {mean
  CIFAR-10 AUROC by probability of softmax, temperature | data=cifar100} by softmax with a temperature, {mean CIFAR-100
  AUROC by probability of ensemble of three, temperature | data=cifar10} and {mean CIFAR-10 AUROC by probability of
  ensemble of three, temperature | data=cifar100} by the ensemble.
- Far ones: the energy of a softmax sees handwriting best from CIFAR-100 ({mean Omniglot AUROC of softmax |
  data=cifar100}; GP-Tree's novelty: {mean Omniglot AUROC of GP-Tree | data=cifar100}); from CIFAR-10 the two are close
  ({mean Omniglot AUROC of softmax | data=cifar10} and {mean Omniglot AUROC of GP-Tree | data=cifar10}). The novelty
  score adds at most a few hundredths to the maximum probability.
- The layer of cross-entropy is worth having beside the tree: alone, the tree has an NLL of {mean NLL of GP-Tree, tree
  alone | data=cifar100} on CIFAR-100, together {mean NLL of GP-Tree | data=cifar100}.
- The variance of last-layer Laplace is worse than chance as a score ({mean CIFAR-100 AUROC of last-layer Laplace |
  data=cifar10} on CIFAR-10). It grows with the length of the features; that those of strange pictures are shorter
  would explain it, and was not measured. Its probabilities are no better than with a temperature.
- The SNGP-like network loses accuracy on CIFAR-100 ({mean accuracy of SNGP-like | data=cifar100} against {mean accuracy
  of softmax | data=cifar100} %), with settings that were not tuned; of single networks it is the best calibrated there
  on corrupted pictures (ECE {mean corrupted ECE of SNGP-like | data=cifar100} %).

Set-up
------
One ResNet-18 (CIFAR stem, embedding 1,024, batch 256, SGD with Nesterov momentum, cosine schedule from 0.2, random
crops and flips, bfloat16) a method and data set, trained for 30 epochs only: all methods alike, as the short trainings
of deep-kernels, and below what 200 epochs give. 2 % of the training pictures are held out; temperatures, weights and
prior precisions are chosen on them and on nothing else, and test pictures are measured once. Networks stay in `runs` of
the data folder, and an interrupted training goes on from there.

- GP-Tree: the default training of the package, cross-entropy beside the bound, and the layer of cross-entropy predicts
  with the tree; *tree alone* leaves it out. The tree is in double precision, the default at the time. Its own score is
  the package's novelty: one minus the probability of the best class times the share of the variance that is explained
  at its last decision.
- softmax, with and without a temperature; its own score is the energy, −log Σ exp f.
- last-layer Laplace: on the softmax network, Kronecker-factored, the prior precision chosen; logits are divided by
  √(1 + π/8 var f). Its own score is the mean variance of the logits.
- ensemble of three: three softmax networks, with and without a temperature each. Its own score is the mutual
  information of class and member.
- SNGP-like: convolutions of spectral norm at most 6 (batch normalisation is left as it is), 1,024 random Fourier
  features (length-scale half the length of the features), and Σ_k⁻¹ = Σ_i p_ik (1 − p_ik) φ_i φ_iᵀ + δ I with δ chosen.
  Its own score is Dempster and Shafer's C / (C + Σ exp f).

AUROC is that of the test pictures against those of another set: 0.5 is chance. The other CIFAR is near. Omniglot
(handwriting) and CUB (birds) are far, at 32 pixels; but CIFAR-10 has a class of birds, so that little is strange about
CUB there. Noise, blur, contrast and JPEG are computed from the test pictures at five strengths, of the size of
CIFAR-10-C's (`benchmarks/experiments/deep/corruptions.py` has the numbers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.core.pictures import load
from benchmarks.core.trials import Trial
from benchmarks.experiments.deep import answers as made
from benchmarks.experiments.deep import uncertainty_tables as shown
from benchmarks.experiments.deep.corruptions import STRENGTHS, corrupted
from benchmarks.experiments.deep.sngp import sngp
from gptree.deep import Arrays, Cosine, RandomCrop, RandomFlip, Trained, Training, embed, measure, resnet18, train
from gptree.metrics import auroc

GROUP = "Deep kernels"
DATA = ("cifar10", "cifar100")
#: What each set is told from, beside the other one.
FAR = ("omniglot32", "cub32")
EPOCHS, FEATURES = 30, 512
SETTINGS = {"batch": 256, "embedding": 1024, "learning_rate": 0.2, "warmup": 5, "validation": 0.02}
#: How the networks of a method answer.
ANSWERS = {
    made.TREE: made.tree_answers,
    made.SNGP: made.sngp_answers,
    made.SOFTMAX: made.softmax_answers,
    made.ENSEMBLE: made.ensemble_answers,
}

COLUMNS = shown.COLUMNS
tables, details, glance, figure = shown.tables, shown.details, shown.glance, shown.figure


def trials(seeds: int) -> list[Trial]:
    """Softmax has as many networks as the ensembles need."""
    return [
        Trial("deep-uncertainty", method, data, seed, {"epochs": EPOCHS, **SETTINGS})
        for method in ANSWERS
        for data in DATA
        for seed in range(seeds * made.MEMBERS if method == made.SOFTMAX else seeds)
    ]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    task = Task(trial, folder)
    known = [task.known(network) for network in networks(trial)]
    answering = ANSWERS[trial.method](known)

    def answers(X: np.ndarray) -> dict[str, made.Answer]:
        return answering([task.embedded(one.result, X) for one in known])

    clean = answers(task.asked)
    found: dict[str, dict[str, Any]] = {
        name: {"clean": measure(answer.log_p, task.y)} for name, answer in clean.items()
    }
    for name, worse in task.corruptions():
        for answer, metrics in measured(answers(worse), task.y).items():
            found[answer].setdefault("corrupted", {}).setdefault(name, []).append(metrics)
    for metrics in found.values():
        metrics["worse"] = mean_of([each for several in metrics["corrupted"].values() for each in several])
    for name, strange in task.strangers():
        for answer, theirs in answers(strange).items():
            ours, scores = clean[answer].all_scores(), theirs.all_scores()
            rates = {score: auroc(ours[score], scores[score]) for score in scores}
            found[answer].setdefault("auroc", {})[name] = rates
    return {"answers": found, "train_seconds": sum(row["seconds"] for one in known for row in one.result.log)}


def networks(trial: Trial) -> list[Trial]:
    """The trainings that a trial needs, those of other trials where it combines them."""
    if trial.method != made.ENSEMBLE:
        return [trial]
    seeds = range(made.MEMBERS * trial.seed, made.MEMBERS * (trial.seed + 1))
    return [Trial(trial.experiment, made.SOFTMAX, trial.data, seed, trial.settings) for seed in seeds]


def measured(answers: Mapping[str, made.Answer], y: Tensor) -> dict[str, dict[str, float]]:
    return {name: measure(answer.log_p, y) for name, answer in answers.items()}


def mean_of(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([each[name] for each in metrics])) for name in metrics[0]}


class Task:
    """The pictures of a trial, and what its networks make of them."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self.trial, self.folder = trial, folder
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        pictures = load(folder / "pictures", trial.data)
        learned = pictures.split == 0
        self.names, self.learned_y, self.asked = pictures.names, pictures.y[learned], pictures.X[~learned]
        self.learned = Arrays(pictures.X[learned], augment=(RandomCrop(4), RandomFlip()))
        self.y = torch.as_tensor(pictures.y[~learned], device=self.device)

    def corruptions(self) -> Iterator[tuple[str, np.ndarray]]:
        for kind, strengths in STRENGTHS.items():
            for strength in strengths:
                yield kind, corrupted(self.asked, kind, strength)

    def strangers(self) -> Iterator[tuple[str, np.ndarray]]:
        for name in (*(data for data in DATA if data != self.trial.data), *FAR):
            others = load(self.folder / "pictures", name)
            yield name, others.X[others.split == 1]

    def known(self, trial: Trial) -> made.Known:
        """The network of a training, which is done now unless it was before."""
        result = train(
            make_network(trial),
            self.learned,
            self.learned_y,
            self.names,
            training=make_training(trial),
            seed=trial.seed,
            folder=self.folder / "runs" / f"{trial.data}-{trial.method.lower()}-{trial.key}",
        )
        held_out = np.setdiff1d(np.arange(len(self.learned_y)), result.rows)
        learned, left = (embed(result.network, self.learned, rows, self.device) for rows in (result.rows, held_out))
        return made.Known(result, learned, left, torch.as_tensor(self.learned_y[held_out], device=self.device))

    def embedded(self, result: Trained[Any], X: np.ndarray) -> Tensor:
        source = Arrays(X, mean=self.learned.mean, std=self.learned.std)
        return embed(result.network, source, np.arange(len(X)), self.device)


def make_network(trial: Trial) -> torch.nn.Module:
    if trial.method == made.SNGP:
        return sngp(resnet18(None, "cifar", seed=trial.seed), FEATURES, trial.settings["embedding"], trial.seed)
    return resnet18(trial.settings["embedding"], "cifar", seed=trial.seed)


def make_training(trial: Trial) -> Training:
    """That of the package but for its length, batches and learning rate."""
    given = trial.settings
    return Training(
        epochs=given["epochs"],
        cross_entropy_epochs=round(0.4 * given["epochs"]) if trial.method == made.TREE else given["epochs"],
        batch_size=given["batch"],
        learning_rate=given["learning_rate"],
        schedule=Cosine(warmup=given["warmup"]),
        validation=given["validation"],
        validate_every=given["epochs"],
        mixed_precision="bf16" if torch.cuda.is_available() else "no",
        checkpoint_epochs=10,
    )
