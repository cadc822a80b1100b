"""Commands that change the classes of a model: what they do, what they say, and what they refuse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from animals import animals, csv_text

from gptree import GPForestClassifier, Graft, Growth, RebuildTree, SessionTree, SharedRoot, load_model

Run = Callable[..., Any]

# The library is called with arrays here, to be compared with commands that read the names of columns.
pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

X, Y = animals()
PARTS = {  # rows of each file
    "base": slice(0, 24),  # ant, bee
    "cat": slice(24, 29),
    "dog": slice(36, 41),
    "both": np.r_[24:28, 36:40],  # cat, dog
    "mixed": np.r_[22:28],  # bee, cat
    "bee": slice(12, 15),
}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("parts")
    paths = {name: folder / f"{name}.csv" for name in PARTS}
    for name, rows in PARTS.items():
        paths[name].write_text(csv_text(X[rows], Y[rows]))
    return paths


@pytest.fixture(scope="module")
def fitted(parts: dict[str, Path], run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of ants and bees, prepared for more."""
    folder = tmp_path_factory.mktemp("fitted") / "m"
    run("fit", parts["base"], "--out", folder, "--grow")
    return folder


@pytest.fixture
def base(fitted: Path, tmp_path: Path) -> Path:
    """A copy of that model for one test."""
    return Path(shutil.copytree(fitted, tmp_path / "base"))


@pytest.fixture
def grown(base: Path, parts: dict[str, Path], run: Run) -> Path:
    """Taught cats, then dogs."""
    run("add", base, parts["cat"])
    run("add", base, parts["dog"])
    return base


def classes(folder: Path) -> list[Any]:
    return load_model(folder).classes_.tolist()


def complaint(result: Any) -> str:
    """The one line that a failed command leaves on stderr, stdout being empty."""
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("command", ["add", "remove", "rename", "merge", "undo", "history"])
def test_every_command_has_help_with_an_example(run: Run, command: str) -> None:
    assert command in run("--help").stdout
    assert f"Example: gptree {command} " in run(command, "--help").stdout


# -------------------------------------------------------------------------------------------------------- base session


def test_fit_prepares_for_more_classes(run: Run, parts: dict[str, Path], fitted: Path, tmp_path: Path) -> None:
    assert load_model(fitted).growth == Growth()
    options = ("--grow", "--exemplars", 3, "--session-exemplars", 4, "--strategy", "graft", "--trees", 1)
    run("fit", parts["base"], "--out", tmp_path / "m", *options)
    model = load_model(tmp_path / "m")
    assert model.growth == Growth(exemplars=3, session_exemplars=4, strategy=Graft())
    assert model.memory_.counts == {"ant": 3, "bee": 3}
    run("fit", parts["base"], "--out", tmp_path / "n", "--no-grow")
    assert load_model(tmp_path / "n").growth is None
    for option in (("--exemplars", 3), ("--session-exemplars", 4), ("--strategy", "graft")):
        assert "add --grow" in complaint(run("fit", parts["base"], "--out", tmp_path / "o", *option, code=2))


@pytest.mark.parametrize(
    ("name", "value"),
    [(each.name, each) for each in (SharedRoot(), SessionTree(), RebuildTree(), Graft())],
)
def test_strategies_by_name(name: str, value: Any) -> None:
    from gptree.cli.fitting import _growth

    assert _growth(True, None, None, name) == {"growth": Growth(strategy=value)}


# ---------------------------------------------------------------------------------------------------------- one change


def test_commands_are_the_library(run: Run, base: Path, parts: dict[str, Path]) -> None:
    model = load_model(base)
    steps: list[tuple[tuple[Any, ...], Callable[[], Any]]] = [
        (("add", parts["both"]), lambda: model.add_classes(X[PARTS["both"]], Y[PARTS["both"]])),
        (("add", parts["bee"], "--examples"), lambda: model.add_examples(X[PARTS["bee"]], Y[PARTS["bee"]])),
        (("rename", "ant", "emmet"), lambda: model.rename_class("ant", "emmet")),
        (("merge", "cat", "dog", "--into", "pet"), lambda: model.merge_classes(["cat", "dog"], "pet")),
        (("undo",), lambda: model.undo()),
        (("remove", "cat"), lambda: model.remove_classes(["cat"])),
    ]
    for (command, *rest), change in steps:
        run(command, base, *rest)
        change()
        loaded = load_model(base)
        assert loaded.classes_.tolist() == model.classes_.tolist()
        np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), rtol=1e-10)
    assert model.classes_.tolist() == ["emmet", "bee", "dog"]


