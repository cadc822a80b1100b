"""Sources: what a batch holds, against loops; and that it depends on nothing but the batch."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, Subset

from gptree.deep import Arrays, Batch, FromDataset, RandomCrop, RandomFlip, Source, require_shape
from gptree.deep.data.arrays import STATISTICS_SAMPLE
from gptree.deep.data.augment import augmented
from gptree.deep.data.dataset import ITEMS_COMPARED

CPU = torch.device("cpu")
AUGMENT = (RandomCrop(2), RandomFlip())
PLAN = [
    Batch(np.array([5, 0, 3]), seed=7),
    Batch(np.array([1, 2]), seed=None),
    Batch(np.array([5, 4, 0]), seed=2**40),
    Batch(np.array([6]), seed=7),
]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def pictures(count: int = 7, size: tuple[int, int] = (6, 8)) -> np.ndarray:
    """(n, H, W, 3) in uint8, channels of different brightness."""
    bright = np.random.default_rng(0).integers(0, 200, (count, *size, 3))
    return (bright + np.array([0, 20, 55])).astype(np.uint8)


class Noisy(Dataset):
    """Items that draw from all three global generators, as transforms do."""

    def __init__(self, count: int = 7, noise: bool = True) -> None:
        self.count, self.noise = count, noise

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> tuple[Tensor, str]:
        x = torch.full((2, 3), float(row))
        if self.noise:
            x += torch.rand(2, 3) + random.random() + np.random.rand()  # noqa: NPY002
        return x, f"class {row % 3}"


SOURCES: dict[str, Callable[[], Source]] = {
    "uint8": lambda: Arrays(pictures(), AUGMENT),
    "floats": lambda: Arrays(pictures().transpose(0, 3, 1, 2) / 50.0, AUGMENT),
    "dataset": lambda: FromDataset(Noisy(), Noisy(noise=False)),
    "dataset, two workers": lambda: FromDataset(Noisy(), Noisy(noise=False), workers=2),
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest) -> Source:
    return SOURCES[request.param]()


def taken(source: Source, plan: list[Batch], part=None) -> list[Tensor]:
    return list(source.batches(plan, CPU) if part is None else source.batches(plan, CPU, part))


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# What every source keeps to


def test_a_batch_depends_on_itself_alone(source: Source) -> None:
    everything = taken(source, PLAN)
    assert [len(x) for x in everything] == [3, 2, 3, 1]
    assert all(x.is_floating_point() and x.is_contiguous() for x in everything)
    assert same(taken(source, PLAN[2:]), everything[2:])
    assert same(taken(source, PLAN[::-1]), everything[::-1])
    # another seed, another augmentation; the clean inputs without a seed
    assert not torch.equal(taken(source, [Batch(PLAN[0].rows, 8)])[0], everything[0])
    assert not torch.equal(taken(source, [Batch(PLAN[0].rows)])[0], everything[0])
    assert torch.equal(taken(source, [Batch(np.array([2, 1]))])[0], everything[1].flip(0))


def test_parts_together_are_the_whole(source: Source) -> None:
    everything = taken(source, PLAN)
    for cut in (1, 2):
        head, tail = taken(source, PLAN, lambda n: slice(0, cut)), taken(source, PLAN, lambda n: slice(cut, n))  # noqa: B023
        assert same([torch.cat(pair) for pair in zip(head, tail, strict=True)], everything)
    even = taken(source, PLAN, lambda n: slice(0, n, 2))
    assert same(even, [x[::2] for x in everything])


def test_an_empty_part_has_the_shape_of_inputs(source: Source) -> None:
    (nothing,) = taken(source, PLAN[:1], lambda n: slice(n, n))
    assert nothing.shape == (0, *source.shape)
    assert taken(source, []) == []


def test_global_random_numbers_are_left_alone(source: Source) -> None:
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    _ = source.shape, source.labels
    for _ in source.batches(PLAN, CPU):
        state = np.random.get_state()  # noqa: NPY002
        assert random.getstate() == before[0]
        assert np.array_equal(state[1], before[1][1])
        assert state[2:] == before[1][2:]
        assert torch.equal(torch.get_rng_state(), before[2])


def test_rows_that_do_not_exist(source: Source) -> None:
    for rows in ([0, 7], [-1]):
        with pytest.raises(ValueError, match=f"rows {min(rows)} … {max(rows)} asked of a source of 7 rows"):
            taken(source, [Batch(np.array(rows), 0)])


def test_bad_batches() -> None:
    with pytest.raises(ValueError, match="vector of row numbers"):
        Batch(np.array([0.5]))
    with pytest.raises(ValueError, match="vector of row numbers"):
        Batch(np.array([[1]]))
    with pytest.raises(ValueError, match="negative"):
        Batch(np.array([1]), -3)
    assert len(Batch(np.array([])).rows) == 0


def test_inputs_unlike_those_at_fit() -> None:
    source = Arrays(pictures())
    require_shape(source, (3, 6, 8))
    with pytest.raises(ValueError, match="have 3 channels, those at fit had 1"):
        require_shape(source, (1, 6, 8))
    with pytest.raises(ValueError, match="have 6 × 8 pixels, those at fit had 32 × 32"):
        require_shape(source, (3, 32, 32))
    with pytest.raises(ValueError, match=r"have shape \(3, 6, 8\), those at fit had \(5,\)"):
        require_shape(source, (5,))


# Arrays


def test_pictures_are_normalised_channel_by_channel() -> None:
    X = pictures()
    source = Arrays(X)
    (x,) = taken(source, [Batch(np.arange(7), seed=1)])
    assert x.dtype == torch.float32
    expected = np.empty((7, 3, 6, 8))
    for c in range(3):
        channel = X[..., c] / 255
        expected[:, c] = (channel - channel.mean()) / channel.std()
    np.testing.assert_allclose(x, expected, atol=2e-6)
    assert source.mean is not None
    np.testing.assert_allclose(source.mean, (X / 255).mean((0, 1, 2)), rtol=1e-12)
    # a source for prediction takes the statistics of the one for training
    (again,) = taken(Arrays(X[2:3], mean=source.mean, std=source.std), [Batch(np.array([0]))])
    assert torch.equal(again, x[2:3])


def test_augmentation_comes_before_normalisation() -> None:
    X, seed = pictures(), 11
    u = torch.from_numpy(np.random.default_rng(seed).random((4, 3), dtype=np.float32))
    rows = np.array([6, 1, 1, 0])
    changed = augmented(torch.from_numpy(X.transpose(0, 3, 1, 2)[rows]), AUGMENT, u)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)
    (x,) = taken(Arrays(X, AUGMENT, mean, std), [Batch(rows, seed)])
    per_channel = torch.tensor([mean, std])[:, :, None, None]
    torch.testing.assert_close(x, (changed / 255 - per_channel[0]) / per_channel[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_layouts(wrap: Callable) -> None:
    X = pictures()
    plan = [Batch(np.array([3, 1]), 5), Batch(np.array([0]))]
    last = taken(Arrays(wrap(X), AUGMENT), plan)
    first = taken(Arrays(wrap(X.transpose(0, 3, 1, 2).copy()), AUGMENT), plan)
    assert same(last, first)
    grey = Arrays(wrap(X[..., 0].copy()), AUGMENT)
    assert grey.shape == (1, 6, 8)
    assert same(taken(grey, plan), taken(Arrays(wrap(X[..., :1].copy()), AUGMENT), plan))
    assert Arrays(wrap(np.zeros((2, 3, 4, 4), np.uint8))).shape == (3, 4, 4)  # channels first where both could be


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_taken_as_they_are(dtype) -> None:
    X = np.random.default_rng(0).normal(size=(5, 2, 4)).astype(dtype)
    (x,) = taken(Arrays(X), [Batch(np.array([4, 0]), seed=3)])
    assert np.array_equal(x.numpy(), X[[4, 0]])
    assert x.numpy().dtype == dtype


def test_arrays_nobody_may_write_and_odd_strides(recwarn: pytest.WarningsRecorder) -> None:
    X = pictures()[:, ::-1]
    X.flags.writeable = False
    before = X.copy()
    taken(Arrays(X, AUGMENT), PLAN)
    assert np.array_equal(X, before)
    assert not recwarn.list


def test_statistics_of_many_pictures_come_from_a_sample() -> None:
    count = 2 * STATISTICS_SAMPLE + 1
    X = np.zeros((count, 2, 2), np.uint8)
    X[::3] = 51
    source = Arrays(X)  # every third picture is looked at
    assert source.mean == (0.2,)
    assert source.std == (1.0,)  # they are all alike: only centred


def test_data_move_to_a_device_once() -> None:
    source = Arrays(pictures())
    taken(source, PLAN)
    held = source._on(CPU)
    assert source._on(torch.device("cpu")) is held


@needs_cuda
@pytest.mark.parametrize("name", ["uint8", "floats", "dataset"])
def test_cuda_agrees_and_is_channels_last(name: str) -> None:
    source = SOURCES[name]()
    for there, here in zip(source.batches(PLAN, torch.device("cuda")), taken(source, PLAN), strict=True):
        assert there.is_cuda
        assert there.dim() != 4 or there.is_contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(there.cpu(), here, atol=1e-5, rtol=0)


@needs_cuda
def test_arrays_never_wait_for_the_device() -> None:
    source, device = SOURCES["uint8"](), torch.device("cuda")
    list(source.batches(PLAN, device))  # the first call moves the data
    torch.cuda.set_sync_debug_mode("error")
    try:
        list(source.batches(PLAN, device))
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Arrays(pictures().astype(np.int64)), TypeError, "uint8 .* or floats, not torch.int64"),
        (lambda: Arrays(np.array([["a"]])), TypeError, "not an array of <U1"),
        (lambda: Arrays(np.zeros(5)), ValueError, r"not of shape \(5,\)"),
        (lambda: Arrays(np.zeros((0, 5))), ValueError, r"not of shape \(0, 5\)"),
        (lambda: Arrays(np.zeros((4, 5), np.uint8)), ValueError, "with 1, 3 or 4 channels"),
        (lambda: Arrays(np.zeros((4, 5, 6, 7), np.uint8)), ValueError, "with 1, 3 or 4 channels"),
        (lambda: Arrays(np.array([[0.0], [1.0], [np.nan]])), ValueError, "row 2 holds NaN"),
        (lambda: Arrays(np.array([[0.0], [np.inf]])), ValueError, "row 1 holds NaN or infinite"),
        (lambda: Arrays(np.zeros((4, 5)), AUGMENT), ValueError, r"augmentation takes pictures \(n, C, H, W\)"),
        (lambda: Arrays(np.zeros((4, 5)), mean=[0.5]), ValueError, "floats are taken as they are"),
        (lambda: Arrays(pictures(), mean=[0.5]), ValueError, "mean must be 3 finite numbers"),
        (lambda: Arrays(pictures(), std=[0.5, 0.1, 0.0]), ValueError, "std must be positive"),
    ],
)
def test_bad_arrays(make: Callable[[], Arrays], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


# FromDataset


def test_workers_change_nothing() -> None:
    alone, helped = (taken(SOURCES[name](), PLAN) for name in ("dataset", "dataset, two workers"))
    assert same(alone, helped)


def test_items_are_keyed_by_batch_seed_and_row() -> None:
    source = FromDataset(Noisy())
    (first,) = taken(source, [Batch(np.array([2, 3]), 1)])
    (other,) = taken(source, [Batch(np.array([3, 4, 2]), 1)])
    assert torch.equal(other[[2, 0]], first)
    noise = first - torch.tensor([2.0, 3.0])[:, None, None]
    assert not torch.equal(noise[0], noise[1])
    # without a clean data set the items are still the same at every reading
    assert same(taken(source, [Batch(np.arange(7))]), taken(source, [Batch(np.arange(7))]))


class Kept(Noisy):
    """With labels beside the pictures; reading an item is noticed."""

    def __init__(self, targets, transform: Callable | None = None) -> None:
        super().__init__(len(targets))
        self.targets, self.target_transform, self.read = targets, transform, 0

    def __getitem__(self, row: int):
        self.read += 1
        label = self.targets[row]
        return torch.zeros(3), label if self.target_transform is None else self.target_transform(label)


@pytest.mark.parametrize("targets", [[3, 1, 2, 1, 0], torch.tensor([3, 1, 2, 1, 0]), list("dbcba")])
def test_labels_a_data_set_keeps_are_not_read_item_by_item(targets) -> None:
    many = Kept([c for _ in range(100) for c in targets])
    labels = FromDataset(many).labels
    assert labels is not None
    assert labels.tolist() == list(np.asarray(targets)) * 100
    assert many.read == 1 + ITEMS_COMPARED
    dataset = Kept(targets)
    nested = Subset(Subset(dataset, [4, 2, 0]), [2, 0])
    labels = FromDataset(nested).labels
    assert labels is not None
    assert labels.tolist() == [np.asarray(targets)[0], np.asarray(targets)[4]]


@pytest.mark.parametrize("workers", [0, 2])
def test_other_labels_are_those_of_the_items(workers: int) -> None:
    labels = FromDataset(Noisy(130), workers=workers).labels
    assert labels is not None
    assert labels.tolist() == [f"class {row % 3}" for row in range(130)]
    mapped = FromDataset(Kept([0, 5, 6], transform=lambda label: label // 2), workers=workers).labels
    assert mapped is not None
    assert mapped.tolist() == [0, 2, 3]


def test_labels_that_items_do_not_carry_are_not_believed() -> None:
    class Halved(Kept):
        def __getitem__(self, row: int):
            x, label = super().__getitem__(row)
            return x, label % 2

    labels = FromDataset(Halved([0, 1, 2, 3] * 5)).labels  # the first two agree
    assert labels is not None
    assert labels.tolist() == [0, 1] * 10


def test_inputs_without_labels() -> None:
    source = FromDataset([np.full((2, 2), row, np.float32)[:, ::-1] for row in range(3)])  # pyright: ignore
    assert source.labels is None
    assert source.shape == (2, 2)
    (x,) = taken(source, [Batch(np.array([2, 1]))])
    assert x[:, 0, 0].tolist() == [2, 1]


class Endless(IterableDataset):
    def __iter__(self):
        yield 0


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: FromDataset(Endless()), TypeError, "Endless is no map-style data set"),
        (lambda: FromDataset([]), ValueError, "no items"),
        (lambda: FromDataset(Noisy(3), Noisy(4)), ValueError, "has 3 items and clean 4"),
        (lambda: FromDataset(Noisy(), workers=-1), ValueError, "workers"),
    ],
)
def test_bad_data_sets(make: Callable[[], FromDataset], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ([torch.zeros(3, 4, 4), torch.zeros(3, 5, 4)], ValueError, r"\(3, 4, 4\) for row 0 and \(3, 5, 4\) for row 1"),
        ([torch.zeros(2), torch.tensor([0, torch.nan])], ValueError, "row 1 holds NaN"),
        ([torch.zeros(2, dtype=torch.uint8)] * 2, TypeError, "row 0 of the data set is a tensor of torch.uint8"),
        ([{"x": 1}] * 2, TypeError, "row 0 of the data set is a dict"),
    ],
)
def test_bad_items(items: list, error: type[Exception], message: str) -> None:
    source = FromDataset([(x, 0) for x in items])  # pyright: ignore
    with pytest.raises(error, match=message):
        taken(source, [Batch(np.arange(2), 0)])


def test_bad_items_of_workers() -> None:
    source = FromDataset([torch.zeros(2), torch.full((2,), torch.nan)], workers=1)  # pyright: ignore
    with pytest.raises(ValueError, match="row 1 holds NaN"):
        taken(source, [Batch(np.arange(2), 0)])
