"""Few labels, many classes, probabilities: fit, predict, explain, save, load. Uses scikit-learn's digits."""

from __future__ import annotations

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gptree import GPForestClassifier, load_model
from gptree.metrics import columns, ece, nll


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=200, stratify=y, random_state=0)

    model = GPForestClassifier(random_state=0).fit(X_train, y_train)
    p = model.predict_proba(X_test)
    truth = columns(y_test, model.classes_)
    print(f"accuracy {model.score(X_test, y_test):.3f}, NLL {nll(p, truth):.3f}, ECE {ece(p, truth):.3f}")

    unsure = p.max(1).argmin()
    print(f"\nthe least certain digit is truly a {y_test[unsure]}:\n{model.explain(X_test[[unsure]])[0]}")

    model.save("digits-model")
    again = load_model("digits-model")
    print(f"\nthe loaded model predicts the same: {(again.predict(X_test) == model.predict(X_test)).all()}")


if __name__ == "__main__":
    main()
