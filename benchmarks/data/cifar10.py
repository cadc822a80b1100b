"""CIFAR-10: pictures as the public repository cyizhuo/CIFAR-10-dataset holds them, folders `train` and `test`.

Lossless: up to 100 pictures of a class, one below the other, make one WebP file, which saves 8 % against a file for
each picture.
"""

from __future__ import annotations

from benchmarks.core.pictures import Lossless

PICTURES = Lossless()
