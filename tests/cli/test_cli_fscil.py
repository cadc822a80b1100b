"""`gptree fscil`: a run folder from features, resumed, extended, and refused where it does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gptree.cli.main import app
from gptree.incremental import Strategy
from gptree.protocols import SessionMethod
from gptree.rivals import INCREMENTAL, SessionClassMean

Run = Callable[..., Any]

CLASSES = np.array(["ash", "birch", "cedar", "elm", "fir", "larch", "oak", "pine"])
FILES = {"rows.jsonl", "details.jsonl", "table.md", "curves.png"}
SPLIT = ("--base", 4, "--way", 2, "--shot", 3)


def trees(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`rows` rows of 6 features for each of 8 classes."""
    y = np.tile(np.arange(8), rows)
    means = 2.5 * np.random.default_rng(0).standard_normal((8, 6))
    return means[y] + np.random.default_rng(seed).standard_normal((len(y), 6)), CLASSES[y]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 rows a class, and 5 more in another file, both also under other names."""
    folder = tmp_path_factory.mktemp("trees")
    (X, y), (X_test, y_test) = trees(12, 1), trees(5, 2)
    np.savez(folder / "test.npz", X=X_test, y=y_test)
    paths = [f"{label}/{number}.jpg" for number, label in enumerate(y)]
    np.savez(folder / "trees.npz", X=X, y=y, a=X_test, b=y_test, path=np.array(paths))
    return folder / "trees.npz"


@pytest.fixture(autouse=True)
def quick_curves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty picture, but for the test that looks at it: drawing is most of the work."""
    if request.node.name != "test_a_run_and_its_files":
        monkeypatch.setattr("gptree.cli.sessions.plot_curves", lambda _, path: path.write_bytes(b""))


