"""Each augmentation against a loop over pictures, and what they promise: size, dtype, ranges, distributions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gptree.deep import ColourJitter, Cutout, RandomCrop, RandomFlip, RandomResizedCrop
from gptree.deep.data.augment import augmented

EVERY = [RandomCrop(2), RandomFlip(), RandomResizedCrop(), ColourJitter(), Cutout(4)]
DTYPES = [torch.uint8, torch.float32, torch.float64]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def pictures(dtype: torch.dtype, count: int = 40, channels: int = 3, height: int = 9, width: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (count, channels, height, width), generator=generator, dtype=torch.uint8)
    return x if dtype == torch.uint8 else x.to(dtype) / 100 - 1


def uniform(count: int, columns: int, seed: int = 2) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((count, columns), dtype=np.float32))


def rounded(x: Tensor, like: Tensor) -> Tensor:
    return x.round().clamp(0, 255).to(torch.uint8) if like.dtype == torch.uint8 else x.to(like.dtype)


def looped(twin: Callable[[Tensor, list[float]], Tensor], x: Tensor, u: Tensor) -> Tensor:
    return torch.stack([twin(picture, numbers.tolist()) for picture, numbers in zip(x, u, strict=True)])


def agree(found: Tensor, expected: Tensor) -> None:
    """To float32 rounding; in uint8 a few values, which lie half-way between two, may be rounded to the other one."""
    eight_bits = expected.dtype == torch.uint8
    torch.testing.assert_close(found, expected, atol=1 if eight_bits else 2e-5, rtol=0)
    assert not eight_bits or (found != expected).double().mean() < 0.05


@pytest.mark.parametrize("dtype", DTYPES)
def test_crop(dtype: torch.dtype) -> None:
    def twin(x: Tensor, u: list[float]) -> Tensor:
        _, height, width = x.shape
        padded = torch.zeros(3, height + 6, width + 6, dtype=x.dtype)
        padded[:, 3:-3, 3:-3] = x
        top, left = int(u[0] * 7), int(u[1] * 7)
        return padded[:, top : top + height, left : left + width]

    x, u = pictures(dtype), uniform(40, 2)
    assert torch.equal(RandomCrop(3)(x, u), looped(twin, x, u))


@pytest.mark.parametrize("dtype", DTYPES)
def test_flip(dtype: torch.dtype) -> None:
    def twin(x: Tensor, u: list[float]) -> Tensor:
        return torch.from_numpy(x.numpy()[:, :, ::-1].copy()) if u[0] < 0.3 else x

    x, u = pictures(dtype), uniform(40, 1)
    changed = RandomFlip(0.3)(x, u)
    assert torch.equal(changed, looped(twin, x, u))
    assert torch.equal(RandomFlip(0.0)(x, u), x)
    assert torch.equal(RandomFlip(1.0)(x, u), x.flip(3))


def box(u: list[float], height: int, width: int, smallest: float, ratio: tuple[float, float]) -> tuple[int, ...]:
    area = (smallest + (1 - smallest) * u[0]) * height * width
    shape = ratio[0] * (ratio[1] / ratio[0]) ** u[1]
    rows = min(max(round((area / shape) ** 0.5), 1), height)
    columns = min(max(round((area * shape) ** 0.5), 1), width)
    return int(u[2] * (height - rows + 1)), int(u[3] * (width - columns + 1)), rows, columns


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("smallest", "ratio"), [(0.2, (3 / 4, 4 / 3)), (0.001, (0.2, 5.0)), (1.0, (1.0, 1.0))])
def test_resized_crop(dtype: torch.dtype, smallest: float, ratio: tuple[float, float]) -> None:
    def twin(x: Tensor, u: list[float]) -> Tensor:
        _, height, width = x.shape
        top, left, rows, columns = box(u, height, width, smallest, ratio)
        part = x[None, :, top : top + rows, left : left + columns].double()
        return rounded(functional.interpolate(part, (height, width), mode="bilinear", align_corners=False)[0], x)

    x, u = pictures(dtype), uniform(40, 4)
    agree(RandomResizedCrop(smallest, ratio)(x, u), looped(twin, x, u))


def test_resized_crop_of_everything_is_the_picture() -> None:
    x = pictures(torch.float64, height=8, width=8)
    found = RandomResizedCrop(1.0, (1.0, 1.0))(x, uniform(40, 4))
    torch.testing.assert_close(found, x, atol=1e-12, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_colour_jitter(dtype: torch.dtype, channels: int) -> None:
    weights = [0.299, 0.587, 0.114] if channels == 3 else [1 / channels] * channels

    def grey(x: Tensor) -> Tensor:
        return sum((w * x[c] for c, w in enumerate(weights)), torch.zeros(x.shape[1:], dtype=x.dtype))

    def twin(x: Tensor, u: list[float]) -> Tensor:
        brightness, contrast, saturation = 1 + 0.3 * (2 * u[0] - 1), 1 + 0.9 * (2 * u[1] - 1), 1 + 0.5 * (2 * u[2] - 1)
        y = brightness * x.double()
        y = grey(y).mean() + contrast * (y - grey(y).mean())
        return rounded(grey(y) + saturation * (y - grey(y)), x)

    x, u = pictures(dtype, channels=channels), uniform(40, 3)
    agree(ColourJitter(0.3, 0.9, 0.5)(x, u), looped(twin, x, u))


def test_colour_jitter_of_no_strength_does_nothing() -> None:
    x, u = pictures(torch.uint8), uniform(40, 3)
    assert torch.equal(ColourJitter(0, 0, 0)(x, u), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 4, 5, 50])
def test_cutout(dtype: torch.dtype, size: int) -> None:
    def twin(x: Tensor, u: list[float]) -> Tensor:
        _, height, width = x.shape
        top, left = int(u[0] * height) - size // 2, int(u[1] * width) - size // 2
        y = x.clone()
        for i in range(max(top, 0), min(top + size, height)):
            for j in range(max(left, 0), min(left + size, width)):
                y[:, i, j] = rounded(x.double().mean((1, 2)), x)
        return y

    x, u = pictures(dtype), uniform(40, 2)
    agree(Cutout(size)(x, u), looped(twin, x, u))


@pytest.mark.parametrize("augmentation", EVERY, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
def test_size_dtype_and_input_are_kept(augmentation, dtype: torch.dtype) -> None:
    x = pictures(dtype)
    before, u = x.clone(), uniform(40, augmentation.columns)
    changed = augmentation(x, u)
    assert (changed.shape, changed.dtype) == (x.shape, dtype)
    assert torch.equal(x, before)
    assert not torch.equal(changed, x)
    assert augmentation(x[:0], u[:0]).shape == (0, *x.shape[1:])
    # a picture depends on its own numbers alone
    assert torch.equal(augmentation(x[7:9], u[7:9]), changed[7:9])


@pytest.mark.parametrize("augmentation", EVERY, ids=lambda a: type(a).__name__)
def test_the_largest_and_smallest_numbers(augmentation) -> None:
    x = pictures(torch.uint8, count=2)
    u = torch.stack([torch.zeros(augmentation.columns), torch.full((augmentation.columns,), 1 - 2**-24)])
    assert augmentation(x, u).shape == x.shape


def test_every_place_is_as_likely() -> None:
    # 20,000 draws over 9 places a side: a share has standard deviation 0.0022; six of them fail one run in 10⁷
    x = torch.arange(1, 26, dtype=torch.uint8).view(1, 1, 5, 5).expand(20_000, 1, 5, 5)
    cropped = RandomCrop(4)(x, uniform(20_000, 2))
    corner = cropped[:, 0, 0, 0]  # 1 … 25 where the window starts inside the picture
    share = torch.bincount(corner.long(), minlength=26)[1:].double() / 20_000
    assert (share - 1 / 81).abs().max() < 6 * (1 / 81 / 20_000) ** 0.5


def test_boxes_lie_inside_and_fill_the_asked_areas() -> None:
    top, left, rows, columns = RandomResizedCrop(0.25).boxes(uniform(5000, 4), 84, 84)
    for first, count in ((top, rows), (left, columns)):
        assert first.min() == 0
        assert (first + count).max() == 84
    area = rows * columns / 84**2
    assert 0.24 < area.min() < 0.26
    assert area.max() > 0.97
    assert abs(area.mean() - 0.62) < 0.02  # a little less than (0.25 + 1)/2, since long sides are cut


def test_numbers_are_shared_out_in_order() -> None:
    x, u = pictures(torch.float32), uniform(40, 5)
    crop, flip, cut = RandomCrop(2), RandomFlip(), Cutout(3)
    expected = cut(flip(crop(x, u[:, :2]), u[:, 2:3]), u[:, 3:])
    assert torch.equal(augmented(x, [crop, flip, cut], u), expected)
    assert torch.equal(augmented(x, [], u[:, :0]), x)


@needs_cuda
@pytest.mark.parametrize("augmentation", EVERY, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_agrees_and_never_waits(augmentation, dtype: torch.dtype) -> None:
    x, u = pictures(dtype), uniform(40, augmentation.columns)
    there, numbers = x.cuda(), u.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        changed = augmentation(there, numbers)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    agree(changed.cpu(), augmentation(x, u))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomCrop(0), "padding"),
        (lambda: RandomFlip(1.5), "probability"),
        (lambda: RandomResizedCrop(0.0), "smallest"),
        (lambda: RandomResizedCrop(0.5, (2.0, 1.0)), "ratio"),
        (lambda: ColourJitter(contrast=2.0), "contrast"),
        (lambda: Cutout(0), "size"),
    ],
)
def test_bad_settings(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"RandomFlip takes pictures \(B, C, H, W\)"):
        RandomFlip()(torch.zeros(3, 4, 4), uniform(3, 1))
    with pytest.raises(ValueError, match=r"RandomCrop needs uniform numbers of shape \(3, 2\)"):
        RandomCrop()(torch.zeros(3, 1, 4, 4), uniform(3, 1))