def test_a_model_fitted_without_growth_can_be_taught(
    run: Run, parts: dict[str, Path], base: Path, tmp_path: Path
) -> None:
    run("fit", parts["base"], "--out", tmp_path / "plain")
    run("add", tmp_path / "plain", parts["dog"])
    assert classes(tmp_path / "plain") == ["ant", "bee", "dog"]


def test_what_changed_is_said_to_people(run: Run, base: Path, parts: dict[str, Path]) -> None:
    result = run("add", base, parts["both"])
    assert result.stdout == ""
    assert "added cat, dog (examples: 4 each)\n" in result.stderr
    assert "4 classes now, 18 examples in memory" in result.stderr
    assert f" s; saved in {base}\n" in result.stderr
    assert "extended bee (examples: 3)" in run("add", base, parts["bee"], "--examples").stderr
    assert "renamed cat to lion" in run("rename", base, "cat", "lion").stderr
    assert "merged lion, dog into beast" in run("merge", base, "lion", "dog", "--into", "beast").stderr
    assert "taken back: merged lion, dog into beast\n4 classes now" in run("undo", base).stderr
    assert "removed dog\n3 classes now" in run("remove", base, "dog").stderr


def test_what_changed_is_said_to_machines(run: Run, base: Path, parts: dict[str, Path]) -> None:
    result = run("add", base, parts["both"], "--json")
    assert result.stderr == ""
    report = json.loads(result.stdout)
    assert report["model"] == str(base)
    change = report["change"]
    assert (change["what"], change["labels"], change["examples"]) == ("add_classes", ["cat", "dog"], [4, 4])
    assert report["classes"] == ["ant", "bee", "cat", "dog"]
    assert report["memory"]["examples"] == 18
    # nearly: equal arrays are stored once, so that a loaded model shares others than one that was changed
    assert report["memory"]["bytes"] == pytest.approx(load_model(base).memory_.nbytes, rel=0.01)
    assert report["seconds"] > 0
    back = json.loads(run("undo", base, "--json").stdout)
    assert back["taken_back"] == change
    assert "change" not in back
    assert back["classes"] == ["ant", "bee"]


def test_removing_a_base_class_warns(run: Run, grown: Path) -> None:
    result = run("remove", grown, "ant", "--json")
    assert result.stderr.startswith("warning: cut out of the base trees: 'ant'")
    assert json.loads(result.stdout)["classes"] == ["bee", "cat", "dog"]


def test_undo_gives_the_same_numbers(run: Run, base: Path, parts: dict[str, Path]) -> None:
    before = load_model(base).predict_proba(X)
    run("add", base, parts["both"])
    run("remove", base, "cat")
    run("undo", base)
    run("undo", base)
    np.testing.assert_array_equal(load_model(base).predict_proba(X), before)
    assert "nothing to undo" in complaint(run("undo", base, code=2))


def test_another_folder(run: Run, base: Path, parts: dict[str, Path], tmp_path: Path) -> None:
    before = content(base)
    result = run("add", base, parts["dog"], "--out", tmp_path / "new")
    assert f"saved in {tmp_path / 'new'}" in result.stderr
    assert content(base) == before
    assert classes(tmp_path / "new") == ["ant", "bee", "dog"]
    for taken in (tmp_path / "new", parts["dog"], base):
        assert "--out names a new folder" in complaint(run("undo", base, "--out", taken, code=2))


# ------------------------------------------------------------------------------------------------------------- history


