"""`train`: training a network with a GP-Tree on top.

First the network learns a plain classification (see `gptree.deep.objectives`). Then the class tree is built from the
embeddings of all training rows, the inducing points are chosen among them, and network, points and kernel go on
together on the bound, with a natural-gradient step of the node posteriors after each of theirs.

Everything random is a function of (seed, epoch, step): a training may stop anywhere and go on from its last checkpoint,
and the number of processes changes nothing but rounding; and, where the network has them, dropout, which each process
draws for itself, and batch normalisation, which each computes from its own part of a batch (on GPUs
`nn.SyncBatchNorm.convert_sync_batchnorm(backbone)` has it computed from all).
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn.functional import normalize

from gptree.deep.data.base import FIRST_LAYER, Source, epoch_plan, key
from gptree.deep.ensemble import WeightedEnsemble
from gptree.deep.heads.base import DeepHead, H_co, HeadSettings
from gptree.deep.heads.gp_tree import LARGEST_JITTER
from gptree.deep.heads.variational_tree import VariationalTree
from gptree.deep.loop.checkpoints import Checkpoints
from gptree.deep.loop.evaluation import embed, measure
from gptree.deep.loop.log import Progress, progress_bar
from gptree.deep.loop.processes import Processes, processes, tuned
from gptree.deep.loop.state import Best, State
from gptree.deep.loop.task import Rows, Task
from gptree.deep.objectives import ObjectiveLayer
from gptree.deep.settings import Training
from gptree.maths.kernels import as_kernel, make_kernel
from gptree.settings import require

#: Of the default kernel, as in the paper.
OUTPUT_SCALE = 4.0
#: Mean square distance of embeddings of unit length from their mean, below which they are all alike.
LEAST_SPREAD = 1e-8
#: Nats a row, below which the nodes know nothing.
NO_INFORMATION = 1e-4


@dataclass(frozen=True, eq=False)
class Trained(Generic[H_co]):
    """A trained network, and the layers on it.

    Attributes
    ----------
    network : nn.Module
    head : DeepHead or None
    objective_layer : ObjectiveLayer or None
        Where no head was trained, or where it was trained beside the head.
    ensemble : WeightedEnsemble
        The layers that predict: the head, or the objective's layer. Where rows were held out, both, with weights chosen
        there.
    log : list of dict
        A row an epoch: epoch, stage, loss (mean over the steps; in the joint stage the head's alone), learning_rate (at
        the last step), seconds (of the steps); in the joint stage expected_log_likelihood, kl and bound (weighted over
        the nodes as in the head's loss), jitter, and skipped (failed factorisations); accuracy, nll and ece where rows
        were measured.
    best_epoch : int
        The epoch whose state this is; epochs are numbered from 1, as in the log.
    rows : int array
        Rows of the source that were trained on; the others were for validation.
    held_out : Rows or None
        The rows that measured and calibrated, of the source or given as `validation`.
    """

    network: nn.Module
    head: H_co | None
    objective_layer: ObjectiveLayer | None
    ensemble: WeightedEnsemble
    log: list[dict[str, Any]]
    best_epoch: int
    rows: np.ndarray
    held_out: Rows | None

    def log_probabilities(self, embeddings: Tensor) -> Tensor:
        """Class log-probabilities (T, C) of embeddings (T, d)."""
        return self.ensemble.log_probabilities(embeddings)


def train(
    backbone: nn.Module,
    source: Source,
    y: np.ndarray,
    labels: Sequence[Any],
    *,
    training: Training | None = None,
    head: HeadSettings[H_co] | None = None,
    kernel: str | Kernel | None = None,
    tree: Any = None,
    seed: int = 0,
    device: str = "auto",
    folder: str | Path | None = None,
    progress: bool = False,
    validation: tuple[Source, np.ndarray] | None = None,
) -> Trained[H_co]:
    """Train a copy of the backbone, and a head, on the rows of a source.

    Parameters
    ----------
    backbone : nn.Module
        From a batch of inputs to embeddings (B, d).
    source : Source
        `Arrays(...)`, `FromDataset(...)` or a class of your own.
    y : int array (n,)
        Class numbers of the rows, places in `labels`.
    labels : sequence of C labels
    training : Training or None
        None is `Training()`.
    head : HeadSettings or None
        None is `VariationalTree()`.
    kernel : str, gpytorch.kernels.Kernel or None
        Of the head; None is RBF with output scale 4 and length-scale 1.
    tree : Any
        A value that `gptree.tree.build_tree` takes; None is 2-means on the class means.
    seed : int
        Of the rows held out, of batches, augmentation and first weights of layers.
    device : "auto", "cpu" or "cuda"
    folder : path or None
        For checkpoints, log and curves; a training that was interrupted goes on from there.
    progress : bool
        Show a progress bar.
    validation : (Source, int array) or None
        A source and its class numbers, instead of the rows that `Training(validation=…)` sets aside; none of them
        trained on, unless `Training(calibrate=False)` has them measured and no more.

    Returns
    -------
    Trained

    Examples
    --------
    >>> from gptree.deep import Arrays, mlp, train
    >>> trained = train(mlp(64), Arrays(X), y, range(10), folder="run")  # doctest: +SKIP
    """
    task = Task.checked(
        source,
        y,
        labels,
        validation,
        training=Training() if training is None else training,
        head=VariationalTree() if head is None else head,
        kernel=as_kernel(
            make_kernel("rbf", OUTPUT_SCALE) if kernel is None else kernel, torch.float64, torch.device("cpu")
        ),
        tree=tree,
        seed=seed,
    )
    with processes(device, task.training.mixed_precision) as group, tuned(group.device):
        task.check_batches(group.count)
        state = _first_state(backbone, task, group)
        checkpoints = Checkpoints(folder, task, state.network, group)
        with checkpoints.writing():
            checkpoints.restore(state)
            steps_done = state.epoch * task.steps + state.step
            with progress_bar(progress and group.is_main, task.training.epochs, task.steps, steps_done) as bar:
                _train(task, state, checkpoints, group, bar)
        return _result(task, state, group)


def _train(task: Task, state: State, checkpoints: Checkpoints, group: Processes, bar: Progress) -> None:
    """From where the state is to the end. Within an epoch nothing waits for the device."""
    training, source, rows = task.training, task.learned.source, task.learned.rows
    network = group.wrapped(state.network)
    # paper algorithm 1
    for epoch in range(state.epoch, training.epochs):
        if epoch >= training.cross_entropy_epochs and state.head is None:
            embeddings = embed(state.network, source, rows, group.device, group)
            _report_collapse(embeddings)
            state.join(task.new_head(embeddings))
        layer, plan = state.layer, epoch_plan(rows, training.batch_size, task.seed, epoch)
        classes = task.classes(plan, group.device)
        state.network.train()
        todo = plan[state.step :]
        for batch, x in zip(todo, source.batches(todo, group.device, group.part), strict=True):
            assert batch.seed is not None
            torch.manual_seed(batch.seed + group.index)  # for networks that draw, as dropout does
            state.set_rate(training.rate(epoch + state.step / task.steps))
            if isinstance(layer, DeepHead):
                embeddings = group.gather(network(x))
                loss = layer.loss(weighted_gradient(embeddings, training.weight_of_head), classes[state.step])
                group.step(loss + state.loss_beside(embeddings, classes[state.step]), state.optimiser)
                layer.update()
            else:
                pictures = training.objective.pictures(x, batch.seed)
                loss = layer.loss(group.gather(network(pictures)), classes[state.step], batch.seed)
                group.step(loss, state.optimiser)
            state.total += loss.detach()
            state.step += 1
            bar.step()
            if training.checkpoint_steps and state.step % training.checkpoint_steps == 0 and state.step < task.steps:
                _numbers(task, state, checkpoints)  # which are finite, or nothing is saved
                checkpoints.save(state)
        bar.epoch(_end_epoch(task, state, checkpoints, group))


def weighted_gradient(x: Tensor, weight: float) -> Tensor:
    """The values of x; what comes back through it is multiplied by the weight."""
    return torch.lerp(x.detach(), x, weight)


def _first_state(backbone: nn.Module, task: Task, group: Processes) -> State:
    network = copy.deepcopy(backbone).to(group.device)
    if group.device.type == "cuda":
        network = network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    first = embed(network, task.learned.source, task.learned.rows[:2], group.device)
    if task.held_out is not None and task.held_out.source is not task.learned.source:
        embed(network, task.held_out.source, task.held_out.rows[:2], group.device)  # wrong inputs show now
    require(
        first.dim() == 2 and first.is_floating_point(),
        f"the backbone must give a vector of floats for an input, not {first.dtype} of shape {tuple(first.shape[1:])}.",
    )
    require(
        first.dtype in (torch.float32, torch.float64),
        f"the backbone computes in {first.dtype}: keep its weights in float32 (backbone.float()), and let "
        'Training(mixed_precision="bf16") do the rest.',
    )
    if task.training.trains_head:
        task.rehearse(first.shape[1])
    seed = key(task.seed, FIRST_LAYER)
    layer = task.training.objective.layer(first.shape[1], len(task.labels), seed, first.dtype)
    return State(network, layer.to(group.device), task.training)


def _end_epoch(task: Task, state: State, checkpoints: Checkpoints, group: Processes) -> dict[str, Any]:
    """The row of the log for an epoch whose steps are done; the state then stands before the next one."""
    layers = [layer for layer in (state.layer, state.beside) if layer is not None]
    group.hold_together(*state.network.buffers(), *(t for l in layers for t in (*l.parameters(), *l.buffers())))
    training, done = task.training, state.epoch + 1
    row = _row(task, state, checkpoints)
    last = done == training.epochs
    if task.held_out is not None and (last or done % training.validate_every == 0):
        rows = task.held_out
        embeddings = embed(state.network, rows.source, rows.rows, group.device, group)
        row |= measure(state.layer.log_probabilities(embeddings), torch.as_tensor(rows.y, device=group.device))
        _require_finite(math.isfinite(row["nll"]), "probabilities of measured rows are", state, checkpoints)
        _keep_best(row, state, checkpoints)
    state.log.append(row)
    state.begin_epoch(done)
    if last or done % training.checkpoint_epochs == 0:
        checkpoints.save(state)
    checkpoints.save_log(state)
    state.started = time.perf_counter()  # measuring and writing are no part of the next epoch's seconds
    return row


def _row(task: Task, state: State, checkpoints: Checkpoints) -> dict[str, Any]:
    numbers = _numbers(task, state, checkpoints)
    row = {
        "epoch": state.epoch + 1,
        "stage": "pre-training" if state.head is None else "joint",
        "loss": numbers.pop("loss"),
        "learning_rate": task.training.rate(state.epoch + (task.steps - 1) / task.steps),
        "seconds": time.perf_counter() - state.started,
        **numbers,
    }
    if "skipped" in row:
        row["skipped"] = int(row["skipped"]) - sum(old.get("skipped", 0) for old in state.log)
        _report_skipped(row, state, checkpoints)
    if "kl" in row:
        _report_prior(row)
    return row


def _numbers(task: Task, state: State, checkpoints: Checkpoints) -> dict[str, float]:
    """The mean of the epoch's losses and what the head reports, of a state that is checked to be finite."""
    loss = state.total / task.steps
    values = {"loss": loss, **({} if state.head is None else state.head.report(loss))}
    together = torch.stack([value.double() for value in (state.all_finite(), *values.values())])
    finite, *numbers = together.tolist()
    _require_finite(bool(finite), "the loss, or a parameter, is", state, checkpoints)
    return dict(zip(values, numbers, strict=True))


def _require_finite(finite: bool, what: str, state: State, checkpoints: Checkpoints) -> None:
    if not finite:
        raise FloatingPointError(
            f"epoch {state.epoch + 1}: {what} not finite; {checkpoints.last}. Try a lower learning_rate, a warm-up "
            '(schedule=Cosine(warmup=5)), mixed_precision="bf16" or "no" instead of "fp16", or a smaller natural step '
            "of the head (VariationalTree(step=…))."
        )


def _report_skipped(row: dict[str, Any], state: State, checkpoints: Checkpoints) -> None:
    """Factorisations that failed: a warning while more jitter is the answer, an error when it is at its end."""
    if not row["skipped"]:
        return
    text = f"epoch {row['epoch']}: factorisations failed {row['skipped']} times at nodes, which were left out of a step"
    if state.log and state.log[-1].get("jitter", 0.0) > 0.99 * LARGEST_JITTER:  # which single precision rounds
        raise FloatingPointError(
            f"{text}, with the jitter at its largest, {LARGEST_JITTER}; {checkpoints.last}. Try VariationalTree(dtype="
            '"float64"), fewer inducing points, a shorter length-scale, or a lower learning_rate.'
        )
    warnings.warn(
        f"{text}; the jitter on K_mm is now {row['jitter']:.0e} of its diagonal.", RuntimeWarning, stacklevel=2
    )


def _report_collapse(embeddings: Tensor) -> None:
    """A network whose embeddings are all alike has nothing to build a tree from."""
    unit = normalize(embeddings.double(), dim=-1)
    if (unit - unit.mean(0)).square().sum(-1).mean() < LEAST_SPREAD:
        warnings.warn(
            "the embeddings of all rows are alike after the first epochs: the network has collapsed. Try a lower "
            "learning_rate, or a warm-up (schedule=Cosine(warmup=5)).",
            RuntimeWarning,
            stacklevel=2,
        )


def _report_prior(row: dict[str, Any]) -> None:
    """A posterior that has fallen back to its prior says nothing, and teaches the network nothing."""
    if row["kl"] < NO_INFORMATION:
        warnings.warn(
            f"epoch {row['epoch']}: the nodes have lost what they knew (KL(q ‖ p) is {row['kl']:.0e}): the embeddings "
            "or the kernel have collapsed. Try a lower learning_rate or head_learning_rate, or "
            "VariationalTree(learn_kernel="
            '"no").',
            RuntimeWarning,
            stacklevel=2,
        )


def _keep_best(row: dict[str, Any], state: State, checkpoints: Checkpoints) -> None:
    wanted = state.training.best
    if wanted == "last" or (state.head is None and state.training.trains_head):
        return
    value = row[wanted] if wanted == "accuracy" else -row[wanted]
    if state.best is None or value > state.best.value:
        tensors = {name: tensor.detach().clone() for name, tensor in state.model_tensors().items()}
        state.best = Best(row["epoch"], value, tensors)
        checkpoints.save_best(state.best)


def _result(task: Task, state: State, group: Processes) -> Trained[Any]:
    if state.best is not None:
        state.load_model(state.best.tensors)
    group.unwrap(state.network)
    ensemble = WeightedEnsemble(state.layer)
    if task.training.calibrate and task.held_out is not None:
        ensemble = ensemble if state.beside is None else WeightedEnsemble(state.layer, state.beside)
        rows = task.held_out
        embeddings = embed(state.network, rows.source, rows.rows, group.device)
        ensemble.choose(embeddings, torch.as_tensor(rows.y, device=group.device))
    return Trained(
        network=state.network.eval(),
        head=state.head,
        objective_layer=state.layer if isinstance(state.layer, ObjectiveLayer) else state.beside,
        ensemble=ensemble.eval(),
        log=state.log,
        best_epoch=state.epoch if state.best is None else state.best.epoch,
        rows=task.learned.rows,
        held_out=task.held_out,
    )
