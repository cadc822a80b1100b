"""Packs of small pictures: what is packed comes back, and the lists find it."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from benchmarks.core import pictures
from benchmarks.core.pictures import (
    Lossless,
    Lossy,
    centre_square,
    load,
    main,
    pack,
)


def write_picture(file, width=8, height=8, seed=0) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return pixels


def make_tree(folder, classes=("auk", "jay"), train=5, test=3) -> dict[tuple[int, str], np.ndarray]:
    """Pictures train/CLASS/train_N.png and test/CLASS/test_N.png, by split and path."""
    made = {}
    for split, (top, n) in enumerate((("train", train), ("test", test))):
        for name in classes:
            for i in range(n):
                path = f"{name}/{top}_{i}.png"
                made[split, path] = write_picture(folder / top / path, seed=len(made))
    return made


def write_lists(folder, lists: dict[str, list[str]]) -> None:
    folder.mkdir()
    for name, items in lists.items():
        (folder / f"{name}.txt").write_text("\n".join(items) + "\n")


class TestLossless:
    @pytest.mark.parametrize("strip", [1, 2, 100])
    def test_every_picture_comes_back(self, tmp_path, strip):
        made = make_tree(tmp_path / "tree")
        pack("birds", tmp_path / "tree", tmp_path, recipe=Lossless(strip))
        loaded = load(tmp_path, "birds", workers=2)
        assert loaded.names == ("auk", "jay")
        assert len(loaded.X) == len(made) == 16
        for pixels, label, split, path in zip(loaded.X, loaded.y, loaded.split, loaded.path, strict=True):
            np.testing.assert_array_equal(pixels, made[split, path])
            assert path.startswith(loaded.names[label])

    def test_rows_are_sorted_by_split_class_and_path(self, tmp_path):
        made = make_tree(tmp_path / "tree")
        pack("birds", tmp_path / "tree", tmp_path, recipe=Lossless(2))
        loaded = load(tmp_path, "birds")
        assert list(zip(loaded.split.tolist(), loaded.path.tolist(), strict=True)) == sorted(made)
        np.testing.assert_array_equal(loaded.y, [0] * 5 + [1] * 5 + [0] * 3 + [1] * 3)

    def test_the_first_of_each_class_resized(self, tmp_path):
        """The largest square of each, then bit-exact."""
        make_tree(tmp_path / "tree", test=1)
        write_picture(tmp_path / "tree" / "test" / "auk" / "wide.png", width=14, height=8)
        pack("birds", tmp_path / "tree", tmp_path, recipe=Lossless(100, size=4), first=2)
        loaded = load(tmp_path, "birds")
        assert loaded.path.tolist() == [f"{name}/train_{i}.png" for name in ("auk", "jay") for i in (0, 1)] + [
            "auk/test_0.png",
            "auk/wide.png",
            "jay/test_0.png",
        ]
        for split, path, pixels in zip(loaded.split, loaded.path, loaded.X, strict=True):
            with Image.open(tmp_path / "tree" / pictures.SPLITS[split] / path) as picture:
                left = (picture.width - 8) // 2
                expected = picture.resize((4, 4), Image.Resampling.BICUBIC, box=(left, 0, left + 8, 8))
            np.testing.assert_array_equal(pixels, np.asarray(expected))

    def test_a_decoder_that_changes_pixels_is_found_out(self, tmp_path, monkeypatch):
        make_tree(tmp_path / "tree")
        monkeypatch.setattr(pictures, "_from_webp", lambda encoded: Image.new("RGB", (8, 8)))
        with pytest.raises(RuntimeError, match="same pixels"):
            pack("birds", tmp_path / "tree", tmp_path, recipe=Lossless(1))


class TestLossy:
    @pytest.mark.parametrize(
        ("made", "packed"),
        [((60, 40), (30, 20)), ((100, 40), (32, 13)), ((40, 60), (20, 30)), ((16, 12), (16, 12))],
    )
    def test_sides_shrink_and_never_grow(self, tmp_path, made, packed):
        write_picture(tmp_path / "tree/train/auk/1.png", *made)
        pack("birds", tmp_path / "tree", tmp_path, recipe=Lossy(quality=90, shorter=20, longer=32))
        assert load(tmp_path, "birds").X.shape == (1, packed[1], packed[0], 3)

    def test_smooth_pictures_change_little(self, tmp_path):
        ramp = np.repeat(np.arange(0, 256, 4, dtype=np.uint8)[None, :, None], 48, axis=0).repeat(3, axis=2)
        (tmp_path / "tree/train/auk").mkdir(parents=True)
        Image.fromarray(ramp).save(tmp_path / "tree/train/auk/1.png")
        pack("birds", tmp_path / "tree", tmp_path, recipe=Lossy(quality=90))
        assert np.abs(load(tmp_path, "birds").X[0].astype(int) - ramp).mean() < 2

    def test_grey_pictures_become_coloured(self, tmp_path):
        (tmp_path / "tree/train/auk").mkdir(parents=True)
        Image.new("L", (8, 6), 77).save(tmp_path / "tree/train/auk/1.jpg")
        pack("birds", tmp_path / "tree", tmp_path, recipe=Lossy(quality=90))
        loaded = load(tmp_path, "birds").X
        assert loaded.shape == (1, 6, 8, 3)
        np.testing.assert_allclose(loaded, 77, atol=2)


class TestParts:
    @pytest.fixture
    def packed(self, tmp_path, monkeypatch):
        # Noise of 8 × 8 pixels takes 200 bytes and more: 16 files fill several parts of 1,000 bytes.
        monkeypatch.setattr(pictures, "LARGEST_PART", pictures.MEBIBYTE + 1000)
        make_tree(tmp_path / "tree")
        return pack("birds", tmp_path / "tree", tmp_path / "packs", recipe=Lossless(1))

    def test_parts_join_to_the_whole(self, tmp_path, packed):
        assert len(packed) > 2
        assert [file.name for file in packed] == [f"birds.{i}.npz" for i in range(len(packed))]
        in_parts = load(tmp_path / "packs", "birds")
        pack("whole", tmp_path / "tree", tmp_path, recipe=Lossless(16))
        np.testing.assert_array_equal(in_parts.X, load(tmp_path, "whole").X)

    def test_parts_are_of_similar_size(self, packed):
        sizes = [len(np.load(file)["bytes"]) for file in packed]
        assert max(sizes) - min(sizes) < 600
        assert len(packed) == -(-sum(sizes) // 1000)

    def test_a_missing_part_is_told(self, tmp_path, packed):
        packed[1].unlink()
        with pytest.raises(FileNotFoundError, match=r"birds\.1\.npz is missing"):
            load(tmp_path / "packs", "birds")

    def test_parts_of_different_packs_are_told(self, tmp_path, packed, monkeypatch):
        monkeypatch.setattr(pictures, "LARGEST_PART", pictures.MEBIBYTE + 2000)
        fewer = pack("birds", tmp_path / "tree", tmp_path / "fewer", recipe=Lossless(1))
        packed[1].write_bytes(fewer[1].read_bytes())
        with pytest.raises(ValueError, match="different packs"):
            load(tmp_path / "packs", "birds")


class TestSquares:
    def test_the_centre_is_cut(self):
        frame = np.zeros((32, 48, 3), np.uint8)
        frame[2:30, 10:38] = 200  # 28 = 32 × 7 / 8 pixels in the middle
        square = np.asarray(centre_square(Image.fromarray(frame), size=28, margin=8 / 7))
        np.testing.assert_array_equal(square, np.full((28, 28, 3), 200))

    def test_the_centre_of_the_largest_square_is_the_usual_cut(self):
        wave = 127 + 100 * np.sin(np.arange(60)[:, None] / 7) * np.cos(np.arange(80)[None, :] / 9)
        picture = Image.fromarray(wave.astype(np.uint8)[:, :, None].repeat(3, axis=2))
        whole = np.asarray(centre_square(picture, size=32, margin=1)).astype(int)
        cut = np.asarray(centre_square(picture, size=28, margin=8 / 7)).astype(int)
        assert np.abs(whole[2:-2, 2:-2] - cut).max() <= 6  # at the border they see other pixels
        assert np.abs(whole[4:-4, 4:-4] - cut[2:-2, 2:-2]).max() <= 1

    def test_pictures_of_different_sizes_need_a_size(self, tmp_path):
        write_picture(tmp_path / "tree/train/auk/1.png", 40, 30)
        write_picture(tmp_path / "tree/train/auk/2.png", 30, 40)
        pack("birds", tmp_path / "tree", tmp_path, recipe=Lossy(quality=80))
        assert load(tmp_path, "birds", size=14).X.shape == (2, 14, 14, 3)
        with pytest.raises(ValueError, match="give a size"):
            load(tmp_path, "birds")

    def test_strips_are_cut_picture_by_picture(self, tmp_path):
        make_tree(tmp_path / "tree")
        pack("strips", tmp_path / "tree", tmp_path, recipe=Lossless(100))
        pack("single", tmp_path / "tree", tmp_path, recipe=Lossless(1))
        np.testing.assert_array_equal(load(tmp_path, "strips", size=5).X, load(tmp_path, "single", size=5).X)

    def test_bad_numbers(self):
        for size, margin in ((0, 1), (8, 0.5)):
            with pytest.raises(ValueError, match="size and margin"):
                centre_square(Image.new("RGB", (8, 8)), size, margin)


LISTS = {
    "session_1": ["set/train/jay/train_0.png", "set/train/jay/test_1.png"],
    "session_2": ["set/train/auk/train_3.png"],
    "session_10": ["set/train/tit/train_1.png"],
    "test_1": ["set/test/jay/train_4.png"],
    "test_2": ["set/test/auk/test_0.png"],
    "test_10": ["set/test/tit/test_0.png"],
}


class TestLists:
    def test_only_listed_pictures_by_class_and_file_alone(self, tmp_path):
        made = make_tree(tmp_path / "tree", classes=("auk", "jay", "tit"))
        write_lists(tmp_path / "lists", LISTS)
        pack("birds", tmp_path / "tree", tmp_path, Lossless(), tmp_path / "lists")
        loaded = load(tmp_path, "birds")
        assert loaded.names == ("jay", "auk", "tit")  # order of arrival: session 10 after session 2
        expected = [
            "jay/test_1",
            "jay/train_0",
            "auk/train_3",
            "tit/train_1",
            "jay/train_4",
            "auk/test_0",
            "tit/test_0",
        ]
        assert loaded.path.tolist() == [f"{path}.png" for path in expected]
        np.testing.assert_array_equal(loaded.split, [0, 0, 0, 0, 1, 1, 1])
        by_path = {path: pixels for (_, path), pixels in made.items()}
        np.testing.assert_array_equal(loaded.X, [by_path[path] for path in loaded.path])

    def test_a_file_that_the_tree_lacks_is_told(self, tmp_path):
        make_tree(tmp_path / "tree")
        write_lists(tmp_path / "lists", {"session_1": ["auk/train_9.png"], "test_1": ["auk/test_0.png"]})
        with pytest.raises(ValueError, match=r"auk/train_9\.png"):
            pack("birds", tmp_path / "tree", tmp_path, Lossless(), tmp_path / "lists")

    def test_a_folder_without_lists_is_told(self, tmp_path):
        make_tree(tmp_path / "tree")
        with pytest.raises(ValueError, match=r"holds no session_1\.txt"):
            pack("birds", tmp_path / "tree", tmp_path, Lossless(), tmp_path)


class TestCommand:
    def test_it_packs(self, tmp_path, capsys):
        made = make_tree(tmp_path / "tree")
        main(["cifar10", str(tmp_path / "tree"), str(tmp_path / "packs")])
        assert "cifar10.0.npz" in capsys.readouterr().out
        assert len(load(tmp_path / "packs", "cifar10").X) == len(made)

    def test_an_unknown_set_and_an_empty_tree_are_told(self, tmp_path, capsys):
        with pytest.raises(SystemExit):
            main(["birds", str(tmp_path), str(tmp_path)])
        assert "cifar10" in capsys.readouterr().err
        with pytest.raises(ValueError, match="holds no picture"):
            pack("cifar10", tmp_path, tmp_path, Lossless())
