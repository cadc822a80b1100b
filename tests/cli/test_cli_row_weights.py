"""`--row-weights`: how many times each row of DATA counts, in every format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from animals import COLUMNS, animals

from gptree import GPTreeClassifier, load_model
from gptree.cli.data import read_data

X, Y = animals()
WEIGHTS = np.resize([1.0, 2.0, 0.0, 0.5], len(Y))


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The animals and their weights; `npy_labels` and `npy_weights` belong to the .npy file."""
    folder = tmp_path_factory.mktemp("weighted")
    paths = {kind: folder / f"animals.{kind}" for kind in ("npz", "npy", "csv", "parquet")}
    paths |= {name: folder / f"{name}.npy" for name in ("npy_labels", "npy_weights")}
    np.savez(paths["npz"], X=X, y=Y, times=WEIGHTS)
    for name, values in (("npy", X), ("npy_labels", Y), ("npy_weights", WEIGHTS)):
        np.save(paths[name], values)
    frame = pandas.DataFrame(X, columns=list(COLUMNS)).assign(label=Y, times=WEIGHTS)
    frame.to_csv(paths["csv"], index=False)
    frame.to_parquet(paths["parquet"])
    return paths


@pytest.mark.parametrize("kind", ["npz", "npy", "csv", "parquet"])
def test_every_format_gives_the_weights(weighted: dict[str, Path], kind: str) -> None:
    pair = (str(weighted["npy_labels"]), str(weighted["npy_weights"])) if kind == "npy" else (None, "times")
    data = read_data(weighted[kind], labels=pair[0], row_weights=pair[1])
    np.testing.assert_allclose(data.X, X, rtol=1e-14)
    assert data.weights is not None
    np.testing.assert_array_equal(data.weights, WEIGHTS)
    assert data.columns == (COLUMNS if kind in ("csv", "parquet") else None)  # no feature


def test_fit_add_and_forget_count_rows_so(weighted: dict[str, Path], run: Any, tmp_path: Path) -> None:
    kinds = sorted(set(Y.tolist()))
    first, model = np.isin(Y, kinds[:2]), tmp_path / "model"
    ids = np.array([f"row {i}" for i in range(len(Y))])
    for name, rows in (("base", first), ("more", ~first)):
        np.savez(tmp_path / f"{name}.npz", X=X[rows], y=Y[rows], ids=ids[rows], times=WEIGHTS[rows])
    base, more = tmp_path / "base.npz", tmp_path / "more.npz"
    run("fit", base, "--out", model, "--trees", "1", "--row-weights", "times")
    run("add", model, more, "--row-weights", "times")
    expected = GPTreeClassifier(random_state=0).fit(X[first], Y[first], sample_weight=WEIGHTS[first])
    expected.add_classes(X[~first], Y[~first], sample_weight=WEIGHTS[~first])
    found: Any = load_model(model)
    assert np.array_equal(found.predict_proba(X), expected.predict_proba(X))
    gone = ids[first & (WEIGHTS > 0)][0]
    data = ("--data", base, "--data", more)
    assert "times when the model was fitted" in run("forget", model, gone, *data, code=2).stderr
    run("forget", model, gone, *data, "--row-weights", "times")
    stay = first & (ids != gone)
    expected = GPTreeClassifier(random_state=0).fit(X[stay], Y[stay], sample_weight=WEIGHTS[stay])
    expected.add_classes(X[~first], Y[~first], sample_weight=WEIGHTS[~first])
    assert np.array_equal(load_model(model).predict_proba(X), expected.predict_proba(X))


def test_bad_weights_say_what_is_wrong(weighted: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no column .often."):
        read_data(weighted["csv"], row_weights="often")
    with pytest.raises(ValueError, match=r"no array .often..*--row-weights"):
        read_data(weighted["npz"], row_weights="often")
    with pytest.raises(ValueError, match=r"--row-weights are numbers, one for each of"):
        read_data(weighted["npz"], row_weights="y")
    with pytest.raises(ValueError, match=r"there is no such file"):
        read_data(weighted["npy"], labels=str(weighted["npy_labels"]), row_weights="none.npy")
    (tmp_path / "texts.csv").write_text("text,label,times\na cat,cat,1\na dog,dog,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"pictures or texts, and --row-weights belong to vectors"):
        read_data(tmp_path / "texts.csv", row_weights="times")
