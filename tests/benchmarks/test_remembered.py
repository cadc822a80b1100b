"""Pictures by their numbers: what a network of tokens gives is what the network gives for the pictures."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from benchmarks.experiments.fscil.remembered import Memory, OfTokens, RandomView, tokens
from gptree.deep import Arrays, Batch, RandomCrop, RandomFlip, convnet
from gptree.deep.data.augment import augmented

AUGMENT = (RandomCrop(2), RandomFlip())
COUNT, VIEWS = 6, 3


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.randint(0, 256, (COUNT, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture
def network(pictures) -> OfTokens:
    scale, shift = torch.full((3, 1, 1), 1 / 128), torch.full((3, 1, 1), -1.0)
    return OfTokens(convnet(width=4, depth=2).eval(), Memory(pictures, AUGMENT, VIEWS, scale, shift))


def slow(network: OfTokens, picture: torch.Tensor) -> torch.Tensor:
    return network.network((picture.float() / 128 - 1)[None])[0]


def test_clean_and_mirrored_pictures(network, pictures):
    rows = np.array([4, 0, 4])
    x = torch.from_numpy(tokens(rows))
    for given, flip in ((x, False), (x.flip(3), True)):
        for row, features in zip(rows, network(given), strict=True):
            picture = pictures[row].flip(2) if flip else pictures[row]
            torch.testing.assert_close(features, slow(network, picture))


def test_every_view_is_the_picture_augmented_with_its_own_numbers(network, pictures):
    view = RandomView(COUNT, VIEWS)
    for k, u in enumerate((0.0, 0.4, 0.999)):
        given = view(torch.from_numpy(tokens(np.arange(COUNT))), torch.full((COUNT, 1), u))
        for row, features in enumerate(network(given)):
            seen = augmented(pictures[row : row + 1], AUGMENT, network.memory.u[row, k : k + 1])[0]
            torch.testing.assert_close(features, slow(network, seen))


def test_nothing_is_computed_twice_and_copies_share_it(network):
    calls = []
    trunk = network.network.trunk
    network.network.trunk = lambda x: calls.append(len(x)) or trunk(x)
    x = torch.from_numpy(tokens(np.arange(COUNT)))
    network.trunk(x[:4])
    network.trunk(x[2:])
    copy.deepcopy(network).trunk(x)
    assert calls == [4, 2]


def test_as_a_source_of_batches(network):
    source = Arrays(tokens(np.arange(COUNT)), augment=(RandomView(COUNT, VIEWS),))
    plan = [Batch(np.array([1, 5])), Batch(np.array([1, 5]), seed=3)]
    clean, random = source.batches(plan, torch.device("cpu"))
    assert network.memory.keys(clean).tolist() == [1, 5]
    keys = network.memory.keys(random)
    assert (keys % COUNT).tolist() == [1, 5]
    assert ((keys // COUNT >= 1) & (keys // COUNT <= VIEWS)).all()


def test_the_largest_number_of_a_picture_is_exact():
    """Numbers are floats on their way: 60,000 pictures with 16 views are far below 2²⁴."""
    rows = np.array([59_999])
    x = RandomView(60_000, 16)(torch.from_numpy(tokens(rows)), torch.tensor([[0.99]]))
    assert x[0, 0, 0, 0].item() == 60_000 * 17
