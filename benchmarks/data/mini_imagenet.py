"""mini-ImageNet: pictures (JPEG 84 × 84) as the public repository Deo0330/split_minidataset holds them.

Those that the public lists for few-shot class-incremental learning name, which are in the folder `fscil/mini_imagenet`
as for CUB, nine sessions; WebP of quality 88, 39.4 dB.
"""

from __future__ import annotations

from benchmarks.core.pictures import Lossy

PICTURES = Lossy(quality=88)
