"""The commands: from data to a model and back, for people and for machines; bad input ends in one line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from animals import COLUMNS, NAMES, animals, csv_text
from typer.testing import CliRunner

import gptree
from gptree import CoordinateAscent, Gibbs, GPForestClassifier, GPTreeClassifier, load_model
from gptree.cli.main import app
from gptree.estimators import top_k
from gptree.incremental import Strategy
from gptree.inference import Inference
from gptree.maths.kernels import KERNEL_NAMES
from gptree.tree import TreeBuilder
from small_sizes import small_random_features

Run = Callable[..., Any]
Files = dict[str, Path]

# The library is called with arrays here, to be compared with commands that read the names of columns.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")


# ------------------------------------------------------------------------------------------------------ the command


def test_version_in_a_process_of_its_own() -> None:
    command = Path(sys.executable).with_name("gptree")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"gptree {gptree.__version__}\n", "")


@pytest.mark.parametrize("command", ["demo", "fit", "predict", "tree", "explain"])
def test_every_command_has_help_with_an_example(run: Run, command: str) -> None:
    assert command in run("--help").stdout
    assert f"Example: gptree {command} " in run(command, "--help").stdout


def test_usage_errors(run: Run) -> None:
    run("fly", code=2)
    run("fit", code=2)
    run("fit", "x.csv", "--out", "m", "--kernel", "magic", code=2)
    run("fit", "x.csv", "--out", "m", "--trees", "0", code=2)


def complaint(result: Any) -> str:
    """The one line that a failed command leaves on stderr, stdout being empty."""
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


# -------------------------------------------------------------------------------------------------------------- fit


def test_choices_are_those_of_the_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # narrower tables cut long names
    words = " ".join(run("fit", "--help").stdout.replace("│", " ").split())
    for names in (KERNEL_NAMES, TreeBuilder.names(), Inference.names(), Strategy.names()):
        assert f": {', '.join(names)}." in words


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_round_trip_from_every_format(run: Run, files: Files, tmp_path: Path, kind: str) -> None:
    labels = ["--labels", files["npy_labels"]] if kind == "npy" else []
    run("fit", files[kind], *labels, "--out", tmp_path / "m")
    lines = run("predict", tmp_path / "m", files[kind]).stdout.splitlines()
    assert lines[0] == "id,prediction,confidence,runner_up,novelty"
    cells = [line.split(",") for line in lines[1:]]
    assert [row[0] for row in cells] == list(map(str, range(48)))
    assert [row[1] for row in cells] == animals()[1].tolist()
    assert all(name in run("tree", tmp_path / "m").stdout for name in NAMES)
    explained = run("explain", tmp_path / "m", files[kind], *labels, "--rows", "0,13").stdout
    assert "row 0, truly ant\nant  p = " in explained
    assert "row 13, truly bee\nbee  p = " in explained


def test_fit_without_options_is_the_library_default(files: Files, model: Path) -> None:
    X, y = animals()
    loaded = load_model(model)
    default = GPForestClassifier(random_state=0).fit(X, y)
    assert loaded.get_params() == default.get_params()
    np.testing.assert_allclose(loaded.predict_proba(X), default.predict_proba(X), rtol=1e-10)
    assert loaded.feature_names_in_.tolist() == list(COLUMNS)


def test_fit_options_reach_the_estimator(run: Run, files: Files, tmp_path: Path) -> None:
    gibbs = ["--inference", "gibbs", "--chains", 3, "--steps", 2]
    others = ["--kernel", "linear", "--tree", "ward", "--predict-at", "quadrature", "--seed", 7, "--jobs", 1]
    run("fit", files["npz"], "--out", tmp_path / "a", "--trees", 2, *gibbs, *others)
    forest = load_model(tmp_path / "a")
    assert isinstance(forest, GPForestClassifier)
    assert (forest.n_estimators, forest.kernel, forest.tree, forest.random_state) == (2, "linear", "ward", 7)
    assert (forest.predict_at, forest.inference, forest.n_jobs) == ("quadrature", Gibbs(chains=3, steps=2), 1)
    run("fit", files["npz"], "--out", tmp_path / "b", "--trees", 1, "--inference", "coordinate-ascent")
    single = load_model(tmp_path / "b")
    assert isinstance(single, GPTreeClassifier)
    assert single.inference == CoordinateAscent()


def test_paper_settings(run: Run, files: Files, tmp_path: Path) -> None:
    run("fit", files["npz"], "--out", tmp_path / "m", "--paper", "--kernel", "rbf")
    X, y = animals()
    paper = GPTreeClassifier.paper("rbf", random_state=0).fit(X, y)
    np.testing.assert_allclose(load_model(tmp_path / "m").predict_proba(X), paper.predict_proba(X), rtol=1e-10)
    message = complaint(run("fit", files["npz"], "--out", tmp_path / "n", "--paper", "--trees", 3, code=2))
    assert "one tree" in message


def test_fit_reports_to_machines(run: Run, files: Files, tmp_path: Path) -> None:
    result = run("fit", files["csv"], "--out", tmp_path / "m", "--test", files["csv"], "--json")
    report = json.loads(result.stdout)
    assert (report["rows"], report["features"], report["classes"]) == (48, 5, 4)
    assert report["test"]["accuracy"] == 1.0
    assert set(report["test"]) == {"accuracy", "nll", "brier", "ece"}
    assert result.stderr == ""


def test_fit_reports_to_people(run: Run, files: Files, tmp_path: Path) -> None:
    result = run("fit", files["csv"], "--out", tmp_path / "m", "--test", files["csv"])
    assert "48 rows of 5 features, 4 classes" in result.stderr
    assert "100.0 %" in result.stdout


def test_a_model_is_replaced_only_on_demand(run: Run, files: Files, tmp_path: Path) -> None:
    run("fit", files["npz"], "--out", tmp_path / "m", "--seed", 1)
    assert "--force" in complaint(run("fit", files["npz"], "--out", tmp_path / "m", "--seed", 2, code=2))
    assert load_model(tmp_path / "m").random_state == 1
    run("fit", files["npz"], "--out", tmp_path / "m", "--seed", 2, "--force")
    assert load_model(tmp_path / "m").random_state == 2
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Dear …")
    assert "other files" in complaint(run("fit", files["npz"], "--out", tmp_path / "letters", "--force", code=2))
    assert "is a file" in complaint(run("fit", files["npz"], "--out", files["npz"], code=2))


def test_bad_input_to_fit(run: Run, files: Files, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "m"]
    assert "no such file" in complaint(run("fit", tmp_path / "none.csv", *out, code=2))
    assert "cannot read '.txt'" in complaint(run("fit", tmp_path / "x.txt", *out, code=2))
    assert "name one of X, y with --features" in complaint(run("fit", files["npz"], "--features", "x", *out, code=2))
    assert "--inference gibbs" in complaint(run("fit", files["npz"], "--chains", 3, *out, code=2))
    assert "--score" in complaint(run("fit", files["npz"], "--test", files["npy"], *out, code=2))
    X, y = animals()
    other = {
        "nan.npz": ({"X": np.where(X[3, 2] == X, np.nan, X), "y": y}, "row 3, column 2 is nan"),
        "object.npz": ({"X": X, "y": y.astype(object)}, "never loaded"),
        "regression.npz": ({"X": X, "y": X[:, 0]}, "continuous"),
    }
    for name, (arrays, message) in other.items():
        np.savez(tmp_path / name, **arrays)
        assert message in complaint(run("fit", tmp_path / name, *out, code=2))
    np.savez(tmp_path / "narrow.npz", X=X[:, :3], y=y)
    np.savez(tmp_path / "unknown.npz", X=X, y=np.where(y == "cat", "cow", y))
    for name, message in (("narrow.npz", "3 features a row"), ("unknown.npz", "'cow'")):
        assert message in complaint(
            run("fit", files["npz"], "--test", tmp_path / name, "--out", tmp_path / "n", code=2)
        )
    assert not (tmp_path / "n").exists()  # test data are checked before the fit


def test_the_unforeseen_is_neither_hidden_nor_called_bad_input(
    run: Run, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_fit(self: GPForestClassifier, X: Any, y: Any, **_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(GPForestClassifier, "fit", broken_fit)
    result = CliRunner().invoke(app, ["fit", str(files["npz"]), "--out", str(tmp_path / "m")])
    assert result.exit_code == 1
    assert isinstance(result.exception, RuntimeError)


def test_warnings_are_one_line_on_stderr(
    run: Run, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import warnings

    fit = GPForestClassifier.fit

    def warning_fit(self: GPForestClassifier, X: Any, y: Any, **_: Any) -> GPForestClassifier:
        warnings.warn("not\nsettled", UserWarning, stacklevel=2)
        return fit(self, X, y)

    monkeypatch.setattr(GPForestClassifier, "fit", warning_fit)
    result = run("fit", files["npz"], "--out", tmp_path / "m", "--json")
    assert result.stderr == "warning: not settled\n"
    json.loads(result.stdout)


# ---------------------------------------------------------------------------------------------------------- predict


def test_predictions_for_people_and_machines_agree(run: Run, files: Files, model: Path) -> None:
    X, _ = animals()
    fitted = load_model(model)
    p = fitted.predict_proba(X)
    document = json.loads(run("predict", model, files["csv"], "--proba", "--json").stdout)
    np.testing.assert_allclose(document["probabilities"], p, rtol=1e-12)
    assert document["classes"] == NAMES.tolist()
    assert document["prediction"] == NAMES[p.argmax(1)].tolist()
    assert document["runner_up"] == NAMES[np.argsort(p, 1)[:, -2]].tolist()
    np.testing.assert_allclose(document["novelty"], fitted.novelty_score(X), rtol=1e-12)
    lines = run("predict", model, files["csv"], "--proba").stdout.splitlines()
    assert lines[0] == "id,prediction,confidence,runner_up,novelty,p(ant),p(bee),p(cat),p(dog)"
    cells = [line.split(",") for line in lines[1:]]
    table = np.array([[float(cell) for cell in (row[2], *row[4:])] for row in cells])
    np.testing.assert_allclose(table, np.column_stack([p.max(1), fitted.novelty_score(X), p]), rtol=1e-5)


def test_parts_for_several_machines_are_the_whole(run: Run, files: Files, model: Path) -> None:
    whole = run("predict", model, files["csv"]).stdout.splitlines()
    parts = [run("predict", model, files["csv"], "--shard", f"{k}/3").stdout.splitlines() for k in (1, 2, 3)]
    assert all(part[0] == whole[0] for part in parts)
    assert [part[1].split(",")[0] for part in parts] == ["0", "1", "2"]
    lines = sorted((line for part in parts for line in part[1:]), key=lambda line: int(line.split(",")[0]))
    for line, expected in zip(lines, whole[1:], strict=True):
        (name, label, *_), (name_before, label_before, *_) = line.split(","), expected.split(",")
        assert (name, label) == (name_before, label_before)
    assert "there is no part 4 of 3" in run("predict", model, files["csv"], "--shard", "4/3", code=2).stderr
    assert "cannot read '2 of 3'" in run("predict", model, files["csv"], "--shard", "2 of 3", code=2).stderr


def test_predictions_in_files(run: Run, files: Files, model: Path, tmp_path: Path) -> None:
    shown = run("predict", model, files["csv"], "--proba").stdout
    result = run("predict", model, files["csv"], "--proba", "--out", tmp_path / "p.csv")
    assert result.stdout == ""
    assert (tmp_path / "p.csv").read_text() == shown
    run("predict", model, files["csv"], "--out", tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as arrays:
        assert set(arrays) == {"id", "prediction", "confidence", "runner_up", "novelty", "classes"}
        assert arrays["prediction"].tolist() == animals()[1].tolist()
    assert ".csv or .npz" in complaint(run("predict", model, files["csv"], "--out", tmp_path / "p.txt", code=2))


def test_the_most_probable_classes(run: Run, files: Files, model: Path, tmp_path: Path) -> None:
    run("predict", model, files["csv"], "--top", 2, "--proba", "--out", tmp_path / "top.npz")
    with np.load(tmp_path / "top.npz") as found:
        first = found["probabilities"].argsort(1)[:, ::-1][:, :2]
        assert (found["top"] == found["classes"][first]).all()
        np.testing.assert_allclose(found["top_probabilities"].sum(1) + found["outside"], 1.0)
    row = next(csv.DictReader(io.StringIO(run("predict", model, files["csv"], "--top", 2).stdout)))
    assert json.loads(row["top"])[0] == row["prediction"]
    assert json.loads(row["top_probabilities"])[0] == float(row["confidence"])
    assert "k must be a whole number from 1 to the" in complaint(
        run("predict", model, files["csv"], "--top", 99, code=2)
    )


def test_the_most_probable_classes_of_very_many(
    run: Run, files: Files, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By beam search, unless all probabilities are needed for something else."""
    fitted, X = load_model(model), animals()[0]
    whole = run("predict", model, files["csv"], "--top", 2, "--json").stdout
    monkeypatch.setattr(top_k, "BEAM_FROM", 2)
    monkeypatch.setattr(top_k, "BEAM", 1)
    found = fitted.predict_top_k(X, 2)
    searched = json.loads(run("predict", model, files["csv"], "--top", 2, "--json").stdout)
    assert searched["top"] == found.classes.tolist()
    assert searched["prediction"] == [row[0] for row in searched["top"]]
    assert searched["runner_up"] == [row[1] for row in searched["top"]]
    np.testing.assert_allclose(searched["outside"], found.outside, rtol=1e-6, atol=1e-12)
    assert "novelty" not in searched
    alone = csv.DictReader(io.StringIO(run("predict", model, files["csv"], "--top", 1).stdout))
    assert alone.fieldnames == ["id", "prediction", "confidence", "top", "top_probabilities", "outside"]
    run("predict", model, files["csv"], "--top", 2, "--out", tmp_path / "top.npz")
    for options in (["--proba"], ["--score"], ["--open"], ["--set", 0.9], ["--coarse", 0.9]):
        document = json.loads(run("predict", model, files["csv"], "--top", 2, "--json", *options).stdout)
        assert document["novelty"] == json.loads(whole)["novelty"]
        assert document["top_probabilities"] == json.loads(whole)["top_probabilities"]


