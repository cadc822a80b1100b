"""Settings of one's own, and parameters inside parameters: changed by copies, stored by name, refused in words."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpytorch.kernels import RBFKernel
from sklearn.linear_model import LogisticRegression

from gptree import GPForestClassifier, GPTreeClassifier, Growth, SphereMap, load_model
from gptree.experts import SklearnExpert
from gptree.incremental import Graft
from gptree.storage import StorageError
from gptree.tree import TwoMeans

X = np.random.default_rng(0).normal(size=(40, 5)) + 3 * np.eye(5)[np.arange(40) % 4]
Y = np.arange(40) % 4


@dataclass(frozen=True)
class PairedTwoMeans(TwoMeans):
    """A builder with a nested sequence, which files give back as it was."""

    name = None
    pairs: tuple[tuple[int, int], ...] = ((1, 2), (3, 4))
    kernel: Any = None


def test_a_value_given_by_name_can_be_searched() -> None:
    model = GPForestClassifier(tree="two-means", inference="gibbs", prior_mean="lda")
    model.set_params(tree__restarts=3, inference__chains=2, prior_mean__count_weight=0.5)
    assert model.tree == TwoMeans(restarts=3)
    assert (model.inference.chains, model.prior_mean.count_weight) == (2, 0.5)
    assert Growth(strategy="graft").strategy == Graft()  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"tree is None, which has no settings \['restarts'\]: give tree a value"):
        GPForestClassifier().set_params(tree__restarts=3)
    with pytest.raises(ValueError, match=r"Unknown tree builder 'oak'.*import the module"):
        GPForestClassifier(tree="oak").set_params(tree__restarts=3)


def test_an_estimator_inside_settings_is_copied() -> None:
    expert = SklearnExpert(LogisticRegression())
    model = GPTreeClassifier(prior_mean=expert).set_params(prior_mean__estimator__C=3.0)
    assert model.prior_mean.estimator.C == 3.0
    assert expert.estimator.C == 1.0
    assert model.get_params()["prior_mean__estimator__C"] == 3.0


def test_nested_sequences_come_back_as_tuples(tmp_path: Path) -> None:
    model = GPTreeClassifier(tree=PairedTwoMeans(), random_state=0).fit(X, Y)
    model.save(tmp_path)
    assert load_model(tmp_path).tree == PairedTwoMeans()
    assert hash(load_model(tmp_path, settings=[PairedTwoMeans]).tree) == hash(PairedTwoMeans())
    for wrong in (PairedTwoMeans, [PairedTwoMeans()]):
        with pytest.raises(TypeError, match="settings is a list of classes"):
            load_model(tmp_path, settings=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="kernel must be a GPyTorch kernel"):
        load_model(tmp_path, kernel="rbf")  # pyright: ignore[reportArgumentType]


def test_what_a_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    class Mirrored(SphereMap):
        def _map(self, X: np.ndarray) -> np.ndarray:
            return -super()._map(X)

    def refused(words: str, **parameters: Any) -> None:
        with pytest.raises(StorageError, match=words):
            GPTreeClassifier(random_state=0, **parameters).fit(X, Y).save(tmp_path / "model")
        assert not (tmp_path / "model").exists()

    refused("Pipeline", feature_map=Mirrored())
    refused("the parameter tree holds", tree=PairedTwoMeans(kernel=RBFKernel()))
    old = PairedTwoMeans()
    again = dataclass(frozen=True)(type("PairedTwoMeans", (TwoMeans,), {"__module__": __name__, "name": None}))
    assert again is not PairedTwoMeans
    try:
        refused("PairedTwoMeans was defined again since", tree=old)
    finally:
        type(old)._kinds["PairedTwoMeans"] = PairedTwoMeans


def test_predict_at_is_checked_when_it_is_used() -> None:
    model = GPTreeClassifier(random_state=0).fit(X, Y).set_params(predict_at="median")
    with pytest.raises(ValueError, match="predict_at must be"):
        model.predict(X)


def test_a_copy_of_a_deep_classifier_grows_alone(tmp_path: Path) -> None:
    """And one of version 2 that is saved again leaves nothing of the old version in its folder."""
    shutil.copytree(Path(__file__).parents[1] / "saved_models" / "v2" / "deep_growth", tmp_path / "saved")
    expected = np.load(tmp_path / "saved" / "expected.npz")
    model = load_model(tmp_path / "saved" / "model")
    before = model.predict_log_proba(expected["X"])
    other = copy.copy(model)
    other.undo()
    assert len(other.journal_) == len(model.journal_) - 1
    assert np.array_equal(model.predict_log_proba(expected["X"]), before)
    model.save(tmp_path / "saved" / "model")
    names = {path.name.split("-")[0] for path in (tmp_path / "saved" / "model").iterdir()}
    assert names == {"model.json", "arrays", "classifier"}
    assert np.array_equal(load_model(tmp_path / "saved" / "model").predict_log_proba(expected["X"]), before)
