"""The studio's interface: JSON under /api, the page at /. Thin: `gptree.project` does the work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from gptree.studio.desk import Desk, NotReadyError, below, label_of
from gptree.studio.guard import Guard
from gptree.studio.requests import body_of, list_of, static_file, version_of, whole
from gptree.studio.sources import digits_opener, found_below, opener
from gptree.studio.uploads import MOST_BYTES, UploadError, read_files

_STATIC = ("studio.js", "style.css", "icon.svg")
_MOST_LESSONS, _MOST_IDS, _MOST_NOTE = 1000, 10_000, 500

Handler = Callable[[Request], Awaitable[Response]]


class Studio:
    """The endpoints around a desk.

    Parameters
    ----------
    desk : Desk
    root : Path
        Only what lies below it can be opened from the page.
    """

    def __init__(self, desk: Desk, root: Path) -> None:
        self.desk, self.root = desk, root
        self._once: dict[str, tuple[Any, Any]] = {}  # answers that are computed once a snapshot

    def app(self, token: str, hosts: list[str]) -> Guard:
        """The application, behind its checks."""
        reads = {
            "/state": self.state,
            "/examples": self.examples,
            "/examples/{key}": self.example,
            "/examples/{key}/thumb": self.thumb,
            "/examples/{key}/explain": self.explain,
            "/map": self.map,
            "/queue": self.queue,
            "/quality": self.quality,
            "/changes/{version:int}": self.changes,
            "/events": self.stream,
            "/found": self.found,
        }
        writes = {
            "/preview": self.preview,
            "/teach": self.teach,
            "/answers": self.answers,
            "/undo": self.undo,
            "/rename": self.rename,
            "/merge": self.merge,
            "/remove": self.remove,
            "/upload": self.upload,
            "/export": self.export,
            "/open": self.open,
            "/digits": self.digits,
        }
        routes = [Route("/", self.page), Route("/static/{name}", self.static)]
        routes += [Route(f"/api{path}", self._answered(handler)) for path, handler in reads.items()]
        routes += [Route(f"/api{path}", self._answered(handler), methods=["POST"]) for path, handler in writes.items()]
        routes += [Route("/api/examples/{key}", self._answered(self.forget), methods=["DELETE"])]
        inner = Starlette(routes=routes, exception_handlers={HTTPException: _http_error}, lifespan=self._life)
        return Guard(inner, token, hosts, MOST_BYTES)

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self.desk.close()

    def _answered(self, handler: Handler) -> Handler:
        """A handler whose refusals are JSON: the sentence of the library, with a status."""

        async def run(request: Request) -> Response:
            try:
                return await handler(request)
            except NotReadyError as error:
                return JSONResponse({"error": str(error)}, 503)
            except UploadError as error:
                return JSONResponse({"error": str(error)}, error.status)
            except (ValueError, OSError) as error:
                if hasattr(error, "changes"):  # StaleVersion, which is not imported for a comparison
                    return await run_in_threadpool(self._stale, error)
                return JSONResponse({"error": str(error)}, 400)

        return run

    def _stale(self, error: Any) -> Response:
        """409: the version was not the newest. What changed since, and the state now."""
        from gptree.studio.views import changes_json

        since = None if error.changes is None else changes_json(error.changes, self.desk.reading())
        message = f"Somebody else was faster: this is version {error.version} now. Nothing was done."
        return JSONResponse({"error": message, "state": self._state(), "changes": since}, 409)

    # ------------------------------------------------------------------------------------------------------ the page

    async def page(self, request: Request) -> Response:
        return static_file("index.html")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        return static_file(name) if name in _STATIC else JSONResponse({"error": "There is no such file."}, 404)

    # ------------------------------------------------------------------------------------------------------- reading

    async def state(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._state))

    def _state(self) -> dict[str, Any]:
        desk, status = self.desk, self.desk.status
        view, project = desk.view, desk.project
        job = None if status.job is None else dict(zip(("what", "done", "of"), status.job, strict=True))
        found: dict[str, Any] = {
            "state": status.state,
            "message": status.message,
            "job": job,
            "read_only": desk.read_only,
            "author": desk.author,
            "version": 0,
            "project": None,
            "classes": [],
            "tree": None,
            "counts": {"examples": 0, "pool": 0, "test": 0, "taught": 0, "none": 0},
            "map": False,
            "journal": [],
            "undoable": False,
        }
        if view is not None and project is not None:
            encoder = project.encoder
            found |= {
                "version": view.version,
                "project": {
                    "name": project.name,
                    "kind": project.kind,
                    "folder": str(project.folder),
                    "encoder": None if encoder is None else str(encoder.get("name") or encoder.get("architecture")),
                    "uploads": project.kind == "image" and encoder is not None,
                },
                **self._per_version("state", view, lambda: _facts_of(view)),
                "map": view.places is not None,
                "undoable": len(view.standing) > 1 and not desk.read_only,
            }
        return found

    async def examples(self, request: Request) -> Response:
        view, query = self.desk.reading(), request.query_params
        from gptree.studio.views import MOST_EXAMPLES

        if "rows" in query:
            rows = [whole(each, "rows") for each in query["rows"].split(",")[:MOST_EXAMPLES]]
            examples = [view.example(row) for row in rows if 0 <= row < len(view.examples)]
            return JSONResponse({"version": view.version, "total": len(rows), "examples": examples, "next": None})
        how = {
            "labels": [each for each in query.get("class", "").split("\n") if each],
            "none": query.get("none") == "1",
            "split": query.get("split", ""),
            "text": query.get("text", "")[:200],
            "order": query.get("order", "id"),
            "after": whole(query["after"], "after") if "after" in query else None,
            "limit": max(1, min(whole(query.get("limit", "50"), "limit"), MOST_EXAMPLES)),
        }
        return JSONResponse(await run_in_threadpool(lambda: view.page(**how)))

    async def example(self, request: Request) -> Response:
        view, row = self._row(request)
        return JSONResponse(view.example(row))

    async def thumb(self, request: Request) -> Response:
        from gptree.studio.thumbs import thumb_of_file, thumb_of_vector

        view, row = self._row(request)
        example, project = view.examples[row], self.desk.project
        assert project is not None

        def drawn() -> bytes:
            path = project.path_of(example.id)
            return thumb_of_vector(project.vectors([example.id])[0]) if path is None else thumb_of_file(path)

        headers = {"ETag": f'"{example.key}"', "Cache-Control": "private, max-age=86400"}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(await run_in_threadpool(drawn), media_type="image/png", headers=headers)

    async def explain(self, request: Request) -> Response:
        from gptree.studio.views import explanation_json

        view, row = self._row(request)
        project = self.desk.project
        if view.model is None or project is None:
            raise NotReadyError("There is no model yet: teach it something.")

        def explained() -> dict[str, Any]:
            x = project.vectors([view.examples[row].id])
            p = view.model.predict_proba(x)[0]
            best = [(view.model.classes_[c], p[c]) for c in (-p).argsort(kind="stable")[:9]]
            return explanation_json(view.model.explain(x)[0], best, view)

        return JSONResponse(await run_in_threadpool(explained))

    async def map(self, request: Request) -> Response:
        view = self.desk.reading()
        if view.places is None:
            raise NotReadyError("The map is being drawn.")
        tag = f'"{view.version}-{len(view.examples)}-{int(view.columns.none.sum())}"'
        headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        body = await run_in_threadpool(view.map)
        return Response(body, media_type="application/octet-stream", headers=headers)

    async def queue(self, request: Request) -> Response:
        order, n = request.query_params.get("order", "suggest"), whole(request.query_params.get("n", "20"), "n")
        view = self.desk.reading()
        ids = await self.desk.ask(lambda project: project.queue(order, max(1, min(n, 200))))  # pyright: ignore
        cards = [view.example(view.row_of[name]) for name in ids if name in view.row_of]
        return JSONResponse({"version": view.version, "cards": cards})

    async def quality(self, request: Request) -> Response:
        view, project = self.desk.reading(), self.desk.project
        assert project is not None

        def measured() -> Any:
            from gptree.studio.quality import quality_json

            return quality_json(project.quality(), view)

        return JSONResponse(await run_in_threadpool(lambda: self._per_version("quality", view, measured)))

    async def changes(self, request: Request) -> Response:
        from gptree.studio.views import changes_json

        view, version = self.desk.reading(), request.path_params["version"]
        found = await self.desk.ask(lambda project: project.diff(max(version - 1, 1), version))
        return JSONResponse(changes_json(found, view, seconds=self.desk.seconds.get(version, 0.0)))

    async def stream(self, request: Request) -> Response:
        last = request.headers.get("last-event-id", "")
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self.desk.events.stream(last), media_type="text/event-stream", headers=headers)

    async def found(self, request: Request) -> Response:
        found = await run_in_threadpool(found_below, self.root)
        return JSONResponse({"root": str(self.root), "found": found})

    # ------------------------------------------------------------------------------------------------------- changing

    async def preview(self, request: Request) -> Response:
        from gptree.studio.views import changes_json

        body = await body_of(request)
        view, lessons = self.desk.reading(), self._lessons(body)
        version = version_of(body)

        def tried(project: Any) -> Any:
            import time

            from gptree.project import StaleVersion

            if version != project.version:
                raise StaleVersion(version, project.version, _since(project, version))
            began = time.perf_counter()
            return project.preview(lessons), time.perf_counter() - began

        found, seconds = await self.desk.ask(tried)
        return JSONResponse(changes_json(found, view, body["lessons"], seconds))

    async def teach(self, request: Request) -> Response:
        body = await body_of(request)
        lessons, said = self._lessons(body), self._said(body)
        return await self._change("teaching", body, lambda project, **how: project.teach(lessons, **said, **how))

    async def answers(self, request: Request) -> Response:
        """Answers one by one, which are taught together."""
        body = await body_of(request)
        groups: dict[str, list[str]] = {}
        for each in list_of(body, "answers", _MOST_IDS):
            if not isinstance(each, dict):
                raise ValueError("answers is a list of {id, label}.")
            groups.setdefault(str(each.get("label")), []).append(str(each.get("id")))
        body["lessons"] = [{"label": label, "ids": ids} for label, ids in groups.items()]
        lessons, said = self._lessons(body), self._said(body)
        return await self._change("teaching", body, lambda project, **how: project.teach(lessons, **said, **how))

    async def undo(self, request: Request) -> Response:
        body = await body_of(request)
        to, said = body.get("to"), self._said(body)

        def back(project: Any, **how: Any) -> Any:
            return project.undo(**said, **how) if to is None else project.undo_to(whole(to, "to"), **said, **how)

        return await self._change("taking back", body, back)

    async def rename(self, request: Request) -> Response:
        body = await body_of(request)
        old, new, said = self._label(body, "label"), self._label(body, "to"), self._said(body)
        return await self._change("renaming", body, lambda project, **how: project.rename(old, new, **said, **how))

    async def merge(self, request: Request) -> Response:
        body = await body_of(request)
        view = self.desk.reading()
        labels = [label_of(each, view) for each in list_of(body, "labels", _MOST_LESSONS)]
        into, said = self._label(body, "into"), self._said(body)
        return await self._change("merging", body, lambda project, **how: project.merge(labels, into, **said, **how))

    async def remove(self, request: Request) -> Response:
        body = await body_of(request)
        view = self.desk.reading()
        labels, said = [label_of(each, view) for each in list_of(body, "labels", _MOST_LESSONS)], self._said(body)
        return await self._change("removing", body, lambda project, **how: project.remove(labels, **said, **how))

    async def forget(self, request: Request) -> Response:
        """An example leaves for good; `confirm` names it, so that no slip does it."""
        self._writable()
        body = await body_of(request)
        view, row = self._row(request)
        name, said, gone = view.examples[row].id, self._said(body), body.get("remove_class") is True
        if body.get("confirm") != name:
            raise ValueError("Nothing brings an example back: confirm it by its name.")

        def work(project: Any, **how: Any) -> Any:
            return project.forget([name], remove_class=gone, **said, **how)

        return await self._change("forgetting", body, work)

    async def upload(self, request: Request) -> Response:
        self._writable()
        given = await read_files(request)
        project = self.desk.project
        if project is None or project.kind != "image" or project.encoder is None:
            raise UploadError("This project takes no pictures: it holds texts or bare vectors.")
        pictures, failed = await run_in_threadpool(_decoded, given)

        def taken(project: Any) -> Any:
            return project.import_pictures(pictures, author=self.desk.author)

        imported, view, _ = await self.desk.change("encoding", taken)  # pyright: ignore[reportArgumentType]
        failed += [{"name": each.id, "reason": each.reason} for each in imported.failed]  # pyright: ignore
        ids = [*imported.ids, *imported.known]  # pyright: ignore[reportAttributeAccessIssue]
        return JSONResponse({"examples": [view.example(view.row_of[name]) for name in ids], "failed": failed})

    async def export(self, request: Request) -> Response:
        from gptree.studio.exports import zipped

        body = await body_of(request)
        view, project, what = self.desk.reading(), self.desk.project, body.get("what")
        assert project is not None
        if what not in ("model", "onnx", "answers"):
            raise ValueError("what is model, onnx or answers.")
        content = await run_in_threadpool(zipped, what, view, project)
        return Response(content, media_type="application/zip")

    async def open(self, request: Request) -> Response:
        body = await body_of(request)
        path = below(self.root, str(body.get("path", "")))
        return await self._opened(opener(path, self.desk.author))

    async def digits(self, request: Request) -> Response:
        return await self._opened(digits_opener(self.root, self.desk.author))

    async def _opened(self, opened: Any) -> Response:
        self._writable()
        if self.desk.status.state not in ("start", "failed"):
            raise ValueError("Something is open already: start another studio for another project.")
        self.desk.open(opened)
        return JSONResponse(self._state())

    # ------------------------------------------------------------------------------------------------------- helpers

    async def _change(self, what: str, body: dict[str, Any], work: Callable[..., Any]) -> Response:
        from gptree.studio.views import changes_json

        self._writable()
        version = version_of(body)
        found, view, seconds = await self.desk.change(what, lambda project: work(project, version=version))
        return JSONResponse(changes_json(found, view, body.get("lessons", ()), seconds))

    def _writable(self) -> None:
        if self.desk.read_only:
            raise HTTPException(403, "The studio was opened to read only.")

    def _said(self, body: dict[str, Any]) -> dict[str, str]:
        note = body.get("note") or ""
        if not isinstance(note, str) or len(note) > _MOST_NOTE:
            raise ValueError(f"A note is a text of at most {_MOST_NOTE} characters.")
        return {"note": note, "author": self.desk.author}

    def _label(self, body: dict[str, Any], name: str) -> Any:
        return label_of(body.get(name, ""), self.desk.reading())

    def _lessons(self, body: dict[str, Any]) -> list[tuple[Any, list[str]]]:
        view, lessons = self.desk.reading(), []
        for each in list_of(body, "lessons", _MOST_LESSONS):
            if not isinstance(each, dict):
                raise ValueError("lessons is a list of {label, ids}.")
            ids = [str(name) for name in list_of(each, "ids", _MOST_IDS)]
            lessons.append((label_of(each.get("label", ""), view), ids))
        return lessons

    def _row(self, request: Request) -> Any:
        view = self.desk.reading()
        row = view.row_of_key.get(request.path_params["key"])
        if row is None:
            raise HTTPException(404, "There is no such example.")
        return view, row

    def _per_version(self, name: str, view: Any, compute: Callable[[], Any]) -> Any:
        known = self._once.get(name)
        if known is None or known[0] is not view.snapshot:
            known = (view.snapshot, compute())
            self._once[name] = known
        return known[1]


def _facts_of(view: Any) -> dict[str, Any]:
    tree = view.snapshot.tree
    return {
        "classes": view.classes(),
        "tree": None if tree is None else tree.to_json(),
        "counts": view.counts(),
        "journal": view.journal(),
    }


def _since(project: Any, version: int) -> Any:
    try:
        return project.diff(version)
    except (ValueError, OSError):
        return None


def _decoded(given: list[tuple[str, Any]]) -> tuple[list[tuple[str, bytes]], list[dict[str, str]]]:
    """Pictures that can be read, by the name of the file alone; and those that cannot, with the reason."""
    from gptree.embed.pictures import UnreadableError, decoded

    pictures, failed = [], []
    for name, file in given:
        name = Path(name.replace("\\", "/")).name[:200] or "picture"
        content = file.read()
        file.close()
        try:
            decoded(content)
            pictures.append((name, content))
        except UnreadableError as error:
            failed.append({"name": name, "reason": str(error)})
    if not pictures:
        raise UploadError(f"None of the files is a picture; first {failed[0]['name']}: {failed[0]['reason']}.")
    return pictures, failed


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)