def test_sets_and_groups(run: Run, files: Files, model: Path, tmp_path: Path) -> None:
    X, _ = animals()
    fitted = load_model(model)
    sets, coarse = fitted.predict_set(X, 0.95), fitted.predict_coarse(X, 0.999)
    both = ["predict", model, files["csv"], "--set", 0.95, "--coarse", 0.999]
    document = json.loads(run(*both, "--json").stdout)
    assert document["set"] == [NAMES[row].tolist() for row in sets]
    assert document["coarse"] == [NAMES[row].tolist() for row in coarse.members]
    rows = list(csv.DictReader(io.StringIO(run(*both).stdout)))
    assert [json.loads(row["set"]) for row in rows] == document["set"]
    assert [json.loads(row["coarse"]) for row in rows] == document["coarse"]
    np.testing.assert_allclose([float(row["coarse_confidence"]) for row in rows], coarse.probability, rtol=1e-5)
    run(*both, "--by-class", "--out", tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as arrays:
        assert np.array_equal(arrays["set"], fitted.predict_set(X, 0.95, by_class=True))
        assert np.array_equal(arrays["coarse"], coarse.members)
    assert "belongs to --set" in complaint(run("predict", model, files["csv"], "--by-class", code=2))
    assert "between 0 and 1" in complaint(run("predict", model, files["csv"], "--set", 1.5, code=2))


def test_parent_folders_are_not_made(run: Run, files: Files, model: Path, tmp_path: Path) -> None:
    missing = tmp_path / "new"
    for arguments in (
        ("predict", model, files["csv"], "--out", missing / "p.csv"),
        ("tree", model, "--picture", missing / "t.png"),
        ("fit", files["csv"], "--out", missing / "m"),
        ("rename", model, "ant", "emmet", "--out", missing / "m"),
        ("demo", "--out", missing / "d"),
    ):
        line = complaint(run(*arguments, code=2))
        assert f"there is no folder {missing}; make it, or name another" in line
    assert list(tmp_path.iterdir()) == []


def test_labels_that_are_python_objects(run: Run, files: Files, tmp_path: Path) -> None:
    X, y = animals()
    GPTreeClassifier(random_state=0).fit(X, y.astype(object)).save(tmp_path / "m")
    run("predict", tmp_path / "m", files["npz"], "--score", "--out", tmp_path / "p.npz")
    with np.load(tmp_path / "p.npz", allow_pickle=False) as arrays:
        assert arrays["prediction"].tolist() == y.tolist()


def test_score(run: Run, files: Files, model: Path, tmp_path: Path) -> None:
    X, y = animals()
    wrong = np.concatenate([["dog"] * 6, y[6:]])
    np.savez(tmp_path / "t.npz", a=X, b=wrong)
    names = ["--features", "a", "--labels", "b"]
    result = run("predict", model, tmp_path / "t.npz", *names, "--score", "--json")
    assert json.loads(result.stdout)["score"]["accuracy"] == pytest.approx(42 / 48)
    assert "accuracy 87.5 %" in run("predict", model, tmp_path / "t.npz", *names, "--score").stderr
    unlabelled = tmp_path / "u.npz"
    np.savez(unlabelled, X=X)
    run("predict", model, unlabelled)
    assert "no array 'y'" in complaint(run("predict", model, unlabelled, "--score", code=2))


def test_labels_that_read_alike_are_the_same(run: Run, tmp_path: Path) -> None:
    X, y = animals()
    numbers = np.searchsorted(NAMES, y)
    np.savez(tmp_path / "n.npz", X=X, y=numbers)
    run("fit", tmp_path / "n.npz", "--out", tmp_path / "m")
    for i, labels in enumerate((numbers.astype(str), numbers.astype(float), numbers.astype(np.uint8))):
        np.savez(tmp_path / f"{i}.npz", X=X, y=labels)
        score = json.loads(run("predict", tmp_path / "m", tmp_path / f"{i}.npz", "--score", "--json").stdout)["score"]
        assert score["accuracy"] == 1.0
    assert json.loads(run("predict", tmp_path / "m", tmp_path / "0.npz", "--json").stdout)["prediction"][:2] == [0, 0]


def test_columns_are_found_by_name(run: Run, model: Path, files: Files, tmp_path: Path) -> None:
    X, y = animals()
    turned = tmp_path / "turned.csv"
    turned.write_text(csv_text(X[:, ::-1], y, columns=COLUMNS[::-1]))
    result = run("predict", model, turned)
    assert result.stdout == run("predict", model, files["csv"]).stdout
    assert result.stderr == ""
    assert run("predict", model, files["npz"]).stdout == result.stdout
    turned.write_text(csv_text(X, y, columns=("height", "width", "weight", "age", "pace")))
    assert "no column 'speed'" in complaint(run("predict", model, turned, code=2))


def test_bad_input_to_a_model(run: Run, model: Path, files: Files, tmp_path: Path) -> None:
    np.savez(tmp_path / "narrow.npz", X=np.ones((2, 3)))
    for command in ("predict", "explain"):
        message = complaint(run(command, model, tmp_path / "narrow.npz", code=2))
        assert "3 features a row, but the model has 5" in message
        assert "no such file" in complaint(run(command, model, tmp_path / "none.npz", code=2))
        assert "gptree fit" in complaint(run(command, tmp_path / "none", files["npz"], code=2))


def test_foreign_and_damaged_folders(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "holds no gptree model" in complaint(run("tree", tmp_path, code=2))
    (tmp_path / "model.json").write_text('{"format": "other"}')
    assert "not written by gptree" in complaint(run("tree", tmp_path, code=2))
    document = json.loads((model / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(document))
    assert "damaged" in complaint(run("tree", tmp_path, code=2))


# ------------------------------------------------------------------------------------------------- tree and explain


def test_tree_in_all_forms(run: Run, model: Path, tmp_path: Path) -> None:
    from gptree.tree import ClassTree, to_dot, to_newick, to_text

    shown = load_model(model).tree_
    assert run("tree", model).stdout == to_text(shown, NAMES) + "\n"
    assert run("tree", model, "--depth", 1).stdout == to_text(shown, NAMES, max_depth=1) + "\n"
    assert run("tree", model, "--format", "dot").stdout == to_dot(shown, NAMES)
    assert run("tree", model, "--format", "newick").stdout == to_newick(shown, NAMES) + "\n"
    document = json.loads(run("tree", model, "--json").stdout)
    assert ClassTree.from_json(document["tree"]) == shown
    assert document["classes"] == NAMES.tolist()
    assert "--depth" in complaint(run("tree", model, "--depth", 1, "--format", "dot", code=2))


def test_tree_pictures(run: Run, model: Path, tmp_path: Path) -> None:
    assert run("tree", model, "--picture", tmp_path / "t.png").stdout == ""
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    run("tree", model, "--picture", tmp_path / "t.svg")
    assert "<svg" in (tmp_path / "t.svg").read_text()
    assert "pictures are .png, .svg, .pdf files" in complaint(
        run("tree", model, "--picture", tmp_path / "t.xyz", code=2)
    )


def test_explain(run: Run, model: Path, files: Files) -> None:
    X, y = animals()
    why = load_model(model).explain(X[[2, 30, 31]])
    shown = run("explain", model, files["csv"], "--rows", "2,30-31").stdout
    assert shown == "".join(f"row {i}, truly {y[i]}\n{w}\n\n" for i, w in zip((2, 30, 31), why, strict=True))
    rows = json.loads(run("explain", model, files["csv"], "--rows", "2,30-31", "--json").stdout)["rows"]
    assert [(row["row"], row["true_label"], row["label"]) for row in rows] == [(i, y[i], y[i]) for i in (2, 30, 31)]
    assert rows[0]["path"][0]["probability"] == pytest.approx(why[0].path[0].probability)
    assert len(json.loads(run("explain", model, files["csv"], "--json").stdout)["rows"]) == 5


@pytest.mark.parametrize("rows", ["", "x", "-1", "48", "5-3", "3,,4", "0-48"])
def test_bad_rows(run: Run, model: Path, files: Files, rows: str) -> None:
    assert "--rows" in complaint(run("explain", model, files["csv"], f"--rows={rows}", code=2))


# ------------------------------------------------------------------------------------------------------------- demo


def test_demo(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "d", "--json")
    document = json.loads(result.stdout)
    forest, class_mean = (document["sessions"][name] for name in ("gptree forest", "nearest class mean"))
    assert [row["classes"] for row in forest] == [row["classes"] for row in class_mean] == [5, 6, 7, 8, 9, 10]
    assert forest[-1]["accuracy"] > 0.85  # chance is 0.1
    assert forest[-1]["nll"] < class_mean[-1]["nll"]
    assert [found["digit"] for found in document["refused"]] == [5, 6, 7, 8, 9]
    for found in document["refused"]:
        assert found["new"] > 2 * found["known"]
    mistake = document["mistake"]
    assert mistake["same_to_the_last_bit"]
    assert mistake["with_mistake"] < mistake["before"] == mistake["after_undo"] == forest[-1]["accuracy"]
    for name in ("curves.png", "tree.png", "reliability.png", "confused.png"):
        assert (tmp_path / "d" / name).stat().st_size > 10_000
    assert document["example"]["path"]
    assert load_model(tmp_path / "d" / "model").classes_.tolist() == list(range(10))


def test_demo_for_people(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptree.cli.demo.write_figure", lambda *_, **__: None)  # they are looked at above
    with small_random_features():
        shown = run("demo", "--out", tmp_path / "d").stdout
    lines = shown.splitlines()
    table = lines[lines.index("") + 1 :][:8]
    assert [line.split("  ")[0] for line in table[1:]] == [
        "taught",
        "0 1 2 3 4",
        *(f"+ {digit}" for digit in range(5, 10)),
    ]
    assert max(map(len, table)) < 80
    words = " ".join(shown.split())
    for text in (
        "gptree forest",
        "nearest class mean",
        "none of these",
        "to the last bit",
        "nearest training examples",
    ):
        assert text in words
    assert f"Drawn in {tmp_path / 'd'}: curves.png, tree.png" in words
