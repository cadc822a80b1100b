"""Draw the pictures of the documentation.

    python examples/draw_pictures.py --data DIR [--out docs/pictures]

DIR holds clinc150_minilm.npz: sentence embeddings of CLINC150, 150 intents of a voice assistant (Larson et al. 2019,
CC BY 3.0), as described in docs/results/index.md. The tree sees the embeddings and the labels, never the names.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from gptree import SphereMap
from gptree.tree import TwoMeans, plot_tree


def intent_tree(file: Path, out: Path) -> Path:
    """The class tree over all intents, drawn as a disc."""
    with np.load(file, allow_pickle=False) as data:
        x, y, names = data["train_x"].astype(np.float32), data["train_y"], data["names"]
    features = SphereMap().fit_transform(x)
    means = np.stack([features[y == c].mean(0) for c in range(len(names))])
    labels = [str(name).replace("_", " ") for name in names]
    tree = TwoMeans().build(means, labels, seed=0)
    picture = out / "intents.png"
    plot_tree(tree, labels).savefig(picture, dpi=110, bbox_inches="tight", pad_inches=0.1)
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with clinc150_minilm.npz")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "pictures")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"drawn: {intent_tree(arguments.data / 'clinc150_minilm.npz', arguments.out)}")


if __name__ == "__main__":
    main()
