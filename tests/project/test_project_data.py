"""Projects of pictures and of texts, with encoders of three lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gptree.embed import Encoder, ImageFolder, Preprocessing, embed
from gptree.project import Project
from gptree.storage import StorageError

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (20, 40, 210)}


def colours() -> Encoder:
    small = Preprocessing(size=8, crop=1.0)
    return Encoder.of(lambda x: x.mean((2, 3)), name="project-colours/1", dimension=3, preprocessing=small)


def letters() -> Encoder:
    return Encoder.of(
        lambda texts: [[t.count(c) / len(t) for c in "abcd"] for t in texts],
        name="project-letters/1",
        dimension=4,
        kind="text",
    )


def picture(colour: str, seed: int) -> Image.Image:
    noise = np.random.default_rng(seed).integers(-20, 21, (9, 9, 3))
    return Image.fromarray(np.clip(np.array(COLOURS[colour]) + noise, 0, 255).astype(np.uint8))


def photos(folder: Path, count: int = 3) -> Path:
    for number, colour in enumerate(("red", "green")):
        (folder / colour).mkdir(parents=True)
        for i in range(count):
            picture(colour, 100 * number + i).save(folder / colour / f"{i}.png")
    (folder / "unlabelled").mkdir()
    picture("blue", 7).save(folder / "unlabelled" / "x.png")
    (folder / "red" / "bad.png").write_bytes(b"none")
    return folder


def test_pictures_of_a_folder_and_handed_over(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    calls = []
    project = Project.create(
        tmp_path / "p", root, encoder=colours(), progress=lambda done, of: calls.append((done, of))
    )
    assert calls[-1] == (8, 8)
    assert (project.kind, project.snapshot().classes) == ("image", ("green", "red"))
    assert "1 left out, the first red/bad.png" in project.events[0].result
    assert project.examples["unlabelled/x.png"].split == "pool"
    assert project.path_of("red/0.png") == (root / "red" / "0.png").resolve()
    assert project.model.encoder_ == project.encoder == colours().describe()
    assert (project.vectors(["red/0.png"]) == embed(ImageFolder(root), colours()).X[3]).all()

    picture("blue", 8).save(tmp_path / "b.png")
    content = (tmp_path / "b.png").read_bytes()
    found = project.import_pictures([("b.png", content), ("../b.png", content), ("no.png", b"junk")], author="Ada")
    assert found.ids == ("b.png", "../b.png")
    assert [each.id for each in found.failed] == ["no.png"]
    inbox = list((tmp_path / "p" / "inbox").iterdir())
    assert [path.read_bytes() for path in inbox] == [content]  # once, named by its content
    assert project.examples["b.png"].source == f"inbox/{inbox[0].name}"
    assert project.path_of("../b.png") == tmp_path / "p" / "inbox" / inbox[0].name
    project.teach([("blue", ["b.png", "unlabelled/x.png"])], author="Ada")
    again = Project.open(tmp_path / "p")
    assert again.snapshot().classes == ("green", "red", "blue")
    assert again.snapshot().answers["../b.png"].best == "blue"
    with pytest.raises(ValueError, match="takes 'image'"):
        project.import_rows(["a text"])


def test_texts_of_a_table_with_a_test_table(tmp_path: Path) -> None:
    table = "ticket,text,intent\nt1,aab,first\nt2,aba,first\nt3,ccd,second\nt4,cdc,second\nt5,dddd,\n"
    (tmp_path / "a.csv").write_text(table)
    (tmp_path / "b.csv").write_text("ticket,text,intent\nt1,aaab,first\nt9,cccd,second\nt3,ccd,second\n")
    columns: dict[str, Any] = {"features": "text", "labels": "intent", "ids": "ticket", "test": tmp_path / "b.csv"}
    project = Project.create(tmp_path / "p", tmp_path / "a.csv", encoder=letters(), **columns)
    assert [each.id for each in project.examples.values() if each.split == "test"] == ["t1 (2)", "t9"]
    assert project.events[0].result.endswith("1 left out, the first t3: the same content was taught")
    assert project.quality().rows == 2
    assert (project.examples["t5"].text, project.examples["t5"].label) == ("dddd", None)
    assert project.path_of("t5") is None
    project.import_rows(["bbbb", ""], ids=["n1", "n2"])
    assert "n2" not in project.examples
    for path in (tmp_path / "p" / "embeddings").rglob("*.safetensors"):
        path.unlink()
    again = Project.open(tmp_path / "p")  # encoded again from the texts
    assert (again.vectors(["n1"]) == [[0, 1, 0, 0]]).all()


def test_vectors_of_an_encoder_know_it(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos")
    found = embed(ImageFolder(root), colours())
    found.labelled().save(tmp_path / "x.npz")
    found.unlabelled().save(tmp_path / "u.npz")
    project = Project.create(tmp_path / "p", tmp_path / "x.npz")
    assert (project.kind, project.encoder) == ("image", colours().describe())
    assert project.examples["red/0.png"].source == str(tmp_path / "x.npz")
    project.import_rows(tmp_path / "u.npz")
    other = Encoder.of(lambda x: x.mean((2, 3)), name="project-colours/2", dimension=3)
    embed(ImageFolder(root), other).unlabelled().save(tmp_path / "v.npz")
    with pytest.raises(ValueError, match="vectors of project-colours/2, but the project holds vectors of project-col"):
        project.import_rows(tmp_path / "v.npz")


def test_bad_data_leave_nothing(tmp_path: Path) -> None:
    cases: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (tmp_path / "none", {}, "cannot read '' files"),
        (["a", "b"], {"encoder": letters(), "labels": ["x"]}, "2 texts, 2 ids and 1 labels"),
        (np.eye(3), {"labels": ["x"]}, "3 vectors, 3 ids and 1 labels"),
        (photos(tmp_path / "q"), {"encoder": letters()}, "takes 'text'"),
        (tmp_path / "q", {"encoder": colours(), "labels": ["x"]}, "names of columns here"),
        (np.eye(3), {"hold_out": 1.0}, "hold_out is a share"),
    )
    for data, how, message in cases:
        with pytest.raises(ValueError, match=message):
            Project.create(tmp_path / "p", data, **how)
        assert not (tmp_path / "p").exists()
    with pytest.raises(StorageError):
        Project.open(tmp_path / "q")
