"""The interface of a served model: JSON in, JSON out, a status and a sentence where something is wrong."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gptree import load_model
from gptree.estimators.top_k import TopK, searches, top_k
from gptree.serve.batches import Batcher, BusyError
from gptree.serve.metrics import CONTENT_TYPE, Metrics
from gptree.serve.watch import ModelWatch, Served
from gptree.storage import locked

#: Bytes of a body, rows of a request, seconds between two looks at the folder.
MOST_BYTES, MOST_ROWS, LOOK_EVERY = 32 * 2**20, 10_000, 0.5
_KINDS = {"rows": "vectors", "texts": "texts"}


class RefusedError(Exception):
    """A request that is not answered: a status, and a sentence for whoever sent it."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Question:
    """Vectors (n, d), or texts or pictures, and what is asked about them."""

    X: np.ndarray | None = None
    raw: tuple[Any, ...] = ()
    kind: str = "vectors"
    top: int = 1
    reject: float | None = None

    def __len__(self) -> int:
        return len(self.raw) if self.X is None else len(self.X)


class Service:
    """The endpoints of one model.

    Parameters
    ----------
    watch : ModelWatch
    token : str
        What a client has to send as ``Authorization: Bearer …``; "" asks for nothing.
    teach : bool
        Whether clients may change the model.
    """

    def __init__(self, watch: ModelWatch, token: str = "", teach: bool = False) -> None:
        self.watch, self.token, self.may_teach = watch, token, teach
        self.metrics, self.batcher = Metrics(), Batcher(self._answers)

    def app(self) -> Starlette:
        """The application."""
        routes = [
            Route("/health", self._told(self.health, open_to_all=True)),
            Route("/model", self._told(self.model)),
            Route("/metrics", self._told(self.measured)),
            Route("/predict", self._told(self.predict), methods=["POST"]),
            Route("/explain", self._told(self.explain), methods=["POST"]),
            Route("/teach", self._told(self.teach), methods=["POST"]),
            Route("/undo", self._told(self.undo), methods=["POST"]),
        ]
        return Starlette(routes=routes, lifespan=self._life)

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        looking = asyncio.create_task(self._look())
        yield
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        self.batcher.close()

    async def _look(self) -> None:
        """Take in a new model as soon as there is one; the old one answers until then."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await run_in_threadpool(self.watch.look)

    def _told(
        self, handler: Callable[[Request], Awaitable[Response]], open_to_all: bool = False
    ) -> Callable[[Request], Awaitable[Response]]:
        """A handler that is counted, and whose refusals are JSON."""

        async def run(request: Request) -> Response:
            start = time.perf_counter()
            try:
                if not open_to_all:
                    self._check_token(request)
                response = await handler(request)
            except RefusedError as error:
                response = JSONResponse({"error": str(error)}, error.status)
            except BusyError:
                message = "Too many rows are waiting; ask again in a second."
                response = JSONResponse({"error": message}, 503, {"Retry-After": "1"})
            except (ValueError, TypeError, OSError, RuntimeError) as error:
                response = JSONResponse({"error": str(error)}, 400)
            except ClientDisconnect:
                response = Response(status_code=499)
            self.metrics.took(request.url.path, response.status_code, time.perf_counter() - start)
            return response

        return run

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("authorization", "")
        if self.token and not secrets.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise RefusedError(401, "Send the token of this server as «Authorization: Bearer TOKEN».")

    # -------------------------------------------------------------------------------------------------------- asking

    async def health(self, request: Request) -> Response:
        """Whether it answers, and by which model."""
        return JSONResponse({"status": "ready", "model": self.watch.current.version, "error": self.watch.error})

    async def model(self, request: Request) -> Response:
        """What the model is."""
        served = self.watch.current
        return JSONResponse(
            {
                "model": served.version,
                "kind": type(served.model).__name__,
                "classes": served.model.classes_.tolist(),
                "features": served.width,
                "encoder": None if served.encoder is None else served.encoder.describe(),
                "changes": max(len(getattr(served.model, "journal_", ())) - 1, 0),
                "teach": self.may_teach,
            }
        )

    async def measured(self, request: Request) -> Response:
        gauges = (
            ("gptree_batches_total", "counter", "Batches that were computed.", self.batcher.batches),
            ("gptree_waiting_rows", "gauge", "Rows that wait.", self.batcher.waiting),
            ("gptree_model_loads_total", "counter", "Models that were loaded.", self.watch.loads),
            ("gptree_model_failures_total", "counter", "Saved models that could not be loaded.", self.watch.failures),
        )
        return PlainTextResponse(self.metrics.text(gauges), media_type=CONTENT_TYPE)

    async def predict(self, request: Request) -> Response:
        """Labels and probabilities of rows, texts or pictures."""
        question = await _question(request)
        answer = await self.batcher.submit(question, len(question))
        self.metrics.rows += len(question)
        return JSONResponse(answer)

    async def explain(self, request: Request) -> Response:
        """The decisions behind the predictions."""
        question, served = await _question(request), self.watch.current
        if not _can(served, "explain"):
            raise RefusedError(404, "This model cannot explain its answers.")

        def explained() -> list[Any]:
            return [why.to_json() for why in served.model.explain(_vectors(question, served))]

        answers = await asyncio.get_running_loop().run_in_executor(self.batcher.thread, explained)
        return _json({"model": served.version, "answers": answers})

    def _answers(self, questions: Sequence[Question]) -> list[Any]:
        """Of questions that are computed together; those that cannot be answered do not harm the others."""
        served = self.watch.current
        answers: list[Any] = [None] * len(questions)
        inputs: dict[int, np.ndarray] = {}
        for i, question in enumerate(questions):
            try:
                _check_novelty(question, served)
                inputs[i] = _vectors(question, served)
            except (ValueError, RefusedError) as error:
                answers[i] = error
        if not inputs:
            return answers
        groups: dict[int | None, list[int]] = {}  # by how many classes a search looks for; None for those that need all
        for i in inputs:
            k = min(questions[i].top, len(served.model.classes_))
            alone = questions[i].reject is None and searches(served.model, k)
            groups.setdefault(k if alone else None, []).append(i)
        for k, places in groups.items():
            X = np.concatenate([inputs[i] for i in places])
            if k is None:
                best, novelty = _of_all(served.model, X, [questions[i] for i in places])
            else:
                best, novelty = served.model.predict_top_k(X, k), None
            start = 0
            for i in places:
                rows = slice(start, start := start + len(inputs[i]))
                own, strange = TopK(*(part[rows] for part in best)), None if novelty is None else novelty[rows]
                try:
                    answers[i] = _answer(questions[i], served, own, strange)
                except ValueError as error:
                    answers[i] = error
        return answers

    # ------------------------------------------------------------------------------------------------------ teaching

    async def teach(self, request: Request) -> Response:
        """Teach new classes, or more examples of known ones, and save the model."""
        self._check_teaching()
        body = await _body(request)
        labels, note, author = body.get("labels"), body.get("note", ""), body.get("author", "")
        question = _asked(body)
        if not isinstance(labels, list) or len(labels) != len(question):
            raise RefusedError(400, "Send «labels», one for each row.")
        if not isinstance(note, str) or not isinstance(author, str):
            raise RefusedError(400, "«note» and «author» are texts.")

        def lesson(model: Any, served: Served) -> None:
            X, y, known = _vectors(question, served), np.array(labels), model.classes_.tolist()
            old = np.array([label in known for label in labels])
            if old.any() and not old.all():
                raise RefusedError(400, "Send new classes and examples of known ones in two requests.")
            (model.add_examples if old.all() else model.add_classes)(X, y, note=note, author=author)

        return await self._changed(lesson)

    async def undo(self, request: Request) -> Response:
        """Take the last lesson back, and save the model."""
        self._check_teaching()
        return await self._changed(lambda model, _: model.undo())

    def _check_teaching(self) -> None:
        if not self.may_teach:
            raise RefusedError(403, "This server only answers; start it with --teach to change its model.")

    async def _changed(self, change: Callable[[Any, Served], Any]) -> Response:
        """Load, change and save under the lock of the folder; then the new model answers."""

        def run() -> dict[str, Any]:
            with locked(self.watch.folder):
                model = load_model(self.watch.folder)
                if not hasattr(model, "journal_"):
                    raise RefusedError(409, "This model cannot learn further classes.")
                change(model, self.watch.current)
                model.save(self.watch.folder)
            self.watch.look()
            return {"model": self.watch.current.version, "classes": self.watch.current.model.classes_.tolist()}

        return JSONResponse(await run_in_threadpool(run))


# ---------------------------------------------------------------------------------------------------------- questions


async def _question(request: Request) -> Question:
    """What a request asks: JSON with rows or texts, or pictures as an upload."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return _asked(await _body(request))
    from gptree.studio.uploads import UploadError, read_files

    try:
        files = await read_files(request)
    except UploadError as error:
        raise RefusedError(error.status, str(error)) from None
    given = {name: request.query_params[name] for name in ("top", "reject") if name in request.query_params}
    try:
        numbers = {name: json.loads(value) for name, value in given.items()}
    except ValueError:
        raise RefusedError(400, "«top» and «reject» are numbers.") from None
    return Question(raw=tuple(file.read() for _, file in files), kind="pictures", **_options(numbers))


