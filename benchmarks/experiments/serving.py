"""A served model under load.

How many requests a second are answered while the model is replaced, and is one of them lost or wrong?

None of {mean requests | method=gptree forest} requests was lost and none was wrong, while
{mean replaced | method=gptree forest} new models took the place of the one before. A forest of 100 classes answers
{mean one rate | method=gptree forest} requests of one row a second, half of them within
{mean one p50 | method=gptree forest} ms and all but one in a hundred within {mean one p99 | method=gptree forest} ms,
and {mean hundred rate | method=gptree forest} requests of a hundred rows. Logistic regression behind the same server
answers {mean one rate | method=logistic regression} and {mean hundred rate | method=logistic regression}.

Findings
--------
- A request of one row costs the server {mean one cpu | method=gptree forest} ms of the processor, with logistic
  regression {mean one cpu | method=logistic regression} ms, the loading of ten models shared out among all requests.

Set-up
------
Made-up features (`structured`), 384 of them, 100 classes of 20 rows; a default forest that grows, and scikit-learn's
logistic regression fitted anew. The server of `gptree serve` is a process of its own, with one thread, on 127.0.0.1.
Four clients, threads of one process, ask and wait for the answer; each keeps its connection. Meanwhile a model that
knows one more class, learnt from five rows, is saved into the folder ten times, the next as soon as the one before
answers. So it goes with requests of one row, then with requests of a hundred.

Every answer is checked: status 200, a model that had been saved by then and is not older than the one that answered the
same client before, and label and probability of that very model, to 1e-5. Clients and server share the machine;
its load beforehand is a column.
"""

from __future__ import annotations

import copy
import hashlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import psutil
import torch
from sklearn.linear_model import LogisticRegression

from benchmarks.core.tables import Column, Table, listing
from benchmarks.core.trials import Row, Trial
from benchmarks.data.structured import class_by_class
from gptree import GPForestClassifier, Growth, load_model, storage

GROUP, NEEDS_DATA, SEEDS = "Speed and size", False, 1

CLASSES, SHOTS, NEW_SHOTS, DIMENSIONS, ROWS = 100, 20, 5, 384, 100
REPLACED, CLIENTS = 10, 4
#: Requests of a client at most, seconds until a saved model answers at most, difference of a probability at most.
MOST_REQUESTS, PATIENCE, TOLERANCE = 20_000, 60.0, 1e-5
TOKEN = "loopback"
FOREST, LOGISTIC = "gptree forest", "logistic regression"
PHASES = {"one": "one row", "hundred": "a hundred rows"}
COLUMNS = {
    **{
        f"{phase} {name}": Column(f"{words}: {title}", f"metrics.{phase}.{name}", digits=digits)
        for phase, words in PHASES.items()
        for name, title, digits in (
            ("rate", "requests a second", 0),
            ("p50", "p50 (ms)", 1),
            ("p99", "p99 (ms)", 1),
            ("cpu", "server's CPU (ms)", 1),
        )
    },
    "requests": Column("requests", "metrics.requests", digits=0),
    "lost": Column("lost", "metrics.lost", digits=0),
    "wrong": Column("wrong", "metrics.wrong", digits=0),
    "replaced": Column("models taken in", "metrics.replaced", digits=0),
    "load": Column("load", "metrics.load", digits=1),
}


def trials(seeds: int) -> list[Trial]:
    settings = {"classes": CLASSES, "shots": SHOTS, "dimensions": DIMENSIONS, "clients": CLIENTS, "replaced": REPLACED}
    return [Trial("serving", method, "structured", seed, settings) for seed in range(seeds) for method in MODELS]


def run(trial: Trial, folder: Path) -> Mapping[str, Any]:
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    rows = list(class_by_class(CLASSES + 2 * REPLACED, SHOTS + 1, DIMENSIONS, seed=trial.seed))
    questions = np.round([points[-1] for points in rows[:ROWS]], 6).astype(float)
    with tempfile.TemporaryDirectory() as scratch:
        served = Path(scratch) / "model"
        models = MODELS[trial.method]([points[:SHOTS] for points in rows], CLASSES, 2 * REPLACED)
        shelf = Shelf(served, models, questions)
        shelf.replace()
        with server(served, trial.method) as (address, process):
            phases: dict[str, dict[str, Any]] = {}
            for name, bodies in zip(PHASES, (questions[:, None], questions[None]), strict=True):
                used = _used(process)
                phases[name] = under_load(address, shelf, bodies, REPLACED, CLIENTS)
                phases[name]["cpu"] = 1000 * (_used(process) - used) / phases[name]["requests"]
    return {**phases, **totals(phases.values()), "load": load}


