"""Omniglot at 32 pixels, 659 handwritten characters of 20 alphabets: pictures that no class of CIFAR is like.

Lake, Salakhutdinov and Tenenbaum, Science 2015; MIT licence. Folder `images_evaluation` of the public repository
tensorfreitas/Siamese-Networks-for-One-Shot-Learning; its files `ALPHABET/CHARACTER/FILE` as `test/ALPHABET_CHARACTER/
FILE`, the first four drawings of each character (`--first 4`), resized from 105 pixels and then lossless.
"""

from __future__ import annotations

from benchmarks.core.pictures import Lossless

PICTURES = Lossless(size=32)
