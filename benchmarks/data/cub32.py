"""CUB-200-2011 at 32 pixels: pictures of 200 birds. CIFAR-10 has a class of birds, CIFAR-100 has none.

Folder `test` of the public repository cyizhuo/CUB-200-2011-dataset: the first ten test pictures of each class (`--first
10`), the largest square in the middle, resized and then lossless.
"""

from __future__ import annotations

from benchmarks.core.pictures import Lossless

PICTURES = Lossless(size=32)
