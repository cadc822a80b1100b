"""Active learning with classes that arrive: the model suggests rows to label, and learns the classes among them.

It starts with the digits 0 to 4. The unlabelled images are of all ten. In every round it suggests a few images that are
worth a label. Labels that the model does not have are novel classes, the others further examples. In the end a mistake
is undone.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from gptree import GPForestClassifier, Growth, load_model
from gptree.protocols import hold_out

BASE, IMAGES, LABELS = 5, 20, 6  # digits of the base session, images of each, labels a round


def teach(model: GPForestClassifier, X: np.ndarray, y: np.ndarray) -> None:
    """Add novel classes, and further examples of the others."""
    known = np.isin(y, model.classes_)
    if not known.all():
        model.add_classes(X[~known], y[~known])
    if known.any():
        model.add_examples(X[known], y[known])


def main() -> None:
    X, y = load_digits(return_X_y=True)
    testing = hold_out(y, 0.5)
    pool, truth, X_test, y_test = X[~testing], y[~testing], X[testing], y[testing]
    base = np.concatenate([np.flatnonzero(truth == digit)[:IMAGES] for digit in range(BASE)])
    model = GPForestClassifier(growth=Growth(), random_state=0).fit(pool[base], truth[base])
    pool, truth = np.delete(pool, base, axis=0), np.delete(truth, base)

    print("classes known   accuracy on all ten   examples kept")
    for _ in range(8):
        print(f"{len(model.classes_):13d}   {model.score(X_test, y_test):19.3f}   {len(model.memory_):13d}")
        chosen = model.suggest(pool, LABELS)
        teach(model, pool[chosen], truth[chosen])
        pool, truth = np.delete(pool, chosen, axis=0), np.delete(truth, chosen)

    model.save("growing-digits")  # the journal goes with it
    before = model.predict_proba(X_test)
    model.add_classes(pool[truth == 3][:5], [33] * 5)
    print(f"\nthrees taught as a new digit: accuracy {model.score(X_test, y_test):.3f}")
    model.undo()
    print(f"undone: {model.score(X_test, y_test):.3f}, the same to the last bit: ", end="")
    print(np.array_equal(model.predict_proba(X_test), before))

    print("\njournal of the stored model:")
    for entry in load_model("growing-digits").journal_:
        print(f"{entry.time}  {entry.kind:12s}  {sum(entry.counts):3d} examples of {', '.join(map(str, entry.labels))}")


if __name__ == "__main__":
    main()
