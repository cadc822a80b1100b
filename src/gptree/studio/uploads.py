"""Pictures that come from the page: counted while they come, decoded before they are kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

#: Bytes of a file, bytes and files of a request.
MOST_FILE, MOST_BYTES, MOST_FILES = 32 * 2**20, 512 * 2**20, 2000


class UploadError(ValueError):
    """An upload that is not taken, and the status that says so."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


class _Parser(MultiPartParser):
    """Refuses a file as soon as it is too long."""

    def __init__(self, headers: Headers, stream: AsyncGenerator[bytes, None]) -> None:
        super().__init__(headers, stream, max_files=MOST_FILES, max_fields=0)
        self._length = 0

    def on_part_begin(self) -> None:
        super().on_part_begin()
        self._length = 0

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._length += end - start
        if self._length > MOST_FILE:
            raise MultiPartException(f"A file has more than {MOST_FILE // 2**20} MiB; make it smaller.")
        super().on_part_data(data, start, end)


async def read_files(request: Request) -> list[tuple[str, Any]]:
    """Names and open files of an upload."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise UploadError("Pictures are sent as multipart/form-data.")
    try:
        form = await _Parser(request.headers, request.stream()).parse()
    except MultiPartException as error:
        raise UploadError(
            error.message, 413 if "more than" in error.message or "Too many" in error.message else 400
        ) from None
    files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
    if not files:
        raise UploadError("There is no file in this upload.")
    return [(each.filename or "picture", each.file) for each in files]
