"""Two processes on the CPU find what one finds."""

from __future__ import annotations

import socket
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from shared_training import run, take_part
from training_cases import tensors_of

from gptree.deep import read_log
from gptree.deep.loop.processes import Processes


def test_two_processes_equal_one(tmp_path: Path) -> None:
    """With the environment that torchrun gives them."""
    alone = run()
    with socket.socket() as free:
        free.bind(("localhost", 0))
        group = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2"}
    # A fork has everything imported; where there is a GPU, autograd has threads that no fork survives.
    context = get_context("spawn" if torch.cuda.is_available() else "fork")
    processes = [context.Process(target=take_part, args=(tmp_path, rank, group)) for rank in ("0", "1")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    said = [(tmp_path / f"said-{rank}.txt").read_text()[-3000:] for rank in ("0", "1")]
    assert [process.exitcode for process in processes] == [0, 0], "".join(said)
    expected = tensors_of(alone)
    for process in range(2):
        found = load_file(tmp_path / f"process-{process}.safetensors")
        losses = found.pop("log.losses")
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            torch.testing.assert_close(
                found[name], value, rtol=1e-8, atol=1e-8, msg=lambda text, n=name: f"{n}: {text}"
            )
        torch.testing.assert_close(losses.tolist(), [row["loss"] for row in alone.log], rtol=1e-8, atol=1e-8)
    assert len(read_log(tmp_path / "training")) == 4  # written once, by the first process


def test_nobody_gets_an_empty_part_and_together_they_are_all_rows() -> None:
    """Also where the last processes have nothing left: their row is behind the end, where `gather` cuts."""
    for count in (1, 2, 3, 8):
        for rows in (1, 2, 9, 16):
            parts = []
            for index in range(count):
                group = Processes(
                    SimpleNamespace(
                        device=None, num_processes=count, process_index=index, is_main_process=True, scaler=None
                    )
                )
                parts.append(list(range(rows))[group.part(rows)])
            size = -(-rows // count)
            padded = [row for part in parts for row in part + [None] * (size - len(part))]
            assert all(parts)
            assert padded[:rows] == list(range(rows))
