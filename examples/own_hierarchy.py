"""Your own class hierarchy as nested lists, and the probability of a whole branch."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gptree import GPTreeClassifier
from gptree.tree import to_text

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])

# A node is a pair; anything that is no list is a label. Here: digits with a closed loop, and digits without.
HIERARCHY = [
    [["zero", "six"], ["eight", "nine"]],
    [["one", ["four", "seven"]], ["two", ["three", "five"]]],
]


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, NAMES[y], train_size=200, stratify=y, random_state=0)
    own = GPTreeClassifier(tree=HIERARCHY, random_state=0).fit(X_train, y_train)
    automatic = GPTreeClassifier(random_state=0).fit(X_train, y_train)
    print(f"accuracy: own tree {own.score(X_test, y_test):.3f}, 2-means {automatic.score(X_test, y_test):.3f}")
    print(to_text(own.tree_, own.classes_))

    # The classes under a vertex are a branch, and its probability is the sum of theirs.
    loops = own.tree_.left(0)
    p = own.predict_proba(X_test)
    has_loop = p[:, loops].sum(1)
    truth = np.isin(y_test, own.classes_[loops])
    print(f"'has a loop' is right for {np.mean((has_loop > 0.5) == truth):.3f} of the digits")
    unsure = int(np.abs(has_loop - 0.5).argmin())
    print(f"least clear: a {y_test[unsure]}, p(loop) = {has_loop[unsure]:.2f}")


if __name__ == "__main__":
    main()