def totals(phases: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    each = list(phases)
    return {name: sum(phase[name] for phase in each) for name in ("requests", "lost", "wrong", "replaced")}


# ------------------------------------------------------------------------------------------------------------- models

#: A classifier, and what saves it into a folder.
Saved = tuple[Any, Callable[[Path], None]]


def forests(rows: Sequence[np.ndarray], known: int, more: int) -> Iterator[Saved]:
    """A forest, and after it the same with one more class each time."""
    model = GPForestClassifier(growth=Growth(), random_state=0).fit(*_joined(rows[:known], range(known)))
    yield model, model.save
    for c in range(known, known + more):
        model = copy.copy(model)
        model.add_classes(*_joined([rows[c][:NEW_SHOTS]], [c]))
        yield model, model.save


def regressions(rows: Sequence[np.ndarray], known: int, more: int) -> Iterator[Saved]:
    """The same of logistic regression, fitted anew each time."""
    for count in range(known, known + more + 1):
        shown = [*rows[:known], *(points[:NEW_SHOTS] for points in rows[known:count])]
        model = LogisticRegression(max_iter=200).fit(*_joined(shown, range(count)))
        yield model, lambda folder, model=model: save_logistic(model, folder)


def _joined(rows: Sequence[np.ndarray], numbers: Iterable[int]) -> tuple[np.ndarray, np.ndarray]:
    y = [f"class {c:03}" for c, points in zip(numbers, rows, strict=True) for _ in points]
    return np.concatenate(rows).astype(float), np.array(y)


def save_logistic(model: LogisticRegression, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    document = {name: getattr(model, name).tolist() for name in ("classes_", "coef_", "intercept_")}
    storage.write_atomically(folder / storage.DOCUMENT, json.dumps(document))


def load_logistic(folder: Path) -> LogisticRegression:
    model: Any = LogisticRegression()
    for name, value in json.loads((folder / storage.DOCUMENT).read_text()).items():
        setattr(model, name, np.array(value))
    model.n_features_in_ = model.coef_.shape[1]
    return model


MODELS = {FOREST: forests, LOGISTIC: regressions}
LOADERS = {FOREST: load_model, LOGISTIC: load_logistic}


@dataclass(frozen=True)
class Version:
    """A model that was saved: when, and its labels and probabilities (n, C) of the questions."""

    saved: float
    place: int
    classes: np.ndarray
    probabilities: np.ndarray


class Shelf:
    """The models that a folder will hold, one after the other.

    versions : those it has held, by the name that the server gives them.
    """

    def __init__(self, folder: Path, models: Iterable[Saved], questions: np.ndarray) -> None:
        self.folder = folder
        self._models = [(save, model.classes_, model.predict_proba(questions)) for model, save in models]
        self.versions: dict[str, Version] = {}

    def replace(self) -> str:
        """Save the next model; its name."""
        save, classes, probabilities = self._models[len(self.versions)]
        before = time.perf_counter()
        save(self.folder)
        name = hashlib.sha256((self.folder / storage.DOCUMENT).read_bytes()).hexdigest()[:12]
        self.versions[name] = Version(before, len(self.versions), classes, probabilities)
        return name


# --------------------------------------------------------------------------------------------------- server and clients


@contextmanager
def server(folder: Path, method: str) -> Iterator[tuple[str, psutil.Process]]:
    """The server of a folder as a process of its own: its address, and the process."""
    command = [sys.executable, "-c", f"from {__name__} import answer; answer()", str(folder), method]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert process.stdout is not None
        yield urlsplit(process.stdout.readline().strip()).netloc, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def answer() -> None:
    """What that process does."""
    from gptree.serve import serve

    _, folder, method = sys.argv
    torch.set_num_threads(1)
    serve(Path(folder), token=TOKEN, load=LOADERS[method], tell=lambda address: print(address, flush=True))


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


class Asked(NamedTuple):
    """A request and what came back; status 0 if nothing did."""

    client: int
    question: int
    began: float
    ended: float
    status: int
    content: bytes


def under_load(address: str, shelf: Shelf, questions: np.ndarray, replaced: int, clients: int) -> dict[str, Any]:
    """Ask while the model is replaced.

    Parameters
    ----------
    address : str
    shelf : Shelf
    questions : (requests, rows, d)
        Asked in turn, over and over.
    replaced : int
        How many times the model is replaced.
    clients : int
    """
    bodies = [json.dumps({"rows": rows.tolist()}).encode() for rows in questions]
    asked: list[Asked] = []
    finished = threading.Event()

    def client(number: int) -> None:
        connection = http.client.HTTPConnection(address, timeout=PATIENCE)
        for i in range(number, number + MOST_REQUESTS):
            if finished.is_set():
                break
            question, began = i % len(bodies), time.perf_counter()
            status, content = _post(connection, bodies[question])
            asked.append(Asked(number, question, began, time.perf_counter(), status, content))
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    try:
        taken_in = sum(_answers(address, shelf.replace()) for _ in range(replaced))
    finally:
        finished.set()
        for thread in threads:
            thread.join()
    seconds = time.perf_counter() - began
    times = 1000 * np.array([each.ended - each.began for each in asked])
    return {
        "requests": len(asked),
        "rate": len(asked) / seconds,
        "p50": float(np.quantile(times, 0.5)),
        "p99": float(np.quantile(times, 0.99)),
        "replaced": taken_in,
        **judged(asked, shelf.versions, questions.shape[1]),
    }


def _post(connection: http.client.HTTPConnection, body: bytes) -> tuple[int, bytes]:
    try:
        connection.request("POST", "/predict", body, {"Authorization": f"Bearer {TOKEN}"})
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0, b""


def _answers(address: str, name: str) -> bool:
    """Wait for a model; whether it answers."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    until = time.perf_counter() + PATIENCE
    while time.perf_counter() < until:
        connection.request("GET", "/health")
        if json.loads(connection.getresponse().read())["model"] == name:
            return True
        time.sleep(0.02)
    return False


def judged(asked: Sequence[Asked], versions: Mapping[str, Version], rows: int) -> dict[str, int]:
    """How many requests were lost, and how many answers are not those of the model that they name."""
    lost = wrong = 0
    last: dict[int, int] = {}
    for each in sorted(asked, key=lambda each: each.began):
        if each.status != 200:
            lost += 1
            continue
        told = json.loads(each.content)
        version = versions.get(told["model"])
        first = each.question * rows
        if (
            version is None
            or version.saved > each.ended
            or version.place < last.get(each.client, 0)
            or not _right(told["answers"], version.classes, version.probabilities[first : first + rows])
        ):
            wrong += 1
        else:
            last[each.client] = version.place
    return {"lost": lost, "wrong": wrong}


def _right(answers: Sequence[Mapping[str, Any]], classes: np.ndarray, p: np.ndarray) -> bool:
    """Whether each label has the highest probability, and the one that was told."""
    if len(answers) != len(p):
        return False
    numbers = {label: c for c, label in enumerate(classes.tolist())}
    chosen = np.array([numbers.get(each["label"], -1) for each in answers])
    if chosen.min() < 0:
        return False
    own = np.take_along_axis(p, chosen[:, None], 1)[:, 0]
    told = np.array([each["probability"] for each in answers])
    return bool((np.abs(own - told) <= TOLERANCE).all() and (p.max(1) - own <= TOLERANCE).all())


def tables(rows: list[Row]) -> list[Table]:
    speed = [column for name, column in COLUMNS.items() if name.startswith(tuple(PHASES))]
    counts = [column for name, column in COLUMNS.items() if not name.startswith(tuple(PHASES))]
    return [listing("Speed", rows, ["method"], speed), listing("Counts", rows, ["method"], counts)]