def test_history(run: Run, grown: Path) -> None:
    run("rename", grown, "cat", "lion")
    document = json.loads(run("history", grown, "--json").stdout)["history"]
    assert [(e["number"], e["what"], e["labels"], e["examples"]) for e in document] == [
        (0, "fit", ["ant", "bee"], [12, 12]),
        (1, "add_classes", ["cat"], [5]),
        (2, "add_classes", ["dog"], [5]),
        (3, "rename_class", ["cat", "lion"], []),
    ]
    assert all(e["time"].endswith("+00:00") for e in document)
    lines = run("history", grown).stdout.splitlines()
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    times = [e["time"][:19].replace("T", " ") for e in document]
    assert shown == [
        ["0", times[0], "fitted", "ant, bee", "12 each"],
        ["1", times[1], "added", "cat", "5"],
        ["2", times[2], "added", "dog", "5"],
        ["3", times[3], "renamed", "cat to lion", ""],
    ]


# ---------------------------------------------------------------------------------------------------------- bad input


def test_labels_that_do_not_belong(run: Run, grown: Path, base: Path, parts: dict[str, Path]) -> None:
    before = content(grown)
    run("undo", grown, "--out", grown.with_name("cats"))
    cats = grown.with_name("cats")
    mixed = complaint(run("add", cats, parts["both"], code=2))
    assert "knows (cat) with new ones (dog)" in mixed
    assert "gptree add --examples" in mixed
    assert "(cat) with new ones (dog)" in complaint(run("add", cats, parts["both"], "--examples", code=2))
    assert "knows bee, cat already" in complaint(run("add", cats, parts["mixed"], code=2))
    assert "does not know dog: leave --examples out" in complaint(run("add", cats, parts["dog"], "--examples", code=2))
    assert "'cow' is unknown" in complaint(run("remove", grown, "cow", code=2))
    assert "'cow' is unknown" in complaint(run("rename", grown, "cow", "ox", code=2))
    assert "is taken" in complaint(run("rename", grown, "cat", "dog", code=2))
    assert "two different classes" in complaint(run("merge", grown, "cat", "--into", "pet", code=2))
    assert "at most one base class" in complaint(run("merge", grown, "ant", "bee", "--into", "insect", code=2))
    assert content(grown) == before


def test_usage_errors(run: Run, grown: Path, parts: dict[str, Path], tmp_path: Path) -> None:
    run("merge", grown, "cat", "dog", code=2)
    run("remove", grown, code=2)
    run("rename", grown, "cat", code=2)
    assert "gptree fit" in complaint(run("undo", tmp_path / "none", code=2))
    assert "no such file" in complaint(run("add", grown, tmp_path / "none.csv", code=2))
    np.savez(tmp_path / "narrow.npz", X=X[:, :3], y=Y)
    assert "3 features a row" in complaint(run("add", grown, tmp_path / "narrow.npz", code=2))
    np.savez(tmp_path / "unlabelled.npz", X=X)
    assert "no array 'y'" in complaint(run("add", grown, tmp_path / "unlabelled.npz", code=2))


# ------------------------------------------------------------------------------------------------- labels from strings


