from __future__ import annotations

import numpy as np
import pytest

from gptree.tree import label_hashes, node_generator, node_key


def one(label) -> int:
    return int(label_hashes([label])[0])


def test_equal_labels_hash_alike_across_python_and_numpy():
    assert one(7) == one(np.int64(7)) == one(np.uint8(7)) == int(label_hashes(np.array([7]))[0])
    assert one("cat") == one(np.str_("cat")) == int(label_hashes(np.array(["cat"]))[0])
    assert one(True) == one(np.bool_(True))
    assert one(0.5) == one(np.float32(0.5))
    assert one(0.0) == one(-0.0)


def test_types_and_values_are_told_apart():
    labels = [0, 1, -1, 10**30, True, False, 1.0, 0.0, "1", "True", "", b"1", "é", "1.0", None, float("nan")]
    assert len(np.unique(label_hashes(labels))) == len(labels)


def test_hashes_are_the_same_in_every_run():
    assert label_hashes([3, "cat", 0.5, False]).tolist() == [
        12182186227813193364,
        5158753091054276291,
        12806754335948106192,
        16045978237461478178,
    ]


def test_empty_and_foreign_labels():
    assert label_hashes([]).dtype == np.uint64
    with pytest.raises(TypeError, match="got tuple"):
        label_hashes([("a", 1)])


def test_node_key_ignores_order_and_wraps_around():
    hashes = label_hashes(range(50))
    key = node_key(hashes)
    assert key == node_key(hashes[::-1]) == sum(map(int, hashes)) % 2**64
    assert key != node_key(hashes[:-1])


def test_generators_depend_on_seed_and_key_only():
    draw = node_generator(1, 2**64 - 1).random(3)
    assert np.array_equal(draw, node_generator(1, 2**64 - 1).random(3))
    assert not np.array_equal(draw, node_generator(2, 2**64 - 1).random(3))
    assert not np.array_equal(draw, node_generator(1, 2**64 - 2).random(3))
