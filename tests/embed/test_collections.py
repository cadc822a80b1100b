"""Folders and tables: ids, labels, order, and what is left out or refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from embed_cases import letters, photos, picture, tiny

from gptree.embed import ImageFolder, Table, embed


def failed(data: ImageFolder) -> dict[str, str]:
    return {each.id: each.reason for each in data.failed}


def test_a_folder_a_class(tmp_path: Path) -> None:
    data = ImageFolder(photos(tmp_path / "p", 2))
    assert [item.id for item in data.items] == [
        *("blue/000.png", "blue/001.png"),
        *("green/000.png", "green/001.png"),
        *("red/000.png", "red/001.png"),
    ]
    assert [item.label for item in data.items] == ["blue", "blue", "green", "green", "red", "red"]
    assert data.failed == ()


def test_pools_labels_and_clutter(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 1, ("red",))
    for place in ("unlabelled/a.png", "_later/b.png", "c.png", "red/deep/d.png", ".hidden/e.png", "__MACOSX/f.png"):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        picture().save(root / place)
    (root / "Thumbs.db").touch()
    (root / ".DS_Store").touch()
    (root / "labels.csv").write_text("path,label\nc.png,green\n./unlabelled/a.png,blue\ngone.png,red\n")
    data = ImageFolder(root)
    labels = {item.id: item.label for item in data.items}
    assert labels == {
        "_later/b.png": None,
        "c.png": "green",
        "red/000.png": "red",
        "red/deep/d.png": "red",
        "unlabelled/a.png": "blue",
    }
    assert list(labels) == sorted(labels)
    assert failed(data) == {"gone.png": "labels.csv names it, but there is no such picture"}


def test_what_is_no_picture_is_told(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 1, ("red",))
    picture().save(tmp_path / "outside.png")
    (root / "red" / "notes.txt").write_text("hello")
    (root / "empty").mkdir()
    (root / "red" / "out.png").symlink_to(tmp_path / "outside.png")
    (root / "red" / "nowhere.png").symlink_to(root / "gone.png")
    (root / "red" / "inside.png").symlink_to(root / "red" / "000.png")
    (root / "loop").symlink_to(root)
    os.mkfifo(root / "red" / "pipe.png")
    data = ImageFolder(root)
    assert [item.id for item in data.items] == ["red/000.png", "red/inside.png"]
    assert failed(data) == {
        "empty": "the folder holds no pictures",
        "loop": "a link to a folder",
        "red/notes.txt": "not a picture, by the end of its name",
        "red/nowhere.png": "a link that leads nowhere",
        "red/out.png": "a link that leads out of the folder",
        "red/pipe.png": "not a file",
    }


def test_names_that_are_not_utf8_or_composed(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 1, ("red",))
    shutil.copy(root / "red" / "000.png", os.fsencode(root) + b"/red/\xff.png")
    shutil.copy(root / "red" / "000.png", root / "red" / "Ku\u0308he 🐄.png")
    data = ImageFolder(root)
    assert [item.id for item in data.items] == ["red/000.png", "red/K\u00fche 🐄.png"]
    assert failed(data) == {"red/\\udcff.png": "its name is not UTF-8"}
    assert len(embed(data, tiny())) == 2


@pytest.mark.parametrize("folders", [("Cat", "cat"), ("straße", "STRASSE")])
def test_two_cases_of_one_name(tmp_path: Path, folders: tuple[str, str]) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
        picture().save(tmp_path / name / "a.png")
    with pytest.raises(ValueError, match="differ in case alone"):
        ImageFolder(tmp_path)


def test_folders_without_pictures(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder"):
        ImageFolder(tmp_path / "no")
    with pytest.raises(ValueError, match="holds no pictures"):
        ImageFolder(tmp_path)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").touch()
    with pytest.raises(ValueError, match=r"no pictures \(a/x.txt: not a picture"):
        ImageFolder(tmp_path)


def test_parts_share_out_all_items(tmp_path: Path) -> None:
    data = ImageFolder(photos(tmp_path / "p", 3))
    parts = [data.part(i, 4) for i in range(1, 5)]
    assert sorted(item.id for part in parts for item in part.items) == [item.id for item in data.items]
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    with pytest.raises(ValueError, match="no part 5 of 4"):
        data.part(5, 4)


# ------------------------------------------------------------------------------------------------------------ tables


def table(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_texts_labels_and_ids(tmp_path: Path) -> None:
    path = table(tmp_path, 'ticket,message,intent\n7,"a, b",refund\n8,"two\nlines",\n9,c,refund\n')
    data = Table(path, text="message", label="intent", id="ticket")
    assert [(item.id, item.source, item.label) for item in data.items] == [
        ("7", "a, b", "refund"),
        ("8", "two\nlines", None),
        ("9", "c", "refund"),
    ]
    assert [item.id for item in Table(path, text="message").items] == ["0", "1", "2"]


def test_columns_that_are_found_by_name(tmp_path: Path) -> None:
    data = Table(table(tmp_path, "id,text,label\na,x,1\nb,y,2\n"))
    assert [(item.id, item.label) for item in data.items] == [("a", 1), ("b", 2)]
    assert data.kind == "text"


def test_parquet_and_csv_give_the_same(tmp_path: Path) -> None:
    import pandas

    frame = pandas.DataFrame({"text": ["x", "y", None], "label": ["a", None, "b"]})
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert Table(tmp_path / "t.parquet").items == Table(tmp_path / "t.csv").items


def test_tables_of_pictures(tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 1)
    (root / "t.csv").write_text("image,label\nred/000.png,r\nblue/000.png,b\ngone.png,b\n")
    data = Table(root / "t.csv")
    assert data.kind == "image"
    found = embed(data, tiny())
    assert found.ids == ("red/000.png", "blue/000.png")
    assert [tuple(each) for each in found.failed] == [("gone.png", "there is no such file")]


def test_texts_that_are_empty_long_or_no_unicode(tmp_path: Path) -> None:
    path = table(tmp_path, 'text\n"  "\n' + "word " * 100_000 + "\nabc\n")
    found = embed(Table(path), letters())
    assert found.ids == ("1", "2")
    assert [tuple(each) for each in found.failed] == [("0", "the text is empty")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\n1,2\n", "no column 'text' or 'image'"),
        ("text,label\n", "holds no rows"),
        ("id,text\nx,a\nx,b\n", "the id 'x' comes twice"),
        ("id,text\n,a\n", "the id of row 0 .* is empty"),
        ("text,text\na,b\n", "two columns are called text"),
        ("text,label\na\n", "line 2: 1 cells"),
        ("text\nK\u00fche\n".encode("latin-1"), "UTF-8"),
        ("text\nKühe\n".encode("utf-16"), "UTF-8"),
    ],
)
def test_bad_tables(tmp_path: Path, content: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Table(table(tmp_path, content))


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    path = table(tmp_path, "text\na\n")
    for name in ("text", "label", "id"):
        with pytest.raises(ValueError, match="has no column 'no'; it has 'text'"):
            Table(path, **{name: "no"})
    with pytest.raises(ValueError, match="not both"):
        Table(path, text="a", image="b")
    with pytest.raises(ValueError, match=r"cannot read '\.txt'"):
        Table(tmp_path / "t.txt")
    with pytest.raises(ValueError, match="no such file"):
        Table(tmp_path / "no.csv")