@pytest.fixture(scope="module")
def numbered(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose classes are −1 and 2, taught 10."""
    folder = tmp_path_factory.mktemp("numbered")
    np.savez(folder / "base.npz", X=X[:24], y=np.repeat([-1, 2], 12))
    np.savez(folder / "more.npz", X=X[24:29], y=np.repeat(10, 5))
    run("fit", folder / "base.npz", "--out", folder / "m")
    run("add", folder / "m", folder / "more.npz")
    return folder / "m"


def test_labels_are_what_the_classes_are(run: Run, numbered: Path, tmp_path: Path) -> None:
    run("rename", numbered, 10, 7, "--out", tmp_path / "a")
    assert classes(tmp_path / "a") == [-1, 2, 7]
    run("remove", "--out", tmp_path / "b", "--", numbered, -1)
    assert classes(tmp_path / "b") == [2, 10]
    run("merge", numbered, 2, 10, "--into", 2, "--out", tmp_path / "c")
    assert classes(tmp_path / "c") == [-1, 2]
    for label in ("cat", "007", "1e1", "10.0", "", "１０"):
        message = complaint(run("rename", numbered, 10, label, code=2))
        assert f"whole numbers, and '{label}' is none" in message
        assert classes(numbered) == [-1, 2, 10]


@pytest.mark.parametrize("kind", [str, float, np.uint8])
def test_labels_of_files_that_read_alike(run: Run, numbered: Path, tmp_path: Path, kind: Any) -> None:
    np.savez(tmp_path / "new.npz", X=X[36:41], y=np.repeat(5, 5).astype(kind))
    run("add", numbered, tmp_path / "new.npz", "--out", tmp_path / "m")
    assert classes(tmp_path / "m") == [-1, 2, 10, 5]


def test_labels_of_files_that_are_of_another_kind(run: Run, numbered: Path, base: Path, tmp_path: Path) -> None:
    for label in ("cow", 0.5):
        np.savez(tmp_path / "new.npz", X=X[36:41], y=np.repeat(label, 5))
        assert f"'{label}' is none" in complaint(run("add", numbered, tmp_path / "new.npz", code=2))
    np.savez(tmp_path / "new.npz", X=X[36:41], y=np.repeat(7, 5))
    run("add", base, tmp_path / "new.npz")
    assert classes(base) == ["ant", "bee", "7"]


def test_numbers_as_labels(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "base.npz", X=X[:24], y=np.repeat([1.0, 2.0], 12))
    run("fit", tmp_path / "base.npz", "--out", tmp_path / "m", "--trees", 1)
    run("rename", tmp_path / "m", "1", "3")
    assert classes(tmp_path / "m") == [3.0, 2.0]
    assert "numbers, and 'nan' is none" in complaint(run("rename", tmp_path / "m", 3, "nan", code=2))
    assert "numbers, and 'x' is none" in complaint(run("remove", tmp_path / "m", "x", code=2))


# ---------------------------------------------------------------------------------------------------------------- open


def test_none_of_these(run: Run, fitted: Path, parts: dict[str, Path], files: dict[str, Path]) -> None:
    strange = np.isin(Y, ["cat", "dog"])
    lines = run("predict", fitted, files["csv"], "--open").stdout.splitlines()[1:]
    answers, runners_up = ([line.split(",")[column] for line in lines] for column in (1, 3))
    refused = np.array([answer == "none of these" for answer in answers])
    model = load_model(fitted)
    assert answers == [str(label) for label in model.predict_open(X, unknown="none of these")]
    assert np.array(runners_up)[refused].tolist() == model.predict(X)[refused].tolist()
    assert refused[strange].mean() > refused[~strange].mean()
    none = json.loads(run("predict", fitted, files["csv"], "--open", "--reject", 0, "--json").stdout)["prediction"]
    all_ = json.loads(run("predict", fitted, files["csv"], "--open", "--reject", 0.5, "--json").stdout)["prediction"]
    assert none.count("none of these") <= refused.sum() <= all_.count("none of these")
    assert "--reject belongs to --open" in complaint(run("predict", fitted, files["csv"], "--reject", 0.1, code=2))


def test_answers_and_refusals_take_one_pass(
    run: Run, fitted: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, query = [], GPForestClassifier._query
    monkeypatch.setattr(GPForestClassifier, "_query", lambda self, X: (passes.append(len(X)), query(self, X))[1])
    run("predict", fitted, files["csv"], "--open", "--top", 2)
    assert passes == [len(X)]


def test_none_of_these_in_files(run: Run, numbered: Path, files: dict[str, Path], tmp_path: Path) -> None:
    options = ("--open", "--reject", 0.3, "--out", tmp_path / "p.npz")
    run("predict", numbered, files["npz"], *options)
    with np.load(tmp_path / "p.npz", allow_pickle=False) as arrays:
        assert set(arrays["prediction"]) <= {"-1", "2", "10", "none of these"}
        assert "none of these" in arrays["prediction"]