def read(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def complaint(result: Any) -> str:
    """The one line that a failed command leaves on stderr."""
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def fscil(run: Run, data: Path, out: Path, *more: object, code: int = 0) -> Any:
    return run("fscil", data, *SPLIT, "--method", "class-mean", "--out", out, *more, code=code)


def test_a_run_and_its_files(run: Run, data: Path, tmp_path: Path) -> None:
    result = fscil(run, data, tmp_path / "r", "--test", data.with_name("test.npz"), "--seeds", 2)
    assert {path.name for path in (tmp_path / "r").iterdir()} == FILES
    assert (tmp_path / "r" / "curves.png").read_bytes().startswith(b"\x89PNG")
    rows = read(tmp_path / "r", "rows.jsonl")
    assert [(row["seed"], row["session"], row["classes"]) for row in rows] == [
        *((0, 0, 4), (0, 1, 6), (0, 2, 8)),
        *((1, 0, 4), (1, 1, 6), (1, 2, 8)),
    ]
    assert all(row["data"] == "trees" and row["method"] == "class-mean" for row in rows)
    settings = dict(rows[0]["settings"])
    assert len(settings.pop("data_content")) == 16
    assert settings == {"base": 4, "way": 2, "shot": 3, "lists": None, "test": "test.npz"}
    assert rows[2]["accuracy"] > 0.5  # chance is 1/8
    details = read(tmp_path / "r", "details.jsonl")
    assert [found["seed"] for found in details] == [0, 1]
    assert details[0]["labels"] != details[1]["labels"]  # the seed orders the classes
    assert "| trees | class-mean | 2 |" in (tmp_path / "r" / "table.md").read_text()
    assert "4 base classes, then 4 in 2 sessions; tested on test.npz" in result.stderr
    assert all(text in result.stdout for text in ("class-mean", "harmonic mean", "open AUROC", "±"))


def test_rows_held_out_where_there_is_no_test_file(run: Run, data: Path, tmp_path: Path) -> None:
    result = fscil(run, data, tmp_path / "r", "--seeds", 1, "--test-share", 0.25, "--ids", "path")
    assert "tested on 25 % of each class, held out" in result.stderr
    (details,) = read(tmp_path / "r", "details.jsonl")
    assert sum(count for _, _, count in details["reliability"]) == 8 * 3  # a quarter of 12
    assert all(name.startswith(f"{label}/") for name, label, *_ in details["mistakes"])  # such as ash/0.jpg
    assert len(details["mistakes"]) == sum(count for _, _, count in details["confusion"])
    assert read(tmp_path / "r", "rows.jsonl")[0]["settings"]["test"] == "25 % of each class, held out"


def test_for_machines(run: Run, data: Path, tmp_path: Path) -> None:
    document = json.loads(fscil(run, data, tmp_path / "r", "--seeds", 2, "--json").stdout)
    assert document["protocol"]["base"] == 4
    (line,) = document["summary"]
    rows = read(tmp_path / "r", "rows.jsonl")
    last = [row["accuracy"] for row in rows if row["session"] == 2]
    assert line["last"]["mean"] == pytest.approx(np.mean(last))
    assert line["last"]["error"] == pytest.approx(abs(last[0] - last[1]) / 2)


def test_finished_runs_are_not_run_again(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "r"
    fscil(run, data, folder, "--seeds", 1)
    fitted = []
    fit = SessionClassMean.fit

    def counted(self: SessionClassMean, X: Any, y: Any) -> SessionClassMean:
        fitted.append(self)
        return fit(self, X, y)

    monkeypatch.setattr(SessionClassMean, "fit", counted)
    (folder / "curves.png").unlink()
    result = fscil(run, data, folder, "--seeds", 1)
    assert not fitted
    assert "1 of 1 runs are there already" in result.stderr
    assert (folder / "curves.png").exists()
    (folder / "details.jsonl").unlink()  # rows alone are half a run
    fscil(run, data, folder, "--seeds", 1)
    assert len(fitted) == 1
    assert len(read(folder, "details.jsonl")) == 1
    first = read(folder, "rows.jsonl")
    fscil(run, data, folder, "--seeds", 2, "--method", "slda")
    assert len(fitted) == 2  # and now seed 1
    rows = read(folder, "rows.jsonl")
    assert rows[:3] == first
    assert {(row["method"], row["seed"]) for row in rows} == {(m, s) for m in ("class-mean", "slda") for s in range(2)}
    assert len(rows) == 12


def test_an_interrupted_command_goes_on(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gptree.protocols import run as protocol

    measure = protocol.session_scores
    calls = []

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 5:  # the second session of seed 1
            raise KeyboardInterrupt
        return measure(*arguments)

    arguments = ["fscil", str(data), *map(str, SPLIT), "--method", "class-mean", "--seeds", "2", "--out"]
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "session_scores", interrupted)
        assert CliRunner().invoke(app, [*arguments, str(tmp_path / "r")]).exit_code != 0
    kept = read(tmp_path / "r", "rows.jsonl")
    assert [row["seed"] for row in kept] == [0, 0, 0]
    run(*arguments, tmp_path / "r")
    run(*arguments, tmp_path / "whole")
    rows, whole = read(tmp_path / "r", "rows.jsonl"), read(tmp_path / "whole", "rows.jsonl")
    assert rows[:3] == kept
    measured = [{name: value for name, value in row.items() if "seconds" not in name} for row in rows]
    assert measured == [{name: value for name, value in row.items() if "seconds" not in name} for row in whole]


@pytest.mark.parametrize("method", ["forest", "tree", "paper"])
def test_models_that_grow(run: Run, data: Path, tmp_path: Path, method: str) -> None:
    more = ["--method", method, "--exemplars", 4, "--seeds", 1, "--out", tmp_path / "r"]
    run("fscil", data, *SPLIT, *more)
    rows = read(tmp_path / "r", "rows.jsonl")
    assert [(row["method"], row["classes"]) for row in rows] == [(method, 4), (method, 6), (method, 8)]
    assert rows[0]["settings"] | {"strategy": "shared-root", "exemplars": 4} == rows[0]["settings"]
    assert rows[2]["accuracy"] > 0.5
    assert rows[0]["bytes"] > 0
    assert rows[0]["bytes"] < rows[2]["bytes"]
    (details,) = read(tmp_path / "r", "details.jsonl")
    assert sorted(details["tree"]["order"]) == list(range(8))


@pytest.mark.parametrize("strategy", Strategy.names())
def test_strategies_are_part_of_the_name(run: Run, data: Path, tmp_path: Path, strategy: str) -> None:
    run("fscil", data, *SPLIT, "--method", "paper", "--strategy", strategy, "--seeds", 1, "--out", tmp_path / "r")
    rows = read(tmp_path / "r", "rows.jsonl")
    assert {row["method"] for row in rows} == {f"paper-{strategy}"}
    assert rows[0]["settings"]["strategy"] == strategy
    assert rows[2]["accuracy"] > 0.5


def test_options_reach_the_model() -> None:
    def made(name: str, seed: int) -> Any:
        return SessionMethod(name=name, strategy="graft", exemplars=3, shots=4).make(seed)

    forest, paper = made("forest", 11), made("paper", 12)
    assert (forest.random_state, paper.random_state, paper.prior_mean) == (11, 12, None)
    for model in (forest, paper):
        assert (model.growth.exemplars, model.growth.shots) == (3, 4)
        assert type(model.growth.strategy).__name__ == "Graft"


def test_options_reach_the_rivals() -> None:
    for name in INCREMENTAL:
        method = SessionMethod(name=name, strategy="graft", exemplars=3, shots=4)
        mapped: Any = method.make(13)  # the rival sees the features as the forest does
        parameters = mapped.rival.get_params()
        assert parameters.get("random_state", 13) == 13
        assert parameters.get("shots", 4) == 4
        assert parameters.get("exemplars", 3) == 3
        assert method.settings == ({"exemplars": 3} if "exemplars" in parameters else {})


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_other_kinds_of_files(run: Run, data: Path, tmp_path: Path, kind: str) -> None:
    """The same numbers as from an .npz file, whose test rows are arrays of other names."""
    names = ["--test", data, "--test-features", "a", "--test-labels", "b"]
    fscil(run, data, tmp_path / "npz", "--seeds", 1, *names)
    for name, (X, y) in {"trees": trees(12, 1), "test": trees(5, 2)}.items():
        if kind == "csv":
            lines = [",".join([*map(repr, map(float, x)), label]) for x, label in zip(X, y, strict=True)]
            (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,c,d,e,f,label", *lines]))
        else:
            np.save(tmp_path / f"{name}.npy", X)
            np.save(tmp_path / f"{name}_labels.npy", y)
    test = ["--test", tmp_path / f"test.{kind}", "--seeds", 1]
    labels = ["--labels", tmp_path / "trees_labels.npy"] if kind == "npy" else []
    if kind == "npy":
        without = fscil(run, tmp_path / "trees.npy", tmp_path / "r", *labels, *test, code=2)
        assert "--test-labels" in complaint(without)
        labels += ["--test-labels", tmp_path / "test_labels.npy"]
    fscil(run, tmp_path / f"trees.{kind}", tmp_path / kind, *labels, *test)
    one, other = (read(tmp_path / name, "rows.jsonl") for name in ("npz", kind))
    assert [row["nll"] for row in one] == pytest.approx([row["nll"] for row in other])


def write_lists(folder: Path, item: Callable[[int, str], str]) -> Path:
    """Two sessions, of ash and elm, then of oak: rows 0, 1, … of `trees`, the first 8 of a class for training."""
    folder.mkdir()
    _, y = trees(12, 1)
    for number, names in ((1, ["ash", "elm"]), (2, ["oak"])):
        rows = [(int(row), name) for name in names for row in np.flatnonzero(y == name)]
        train = [item(row, name) for row, name in rows if row < 64]
        test = [item(row, name) for row, name in rows if row >= 64]
        (folder / f"session_{number}.txt").write_text("\n".join(train))
        (folder / f"test_{number}.txt").write_text("\n".join(test))
    return folder


def test_sessions_from_lists(run: Run, data: Path, tmp_path: Path) -> None:
    files = write_lists(tmp_path / "files", lambda row, name: f"pictures/{name}/{row}.jpg")
    numbers = write_lists(tmp_path / "numbers", lambda row, name: str(row))
    common = ["--method", "class-mean", "--seeds", 1]
    result = run("fscil", data, *common, "--lists", files, "--paths", "path", "--out", tmp_path / "a")
    assert "2 base classes, then 1 in 1 sessions; tested on the test lists of files" in result.stderr
    run("fscil", data, *common, "--lists", numbers, "--test", data, "--out", tmp_path / "b")
    one, other = (read(tmp_path / name, "rows.jsonl") for name in ("a", "b"))
    assert [row["nll"] for row in one] == [row["nll"] for row in other]
    assert [row["classes"] for row in one] == [2, 3]
    assert one[0]["settings"]["lists"] == "files"
    out = ["--out", tmp_path / "c"]
    assert "--paths" in complaint(run("fscil", data, *common, "--lists", files, *out, code=2))
    assert "leave --way out" in complaint(run("fscil", data, "--lists", files, "--way", 2, *out, code=2))
    missing = ["--lists", files, "--paths", "paths"]
    assert "holds no array 'paths'" in complaint(run("fscil", data, *missing, *out, code=2))


def test_bad_input(run: Run, data: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "r"]
    assert "--way, --shot must be given" in complaint(run("fscil", data, "--base", 4, *out, code=2))
    unknown = run("fscil", data, *SPLIT, "--method", "magic", *out, code=2)
    assert "there is no method 'magic'; there are forest, tree, paper, class-mean" in complaint(unknown)
    all_classes = run("fscil", data, "--base", 8, "--way", 2, "--shot", 3, "--method", "slda", *out, code=2)
    assert "1 to 7 of them, got 8" in complaint(all_classes)
    too_many = run("fscil", data, "--base", 4, "--way", 2, "--shot", 12, "--method", "slda", *out, code=2)
    assert "has 8 rows, and 12 are needed" in complaint(too_many)
    assert "is a file" in complaint(run("fscil", data, *SPLIT, "--out", data, code=2))
    run("fscil", data, *SPLIT, "--strategy", "hope", *out, code=2)
    assert not (tmp_path / "r").exists()


def test_a_folder_holds_one_protocol(run: Run, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "r"
    fscil(run, data, folder, "--seeds", 1)
    before = (folder / "rows.jsonl").read_text()
    other = run("fscil", data, *SPLIT[:-1], 4, "--method", "slda", "--out", folder, code=2)
    assert "holds rows of class-mean with shot 3, not 4: choose another folder" in complaint(other)
    held_out = fscil(run, data, folder, "--test", data.with_name("test.npz"), code=2)
    assert "with test 30 % of each class, held out, not test.npz" in complaint(held_out)
    assert (folder / "rows.jsonl").read_text() == before
    for damaged, reason in (
        (before[:-20], "it is not JSON"),
        (before.replace('"method"', '"methods"', 1), "it has no 'method'"),
        (before.replace('"session": 0', '"session": "0"', 1), "'session' is '0'"),
        ("[]\n", "it is not an object"),
    ):
        (folder / "rows.jsonl").write_text(damaged)
        line = complaint(fscil(run, data, folder, code=2))
        assert "rows.jsonl is damaged, line " in line
        assert f"{reason}. Mend it, or choose another folder." in line


def test_data_are_known_by_their_content(run: Run, data: Path, tmp_path: Path) -> None:
    """Other data under the same file name are other data; the same under another name are the same."""
    folder, elsewhere = tmp_path / "r", tmp_path / data.name
    fscil(run, data, folder, "--seeds", 1)
    with np.load(data) as arrays:
        X, y = arrays["X"], arrays["y"]
    other = X.copy()
    other[17, 3] += 1e-9
    np.savez(elsewhere, X=other, y=y)
    line = complaint(fscil(run, elsewhere, folder, "--seeds", 1, code=2))
    assert "holds rows of class-mean with data content" in line
    np.savez(elsewhere, X=X, y=np.roll(y, 1))
    assert "with data content" in complaint(fscil(run, elsewhere, folder, "--seeds", 1, code=2))
    lines = [",".join([*map(repr, map(float, x)), label]) for x, label in zip(X, y, strict=True)]
    (tmp_path / "renamed.csv").write_text("\n".join(["a,b,c,d,e,f,label", *lines]))
    assert "1 of 2 runs are there already" in fscil(run, tmp_path / "renamed.csv", folder, "--seeds", 2).stderr
    assert {row["data"] for row in read(folder, "rows.jsonl")} == {"trees"}
    assert len(read(folder, "rows.jsonl")) == 6
