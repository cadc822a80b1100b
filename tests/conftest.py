"""One thread for every test and the processes it starts, and no deadlines: sizes are small, tests run side by side."""

from __future__ import annotations

import os

import hypothesis
import torch
from threadpoolctl import threadpool_limits

for library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{library}_NUM_THREADS"] = "1"
torch.set_num_threads(1)
threadpool_limits(1)
hypothesis.settings.register_profile("gptree", deadline=None)
hypothesis.settings.load_profile("gptree")
