"""One training in double precision, without batch normalisation; run by one process or by several.

As a script, `python shared_training.py FOLDER` writes what it finds to FOLDER, a file a process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch
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


if __name__ == "__main__":
    torch.set_num_threads(1)
    place = Path(sys.argv[1])
    trained = run(place / "training")
    losses = {"log.losses": torch.tensor([row["loss"] for row in trained.log], dtype=torch.float64)}
    found = {name: value.contiguous() for name, value in tensors_of(trained).items()}
    save_file(found | losses, place / f"process-{os.environ['RANK']}.safetensors")
    torch.distributed.destroy_process_group()
