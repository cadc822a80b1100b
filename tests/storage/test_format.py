"""Folders whose checksums were computed anew: what is not as docs/format.md says raises a `StorageError` at once."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

from gptree import GPTreeClassifier, load_model
from gptree.storage import StorageError

MODELS = Path(__file__).parents[1] / "saved_models" / "v2"
Edit = Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]


def edited(name: str, folder: Path, edit: Edit) -> Path:
    """A copy of a saved model with changes, and checksums that fit them."""
    shutil.copytree(MODELS / name / "model", folder)
    document = json.loads((folder / "model.json").read_text())
    tensors = load_file(folder / document["arrays"])
    edit(document, tensors)
    content = save(tensors)
    document["sha256"] = hashlib.sha256(content).hexdigest()
    (folder / document["arrays"]).write_bytes(content)
    document.pop("checksum")
    document["checksum"] = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(document))
    return folder


def deeper(document: dict[str, Any]) -> None:
    for _ in range(20):
        kernel = document["kernel"]["structure"]
        document["kernel"]["structure"] = {"name": "ScaleKernel", "arguments": {}, "children": [kernel]}


def put(key: str, value: float) -> Edit:
    return lambda _, tensors: tensors[key].reshape(-1).__setitem__(0, value)


def keep(key: str, count: int) -> Edit:
    return lambda _, tensors: tensors.__setitem__(key, tensors[key][:count].clone())


def say(value: Any, *path: Any) -> Edit:
    def edit(document: dict[str, Any], _: Any) -> None:
        for key in path[:-1]:
            document = document[key]
        document[path[-1]] = value

    return edit


REFUSED: list[tuple[str, Edit, str]] = [
    # nodes, rows and numbers
    ("forest", put("posterior.0.nodes", -2), "less than 0"),
    ("forest", put("posterior.0.nodes", 1), "every node once"),
    ("forest", put("posterior.0.rows", 10**9), "but there are 24"),
    ("forest", put("posterior.0.weights", float("nan")), "which no model has"),
    ("forest", put("posterior.0.omega", -1.0), "less than 0"),
    ("forest", put("node_of.0", 10**6), "but there are"),
    ("zero_mean", put("features", 50.0), "length"),
    ("zero_mean", keep("y", 3), "has the size 3 where N is 24"),
    ("zero_mean", lambda _, tensors: tensors["y"].fill_(0), "lacks examples of a class"),
    ("forest", put("experts.experts.0.means", float("inf")), "which no model has"),
    ("forest", put("experts.weights", -1.0), "less than 0"),
    ("forest", lambda _, tensors: tensors.pop("experts.experts.1.weights"), "missing"),
    ("inducing_points", lambda _, t: t["posterior.0.precision"].mul_(-1), "positive semi-definite"),
    ("sphere_single", lambda _, t: t.__setitem__("features", t["features"].half()), "torch.float16"),
    # labels
    ("forest", lambda d, _: d["classes"]["values"].pop(), "C is 5"),
    ("forest", say(["a"] * 6, "classes", "values"), "a label twice"),
    ("forest", say("<U200000000", "classes", "dtype"), "longest has 8 letters"),
    ("forest", say("object_", "classes", "dtype"), "labels cannot have"),
    ("labels_int", say([0, 1, 2, 3, 4, True], "classes", "values"), "a label twice|not of the dtype"),
    # kernels and settings
    ("forest", lambda d, _: deeper(d), "nested more than 6 deep"),
    (
        "forest",
        say({"ard_num_dims": 10**10}, "kernel", "structure", "children", 0, "arguments"),
        "10000000000 features",
    ),
    ("forest", put("kernel.raw_outputscale", float("nan")), "not finite"),
    ("forest", put("kernel.raw_outputscale", -1e4), "which no kernel can use"),
    ("forest", say([10**12], "kernel", "sets"), "hyper-parameters for"),
    ("forest", say([], "aliases"), "no table of names"),
    ("forest", say("meta", "parameters", "device"), "device is 'meta'"),
    ("forest", say("both", "parameters", "predict_at"), "predict_at"),
    ("forest", say("many", "parameters", "n_trees"), "n_estimators of a stored GPForestClassifier"),
    ("gibbs_experts", say("many", "parameters", "inference", "chains"), "chains"),
    ("forest", say("../elsewhere", "arrays"), "no name of a file"),
    # journal, base session and memory
    ("growth_tree", say(77, "journal", 1, "labels", 0), "not those that the journal leaves"),
    ("growth_tree", lambda d, _: d["journal"].pop(), "journal|labels"),
    ("growth_tree", put("base.exemplars", 1), "twice|class after class"),
    ("growth_tree", put("base.novelty.values", 7.0), "more than"),
    ("growth_tree", put("journal.1.features", 0.5), "features are not those"),
    ("growth_tree", put("grown.rows", 1), "twice|memory"),
    ("growth_tree", say(None, "base"), "lacks its base session"),
    ("growth_tree", put("base.newcomers.novel_weights", float("nan")), "which no model has"),
    # networks
    ("deep", say([20000, 20000], "network", "recipe", "hidden"), "asks for more than"),
    ("deep", say(10**9, "network", "recipe", "features"), "asks for more than"),
    ("deep", put("network.layers.1.running_var", -1.0), "negative variances"),
    ("deep", put("vote.layers.0.precision_0", -5.0), "positive semi-definite"),
    ("deep", put("vote.weights", float("nan")), "which no model has"),
    ("deep", say([10**6, 10**6], "inputs", "shape"), "inputs have the shape"),
    ("deep_forest", say("../elsewhere", "head"), "no name of a file"),
]


@pytest.mark.parametrize(("name", "edit", "match"), REFUSED, ids=[f"{k}-{row[0]}" for k, row in enumerate(REFUSED)])
def test_what_the_format_does_not_allow_is_refused(name: str, edit: Edit, match: str, tmp_path: Path) -> None:
    folder = edited(name, tmp_path / "model", edit)
    started = time.process_time()
    with pytest.raises(StorageError, match=match):
        load_model(folder, device="cpu")
    assert time.process_time() - started < 5  # a hang takes minutes


def test_the_copies_are_sound_but_for_the_changes(tmp_path: Path) -> None:
    for name in sorted({row[0] for row in REFUSED}):
        load_model(edited(name, tmp_path / name, lambda *_: None), device="cpu")


def test_deep_nesting_and_numbers_that_json_does_not_have(tmp_path: Path) -> None:
    folder = edited("tree", tmp_path / "model", lambda *_: None)
    for text in ("[" * 100_000 + "]" * 100_000, '{"format": NaN}', '{"format": ' + "9" * 10_000 + "}", "\xff", ""):
        (folder / "model.json").write_text(text, encoding="latin-1")
        with pytest.raises(StorageError, match="damaged"):
            load_model(folder)


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = edited("deep_forest", tmp_path / "model", lambda *_: None)
    inner = next(folder.glob("head-*"))
    inner.rename(tmp_path / "elsewhere")
    inner.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="is a link"):
        load_model(folder)
    inner.unlink()
    (tmp_path / "elsewhere").rename(inner)
    load_model(folder, device="cpu")
    arrays = next(folder.glob("*.safetensors"))
    arrays.rename(tmp_path / "arrays")
    arrays.symlink_to(tmp_path / "arrays")
    with pytest.raises(StorageError, match="is a link"):
        load_model(folder)


def test_labels_take_no_more_memory_than_they_need(tmp_path: Path) -> None:
    folder = edited("tree", tmp_path / "model", say("<U100000000", "classes", "dtype"))
    tracemalloc.start()
    try:
        with pytest.raises(StorageError, match="longest"):
            load_model(folder)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()


def test_a_device_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    folder = edited("tree", tmp_path / "model", say("cuda", "parameters", "device"))
    with pytest.raises(ValueError, match='device="cpu"'):
        load_model(folder)
    load_model(folder, device="cpu")


def test_parameters_as_users_write_them_come_back(tmp_path: Path) -> None:
    settings = {"inference": "gibbs", "prior_mean": "lda", "tree": "chain", "memory_budget": 1e9, "verbose": 0}
    X, y = [[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], list("aabb")
    model = GPTreeClassifier(**settings, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert {name: getattr(loaded, name) for name in settings} == settings
    assert (loaded.predict_proba([[0.5, 0.5]]) == model.predict_proba([[0.5, 0.5]])).all()
