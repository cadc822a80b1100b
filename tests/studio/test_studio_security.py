"""Who may ask the studio, and what a browser may do with the answers: each promise of SECURITY.md has its test here."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient
from studio_pages import BASE, HEADERS, PORT, TOKEN, Page

from command_runs import run_command
from gptree.studio import uploads
from gptree.studio.guard import MOST_JSON, POLICY, new_token
from gptree.studio.server import bind, hosts_of

Made = Callable[..., Page]

READS = (
    "state",
    "examples",
    "map",
    "queue",
    "quality",
    "changes/1",
    "found",
    "examples/x",
    "examples/x/thumb",
    "events",
)
WRITES = ("preview", "teach", "answers", "undo", "rename", "merge", "remove", "upload", "export", "open", "digits")


@pytest.fixture
def empty(studio: Made) -> Page:
    """A studio with nothing open: enough for every refusal."""
    return studio(None)


@pytest.fixture
def stranger(empty: Page) -> TestClient:
    """Somebody without the cookie."""
    return TestClient(empty.client.app, base_url=BASE, follow_redirects=False)


def test_it_listens_on_the_loopback_address_and_a_free_port() -> None:
    sockets = [bind("127.0.0.1", 0) for _ in range(2)]
    (host, first), (_, second) = (each.getsockname() for each in sockets)
    for each in sockets:
        each.close()
    assert host == "127.0.0.1"
    assert 0 < first != second > 0
    assert hosts_of("127.0.0.1", 5) == ["127.0.0.1:5", "localhost:5", "[::1]:5"]
    assert hosts_of("192.0.2.1", 5) == ["192.0.2.1:5"]


def test_another_host_needs_i_know_and_is_told_what_that_means(monkeypatch: pytest.MonkeyPatch) -> None:
    served = []
    monkeypatch.setattr("gptree.studio.server.serve", lambda *_, host, **how: served.append(host))
    refused = run_command("studio", "--host", "0.0.0.0", "--no-browser", code=2).stderr
    assert "not encrypted" in refused
    assert "--i-know" in refused
    assert "can change this project" in run_command("studio", "--host", "0.0.0.0", "--i-know").stderr
    run_command("studio")
    assert served == ["0.0.0.0", "127.0.0.1"]


def test_secrets_are_compared_in_constant_time(stranger: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr("gptree.studio.guard.secrets.compare_digest", lambda *both: bool(compared.append(both)))
    stranger.cookies.set(f"gptree-{PORT}", "wrong")
    assert stranger.get(f"/?token={TOKEN}").status_code == 401  # even the right one, when nothing is the same
    assert [given for given, _ in compared] == [TOKEN.encode(), b"wrong"]


def test_a_token_has_192_bits_and_is_another_one_every_time() -> None:
    assert len(new_token()) == 32  # of base 64, six bits each
    assert len({new_token() for _ in range(50)}) == 50


@pytest.mark.parametrize("path", ["/", "/static/studio.js", *(f"/api/{each}" for each in READS)])
def test_nothing_is_answered_without_the_token(stranger: TestClient, path: str) -> None:
    for address in (path, f"{path}?token=wrong", f"{path}?token="):
        assert stranger.get(address).status_code == 401


@pytest.mark.parametrize("path", WRITES)
def test_nothing_is_changed_without_the_token(stranger: TestClient, path: str) -> None:
    assert stranger.post(f"/api/{path}", json={}, headers=HEADERS).status_code == 401
    stranger.cookies.set(f"gptree-{PORT}", TOKEN)  # the token is no cookie
    assert stranger.post(f"/api/{path}", json={}, headers=HEADERS).status_code == 401


def test_the_token_becomes_a_cookie_and_leaves_the_address(stranger: TestClient) -> None:
    answer = stranger.get(f"/?token={TOKEN}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", f"127.0.0.1:{PORT + 1}", "127.0.0.1", ""])
def test_another_host_name_is_refused_so_that_dns_rebinding_fails(empty: Page, host: str) -> None:
    for path in ("/", f"/?token={TOKEN}", "/api/state"):
        assert empty.client.get(path, headers={"Host": host}).status_code == 403
    assert empty.client.get("/api/state").status_code == 200


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Gptree": "1"},
        {"Origin": BASE},
        {"X-Gptree": "1", "Origin": "http://evil.example"},
        {"X-Gptree": "1", "Origin": f"http://127.0.0.1:{PORT + 1}"},
        {"X-Gptree": "1", "Origin": "null"},
    ],
)
def test_a_change_needs_the_header_and_the_origin_so_that_csrf_fails(
    empty: Page, path: str, headers: dict[str, str]
) -> None:
    assert empty.client.post(f"/api/{path}", json={}, headers=headers).status_code == 403


def test_nothing_is_forgotten_without_token_header_and_origin(empty: Page, stranger: TestClient) -> None:
    assert stranger.request("DELETE", "/api/examples/x", json={}, headers=HEADERS).status_code == 401
    for headers in ({}, {"X-Gptree": "1"}, {"X-Gptree": "1", "Origin": "http://evil.example"}):
        assert empty.client.request("DELETE", "/api/examples/x", json={}, headers=headers).status_code == 403


def test_nothing_is_forgotten_without_its_name(studio: Made) -> None:
    page = studio()
    example = page.get("examples?split=taught&limit=1").json()["examples"][0]
    for body in ({}, {"confirm": True}, {"confirm": "all"}, {"confirm": example["key"]}):
        answer = page.forget(example["key"], {"version": 1, **body})
        assert (answer.status_code, "by its name" in answer.json()["error"]) == (400, True)
    assert page.forget(example["key"], {"confirm": example["id"]}).status_code == 400  # at no version
    assert page.forget("..%2fproject.json", {"version": 1, "confirm": "project.json"}).status_code == 404
    assert (page.state()["version"], page.get(f"examples/{example['key']}").status_code) == (1, 200)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_not_there(empty: Page, method: str) -> None:
    assert empty.client.request(method, "/api/teach", headers=HEADERS).status_code == 405
    assert empty.client.get("/api/teach").status_code == 405


@pytest.mark.parametrize("path", ["/", "/static/studio.js", "/api/state", "/api/nothing", "/api/teach"])
def test_every_answer_has_the_headers(empty: Page, path: str) -> None:
    headers = empty.client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    assert POLICY.split("; ") == [
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:"),
        *("connect-src 'self'", "form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'"),
    ]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    if path.startswith("/api"):
        assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_refusals_have_the_headers_too(stranger: TestClient) -> None:
    assert stranger.get("/api/state").headers["content-security-policy"] == POLICY
    assert stranger.get("/", headers={"Host": "x"}).headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/index.html",
        "/api/examples/..%2f..%2fetc%2fpasswd/thumb",
        "/api/examples/%2fetc%2fpasswd",
    ],
)
def test_no_address_is_a_path_of_a_file(shared: Page, path: str) -> None:
    answer = shared.client.get(path)
    assert answer.status_code == 404
    assert b"import" not in answer.content


@pytest.mark.parametrize("path", ["..", "../..", "/etc", "a/../../..", "~"])
def test_only_what_lies_below_the_root_is_opened(empty: Page, path: str) -> None:
    answer = empty.post("open", {"path": path})
    assert answer.status_code == 400
    assert empty.state()["state"] == "start"


def test_a_link_that_leaves_the_root_is_not_opened(empty: Page, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "project.json").write_text("{}")
    (empty.root / "link").symlink_to(elsewhere)
    assert empty.post("open", {"path": "link"}).status_code == 400
    assert empty.get("found").json()["found"] == []


def png(size: tuple[int, int] = (8, 8), colour: Any = 128) -> bytes:
    file = io.BytesIO()
    Image.new("L", size, colour).save(file, format="PNG")
    return file.getvalue()


def upload(page: Page, *files: tuple[str, bytes]) -> Any:
    parts = [("files", (name, content, "image/png")) for name, content in files]
    return page.client.post("/api/upload", files=parts, headers=HEADERS)


def test_an_upload_is_kept_by_its_content_and_never_by_its_name(studio: Made) -> None:
    page = studio()
    answer = upload(page, ("../../evil.png", png()), ("C:\\x\\evil.png", png(colour=99)))
    assert answer.status_code == 200, answer.text
    kept = sorted(path.name for path in (page.root / "project" / "inbox").iterdir())
    assert len(kept) == 2
    assert all(set(name.split(".")[0]) <= set("0123456789abcdef") for name in kept)
    assert not list(page.root.rglob("evil*"))


def test_what_is_no_picture_is_not_kept(studio: Made) -> None:
    page = studio()
    svg = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"
    html = b"<!doctype html><script>alert(1)</script>"
    answer = upload(page, ("a.svg", svg), ("b.png", html), ("c.png", b""))
    assert answer.status_code == 400
    assert "not a picture" in answer.json()["error"]
    mixed = upload(page, ("a.svg", svg), ("good.png", png()))
    assert [each["name"] for each in mixed.json()["failed"]] == ["a.svg"]
    assert len(list((page.root / "project" / "inbox").iterdir())) == 1


def test_thumbs_are_drawn_anew_so_that_no_file_is_sent_back(studio: Made) -> None:
    page = studio()
    file = io.BytesIO()
    Image.new("L", (8, 8)).save(file, format="GIF", comment=b"<script>alert(1)</script>")
    key = upload(page, ("a.gif", file.getvalue())).json()["examples"][0]["key"]
    answer = page.get(f"examples/{key}/thumb")
    assert answer.headers["content-type"] == "image/png"
    assert b"script" not in answer.content
    assert Image.open(io.BytesIO(answer.content)).format == "PNG"


def test_sizes_are_counted_while_they_come(studio: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    page = studio()
    monkeypatch.setattr(uploads, "MOST_FILE", 2000)
    noise = bytes(5000)
    answer = upload(page, ("big.png", noise))
    assert (answer.status_code, "smaller" in answer.json()["error"]) == (413, True)
    monkeypatch.setattr(uploads, "MOST_FILES", 3)
    assert upload(page, *((f"{i}.png", png()) for i in range(4))).status_code == 413
    page.client.app.upload_limit = 6000  # pyright: ignore[reportAttributeAccessIssue]

    def chunks() -> Any:  # no Content-Length tells the truth beforehand
        yield b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
        for _ in range(20):
            yield bytes(1000)

    headers = {**HEADERS, "Content-Type": "multipart/form-data; boundary=x"}
    monkeypatch.setattr(uploads, "MOST_FILE", 10**9)
    assert page.client.post("/api/upload", content=chunks(), headers=headers).status_code == 413
    assert not (page.root / "project" / "inbox").exists()


def test_a_body_that_is_too_large_is_refused(empty: Page) -> None:
    headers = {**HEADERS, "Content-Type": "application/json"}
    assert empty.client.post("/api/teach", content=bytes(MOST_JSON + 1), headers=headers).status_code == 413


def test_read_only_changes_nothing(studio: Made) -> None:
    page = studio(read_only=True)
    before = {path: path.stat().st_mtime_ns for path in sorted(page.root.rglob("*")) if path.is_file()}
    version = page.state()["version"]
    bodies: dict[str, dict[str, Any]] = {
        "teach": {"lessons": [{"label": "3", "ids": page.pool(3, 5)}]},
        "answers": {"answers": [{"id": page.pool(3, 1)[0], "label": "3"}]},
        "undo": {},
        "rename": {"label": "0", "to": "7"},
        "merge": {"labels": ["0", "1"], "into": "0"},
        "remove": {"labels": ["0"]},
    }
    for path, body in bodies.items():
        assert page.post(path, {"version": version, **body}).status_code == 403
    assert upload(page, ("a.png", png())).status_code == 403
    assert page.post("open", {"path": "project"}).status_code == 403
    assert page.post("digits", {}).status_code == 403
    example = page.get("examples?limit=1").json()["examples"][0]
    assert page.forget(example["key"], {"version": version, "confirm": example["id"]}).status_code == 403
    assert {path: path.stat().st_mtime_ns for path in sorted(page.root.rglob("*")) if path.is_file()} == before


def test_the_page_asks_nobody_else() -> None:
    """No address of another host in anything that is served."""
    static = Path(uploads.__file__).parent / "static"
    for path in static.iterdir():
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, path.name
        assert "innerHTML" not in text, path.name
        assert "eval(" not in text, path.name
