"""Reading DATA: every format gives the same arrays, and bad files say what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from animals import COLUMNS, animals, csv_text

from gptree.cli.data import read_data


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_every_format_gives_the_same_arrays(files: dict[str, Path], kind: str) -> None:
    labels = str(files["npy_labels"]) if kind == "npy" else None
    data = read_data(files[kind], labels=labels)
    X, y = animals()
    np.testing.assert_array_equal(data.X, X)
    assert data.y is not None
    assert data.y.tolist() == y.tolist()
    assert data.columns == (COLUMNS if kind in ("csv", "parquet") else None)


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_labels_may_be_absent_where_they_are_not_needed(tmp_path: Path, kind: str) -> None:
    import pandas

    X, _ = animals()
    path = tmp_path / f"x.{kind}"
    if kind == "npz":
        np.savez(path, X=X)
    elif kind == "npy":
        np.save(path, X)
    elif kind == "csv":
        pandas.DataFrame(X).to_csv(path, index=False)
    else:
        pandas.DataFrame(X, columns=list(COLUMNS)).to_parquet(path)
    data = read_data(path, need_labels=False)
    assert data.y is None
    np.testing.assert_allclose(data.X, X, rtol=1e-14)
    with pytest.raises(ValueError, match="labels"):
        read_data(path)
    if kind != "npy":
        with pytest.raises(ValueError, match=r"kind.*--labels"):
            read_data(path, labels="kind", need_labels=False)  # asked for by name


def test_names_of_arrays_and_columns(tmp_path: Path) -> None:
    X, y = animals()
    np.savez(tmp_path / "d.npz", train_x=X, train_y=y)
    np.testing.assert_array_equal(read_data(tmp_path / "d.npz", "train_x", "train_y").X, X)
    (tmp_path / "d.csv").write_text(csv_text(X, y, label="kind"))
    data = read_data(tmp_path / "d.csv", "age, height", "kind")
    np.testing.assert_array_equal(data.X, X[:, [3, 0]])
    assert data.columns == ("age", "height")


def test_known_columns_are_found_by_name_in_their_order(tmp_path: Path) -> None:
    X, y = animals()
    text = csv_text(X, y).splitlines()
    path = tmp_path / "more.csv"
    path.write_text("\n".join(["id," + text[0], *(f"no {i}," + line for i, line in enumerate(text[1:]))]))
    data = read_data(path, known_columns=("speed", "width"))
    np.testing.assert_array_equal(data.X, X[:, [4, 1]])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["0", "12", "-3"], [0, 12, -3]),
        (["007", "8", "9"], ["007", "8", "9"]),
        (["1", "two", "3"], ["1", "two", "3"]),
        (["9" * 30, "1", "2"], ["9" * 30, "1", "2"]),
        (["1.0", "2.0", "3.0"], ["1.0", "2.0", "3.0"]),
        (['"a, b"', " c", "é"], ["a, b", "c", "é"]),
    ],
)
def test_csv_labels_are_integers_only_where_all_are(tmp_path: Path, written: list[str], expected: list) -> None:
    path = tmp_path / "l.csv"
    path.write_text("a,label\n" + "".join(f"{i},{label}\n" for i, label in enumerate(written)), encoding="utf-8")
    y = read_data(path).y
    assert y is not None
    assert y.tolist() == expected


def test_csv_with_byte_order_mark_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_bytes("\ufeffa,b,label\r\n1,2,x\r\n\r\n3,4,y\r\n".encode())
    data = read_data(path)
    assert data.columns == ("a", "b")
    assert data.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'label'"),
        ("a,label\n", "no data"),
        ("label\nx\n", "no data"),
        ("a,a,label\n1,2,x\n", "two columns are called a"),
        ("a,b,label\n1,2,x\n1,x\n", "line 3: 2 cells, but the header names 3"),
        ("a,b,label\n1,2,x\n1,oops,x\n", "line 3, column 'b': 'oops' is not a number"),
        ("a,b,label\n1,,x\n", "column 'b': '' is not a number"),
        ("a,b,label\n1,2,x\n1,nan,x\n", "row 1, column 'b' is nan"),
        ("a,b,label\n1,2,x\n-inf,2,x\n", "row 1, column 'a' is -inf"),
        ("a,b,label\n1,2, \n", "column 'label' is empty"),
        ("a;b;label\n1;2;x\n", "no column 'label': name one of 'a;b;label'"),
    ],
)
def test_bad_csv(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_data(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((2, 2)), "y": [0, 1]}, "no array 'X': name one of x, y with --features"),
        ({"X": np.ones((2, 2)), "z": [0, 1]}, "no array 'y': name one of X, z with --labels"),
        ({"X": np.ones(2), "y": [0, 1]}, "a table of rows and columns"),
        ({"X": np.ones((2, 2, 2)), "y": [0, 1]}, "a table of rows and columns"),
        ({"X": np.ones((0, 2)), "y": np.ones(0)}, "no data"),
        ({"X": np.ones((2, 2)), "y": [0, 1, 1]}, "2 rows of features, but 3 labels"),
        ({"X": np.ones((2, 2)), "y": np.ones((2, 3))}, "one a row"),
        ({"X": np.ones((2, 2)), "y": [0.0, np.nan]}, "labels hold NaN"),
        ({"X": np.array([["a", "b"]]), "y": [0]}, "must be numbers"),
        ({"X": np.ones((2, 2)) * 1j, "y": [0, 1]}, "must be numbers"),
        ({"X": np.array([[1.0, np.inf]]), "y": [0]}, "row 0, column 1 is inf"),
        ({"X": np.ones((2, 2)), "y": np.array(["a", None], dtype=object)}, "never loaded"),
    ],
)
def test_bad_npz(tmp_path: Path, arrays: dict, message: str) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=message):
        read_data(path)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> tuple:
            return Path.touch, (tmp_path / "code ran",)

    np.save(tmp_path / "x.npy", np.array([Touch()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", X=np.array([Touch()], dtype=object), y=np.zeros(1), allow_pickle=True)
    for path in (tmp_path / "x.npy", tmp_path / "x.npz"):
        with pytest.raises(ValueError, match="Pickles can run code and are never loaded"):
            read_data(path, need_labels=False)
    assert not (tmp_path / "code ran").exists()


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".parquet"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00nonsense\x93", b"PK\x03\x04 half a zip file\xff"])
def test_damaged_files(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(content)
    complaint = (
        "no data" if (suffix, content) == (".csv", b"") else "not a (numpy|parquet|comma-separated UTF-8 text) file"
    )
    with pytest.raises(ValueError, match=complaint):
        read_data(path, need_labels=False)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_file_with_a_hole(tmp_path: Path, save: Callable[..., None]) -> None:
    path = tmp_path / "hole.npz"
    save(path, X=np.ones((100, 10)), y=np.arange(100))
    data = path.read_bytes()
    path.write_bytes(data[:70] + bytes(100) + data[170:])
    with pytest.raises(ValueError, match="not a numpy file"):
        read_data(path)


def test_files_under_the_wrong_name(files: dict[str, Path], tmp_path: Path) -> None:
    for kind, other in (("npz", "npy"), ("npy", "npz")):
        path = tmp_path / f"x.{other}"
        path.write_bytes(files[kind].read_bytes())
        with pytest.raises(ValueError, match=f"not an .{other} file"):
            read_data(path, need_labels=False)
    with pytest.raises(ValueError, match=r"cannot read '.txt' files"):
        read_data(tmp_path / "x.txt")
    with pytest.raises(ValueError, match="no such file"):
        read_data(tmp_path / "missing.csv")


def test_npy_pairs(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"--labels labels.npy"):
        read_data(files["npy"])
    with pytest.raises(ValueError, match="no such file"):
        read_data(files["npy"], labels=str(tmp_path / "missing.npy"))
    with pytest.raises(ValueError, match="--features has no meaning"):
        read_data(files["npy"], features="X")
    np.save(tmp_path / "column.npy", np.array([[b"a"], [b"b"]]))
    np.save(tmp_path / "x.npy", np.ones((2, 3), dtype=np.float16))
    data = read_data(tmp_path / "x.npy", labels=str(tmp_path / "column.npy"))
    assert data.y is not None
    assert data.y.tolist() == ["a", "b"]


def test_parquet_columns(tmp_path: Path) -> None:
    import pandas

    path = tmp_path / "d.parquet"
    frame = pandas.DataFrame({"a": pandas.array([1, None, 3], dtype="Int64"), "t": ["x", "y", "z"], "label": [1, 2, 2]})
    frame.to_parquet(path)
    with pytest.raises(ValueError, match=r"column 't' holds .*, not numbers"):
        read_data(path)
    with pytest.raises(ValueError, match="row 1, column 'a' is nan"):
        read_data(path, features="a")
    with pytest.raises(ValueError, match="column 'a' is empty"):
        read_data(path, features="label", labels="a")
    data = read_data(path, features="label", labels="t")
    assert data.X.tolist() == [[1.0], [2.0], [2.0]]


@pytest.mark.parametrize("missing", ["pandas", "pyarrow"])
def test_parquet_without_its_libraries(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError, match=r"pip install 'gptree\[data\]'"):
        read_data(files["parquet"])
    assert read_data(files["csv"]).X.shape == (48, 5)
