"""Data sets and draws, on small made-up files; and the feature generator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.data import Dataset, about, draw, load, modules
from benchmarks.data.structured import make


def write_text(path, out_of_scope: bool) -> None:
    rng = np.random.default_rng(0)
    arrays = {"names": np.array(["a", "b"])}
    for part, n in (("train", 6), ("test", 4)):
        arrays[f"{part}_x"] = rng.standard_normal((n, 3)).astype(np.float16)
        arrays[f"{part}_y"] = (np.arange(n) % 2).astype(np.int16)
    if out_of_scope:
        arrays["oos_test_x"] = np.ones((5, 3), dtype=np.float16)
    np.savez(path, **arrays)


class TestLoad:
    def test_text(self, tmp_path):
        write_text(tmp_path / "banking77_minilm.npz", out_of_scope=False)
        write_text(tmp_path / "clinc150_minilm.npz", out_of_scope=True)
        banking, clinc = load("banking77", tmp_path), load("clinc150", str(tmp_path))
        assert banking.names == ("a", "b")
        assert banking.train_x.shape == (6, 3)
        assert banking.test_y.tolist() == [0, 1, 0, 1]
        assert banking.oos is None
        assert clinc.oos is not None
        assert clinc.oos.shape == (5, 3)
        assert {banking.train_x.dtype, banking.test_x.dtype, clinc.oos.dtype} == {np.dtype(np.float32)}

    def test_cub(self, tmp_path):
        np.savez(
            tmp_path / "cub_efficientnet_lite2.npz",
            x=np.arange(8, dtype=np.float16).reshape(4, 2),
            y=np.array([0, 0, 1, 1], dtype=np.int16),
            train=np.array([True, False, False, True]),
            path=np.array(["001.Auk/1.jpg", "001.Auk/2.jpg", "002.Jay/1.jpg", "002.Jay/2.jpg"]),
        )
        cub = load("cub200", tmp_path)
        assert cub.names == ("001.Auk", "002.Jay")
        np.testing.assert_array_equal(cub.train_x, [[0, 1], [6, 7]])
        np.testing.assert_array_equal(cub.test_y, [0, 1])

    def test_digits_are_always_the_same_halves(self, tmp_path):
        one, two = load("digits", tmp_path), load("digits", tmp_path / "nowhere")
        np.testing.assert_array_equal(one.train_x, two.train_x)
        assert len(one.train_y) + len(one.test_y) == 1797
        difference = np.bincount(one.train_y) - np.bincount(one.test_y)
        assert np.all(np.abs(difference) <= 1)
        assert one.train_x.dtype == np.float32

    def test_a_missing_file_is_told(self, tmp_path):
        for name in ("banking77", "clinc150", "cub200"):
            with pytest.raises(FileNotFoundError, match=r"\.npz file with the arrays .*--data DIR"):
                load(name, tmp_path)

    def test_a_foreign_file_is_told(self, tmp_path):
        np.savez(tmp_path / "banking77_minilm.npz", train_x=np.ones(3))
        with pytest.raises(ValueError, match="lacks train_y, test_x, test_y, names"):
            load("banking77", tmp_path)

    def test_an_unknown_name_is_told(self, tmp_path):
        with pytest.raises(ValueError, match="there are banking77, clinc150, cub200, digits"):
            load("imagenet", tmp_path)


def toy(classes: int, rows: int) -> Dataset:
    """The feature of a row is its number."""
    y = np.random.default_rng(0).permutation(np.arange(classes * rows) % classes)
    x = np.arange(len(y), dtype=np.float32)[:, None]
    return Dataset("toy", x, y, x, y, tuple(map(str, range(classes))), oos=x[:2])


class TestDraw:
    @given(st.integers(1, 6), st.one_of(st.none(), st.integers(1, 9)), st.integers(0, 100))
    def test_the_draws_by_hand(self, classes, shots, seed):
        data = toy(6, 5)
        task = draw(data, classes, shots, seed)
        rng = np.random.default_rng(seed)
        chosen = rng.permutation(6)[:classes]
        rows: list[int] = []
        for c in chosen:
            of_class = rng.permutation(np.array([i for i in range(30) if data.train_y[i] == c]))
            rows.extend(of_class if shots is None else of_class[:shots])
        assert task.train_x[:, 0].tolist() == rows
        assert task.train_y.tolist() == data.train_y[rows].tolist()
        assert task.test_x[:, 0].tolist() == [i for i in range(30) if data.test_y[i] in chosen]
        assert task.oos is data.oos

    def test_a_known_draw(self):
        """The draws are fixed for good: results of other runs and programs are compared on them."""
        task = draw(toy(6, 5), classes=3, shots=2, seed=0)
        assert task.train_x[:, 0].astype(int).tolist() == [29, 12, 0, 14, 21, 13]
        assert draw(toy(6, 5), None, None, 0).train_y.shape == (30,)

    def test_too_many_classes(self):
        with pytest.raises(ValueError, match="toy has 6 classes; 7 cannot"):
            draw(toy(6, 5), 7, None, 0)


class TestStructured:
    def test_checksum(self):
        """Sums against a cosine wave; rounding differs between machines, so they agree to 1e-4 and not to the bit."""
        features = make(7, d=96, n_train=4, n_test=3, seed=1)
        for x, expected in ((features.train_x, -1.9169489720570392), (features.test_x, 7.9212693581654054)):
            wave = np.cos(np.arange(x.size)).reshape(x.shape)
            assert float(np.sum(x.astype(float) * wave)) == pytest.approx(expected, abs=1e-4)

    def test_a_class_does_not_depend_on_the_others(self):
        few, many = make(2, d=64), make(4, d=64)
        np.testing.assert_array_equal(few.train_x, many.train_x[:60])
        np.testing.assert_array_equal(few.test_x, many.test_x[:30])
        assert not np.array_equal(few.train_x, make(2, d=64, seed=1).train_x)

    def test_shapes(self):
        features = make(3, d=70, n_train=2, n_test=1)
        assert features.train_x.shape == (6, 70)
        assert features.train_x.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(features.test_x, axis=1), 1, rtol=1e-6)
        assert features.train_y.tolist() == [0, 0, 1, 1, 2, 2]
        with pytest.raises(ValueError, match="d ≥ 64"):
            make(2, d=10)


def test_every_data_set_says_what_it_is():
    lines = list(about())
    assert [line.split("`")[1] for line in lines] == list(modules())
    assert all(len(line) > 50 for line in lines)
