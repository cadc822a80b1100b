"""A training that was interrupted goes on to the same bits; checkpoints are whole, and belong to one training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from training_cases import Failing, Interrupted, digits, small_train, tensors_of, without_seconds

from gptree.deep import (
    Arrays,
    CrossEntropy,
    Milestones,
    RandomCrop,
    RandomFlip,
    Trained,
    VariationalTree,
    convnet,
    mlp,
    plot_curves,
    read_log,
)
from gptree.deep.loop import checkpoints
from gptree.storage import StorageError, read_folder, write_folder

X, Y = digits()
# 200 rows less 20 for validation are 5 steps an epoch. Batches asked for: 3 by checks, 6 by each of the 2 epochs before
# the head, 1 for the tree, 6 by each of the 2 epochs with the head.


def assert_same(one: Trained, other: Trained) -> None:
    first, second = tensors_of(one), tensors_of(other)
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different
    assert without_seconds(one.log) == without_seconds(other.log)
    assert one.best_epoch == other.best_epoch


def run(folder: Path | None, after: int | None = None, seed: int = 3, **how: object) -> Trained:
    """Everything that is random or remembered: augmentation, mixing, batch norms, momentum, two layers, best."""
    source = Arrays(X, augment=(RandomCrop(1), RandomFlip()))
    settings = {"objective": CrossEntropy(mixup=0.3), "objective_weight": 0.5, "best": "nll", **how}
    return small_train(
        convnet(1, width=4, depth=2, embedding=6),
        source if after is None else Failing(source, after),
        Y,
        how=settings,
        folder=folder,
        seed=seed,
    )


@pytest.fixture(scope="module")
def uninterrupted() -> Trained:
    return run(None)


@pytest.mark.parametrize(
    ("after", "checkpoint_steps"),
    [(3, None), (8, None), (16, None), (27, None), (14, 2), (20, 2)],
)
def test_resumed_is_the_same_to_the_bit(
    tmp_path: Path, uninterrupted: Trained, after: int, checkpoint_steps: int | None
) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, after=after, checkpoint_steps=checkpoint_steps)
    assert_same(run(tmp_path), uninterrupted)  # and how often checkpoints are taken may change


def test_interrupted_again_and_again(tmp_path: Path, uninterrupted: Trained) -> None:
    for _ in range(60):
        try:
            assert_same(run(tmp_path, after=7, checkpoint_steps=1), uninterrupted)
            return
        except Interrupted:
            pass
    pytest.fail("no end")


def test_finished_training_is_read_again(
    tmp_path: Path, uninterrupted: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "plot_curves", plot_curves)
    run(tmp_path)
    assert_same(run(tmp_path, after=4), uninterrupted)  # three batches are for checks, one for the ensemble
    assert without_seconds(read_log(tmp_path)) == without_seconds(uninterrupted.log)
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_softmax_training_resumes(tmp_path: Path) -> None:
    how = {"cross_entropy_epochs": 4, "schedule": Milestones((1, 3), 0.5), "best": "accuracy"}
    with pytest.raises(Interrupted):
        run(tmp_path, after=13, **how)
    assert_same(run(tmp_path, **how), run(None, **how))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"learning_rate": 0.04}, "learning_rate"),
        ({"objective": CrossEntropy(label_smoothing=0.1)}, "objective"),
        ({"epochs": 5}, "epochs"),
        ({"seed": 4}, "seed"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, change: dict, named: str) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, after=9)
    with pytest.raises(ValueError, match=named):
        run(tmp_path, **change)


def test_other_data_head_or_network_are_refused(tmp_path: Path) -> None:
    network, source = mlp(64, hidden=(8,), embedding=4, normalise=False), Arrays(X)
    before = {"how": {"epochs": 1, "cross_entropy_epochs": 1}, "folder": tmp_path}
    small_train(network, source, Y, **before)
    with pytest.raises(ValueError, match="training rows"):
        small_train(network, Arrays(X + 1), Y, **before)
    with pytest.raises(ValueError, match="training rows"):
        small_train(network, source, np.roll(Y, 1), **before)
    later = X.copy()
    later[60:] += 1
    with pytest.raises(ValueError, match="training rows"):
        small_train(network, Arrays(later), Y, **before)
    with pytest.raises(ValueError, match="kernel"):
        small_train(network, source, Y, kernel=ScaleKernel(RBFKernel()), **before)
    with pytest.raises(ValueError, match="augmentation"):
        small_train(network, Arrays(X, augment=(RandomFlip(),)), Y, **before)
    with pytest.raises(ValueError, match=r"head\.inducing"):
        small_train(network, source, Y, head=VariationalTree(inducing=4), **before)
    with pytest.raises(ValueError, match="network"):
        small_train(mlp(64, hidden=(8,), embedding=5, normalise=False), source, Y, **before)


def test_kernels_are_told_apart() -> None:
    """Though their hyper-parameters have the same names and values."""
    base = {"rbf": RBFKernel(), "matern": MaternKernel(nu=1.5), "rough": MaternKernel(nu=0.5)}
    found = [checkpoints._kernel_identity(ScaleKernel(kernel)) for kernel in (*base.values(), RBFKernel())]
    assert len(set(found[:3])) == 3
    assert found[3] == found[0]


def test_other_first_weights_are_told_and_the_training_goes_on(tmp_path: Path) -> None:
    before = {"how": {"epochs": 2, "cross_entropy_epochs": 2}, "folder": tmp_path}
    first, other = (mlp(64, hidden=(8,), embedding=4, seed=seed) for seed in (0, 1))
    with pytest.raises(Interrupted):
        small_train(first, Failing(Arrays(X), 9), Y, **before)
    with pytest.warns(RuntimeWarning, match="began with other weights"):
        found = small_train(other, Arrays(X), Y, **before)
    expected = small_train(first, Arrays(X), Y, how=before["how"])
    assert all(torch.equal(value, tensors_of(expected)[name]) for name, value in tensors_of(found).items())


class Fading:
    """A schedule of someone's own, which prints as its address."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def multiplier(self, epoch: float, epochs: int) -> float:
        return self.rate**epoch


