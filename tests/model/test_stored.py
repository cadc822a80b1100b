"""Folders: what was written is read back bit for bit, or an error says what is wrong with the folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from forest_cases import BUDGET, FIRST, SECOND, data, fit, kernel, new_points
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from gpytorch.priors import GammaPrior

from gptree.inference import CoordinateAscent, Gibbs, InducingPoints, LearnKernel
from gptree.maths import as_kernel, gram
from gptree.model import ForestModel
from gptree.model.stored import model_from_parts, model_to_parts
from gptree.storage import (
    DOCUMENT,
    StorageError,
    kernel_from_parts,
    kernel_to_parts,
    read_folder,
    write_folder,
)
from gptree.storage.folder import VERSION
from gptree.tree import ClassTree

CPU = torch.device("cpu")


def save(model: ForestModel, folder: Path, **document) -> None:
    parts, tensors = model_to_parts(model)
    write_folder(folder, {**parts, **document}, tensors)


def load(folder: Path, kernel: Kernel | None = None) -> ForestModel:
    return model_from_parts(*read_folder(folder), CPU, kernel)


def assert_same_model(a: ForestModel, b: ForestModel) -> None:
    """Equal to the last bit: structure, diagnostics and predictions."""
    assert a.trees == b.trees
    assert a.memory_budget == b.memory_budget
    assert all(torch.equal(x, y) for x, y in zip(a.node_of, b.node_of, strict=True))
    for one, other in zip(a.predictor.posteriors, b.predictor.posteriors, strict=True):
        assert one.kind == other.kind
        for name, value in vars(one).items():
            again = getattr(other, name)
            assert value is again is None or torch.equal(value, again)
    for name, value in vars(a.diagnostics).items():
        other = getattr(b.diagnostics, name)
        assert value is other is None or torch.equal(value, other)
    for predict_at in ("mean", "quadrature"):
        assert torch.equal(
            a.log_probabilities(new_points(), None, predict_at), b.log_probabilities(new_points(), None, predict_at)
        )


def different_rbf(**arguments) -> Kernel:
    k = RBFKernel(ard_num_dims=4, **arguments)
    k.lengthscale = torch.tensor([0.5, 1.0, 2.0, 3.0])
    return k


KERNELS = {
    "rbf": lambda: kernel(),
    "linear": lambda: kernel("linear"),
    "matern": lambda: ScaleKernel(MaternKernel(nu=1.5)),
    "ard": lambda: ScaleKernel(different_rbf()),
    "rational quadratic": lambda: ScaleKernel(RQKernel(ard_num_dims=4)),
    "periodic": lambda: ScaleKernel(PeriodicKernel()),
    "polynomial": lambda: ScaleKernel(PolynomialKernel(power=3)),
    "nested": lambda: ScaleKernel(
        AdditiveKernel(
            ProductKernel(different_rbf(), LinearKernel(ard_num_dims=4)), ScaleKernel(MaternKernel()), ConstantKernel()
        )
    ),
}


# --------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_comes_back(name: str, tmp_path: Path) -> None:
    k = as_kernel(KERNELS[name](), torch.float64, CPU)
    with torch.no_grad():
        for p in k.parameters():
            p += 0.123456789
    model = fit(CoordinateAscent(), k=k)
    save(model, tmp_path)
    assert_same_model(load(tmp_path), model)


@pytest.mark.parametrize(
    ("name", "inference", "large_nodes"),
    [
        ("rbf", Gibbs(chains=3, steps=4, keep=2), None),
        ("linear", Gibbs(chains=2), None),
        ("rbf", CoordinateAscent(), InducingPoints(11)),
        ("linear", CoordinateAscent(), InducingPoints(25)),
        ("rbf", CoordinateAscent(learn=LearnKernel(steps=2)), None),
        ("nested", CoordinateAscent(learn=LearnKernel(steps=2, per_node=True)), InducingPoints(11)),
    ],
)
def test_every_posterior_comes_back(name: str, inference, large_nodes, tmp_path: Path) -> None:
    k = as_kernel(KERNELS[name](), torch.float64, CPU)
    model = fit(inference, (FIRST, SECOND), data(weights=True, scores=True), k, large_nodes=large_nodes)
    save(model, tmp_path)
    assert_same_model(load(tmp_path), model)


def test_a_kernel_comes_back_by_itself() -> None:
    """One that is positive definite in one dimension only."""
    k = ScaleKernel(CosineKernel())
    k.base_kernel.period_length = 2.5
    document, tensors = kernel_to_parts(k, "k")
    again = kernel_from_parts(json.loads(json.dumps(document)), tensors, "k", None, torch.float32)
    x = new_points().float()
    assert torch.equal(gram(again, x), gram(k, x))


def test_the_round_trips_cover_all_kinds() -> None:
    model = fit(CoordinateAscent(), k=kernel("linear"), large_nodes=InducingPoints(25))
    assert {p.kind for p in model.predictor.posteriors} == {"sites", "linear"}
    assert {p.kind for p in fit(CoordinateAscent(), large_nodes=InducingPoints(11)).predictor.posteriors} == {
        "sites",
        "dense",
    }


def test_kept_factors_are_not_stored(tmp_path: Path) -> None:
    model = fit(Gibbs(chains=4))
    expected = model.log_probabilities(new_points(), None, "quadrature")
    assert all(factors is not None for factors in model.predictor._factors)
    save(model, tmp_path / "kept")
    save(fit(Gibbs(chains=4)), tmp_path / "not kept")
    sizes = [sum(file.stat().st_size for file in (tmp_path / name).iterdir()) for name in ("kept", "not kept")]
    assert sizes[0] == sizes[1]
    again = load(tmp_path / "kept").log_probabilities(new_points(), None, "quadrature")
    torch.testing.assert_close(again, expected, rtol=1e-12, atol=1e-12)


def test_one_class_and_single_precision(tmp_path: Path) -> None:
    lonely = fit(CoordinateAscent(), (ClassTree.from_preorder([0]),), type(data())(new_points(), 0 * data().y[:6], [1]))
    save(lonely, tmp_path / "one")
    assert load(tmp_path / "one").log_probabilities(new_points()).shape == (6, 1)

    d = data()
    single = type(d)(d.X.float(), d.y, d.labels)
    model = fit(CoordinateAscent(), with_data=single, k=as_kernel(kernel(), torch.float32, CPU))
    save(model, tmp_path / "single")
    again = load(tmp_path / "single")
    x = new_points().float()
    assert again.log_probabilities(x).dtype == torch.float32
    assert torch.equal(again.log_probabilities(x), model.log_probabilities(x))


def test_a_document_of_the_caller_s_comes_back(tmp_path: Path) -> None:
    save(fit(CoordinateAscent()), tmp_path, names=["Ä", "ß"], scale=0.1)
    document, _ = read_folder(tmp_path)
    assert document["names"] == ["Ä", "ß"]
    assert document["scale"] == 0.1


# ------------------------------------------------------------------------------------------------ kernels of one's own


class Mine(RBFKernel):
    """A kernel that only this file can make."""


def tied() -> Kernel:
    base = RBFKernel()
    return AdditiveKernel(ScaleKernel(base), ScaleKernel(base))


OWN = {
    "own class": lambda: ScaleKernel(Mine()),
    "some columns": lambda: ScaleKernel(RBFKernel(active_dims=(0, 2))),
    "interval": lambda: ScaleKernel(RBFKernel(lengthscale_constraint=Interval(0.1, 5.0))),
    "greater than": lambda: ScaleKernel(RBFKernel(lengthscale_constraint=GreaterThan(0.5))),
    "own transform": lambda: ScaleKernel(
        RBFKernel(), outputscale_constraint=GreaterThan(0.0, transform=torch.exp, inv_transform=torch.log)
    ),
    "prior": lambda: ScaleKernel(RBFKernel(lengthscale_prior=GammaPrior(2.0, 1.0))),
    "tied": tied,
}


@pytest.mark.parametrize("name", OWN)
def test_a_kernel_that_only_its_author_can_make_is_asked_for(name: str, tmp_path: Path) -> None:
    """Never a wrong number: a kernel whose constraints or structure cannot be stored must be given."""
    k = as_kernel(OWN[name](), torch.float64, CPU)
    with torch.no_grad():
        for p in k.parameters():
            p += 0.3
    model = fit(CoordinateAscent(), k=k)
    save(model, tmp_path)
    with pytest.raises(
        StorageError, match=r"only your own code can make: pass one like it, load_model\(folder, kernel=…\)"
    ):
        load(tmp_path)
    given = OWN[name]()
    before = {key: value.clone() for key, value in given.state_dict().items()}
    assert_same_model(load(tmp_path, given), model)
    assert all(torch.equal(value, before[key]) for key, value in given.state_dict().items())


def test_a_kernel_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    save(fit(CoordinateAscent(), k=as_kernel(ScaleKernel(Mine()), torch.float64, CPU)), tmp_path)
    for other in (RBFKernel(), ScaleKernel(RBFKernel(ard_num_dims=4)), ScaleKernel(PeriodicKernel())):
        with pytest.raises(StorageError, match="does not fit the stored one"):
            load(tmp_path, other)


# ------------------------------------------------------------------------------------------------ damaged and foreign


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(fit(CoordinateAscent()), tmp_path / "model")
    return tmp_path / "model"


def arrays_of(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


def test_a_folder_holds_two_files(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == sorted([arrays_of(folder).name, DOCUMENT])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_truncated_files(folder: Path, share: float) -> None:
    for path in (arrays_of(folder), folder / DOCUMENT):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(StorageError, match="damaged"):
            load(folder)
        path.write_bytes(content)
    load(folder)


def test_any_flipped_byte_is_noticed(folder: Path) -> None:
    for path, count in ((arrays_of(folder), 20), (folder / DOCUMENT, 120)):
        content = path.read_bytes()
        for k in range(count):
            at = k * (len(content) - 1) // (count - 1)
            if content[at : at + 1].isspace():  # layout between JSON tokens carries nothing
                continue
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
            with pytest.raises(StorageError):
                load(folder)
        path.write_bytes(content)
    load(folder)


def test_missing_files(folder: Path) -> None:
    arrays_of(folder).unlink()
    with pytest.raises(StorageError, match=r"arrays-\w+\.safetensors is missing"):
        load(folder)
    (folder / DOCUMENT).unlink()
    with pytest.raises(StorageError, match=r"holds no gptree model: there is no model\.json"):
        load(folder)
    with pytest.raises(StorageError, match="holds no gptree model"):
        load(folder / "nowhere")


@pytest.mark.parametrize("content", ["[]", "{}", '{"format": "other", "version": 1}', "3"])
def test_foreign_documents(tmp_path: Path, content: str) -> None:
    (tmp_path / DOCUMENT).write_text(content)
    with pytest.raises(StorageError, match="was not written by gptree"):
        load(tmp_path)


def test_other_versions(tmp_path: Path) -> None:
    """What a newer gptree writes may differ in everything but format and version."""
    (tmp_path / DOCUMENT).write_text(json.dumps({"format": "gptree", "version": VERSION + 1}))
    with pytest.raises(
        StorageError, match=f"version {VERSION + 1}; this gptree reads versions 2 to {VERSION}.*install a newer"
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    "name", ["features", "node_of.0", "posterior.0.weights", "posterior.0.omega", "kernel.raw_outputscale"]
)
def test_missing_arrays(tmp_path: Path, name: str) -> None:
    document, tensors = model_to_parts(fit(CoordinateAscent()))
    del tensors[name]
    write_folder(tmp_path, document, tensors)
    with pytest.raises(StorageError):
        load(tmp_path)


@pytest.mark.parametrize("name", ["trees", "posteriors", "kernel", "memory_budget"])
def test_missing_entries(tmp_path: Path, name: str) -> None:
    document, tensors = model_to_parts(fit(CoordinateAscent()))
    del document[name]
    write_folder(tmp_path, document, tensors)
    with pytest.raises(StorageError, match="incomplete or damaged"):
        load(tmp_path)


def test_arrays_outside_the_folder_are_never_read(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / arrays_of(folder).name
    arrays_of(folder).rename(outside)
    with pytest.raises(StorageError, match="missing"):
        load(folder)


# ------------------------------------------------------------------------------------------------------- writing


def test_a_new_model_replaces_the_old_one(folder: Path) -> None:
    model = fit(Gibbs(chains=2))
    save(model, folder)
    assert_same_model(load(folder), model)
    assert len(list(folder.iterdir())) == 2
    save(model, folder)  # the same again
    assert_same_model(load(folder), model)


def interrupt(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """os.replace fails at its call-th call, as if the machine had stopped there."""
    calls, real = [], os.replace

    def replace(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise OSError("stopped")
        real(*arguments)

    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("call", [1, 2])
def test_an_interrupted_write_leaves_the_previous_model(
    folder: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load(folder)
    with monkeypatch.context() as patch:
        interrupt(patch, call)
        with pytest.raises(OSError, match="stopped"):
            save(fit(Gibbs(chains=2)), folder)
    assert_same_model(load(folder), before)
    newer = fit(Gibbs(chains=3))
    save(newer, folder)
    assert_same_model(load(folder), newer)
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("call", [1, 2])
def test_an_interrupted_first_write_can_be_repeated(tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fit(CoordinateAscent())
    with monkeypatch.context() as patch:
        interrupt(patch, call)
        with pytest.raises(OSError, match="stopped"):
            save(model, tmp_path)
    with pytest.raises(StorageError, match="holds no gptree model"):
        load(tmp_path)
    save(model, tmp_path)
    assert_same_model(load(tmp_path), model)
    assert len(list(tmp_path.iterdir())) == 2


def test_what_a_killed_writer_left_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / ".arrays-123.tmp").write_bytes(b"half")
    (tmp_path / f".{DOCUMENT}-123.tmp").write_bytes(b"half")
    model = fit(CoordinateAscent())
    save(model, tmp_path)
    assert_same_model(load(tmp_path), model)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["thesis.tex", DOCUMENT])
def test_folders_with_other_files_are_not_written_into(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"mine": true}')
    with pytest.raises(StorageError, match="holds other files: save a model into an empty or a new folder"):
        save(fit(CoordinateAscent()), tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == '{"mine": true}'


def test_notes_beside_a_model_survive(folder: Path) -> None:
    (folder / "README.md").write_text("notes")
    save(fit(Gibbs(chains=2)), folder)
    assert (folder / "README.md").read_text() == "notes"
    assert load(folder).memory_budget == BUDGET
