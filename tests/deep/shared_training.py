"""One training in double precision, without batch normalisation; run by one process or by several."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from safetensors.torch import save_file
from training_cases import digits, small_train, tensors_of

from gptree.deep import Arrays, CosineMargin, RandomCrop, RandomFlip, Trained, VariationalTree, convnet


def run(folder: Path | None = None) -> Trained:
    """150 rows less 15 in batches of 32 leave 7 over; 135 and 15 rows are embedded, which makes uneven parts."""
    X, y = digits(150, np.float64)
    return small_train(
        convnet(1, width=4, depth=2, embedding=6, normalise=False).double(),
        Arrays(X, augment=(RandomCrop(1), RandomFlip())),
        y,
        how={"objective": CosineMargin(rotations=True, mixup=0.4), "best": "nll"},
        head=VariationalTree(inducing=4, learn_kernel="shared"),
        folder=folder,
        seed=11,
    )


def take_part(place: Path, rank: str, group: dict[str, str]) -> None:
    """One process of several: what it finds goes to the folder, and so does what it says."""
    os.environ |= {**group, "RANK": rank, "LOCAL_RANK": rank}
    for state in (AcceleratorState, PartialState, GradientState):
        state._reset_state()  # what a fork has of the process before it
    torch.set_num_threads(1)
    with (place / f"said-{rank}.txt").open("w") as said:
        os.dup2(said.fileno(), 2)
        trained = run(place / "training")
    losses = {"log.losses": torch.tensor([row["loss"] for row in trained.log], dtype=torch.float64)}
    found = {name: value.contiguous() for name, value in tensors_of(trained).items()}
    save_file(found | losses, place / f"process-{rank}.safetensors")
    torch.distributed.destroy_process_group()
