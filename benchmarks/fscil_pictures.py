"""Few-shot class-incremental learning from pictures: heads on the frozen networks of `benchmarks.fscil_networks`.

    python -m benchmarks.fscil_pictures --features DIR --lists DIR [--jobs N] [--seeds N]

`--features` holds embeddings that `benchmarks.fscil_networks` wrote, of the networks that are there; `--lists` the
public lists of sessions, in `mini_imagenet` and `cub200`. The lists fix classes and shots, so that seeds change the
methods' own choices only. All methods see the same embeddings.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fscil_features
from benchmarks.fscil_networks import NETWORKS
from benchmarks.rows import Rows, Trial, run_trials
from gptree.protocols import SessionStream, stream_from_lists

RESULTS = Path(__file__).parent / "results" / "fscil_pictures.jsonl"
METHODS = ("forest, shared root", "tree, shared root", "paper, shared root", "rival: class-mean", "rival: rf-lda-teen")


def make_stream(network: str, features: Path, lists: Path) -> SessionStream:
    parts = [np.load(file, allow_pickle=False) for file in sorted(features.glob(f"{network}.*.npz"))]
    x, y, paths = (np.concatenate([part[name] for part in parts]) for name in ("x", "y", "path"))
    folder = lists / NETWORKS[network].data
    return stream_from_lists(folder, x.astype(np.float32), y.astype(int), paths=paths, name=network)


def trials(networks: list[str], seeds: int) -> list[Trial]:
    return [
        Trial("fscil-pictures", method, network, seed, {"representatives": 5})
        for network in networks
        for seed in range(seeds)
        for method in METHODS
    ]


def run(trial: Trial, features: Path, lists: Path) -> Mapping[str, Any]:
    return fscil_features.run_method(trial, make_stream(trial.data, features, lists))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, required=True, help="folder of the embeddings")
    parser.add_argument("--lists", type=Path, required=True, help="folder of the public lists")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    networks = [name for name in NETWORKS if (arguments.features / f"{name}.0.npz").exists()]
    if not networks:
        parser.error(f"{arguments.features} has no embeddings: run benchmarks.fscil_networks first")
    rows = Rows(arguments.results)
    function = functools.partial(run, features=arguments.features, lists=arguments.lists)
    run_trials(trials(networks, arguments.seeds), function, rows, n_jobs=arguments.jobs)
    for network in networks:
        print(f"\n{network}\n\n{fscil_features.table(rows, network)}")


if __name__ == "__main__":
    main()
