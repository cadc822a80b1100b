"""One thread for every test: the sizes are small, and tests may run side by side."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
