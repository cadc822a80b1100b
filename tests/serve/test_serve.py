"""A served model: the answers of the library, a new model without a gap, refusals with a status and a sentence."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("starlette", reason="serving needs its extra: pip install 'gptree[studio]'")

from starlette.testclient import TestClient

from command_runs import alone, run_command
from gptree import GPTreeClassifier, Growth, load_model
from gptree.embed import Encoder, Preprocessing
from gptree.embed.encoders import efficientnet
from gptree.estimators import top_k
from gptree.serve import Batcher, BusyError, ModelWatch, Service
from gptree.serve import app as module
from gptree.serve.app import Question
from gptree.storage import DOCUMENT

TOKEN = "secret"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)) + 3 * np.repeat(np.eye(6)[:4], 10, 0)
Y = np.repeat(["ant", "bee", "cat", "dog"], 10)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes, prepared for more."""
    folder = tmp_path_factory.mktemp("served") / "model"
    GPTreeClassifier(growth=Growth(), random_state=0).fit(X[:30], Y[:30]).save(folder)
    return folder


@pytest.fixture
def folder(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "model"))


@contextmanager
def served(folder: Path, teach: bool = False) -> Iterator[TestClient]:
    service = Service(ModelWatch(folder, load_model), TOKEN, teach)
    with TestClient(service.app(), headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


def test_a_network_without_a_classifier_is_not_asked_for_reasons(folder: Path) -> None:
    class Network:
        classifier_ = None
        explain = predict_with_novelty = property(lambda self: self.nothing)

    watch = ModelWatch(folder, lambda _: Network())  # pyright: ignore[reportArgumentType]
    with TestClient(Service(watch).app()) as client:
        answer = client.post("/explain", json={"rows": X[:1].tolist()})
    assert (answer.status_code, "cannot explain" in answer.text) == (404, True)


def ask(client: TestClient, path: str = "/predict", **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


# ------------------------------------------------------------------------------------------------------------ answers


def test_answers_are_those_of_the_library(fitted: Path) -> None:
    model = load_model(fitted)
    p = model.predict_proba(X)
    with served(fitted) as client:
        told = ask(client, rows=X.tolist(), top=2, reject=0.1)
        facts = client.get("/model").json()
        why = ask(client, "/explain", rows=X[:1].tolist())
    assert (facts["classes"], facts["features"], facts["teach"]) == (["ant", "bee", "cat"], 6, False)
    assert told["model"] == facts["model"]
    answers = told["answers"]
    assert [answer["label"] for answer in answers] == model.predict(X).tolist()
    np.testing.assert_allclose([answer["probability"] for answer in answers], p.max(1), rtol=1e-12)
    np.testing.assert_allclose([answer["top"][1]["probability"] for answer in answers], np.sort(p)[:, -2], rtol=1e-12)
    np.testing.assert_allclose([answer["novelty"] for answer in answers], model.novelty_score(X), rtol=1e-9)
    none = [label is None for label in model.predict_open(X, reject=0.1)]
    assert [answer["none_of_these"] for answer in answers] == none
    assert why["answers"][0]["label"] == model.predict(X[:1])[0]


def test_very_many_classes_are_searched(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question with a beam of its own, whatever is asked beside it; not where all probabilities are needed."""
    for name in ("BEAM", "BEAM_FROM"):
        monkeypatch.setattr(top_k, name, 1)
    model = load_model(fitted)
    questions = [
        Question(X[:3], top=2),
        Question(X[3:4]),
        Question(X[4:9], top=2),
        Question(X[9:12], top=9, reject=0.1),
    ]
    service = Service(ModelWatch(fitted, lambda _: model))
    told = [told["answers"] for told in service._answers(questions)]
    p = model.predict_proba(X[9:12])
    for rows, k, answers in ((X[:3], 2, told[0]), (X[3:4], 1, told[1]), (X[4:9], 2, told[2])):
        found = model.predict_top_k(rows, k)
        assert [answer["label"] for answer in answers] == found.classes[:, 0].tolist()
        top = [answer.get("top", [answer]) for answer in answers]
        own = [[each["probability"] for each in row] for row in top]
        np.testing.assert_allclose(own, found.probabilities, rtol=0, atol=1e-8)
    own = [[each["probability"] for each in row["top"]] for row in told[3]]
    np.testing.assert_allclose(own, -np.sort(-p), rtol=0, atol=1e-8)
    assert all("novelty" in row for row in told[3])


def test_texts_and_pictures_go_through_the_models_encoder(tmp_path: Path) -> None:
    lengths = Encoder.of(
        lambda texts: np.array([[len(t), t.count("a"), 1.0] for t in texts]), name="lengths/1", dimension=3, kind="text"
    )
    texts = ["a" * n for n in (1, 2, 3, 20, 21, 22)]
    model = GPTreeClassifier(random_state=0).fit(lengths.transform(texts), ["short"] * 3 + ["long"] * 3)
    model.encoder_ = lengths.describe()
    model.save(tmp_path / "texts")
    with served(tmp_path / "texts") as client:
        assert [a["label"] for a in ask(client, texts=["aa", "a" * 21])["answers"]] == ["short", "long"]
        assert (
            "takes texts, not pictures" in client.post("/predict", files={"p": ("x.png", _png("red"))}).json()["error"]
        )

    colours = Encoder.of(lambda x: x.mean((2, 3)), name="colours/s", dimension=3, preprocessing=Preprocessing(size=4))
    pictures = [Image.new("RGB", (5, 5), colour) for colour in ("red", "darkred", "blue", "darkblue")]
    model = GPTreeClassifier(random_state=0).fit(colours.transform(pictures), ["red", "red", "blue", "blue"])
    model.encoder_ = colours.describe()
    model.save(tmp_path / "pictures")
    with served(tmp_path / "pictures") as client:
        files = [("p", ("1.png", _png("blue"))), ("p", ("2.png", _png("red")))]
        told = client.post("/predict?top=2", files=files).json()["answers"]
        assert [(answer["label"], len(answer["top"])) for answer in told] == [("blue", 2), ("red", 2)]
        bad = client.post("/predict", files={"p": ("x.png", b"no picture")})
        assert bad.status_code == 400


def _png(colour: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9, 9), colour).save(file, "PNG")
    return file.getvalue()


# --------------------------------------------------------------------------------------------------- another model


def test_a_new_model_is_taken_in_and_garbage_is_not(folder: Path) -> None:
    service = Service(ModelWatch(folder, load_model), TOKEN)
    with TestClient(service.app(), headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        before = ask(client, rows=X[:1].tolist())
        model = load_model(folder)
        model.add_classes(X[30:35], Y[30:35])
        model.save(folder)
        assert service.watch.look()
        after = ask(client, rows=X[36:37].tolist())
        assert after["model"] != before["model"]
        assert after["answers"][0]["label"] == "dog"

        (folder / DOCUMENT).write_text("{")
        assert not service.watch.look()
        assert ask(client, rows=X[36:37].tolist()) == after  # the old one goes on
        assert client.get("/health").json()["error"]
        shutil.rmtree(folder)
        assert not service.watch.look()
        assert ask(client, rows=X[36:37].tolist()) == after
        assert "gptree_model_failures_total 2" in client.get("/metrics").text


def test_lessons(folder: Path) -> None:
    lesson = {"rows": X[30:35].tolist(), "labels": ["dog"] * 5, "note": "from the street", "author": "Ada"}
    with served(folder) as client:
        assert client.post("/teach", json=lesson).status_code == 403
    with served(folder, teach=True) as client:
        before = ask(client, rows=X.tolist())
        assert ask(client, "/teach", **lesson)["classes"] == ["ant", "bee", "cat", "dog"]
        assert ask(client, rows=X[36:37].tolist())["answers"][0]["label"] == "dog"
        entry = load_model(folder).journal_[-1]
        assert (entry.kind, entry.note, entry.author) == ("add_classes", "from the street", "Ada")
        ask(client, "/teach", rows=X[35:36].tolist(), labels=["dog"])
        assert load_model(folder).journal_[-1].kind == "add_examples"
        ask(client, "/undo")
        ask(client, "/undo")
        assert ask(client, rows=X.tolist())["answers"] == before["answers"]
        mixed = client.post("/teach", json={"rows": X[:2].tolist(), "labels": ["ant", "eel"]})
        assert (mixed.status_code, "two requests" in mixed.json()["error"]) == (400, True)
        assert client.post("/undo").status_code == 400  # nothing is left to take back
        assert len(load_model(folder).journal_) == 1


# ------------------------------------------------------------------------------------------------------------ refusals


ROW = [0.0] * 6
BAD: dict[str, tuple[Any, int, str]] = {
    "not JSON": (b"no json", 400, "not JSON"),
    "JSON without an end": (b"[" * 2000, 400, "not JSON"),
    "no object": (b"[1]", 400, "Send an object"),
    "nothing asked": (b"{}", 400, "one of them and not empty"),
    "NaN": (b'{"rows": [[NaN, 0, 0, 0, 0, 0]]}', 400, "finite"),
    "infinity": (b'{"rows": [[1e999, 0, 0, 0, 0, 0]]}', 400, "finite"),
    "no rows": ({"rows": []}, 400, "not empty"),
    "rows and texts": ({"rows": [ROW], "texts": ["a"]}, 400, "one of them"),
    "rows of two lengths": ({"rows": [ROW, [0.0]]}, 400, "of one length"),
    "words for numbers": ({"rows": [["a"] * 6]}, 400, "lists of numbers"),
    "numbers for rows": ({"rows": [1.0, 2.0]}, 400, "of one length"),
    "another width": ({"rows": [ROW[:5]]}, 400, "The model takes 6 numbers a row, not 5"),
    "top 0": ({"rows": [ROW], "top": 0}, 400, "«top»"),
    "top true": ({"rows": [ROW], "top": True}, 400, "«top»"),
    "reject 1": ({"rows": [ROW], "reject": 1.0}, 400, "«reject»"),
    "too many rows": ({"rows": [ROW] * 51}, 413, "More than 50 rows"),
    "a body too large": ({"texts": ["a" * 4000]}, 413, "MiB at once"),
    "numbers for texts": ({"texts": [1]}, 400, "are texts"),
    "texts for vectors": ({"texts": ["a"]}, 400, "The model takes vectors, not texts"),
}


@pytest.fixture(scope="module")
def limited(fitted: Path) -> Iterator[TestClient]:
    """A server that takes less."""
    with pytest.MonkeyPatch.context() as patch, served(fitted) as client:
        patch.setattr(module, "MOST_BYTES", 3000)
        patch.setattr(module, "MOST_ROWS", 50)
        yield client


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_gets_a_status_and_a_sentence(limited: TestClient, name: str) -> None:
    body, status, sentence = BAD[name]
    response = limited.post("/predict", **({"content": body} if isinstance(body, bytes) else {"json": body}))
    assert (response.status_code, sentence in response.json()["error"]) == (status, True), response.text
    assert ask(limited, rows=[ROW])["answers"]  # and the next is answered


def test_other_addresses_and_methods(limited: TestClient) -> None:
    assert limited.get("/predict").status_code == 405
    assert limited.get("/nowhere").status_code == 404
    assert ask(limited, rows=[ROW], top=99)["answers"][0]["top"][2]["label"]  # as many as there are


def another_version(folder: Path) -> None:
    document = json.loads((folder / DOCUMENT).read_text())
    (folder / DOCUMENT).write_text(json.dumps({**document, "version": 99}))


def not_installed(folder: Path) -> None:
    model = load_model(folder)
    model.encoder_ = {"family": "efficientnet-lite0", "kind": "image", "dimension": 6}
    model.save(folder)


def garbage(folder: Path) -> None:
    (folder / DOCUMENT).write_bytes(bytes(range(256)))


def arrays_of_garbage(folder: Path) -> None:
    (arrays,) = folder.glob("*.safetensors")
    arrays.write_bytes(b"garbage")
    garbage_time = (folder / DOCUMENT).stat().st_mtime_ns + 1
    os.utime(folder / DOCUMENT, ns=(garbage_time, garbage_time))


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("no folder")


REPLACEMENTS = {
    "a model of another version": (another_version, "format version 99; this gptree reads versions 2 to"),
    "an encoder that is not installed": (not_installed, "the encoder efficientnet-lite0 is not installed: pip install"),
    "garbage": (garbage, "is damaged: it is not valid JSON"),
    "arrays of garbage": (arrays_of_garbage, "is damaged: its checksum differs"),
    "a file": (a_file, ""),
}


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_the_old_model_goes_on_where_another_cannot_be_served(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, sentence = REPLACEMENTS[name]
    monkeypatch.setattr(efficientnet, "package_folder", lambda package: None)
    service = Service(ModelWatch(folder, load_model), TOKEN)
    with TestClient(service.app(), headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        before = ask(client, rows=X[:3].tolist())
        replace(folder)
        assert not service.watch.look()
        assert ask(client, rows=X[:3].tolist()) == before
        health = client.get("/health").json()
        assert (health["status"], health["model"]) == ("ready", before["model"])
        assert sentence in health["error"]
        assert health["error"]
    if folder.is_dir():  # and a server that starts there says the same
        assert sentence in " ".join(run_command("serve", folder, "--port", 0, code=2).stderr.split())


def test_a_thousand_clients_at_once(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one is answered: by the model, or with 503 and a sentence where too many rows wait."""
    service = Service(ModelWatch(fitted, load_model), TOKEN)
    sizes: list[int] = []
    compute = service.batcher._compute
    monkeypatch.setattr(service.batcher, "_limit", 700)
    monkeypatch.setattr(service.batcher, "_compute", lambda works: (sizes.append(len(works)), compute(works))[1])

    async def story() -> list[tuple[int, Any]]:
        app, body = service.app(), json.dumps({"rows": X[:1].tolist()}).encode()
        answers = list(await asyncio.gather(*(called(app, body) for _ in range(1000))))
        return [*answers, await called(app, body)]

    *answers, later = alone(story())
    service.batcher.close()
    told = [told for status, told in answers if status == 200]
    busy = [told["error"] for status, told in answers if status == 503]
    assert len(told) + len(busy) == 1000
    assert len(told) >= 700
    assert busy
    assert set(busy) == {"Too many rows are waiting; ask again in a second."}
    assert max(sizes) > 100  # computed together
    assert {each["answers"][0]["label"] for each in told} == {load_model(fitted).predict(X[:1])[0]}
    assert later[0] == 200


async def called(app: Any, body: bytes) -> tuple[int, Any]:
    """A request to an application, without a socket."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
        "server": ("127.0.0.1", 8000),
        "scheme": "http",
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]))


def test_the_token_keeps_others_out(fitted: Path) -> None:
    with served(fitted) as client:
        for headers in ({"Authorization": ""}, {"Authorization": "Bearer secre"}, {"Authorization": TOKEN}):
            for path in ("/model", "/metrics"):
                assert client.get(path, headers=headers).status_code == 401
            for path in ("/predict", "/explain", "/teach", "/undo"):
                assert client.post(path, headers=headers, json={}).status_code == 401
        assert client.get("/health", headers={"Authorization": ""}).json()["status"] == "ready"


def test_the_command_refuses_what_cannot_be_served(tmp_path: Path, fitted: Path) -> None:
    assert "not a folder" in run_command("serve", tmp_path / "none", code=2).stderr
    assert "empty token" in run_command("serve", fitted, "--token", "", code=2).stderr


# ------------------------------------------------------------------------------------------------------------- batches


def test_metrics_in_the_form_of_prometheus(fitted: Path) -> None:
    with served(fitted) as client:
        ask(client, rows=X[:7].tolist())
        client.post("/predict", json={})
        text = client.get("/metrics").text
    assert 'gptree_requests_total{path="/predict",status="200"} 1\n' in text
    assert 'gptree_requests_total{path="/predict",status="400"} 1\n' in text
    assert "gptree_rows_total 7\n" in text
    assert 'gptree_request_seconds_bucket{le="+Inf"} 2\n' in text
    assert "gptree_request_seconds_count 2\n" in text


def test_what_waits_is_computed_together_and_fails_alone() -> None:
    gate, sizes = threading.Event(), []

    def compute(works: Any) -> list[Any]:
        gate.wait(10)
        sizes.append(len(works))
        return [ValueError("odd") if work % 2 else 10 * work for work in works]

    async def run() -> list[Any]:
        batcher = Batcher(compute, most=4, waiting=8)
        jobs = [asyncio.create_task(batcher.submit(0, 1))]
        await asyncio.sleep(0.05)  # the first is being computed
        jobs += [asyncio.create_task(batcher.submit(work, 1)) for work in range(1, 9)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await batcher.submit(9, 1)
        gate.set()
        answers = await asyncio.gather(*jobs, return_exceptions=True)
        answers.append(await batcher.submit(2, 100))  # larger than any batch
        batcher.close()
        return answers

    answers = alone(run())
    assert sizes == [1, 4, 4, 1]
    assert [a for a in answers if not isinstance(a, ValueError)] == [0, 20, 40, 60, 80, 20]
    assert sum(isinstance(a, ValueError) for a in answers) == 4
