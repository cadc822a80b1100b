"""A served model: the answers of the library, a new model without a gap, refusals with a status and a sentence."""

from __future__ import annotations

import asyncio
import io
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
from gptree.serve import Batcher, BusyError, ModelWatch, Service
from gptree.serve import app as module
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


def test_bad_requests_get_a_status_and_a_sentence(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 3000)
    monkeypatch.setattr(module, "MOST_ROWS", 50)
    row = [0.0] * 6
    cases: list[tuple[Any, int, str]] = [
        (b"no json", 400, "not JSON"),
        (b"[" * 2000, 400, "not JSON"),
        (b"[1]", 400, "Send an object"),
        (b"{}", 400, "one of them and not empty"),
        (b'{"rows": [[NaN, 0, 0, 0, 0, 0]]}', 400, "finite"),
        (b'{"rows": [[1e999, 0, 0, 0, 0, 0]]}', 400, "finite"),
        ({"rows": []}, 400, "not empty"),
        ({"rows": [row], "texts": ["a"]}, 400, "one of them"),
        ({"rows": [row, [0.0]]}, 400, "of one length"),
        ({"rows": [["a"] * 6]}, 400, "lists of numbers"),
        ({"rows": [1.0, 2.0]}, 400, "of one length"),
        ({"rows": [row[:5]]}, 400, "The model takes 6 numbers a row, not 5"),
        ({"rows": [row], "top": 0}, 400, "«top»"),
        ({"rows": [row], "top": True}, 400, "«top»"),
        ({"rows": [row], "reject": 1.0}, 400, "«reject»"),
        ({"rows": [row] * 51}, 413, "More than 50 rows"),
        ({"texts": ["a" * 4000]}, 413, "MiB at once"),
        ({"texts": [1]}, 400, "are texts"),
        ({"texts": ["a"]}, 400, "The model takes vectors, not texts"),
    ]
    with served(fitted) as client:
        for body, status, sentence in cases:
            given = {"content": body} if isinstance(body, bytes) else {"json": body}
            response = client.post("/predict", **given)
            assert (response.status_code, sentence in response.json()["error"]) == (status, True), (body, response.text)
        assert client.get("/predict").status_code == 405
        assert client.get("/nowhere").status_code == 404
        assert ask(client, rows=[row], top=99)["answers"][0]["top"][2]["label"]  # as many as there are


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
