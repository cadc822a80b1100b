"""A network and a GP-Tree trained together on pictures of digits, beside a softmax; then two digits arrive.

The network is trained on the digits 0 to 7 only. With the same number of epochs, three classifiers are compared: a
softmax layer, the variational GP-Tree that is trained with the network, and a forest fitted to its embeddings. The
forest then learns 8 and 9 from five pictures each, and the network is not trained again.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from gptree import DeepGPTreeClassifier, GPForestClassifier, Growth
from gptree.deep import RandomCrop, Training, VariationalTree, convnet
from gptree.metrics import accuracy, columns, ece, nll
from gptree.protocols import hold_out

BASE, SHOTS = 8, 5  # digits that the network is trained on, pictures of each of the others


def deep(cross_entropy: int, epochs: int, **others: Any) -> DeepGPTreeClassifier:
    """A shallow network: its features of strokes also serve digits that it was not trained on."""
    return DeepGPTreeClassifier(
        convnet(channels=1, width=32, depth=2),
        training=Training(epochs, cross_entropy, batch_size=64, validation=0.15),
        variational=VariationalTree(inducing=10),
        augment=(RandomCrop(1),),
        random_state=0,
        device="cpu",
        **others,
    )


def report(name: str, model: DeepGPTreeClassifier, X: np.ndarray, y: np.ndarray) -> None:
    p, truth = model.predict_proba(X), columns(y, model.classes_)
    print(f"{name:26s} {100 * accuracy(p, truth):6.1f} % {nll(p, truth):8.3f} {100 * ece(p, truth):6.1f} %")


def main(epochs: int) -> None:
    digits = load_digits()
    X, y = (digits.images * 15).astype(np.uint8), digits.target  # (n, 8, 8), from 0 to 240
    testing = hold_out(y, 0.3)
    X_train, y_train, X_test, y_test = X[~testing], y[~testing], X[testing], y[testing]
    base, base_test = y_train < BASE, y_test < BASE

    with tempfile.TemporaryDirectory() as folder:
        forest = GPForestClassifier(growth=Growth(shots=SHOTS))
        softmax = deep(epochs, epochs)
        gp_tree = deep(epochs // 2, epochs, folder=folder)
        on_gp_tree = deep(epochs // 2, epochs, folder=folder, classifier=forest)  # its network is in the folder
        print(f"{'digits 0 to 7':26s} accuracy      NLL      ECE")
        for name, model in (("softmax", softmax), ("GP-Tree", gp_tree), ("forest on its embeddings", on_gp_tree)):
            model.fit(X_train[base], y_train[base])
            report(name, model, X_test[base_test], y_test[base_test])

    for digit in range(BASE, 10):
        few = np.flatnonzero(y_train == digit)[:SHOTS]
        on_gp_tree.add_classes(X_train[few], y_train[few])
        known = y_test <= digit
        report(f"… and {digit}, from {SHOTS} pictures", on_gp_tree, X_test[known], y_test[known])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=16)
    main(parser.parse_args().epochs)
