"""Deep classifiers come back from disk as they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from deep_cases import NAMES, network, pictures, small, vector_network
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from sklearn.linear_model import LogisticRegression
from torch import nn

from gptree import DeepGPTreeClassifier, GPForestClassifier, GPTreeClassifier, Growth, load_model
from gptree.deep import (
    ColourJitter,
    Cosine,
    CosineMargin,
    Cutout,
    Milestones,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    VariationalTree,
)
from gptree.estimators import deep_storage
from gptree.storage import StorageError
from gptree.tree import BalancedTwoMeans
from small_sizes import small_random_features

PICTURES, Y = pictures()
X, DOUBLES = PICTURES, PICTURES.reshape(len(Y), -1) / 255.0


@pytest.mark.parametrize(
    "model",
    [
        small(),
        small(how={"cross_entropy_epochs": 4, "objective": CosineMargin(rotations=True)}),
        small(
            variational=VariationalTree(inducing=3, learn_kernel="per-node", cap=8), tree=BalancedTwoMeans(3), refit=2
        ),
        small(kernel=ScaleKernel(MaternKernel(nu=1.5)), how={"schedule": Milestones((2, 3))}),
        small(kernel="matern52", augment=[RandomCrop(1), RandomFlip(), RandomResizedCrop(), ColourJitter(), Cutout(2)]),
        small(vector_network().double(), variational=VariationalTree(inducing=3, dtype="float64"), predict_at="mean"),
        small(vector_network().double()),
        small(classifier=GPTreeClassifier(random_state=0), how={"schedule": Cosine(1.0), "validation": 2}),
    ],
    ids=["default", "softmax", "per-node", "kernel", "augment", "double", "single on double", "classifier"],
)
def test_round_trip(model: Any, tmp_path: Path) -> None:
    X = DOUBLES if model.backbone.recipe["name"] == "mlp" else PICTURES
    model.fit(X, Y).save(tmp_path / "model")
    loaded = DeepGPTreeClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_log_proba(X), model.predict_log_proba(X))
    assert np.array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))
    for name in ("classes_", "rows_", "log_", "best_epoch_"):
        assert np.array_equal(getattr(loaded, name), getattr(model, name)), name
    assert (loaded.state_.inputs, loaded.state_.seed) == (model.state_.inputs, model.state_.seed)
    ours = model.get_params(deep=False)
    same = set(ours) - {"backbone", "kernel", "classifier", "augment"}
    assert {name: loaded.get_params()[name] for name in same} == {name: ours[name] for name in same}
    assert loaded.augment == tuple(model.augment)
    again = loaded.fit(X, Y)  # a loaded estimator can be fitted again, and finds the same
    assert np.array_equal(again.predict_log_proba(X), model.predict_log_proba(X))


def test_a_grown_head_comes_back_and_goes_on(tmp_path: Path) -> None:
    both, labels = pictures(7, 280)
    base = np.isin(labels, NAMES[:5])
    later = np.concatenate([np.flatnonzero(labels == name)[:5] for name in NAMES[5:]])
    with small_random_features():
        model = small(classifier=GPForestClassifier(n_estimators=2, growth=Growth(), random_state=0)).fit(
            both[base], labels[base]
        )
        before = model.predict_log_proba(both)
        model.add_classes(both[later], labels[later]).save(tmp_path)
        loaded = load_model(tmp_path)
        assert loaded.classes_.tolist() == model.classes_.tolist()
        assert np.array_equal(loaded.predict_log_proba(both), model.predict_log_proba(both))
        assert loaded.classifier.growth == Growth()
        assert not hasattr(loaded.classifier, "classes_")
        assert np.array_equal(loaded.undo().predict_log_proba(both), before)
        loaded.save(tmp_path)
    assert np.array_equal(load_model(tmp_path).predict_log_proba(both), before)
    assert len(list(tmp_path.iterdir())) == 3  # document, arrays, one head
    shutil.rmtree(next(tmp_path.glob("classifier-*")))
    with pytest.raises(StorageError, match="holds no gptree model"):
        load_model(tmp_path)


def test_an_interrupted_save_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = (small(random_state=seed, classifier=GPTreeClassifier(random_state=0)).fit(X, Y) for seed in (0, 1))
    old.save(tmp_path)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deep_storage, "write_folder", interrupt)  # the new head is written by then
        with pytest.raises(KeyboardInterrupt):
            new.save(tmp_path)
    assert np.array_equal(load_model(tmp_path).predict_log_proba(X), old.predict_log_proba(X))
    new.save(tmp_path)
    assert np.array_equal(load_model(tmp_path).predict_log_proba(X), new.predict_log_proba(X))
    assert len(list(tmp_path.iterdir())) == 3
    small().fit(X, Y).save(tmp_path)  # without a head
    assert len(list(tmp_path.iterdir())) == 2


def test_a_first_save_that_is_interrupted_can_be_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(classifier=GPTreeClassifier(random_state=0)).fit(X, Y)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(GPTreeClassifier, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            model.save(tmp_path)
    with pytest.raises(StorageError, match="unfinished"):
        load_model(tmp_path)
    model.save(tmp_path)
    assert np.array_equal(load_model(tmp_path).predict(X), model.predict(X))


# -------------------------------------------------------------------------------------------------------- networks


class Own(nn.Module):
    """A network that only its author's code can make."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(64, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.flatten(1)).tanh()


