"""A small problem with named classes and columns."""

from __future__ import annotations

import numpy as np

NAMES = np.array(["ant", "bee", "cat", "dog"])
COLUMNS = ("height", "width", "weight", "age", "speed")


def animals() -> tuple[np.ndarray, np.ndarray]:
    """48 rows of 5 features in 4 well-separated classes."""
    y = np.repeat(np.arange(4), 12)
    noise = np.random.default_rng(0).standard_normal((48, 5))
    return 4.0 * np.eye(4, 5)[y] + 0.5 * noise, NAMES[y]


def csv_text(X: np.ndarray, y: np.ndarray, columns: tuple[str, ...] = COLUMNS, label: str = "label") -> str:
    """Rows as comma-separated text, the label in the third column."""
    lines = [[*columns[:2], label, *columns[2:]]]
    for row, name in zip(X, y, strict=True):
        cells = [repr(float(value)) for value in row]
        lines.append([*cells[:2], str(name), *cells[2:]])
    return "".join(",".join(cells) + "\n" for cells in lines)
