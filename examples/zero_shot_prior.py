"""Prior means from a zero-shot model, or from any scikit-learn classifier.

With three labels a class, a zero-shot model helps. Here it consists of ten printed digits: the score of a class is the
correlation of a handwritten image with the printed one. For text or pictures it would be the similarity of an embedding
with the embedded class names.
"""

from __future__ import annotations

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from gptree import GPTreeClassifier
from gptree.experts import LDA, KernelDensity, KernelRidge, Pool, PriorScores
from gptree.metrics import accuracy, nll

SHOTS = 3


def printed(digit: int) -> np.ndarray:
    """The digit in a printed font, cut out and shrunk to 8 × 8 pixels, (64,)."""
    figure = Figure(figsize=(1, 1), dpi=80)
    figure.text(0.5, 0.5, str(digit), fontsize=60, ha="center", va="center", family="DejaVu Sans Mono")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ink = 255.0 - np.asarray(canvas.buffer_rgba())[:, :, 0]
    rows, columns = np.flatnonzero(ink.any(1)), np.flatnonzero(ink.any(0))
    ink = np.pad(ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], ((0, 0), (10, 10)))
    return torch.nn.functional.adaptive_avg_pool2d(torch.tensor(ink)[None], 8).numpy().ravel()


TEMPLATES = np.stack([printed(digit) for digit in range(10)])


def zero_shot(X: np.ndarray) -> np.ndarray:
    """Correlation of every image (n, 64) with every printed digit: (n, 10), in the order of the classes."""
    X, T = (a - a.mean(1, keepdims=True) for a in (X, TEMPLATES))
    X, T = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (X, T))
    return X @ T.T


def main() -> None:
    X, y = load_digits(return_X_y=True)
    shuffled = np.random.default_rng(0).permutation(len(y))
    train = np.concatenate([shuffled[y[shuffled] == digit][:SHOTS] for digit in range(10)])
    test = np.setdiff1d(shuffled, train)
    print(f"zero-shot alone:  accuracy {np.mean(zero_shot(X[test]).argmax(1) == y[test]):.3f}")

    scores = PriorScores(zero_shot)  # only its temperature is learnt, so nothing has to be left out
    priors = {
        "zero mean": None,
        "zero-shot prior": scores,
        "random forest": RandomForestClassifier(random_state=0),  # cross-validated for left-out predictions
        "default experts": "experts",
        "experts + zero-shot": Pool((LDA(), KernelRidge(), KernelDensity(), scores)),
    }
    for name, prior_mean in priors.items():
        model = GPTreeClassifier(prior_mean=prior_mean, random_state=0).fit(X[train], y[train])
        p = model.predict_proba(X[test])
        print(f"{name:20s} accuracy {accuracy(p, y[test]):.3f}   NLL {nll(p, y[test]):.3f}")


if __name__ == "__main__":
    main()