def test_a_network_of_your_own_is_given_to_load(tmp_path: Path) -> None:
    model = small(Own()).fit(X, Y)
    model.save(tmp_path)
    with pytest.raises(StorageError, match=r"Own, which only your own code can make.*backbone=…"):
        DeepGPTreeClassifier.load(tmp_path)
    given = Own()
    before = given.layer.weight.clone()
    loaded = DeepGPTreeClassifier.load(tmp_path, given)
    assert np.array_equal(loaded.predict_log_proba(X), model.predict_log_proba(X))
    assert np.array_equal(load_model(tmp_path, backbone=Own()).predict(X), model.predict(X))
    assert loaded.backbone is given
    assert torch.equal(given.layer.weight, before)
    with pytest.raises(StorageError, match=r"layer\.bias is \(7,\) in the backbone and \(6,\) in the file"):
        DeepGPTreeClassifier.load(tmp_path, Own(7))
    with pytest.raises(StorageError, match=r"the file has no embedding\.bias.*and \d+ more"):
        DeepGPTreeClassifier.load(tmp_path, network())
    with pytest.raises(StorageError, match=r"the backbone has no layer\.bias"):
        DeepGPTreeClassifier.load(tmp_path, nn.Flatten())


def test_a_changed_network_is_not_rebuilt_from_its_recipe(tmp_path: Path) -> None:
    backbone = network()
    backbone.layers[2] = nn.GELU()  # pyright: ignore[reportIndexIssue]
    small(backbone).fit(X, Y).save(tmp_path)
    with pytest.raises(StorageError, match="backbone=…"):
        load_model(tmp_path)
    assert load_model(tmp_path, backbone=backbone).score(X, Y) > 0.2


def test_weights_that_training_began_with_come_back(tmp_path: Path) -> None:
    backbone = network()
    backbone.load_state_dict(network(seed=5).state_dict())  # as weights trained elsewhere would be
    model = small(backbone).fit(X, Y)
    model.save(tmp_path)
    begun = load_model(tmp_path).backbone.state_dict()
    assert all(torch.equal(value, begun[name]) for name, value in backbone.state_dict().items())


def test_a_kernel_of_your_own_is_given_to_load(tmp_path: Path) -> None:
    class Mine(RBFKernel):
        pass

    def kernel() -> Kernel:
        return ScaleKernel(Mine())

    model = small(kernel=kernel()).fit(X, Y)
    model.save(tmp_path)
    with pytest.raises(StorageError, match="kernel=…"):
        load_model(tmp_path)
    assert np.array_equal(load_model(tmp_path, kernel=kernel()).predict_log_proba(X), model.predict_log_proba(X))


def test_the_fitted_settings_of_the_layer_are_stored_not_later_ones(tmp_path: Path) -> None:
    model = small().fit(X, Y)
    model.set_params(variational__cap=9, variational__dtype="float64", kernel=ScaleKernel(MaternKernel(nu=0.5)))
    model.save(tmp_path)
    assert np.array_equal(load_model(tmp_path).predict_log_proba(X), model.predict_log_proba(X))


# -------------------------------------------------------------------------------------------------------- bad input


def test_what_cannot_be_stored_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    class Mirror:
        columns = 0

        def __call__(self, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
            return x.flip(3)

    model = small(augment=(Mirror(),)).fit(X, Y)
    with pytest.raises(StorageError, match=r"augment.*set_params\(augment=…\)"):
        model.save(tmp_path / "model")
    for classifier, match in (
        (LogisticRegression(), "classifier"),
        (GPTreeClassifier(prior_mean=lambda x: x[:, :5]), "prior_mean"),
    ):
        with pytest.raises(StorageError, match=match):
            small(classifier=classifier).fit(X, Y).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    model.set_params(augment=()).save(tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").predict(X), model.predict(X))


def test_other_folders_are_refused(tmp_path: Path) -> None:
    GPTreeClassifier(random_state=0).fit(DOUBLES, Y).save(tmp_path / "tree")
    with pytest.raises(StorageError, match="holds a GPTreeClassifier; this call loads DeepGPTreeClassifier"):
        DeepGPTreeClassifier.load(tmp_path / "tree")
    with pytest.raises(ValueError, match="needs no backbone"):
        load_model(tmp_path / "tree", backbone=network())
    with pytest.raises(StorageError, match="holds no gptree model"):
        load_model(tmp_path)
    small(vector_network()).fit(DOUBLES, Y).save(tmp_path / "deep")
    with pytest.raises(StorageError, match="holds a DeepGPTreeClassifier"):
        GPTreeClassifier.load(tmp_path / "deep")
    with pytest.raises(ValueError, match="device must be"):
        load_model(tmp_path / "deep", device="tpu")
    arrays = next((tmp_path / "deep").glob("*.safetensors"))
    content = arrays.read_bytes()
    arrays.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StorageError, match="damaged"):
        load_model(tmp_path / "deep")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    small().fit(X, Y).save(tmp_path)
    with pytest.raises(ValueError, match='device="cpu"'):
        load_model(tmp_path, device="cuda")


def test_a_network_may_call_its_parameters_as_it_likes(tmp_path: Path) -> None:
    class Prefixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.prefix = torch.nn.Parameter(torch.ones(1))
            self.rest = torch.nn.Flatten()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.prefix * self.rest(x)

    model = small(Prefixed()).fit(PICTURES, Y)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model", backbone=Prefixed())
    assert np.array_equal(loaded.predict_log_proba(PICTURES), model.predict_log_proba(PICTURES))
