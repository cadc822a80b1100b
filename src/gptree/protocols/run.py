"""`run_stream`: teach a model a stream of sessions, and measure it after every session on all classes so far.

After session k, a_j^k is the accuracy on the test rows of the classes that session j ≤ k added, every class seen so far
being a possible answer. Session 0 is the base.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gptree.metrics import accuracy, auroc, columns, ece, most_confused, nll, reliability_curve
from gptree.protocols.streams import SessionStream
from gptree.provenance import commit, machine, versions

_PAIRS, _MISTAKES = 40, 20  # confused pairs and surest mistakes that the details keep


class IncrementalModel(Protocol):
    """A model that `run_stream` can teach. The columns of `predict_proba` are those of `classes_`.

    Used where a model has them: `novelty_score(X)`, `memory_bytes_` or `memory_.nbytes`, `tree_`.
    """

    classes_: Any

    def fit(self, X: Any, y: Any) -> Any: ...
    def add_classes(self, X: Any, y: Any) -> Any: ...
    def predict_proba(self, X: Any) -> np.ndarray: ...


@dataclass(frozen=True)
class StreamResult:
    """The result of a run, as JSON can hold it.

    Attributes
    ----------
    rows : list of dict
        One a session.
    details : dict
        Of the last session: reliability, confusion, the surest mistakes, labels, tree.
    """

    rows: list[dict[str, Any]]
    details: dict[str, Any]


# ---------------------------------------------------------------------------------------------------------- metrics


def harmonic_mean(base: float, novel: float) -> float:
    """2·base·novel / (base + novel): low where either is low, 0 where either is 0."""
    return 2 * base * novel / (base + novel) if base + novel > 0 else 0.0


def average_forgetting(history: Sequence[Sequence[float]]) -> float | None:
    """Mean over j < k of g_j = max_{l = j … k−1} a_j^l − a_j^k, with `history[l][j]` = a_j^l and k the last session.

    Negative where later sessions helped; None while there is only the base.
    """
    *earlier, last = history
    best = [max(accuracies[j] for accuracies in earlier[j:]) for j in range(len(earlier))]
    # paper section D.3
    return float(np.mean([was - now for was, now in zip(best, last, strict=False)])) if best else None


def performance_drop(accuracies: Sequence[float]) -> float:
    """Accuracy after the base session minus accuracy after the last."""
    return accuracies[0] - accuracies[-1]


def session_scores(p: np.ndarray, y: np.ndarray, session_of: np.ndarray) -> dict[str, Any]:
    """Accuracies and calibration of class probabilities p (n, C) for columns y (n,) of sessions `session_of` (n,)."""
    right = p.argmax(axis=1) == y
    last = int(session_of.max())
    base = float(right[session_of == 0].mean())
    novel = float(right[session_of > 0].mean()) if last else None
    return {
        "accuracy": accuracy(p, y),
        "base_accuracy": base,
        "novel_accuracy": novel,
        "session_accuracy": [float(right[session_of == j].mean()) for j in range(last + 1)],
        "harmonic_mean": None if novel is None else harmonic_mean(base, novel),
        "nll": nll(p, y),
        "ece": ece(p, y),
    }


# ----------------------------------------------------------------------------------------------------------- runner


@dataclass(frozen=True)
class _Predicted:
    """Predictions for the test rows of all sessions so far: probabilities, true columns, sessions, seconds."""

    p: np.ndarray
    y: np.ndarray
    session_of: np.ndarray
    seconds: float


def run_stream(
    model: IncrementalModel,
    stream: SessionStream,
    *,
    seed: int,
    method: str,
    settings: Mapping[str, Any] | None = None,
    on_session: Callable[[dict[str, Any]], None] | None = None,
) -> StreamResult:
    """Teach the model the stream, in place, and measure it after every session.

    Parameters
    ----------
    model : IncrementalModel
        Unfitted.
    stream : SessionStream
    seed, method, settings
        Name the run in its rows; they change nothing.
    on_session : function of a row or None
        Called with each row as it is finished.

    Returns
    -------
    StreamResult

    Examples
    --------
    >>> from gptree.protocols import SessionMethod, run_stream
    >>> result = run_stream(SessionMethod(name="slda").make(0), stream, seed=0, method="slda")  # doctest: +SKIP
    """
    named = {"data": stream.name, "method": method, "settings": dict(settings or {}), "seed": seed}
    origin = _origin()
    rows: list[dict[str, Any]] = []
    predicted = None
    for number, session in enumerate(stream.sessions):
        start = time.perf_counter()
        (model.add_classes if number else model.fit)(session.X, session.y)
        seconds_add = time.perf_counter() - start
        predicted = _predicted(model, stream, number)
        scores = session_scores(predicted.p, predicted.y, predicted.session_of)
        history = [*(row["session_accuracy"] for row in rows), scores["session_accuracy"]]
        row = {
            **named,
            "session": number,
            "classes": len(model.classes_),
            **scores,
            "forgetting": average_forgetting(history),
            "open_auroc": _open_auroc(model, stream, number, predicted.p),
            "seconds_add": seconds_add,
            "seconds_predict": predicted.seconds,
            "bytes": memory_bytes(model),
            **origin,
        }
        rows.append(row)
        if on_session is not None:
            on_session(row)
    assert predicted is not None  # a stream has a base session
    return StreamResult(rows, {"method": method, "seed": seed, **_details(model, stream, predicted)})


def _origin() -> dict[str, Any]:
    code = commit()
    return {"versions": versions(), "machine": machine(), **({} if code is None else {"commit": code})}


def _predicted(model: IncrementalModel, stream: SessionStream, number: int) -> _Predicted:
    """Predictions for the test rows of sessions 0 … number."""
    seen = stream.sessions[: number + 1]
    labels = [label for session in seen for label in session.labels.tolist()]
    classes = np.asarray(model.classes_).tolist()
    if len(classes) != len(labels) or set(classes) != set(labels):
        raise ValueError(
            f"After session {number} the model must know the {len(labels)} classes it was taught; its classes_ holds "
            f"{len(classes)} classes, {len(set(classes) & set(labels))} of them among those."
        )
    X = np.concatenate([session.X_test for session in seen])
    start = time.perf_counter()
    p = np.asarray(model.predict_proba(X))
    seconds = time.perf_counter() - start
    y = np.concatenate([columns(session.y_test, classes) for session in seen])
    return _Predicted(p, y, np.repeat(np.arange(number + 1), [len(session.y_test) for session in seen]), seconds)


def _open_auroc(model: IncrementalModel, stream: SessionStream, number: int, p: np.ndarray) -> float | None:
    """How well novelty tells test rows of classes still to come from those of classes seen; p is of the latter."""
    seen, later = stream.sessions[: number + 1], stream.sessions[number + 1 :]
    if not later:
        return None
    unknown = np.concatenate([session.X_test for session in later])
    novelty = getattr(model, "novelty_score", None)
    if novelty is None:
        return auroc(1 - p.max(axis=1), 1 - np.asarray(model.predict_proba(unknown)).max(axis=1))
    return auroc(novelty(np.concatenate([session.X_test for session in seen])), novelty(unknown))


def memory_bytes(model: Any) -> int | None:
    """Bytes that a model keeps: its `memory_bytes_`, else those of its `memory_`; None where it has neither."""
    kept = getattr(model, "memory_bytes_", None)
    kept = getattr(getattr(model, "memory_", None), "nbytes", None) if kept is None else kept
    return None if kept is None else int(kept)


def _details(model: IncrementalModel, stream: SessionStream, predicted: _Predicted) -> dict[str, Any]:
    """Reliability, confusion, surest mistakes, classes in the order of the model's columns, and its tree."""
    labels = np.asarray(model.classes_)
    arrived = {label: k for k, session in enumerate(stream.sessions) for label in session.labels.tolist()}
    curve = reliability_curve(predicted.p, predicted.y)
    bins = zip(curve.confidence.tolist(), curve.accuracy.tolist(), curve.count.tolist(), strict=True)
    tree = getattr(model, "tree_", None)
    return {
        "reliability": [[sure, right, count] if count else [None, None, 0] for sure, right, count in bins],
        "confusion": [list(pair) for pair in most_confused(labels[predicted.y], labels[predicted.p.argmax(1)], _PAIRS)],
        "mistakes": _mistakes(stream, predicted, labels),
        "labels": labels.tolist(),
        "n_base": len(stream.sessions[0].labels),
        "session_of": [arrived[label] for label in labels.tolist()],
        "tree": None if tree is None else tree.to_json(),
    }


def _mistakes(stream: SessionStream, predicted: _Predicted, labels: np.ndarray) -> list[list[Any]]:
    """Id, label, answer and its probability of test rows that are wrong, the surest first; none where rows lack ids."""
    ids = [name for session in stream.sessions for name in session.ids_test or ()]
    if len(ids) != len(predicted.y):
        return []
    answers, sure = predicted.p.argmax(1), predicted.p.max(1)
    wrong = np.flatnonzero(answers != predicted.y)
    wrong = wrong[np.argsort(-sure[wrong], kind="stable")][:_MISTAKES]
    truth, answer = labels[predicted.y[wrong]].tolist(), labels[answers[wrong]].tolist()
    return [list(row) for row in zip([str(ids[i]) for i in wrong], truth, answer, sure[wrong].tolist(), strict=True)]
