"""Published accuracies after each session: Table 3 of the GP-Tree paper, and those of Tao et al. (2020)."""

from __future__ import annotations

from benchmarks.core.tables import Table

TAO = "Tao et al. 2020"


def _table(title: str, text: str, note: str, source: str = "the paper") -> Table:
    lines = [[name.strip(), *numbers.split()] for name, numbers in (line.split("|") for line in text.split("\n"))]
    return Table(title, ["method", *map(str, range(1, len(lines[0])))], lines, note, source)


TABLE_3 = _table(
    "Accuracy (%) on CUB-200 after each session, Table 3",
    """\
iCaRL   | 68.68 52.65 48.61 44.16 36.62 29.52 27.83 26.26 24.01 23.89 21.16
EEIL    | 68.68 53.63 47.91 44.20 36.30 27.46 25.93 24.70 23.95 24.13 22.11
NCM     | 68.68 57.12 44.21 28.78 26.71 25.66 24.62 21.52 20.12 20.06 19.87
TOPIC   | 68.68 62.49 54.81 49.99 45.25 41.40 38.35 35.36 32.22 28.31 26.28
SDC     | 64.10 60.58 57.00 53.57 52.09 49.87 48.20 46.38 44.04 43.81 42.39
PODNet  | 75.93 70.29 64.50 49.00 45.90 43.00 41.33 40.56 40.09 40.59 39.30
GP-Tree | 73.73 68.24 64.22 59.61 56.39 53.40 51.14 49.32 47.03 45.86 44.48""",
    "Mean of 10 runs, average standard error 0.4. The first four lines are those of Tao et al., whose epochs were "
    "chosen on test rows; NCM is LUCIR.",
)
TREE_VARIANTS = _table(
    "Accuracy (%) on CUB-200 by tree construction, supplement",
    """\
shared root (GP-Tree) | 73.73 68.24 64.22 59.61 56.39 53.40 51.14 49.32 47.03 45.86 44.48
session tree          | 73.73 68.24 64.07 59.42 56.12 52.80 50.73 48.89 46.34 45.01 43.33
rebuild tree          | 73.73 67.71 63.50 59.03 55.73 52.73 50.49 48.85 46.17 44.84 43.20""",
    "Mean of 10 runs.",
)
_NOTE = (
    "Mean of 10 runs, from the authors' repository xyutao/fscil; a star marks learning rates that they tuned. Epochs "
    "were chosen on test rows. NCM is LUCIR; Ft-CNN trains on the shots alone, Joint-CNN on everything."
)
TAO_MINI = _table(
    "Accuracy (%) on mini-ImageNet after each session, ResNet-18",
    """\
Ft-CNN       | 61.31 27.22 16.37  6.08  2.54  1.56  1.93  2.60  1.40
Joint-CNN    | 61.31 56.60 52.60 49.00 46.00 43.30 40.90 38.70 36.80
iCaRL*       | 61.31 46.32 42.94 37.63 30.49 24.00 20.89 18.80 17.21
EEIL*        | 61.31 46.58 44.00 37.29 33.14 27.12 24.10 21.57 19.58
NCM*         | 61.31 47.80 39.31 31.91 25.68 21.35 18.67 17.24 14.17
TOPIC AL     | 61.31 48.58 43.77 37.19 32.38 29.67 26.44 25.18 21.80
TOPIC AL-MML | 61.31 50.09 45.17 41.16 37.48 35.52 32.19 29.46 24.42""",
    _NOTE,
    TAO,
)
TAO_CIFAR = _table(
    "Accuracy (%) on CIFAR-100 after each session, a ResNet of 20 layers with 64 features",
    """\
Ft-CNN       | 64.10 36.91 15.37  9.80  6.67  3.80  3.70  3.14  2.65
Joint-CNN    | 64.10 59.30 54.90 51.20 48.10 45.80 42.80 40.90 38.90
iCaRL*       | 64.10 53.28 41.69 34.13 27.93 25.06 20.41 15.48 13.73
EEIL*        | 64.10 53.11 43.71 35.15 28.96 24.98 21.01 17.26 15.85
NCM*         | 64.10 53.05 43.96 36.97 31.61 26.73 21.23 16.78 13.54
TOPIC AL     | 64.10 56.03 47.89 42.99 38.02 34.60 31.67 28.35 25.86
TOPIC AL-MML | 64.10 55.88 47.07 45.16 40.11 36.38 33.96 31.55 29.37""",
    _NOTE,
    TAO,
)
TAO_CUB = _table(
    "Accuracy (%) on CUB-200 after each session, ResNet-18, lines that Table 3 leaves out",
    """\
Ft-CNN    | 68.68 43.70 25.05 17.72 18.08 16.95 15.10 10.60  8.93  8.93  8.47
Ft-CNN*   | 68.68 44.81 32.26 25.83 25.62 25.22 20.84 16.77 18.82 18.25 17.18
Joint-CNN | 68.68 62.43 57.23 52.80 49.50 46.10 42.80 40.10 38.70 37.10 35.60
iCaRL     | 68.68 60.50 46.19 31.87 29.07 21.86 21.22 19.15 16.50 14.46 14.14
EEIL      | 68.68 57.64 42.91 28.16 27.05 25.52 25.08 22.06 19.93 19.74 19.61
NCM       | 68.68 62.55 50.33 45.07 38.25 32.58 28.71 26.28 23.80 19.91 17.82
TOPIC AL  | 68.68 61.01 55.35 50.01 42.42 39.07 35.47 32.87 30.04 25.91 24.85""",
    _NOTE,
    TAO,
)