async def _body(request: Request) -> dict[str, Any]:
    """The JSON of a request, counted while it comes."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BYTES:
            raise RefusedError(413, f"More than {MOST_BYTES // 2**20} MiB at once are not taken; send fewer rows.")
        parts.append(part)
    try:
        body = json.loads(b"".join(parts))
    except (ValueError, RecursionError):
        raise RefusedError(400, "The body is not JSON.") from None
    if not isinstance(body, dict):
        raise RefusedError(400, 'Send an object such as {"rows": [[…], […]]}.')
    return body


def _asked(body: dict[str, Any]) -> Question:
    names = [name for name in _KINDS if name in body]
    if len(names) != 1 or not isinstance(body[names[0]], list) or not body[names[0]]:
        raise RefusedError(400, "Send «rows», lists of numbers, or «texts», one of them and not empty.")
    items = body[names[0]]
    if len(items) > MOST_ROWS:
        raise RefusedError(413, f"More than {MOST_ROWS:,} rows at once are not taken; send fewer.")
    options = _options(body)
    if names[0] == "texts":
        if not all(isinstance(text, str) for text in items):
            raise RefusedError(400, "«texts» are texts.")
        return Question(raw=tuple(items), kind="texts", **options)
    try:
        X = np.array(items, dtype=float)
    except (ValueError, TypeError):
        raise RefusedError(400, "«rows» are lists of numbers, all of one length.") from None
    if X.ndim < 2 or not np.isfinite(X).all():
        raise RefusedError(400, "«rows» are lists of finite numbers, all of one length.")
    return Question(X, **options)


def _options(body: dict[str, Any]) -> dict[str, Any]:
    top, reject = body.get("top", 1), body.get("reject")
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise RefusedError(400, "«top» is a whole number from 1 on.")
    if reject is not None and (isinstance(reject, bool) or not isinstance(reject, int | float) or not 0 < reject < 1):
        raise RefusedError(400, "«reject» is a share between 0 and 1.")
    return {"top": top, "reject": reject}


def _vectors(question: Question, served: Served) -> np.ndarray:
    """What is asked about, as the model takes it."""
    if question.X is not None:
        if served.width is not None and question.X.shape[1:] != (served.width,):
            raise RefusedError(400, f"The model takes {served.width} numbers a row, not {question.X.shape[1]}.")
        return question.X
    encoder = served.encoder
    wanted = "vectors" if encoder is None else {"image": "pictures", "text": "texts"}[encoder.kind]
    if wanted != question.kind or encoder is None:
        raise RefusedError(400, f"The model takes {wanted}, not {question.kind}.")
    return encoder.encode([encoder.prepare(item) for item in question.raw])


def _can(served: Served, name: str) -> bool:
    """Whether the model has a method; of a network, what it hands its embeddings to."""
    return hasattr(getattr(served.model, "classifier_", served.model), name)


def _check_novelty(question: Question, served: Served) -> None:
    if question.reject is not None and not _can(served, "predict_with_novelty"):
        raise RefusedError(400, "This model cannot say «none of these»: leave «reject» out.")


def _of_all(model: Any, X: np.ndarray, questions: Sequence[Question]) -> tuple[TopK, np.ndarray | None]:
    """From the probabilities of all classes: as many classes as any question asks for, and how strange rows are."""
    if all(question.reject is None for question in questions):
        p, novelty = model.predict_proba(X), None
    else:
        p, novelty = model.predict_with_novelty(X)
    return top_k(model.classes_, p, min(max(question.top for question in questions), p.shape[1])), novelty


def _answer(question: Question, served: Served, best: TopK, novelty: np.ndarray | None) -> dict[str, Any]:
    answers = []
    for labels, p in zip(best.classes.tolist(), best.probabilities.tolist(), strict=True):
        pairs = list(zip(labels, p, strict=True))[: question.top]
        ranked = [{"label": label, "probability": value} for label, value in pairs]
        answers.append({**ranked[0], **({"top": ranked} if question.top > 1 else {})})
    if question.reject is not None and novelty is not None:
        strange = novelty > served.model.novelty_threshold(question.reject)
        for answer, score, none in zip(answers, novelty.tolist(), strange.tolist(), strict=True):
            answer |= {"novelty": score, "none_of_these": none}
    return {"model": served.version, "answers": answers}


def _json(content: Any) -> Response:
    """JSON of a document that may hold numbers of NumPy."""
    text = json.dumps(content, default=lambda value: value.tolist(), ensure_ascii=False)
    return Response(text, media_type="application/json")