def test_settings_of_your_own_are_known_again() -> None:
    assert (
        checkpoints.stable_repr(Fading(0.5))
        == checkpoints.stable_repr(Fading(0.5))
        != checkpoints.stable_repr(Fading(0.6))
    )
    assert checkpoints.stable_repr((Fading(0.5), RandomFlip())) == "(Fading(rate=0.5), RandomFlip(probability=0.5))"
    assert checkpoints.stable_repr(np.mean) == "numpy.mean"


def test_damage_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path, after=9)
    (arrays,) = (tmp_path / "last").glob("*.safetensors")
    content = bytearray(arrays.read_bytes())
    content[-1] ^= 1
    arrays.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        run(tmp_path)


@pytest.mark.parametrize(("name", "value"), [("point_class", 2**31), ("jitter", 0.0), ("jitter", -1.0)])
def test_numbers_that_no_tree_has_are_noticed(name: str, value: float, tmp_path: Path) -> None:
    run(tmp_path)
    document, tensors = read_folder(tmp_path / "last")
    tensors[f"layer.{name}"] = torch.full_like(tensors[f"layer.{name}"], value)
    own = {key: value for key, value in document.items() if key not in ("arrays", "sha256", "aliases")}
    write_folder(tmp_path / "last", own, tensors)
    with pytest.raises(StorageError, match=f"{name} holds"):
        run(tmp_path)


def test_no_code_is_stored(tmp_path: Path) -> None:
    run(tmp_path)
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {name.rsplit(".", 1)[1] for name in names} == {"json", "safetensors", "jsonl", "png"}
    document, tensors = read_folder(tmp_path / "last")
    assert document["epoch"] == 4
    assert any(name.startswith("momentum.layer.points") for name in tensors)
    json.dumps(document, allow_nan=False)
