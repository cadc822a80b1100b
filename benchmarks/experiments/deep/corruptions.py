"""Pictures made worse: noise, blur, less contrast and JPEG, each at five strengths of the size of CIFAR-10-C's."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from PIL import Image
from scipy.ndimage import gaussian_filter

#: Mild to strong: standard deviation of the noise, in units of white; that of the blur, in pixels; the share of the
#: contrast that is left; the quality of JPEG.
STRENGTHS: dict[str, tuple[float, ...]] = {
    "noise": (0.04, 0.06, 0.08, 0.09, 0.10),
    "blur": (0.4, 0.6, 0.7, 0.8, 1.0),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "JPEG": (80, 65, 58, 50, 40),
}
SEED = 18
#: Pictures in floats at a time.
AT_ONCE = 1000


def corrupted(X: np.ndarray, kind: str, strength: float) -> np.ndarray:
    """Pictures X (n, H, W, 3) in uint8 made worse; the noise is the same in every call.

    Parameters
    ----------
    X : uint8 array (n, H, W, 3)
    kind : one of `STRENGTHS`
    strength : float
        As there.

    Returns
    -------
    uint8 array (n, H, W, 3)
    """
    if kind not in STRENGTHS:
        raise ValueError(f"there is no corruption {kind!r}; there are {', '.join(STRENGTHS)}.")
    if kind == "JPEG":
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow works outside the interpreter's lock
            return np.stack(list(pool.map(lambda picture: _jpeg(picture, round(strength)), X)))
    random = np.random.default_rng(SEED)
    change: Callable[[np.ndarray], np.ndarray] = {
        "noise": lambda x: x + 255 * strength * random.standard_normal(x.shape, dtype=np.float32),
        "blur": lambda x: gaussian_filter(x, (0, strength, strength, 0)),
        "contrast": lambda x: strength * x + (1 - strength) * x.mean((1, 2), keepdims=True),
    }[kind]
    parts = (change(X[start : start + AT_ONCE].astype(np.float32)) for start in range(0, len(X), AT_ONCE))
    return np.concatenate([part.round().clip(0, 255).astype(np.uint8) for part in parts])


def _jpeg(picture: np.ndarray, quality: int) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    with Image.open(buffer, formats=("JPEG",)) as decoded:
        return np.asarray(decoded.convert("RGB"))
