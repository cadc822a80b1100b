"""A picture of a class tree with matplotlib.

Up to 80 classes the tree runs from left to right, with the names in a column; larger trees are drawn as a
disc, with the names around it. Both are one drawing in two coordinates, t along the leaves and r from the
root (0) to the leaves (1), and differ only in how (r, t) is laid on paper. Units of the axes are inches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from gptree.tree.structure import ClassTree
from gptree.tree.text import class_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MAX_ROWS = 80  # more classes than this go around a disc
_NAME_WIDTH = 26  # characters
_LINE = 1.3  # distance of neighbouring names, in font sizes
_FONT = 10.0  # points
_DISC_FONT = 8.0
_MAX_RADIUS = 14.0  # inches; names shrink once the disc has this size …
_MIN_FONT = 1.5  # … and are left out when nobody could read them
_GAP = 0.08  # inches between a leaf and its name
_CORNER = 0.09  # inches, the radius of the bends
_MARGIN = 0.12

_INK = "#2b2f36"
_BRANCH = "#8c96a3"
_ACCENT = "#d1495b"
_CLADES = ("#2a6f97", "#c8553d", "#588157", "#8e5ea2", "#c08a1e", "#2a9d8f", "#b0487a", "#5b6bbf")


def plot_tree(
    tree: ClassTree,
    names: Sequence[Any],
    ax: Axes | None = None,
    *,
    node_values: Sequence[float] | np.ndarray | None = None,
    highlight: Iterable[int] | None = None,
) -> Figure:
    """Draw the tree, with the name of every class at its leaf.

    Parameters
    ----------
    names : one a class; long ones are cut short.
    ax : axes to draw into. Without it a new figure of a fitting size is made.
    node_values : (C − 1,), one number an inner node, shown as the colour of a dot; NaN shows nothing.
    highlight : classes to mark, and the branches that lead to marked classes only.

    Returns
    -------
    The figure. Save it with `figure.savefig(...)`; neither a display nor pyplot is needed.
    """
    short_names = class_names(tree, names, _NAME_WIDTH)
    marked = np.zeros(tree.n_classes, dtype=bool)
    for c in highlight if highlight is not None else ():
        if not 0 <= c < tree.n_classes:
            raise ValueError(f"Cannot highlight class {c}: the classes are 0 … {tree.n_classes - 1}.")
        marked[c] = True
    if node_values is not None:
        node_values = np.asarray(node_values, dtype=float)
        if node_values.shape != (tree.n_nodes,):
            raise ValueError(f"node_values needs one number for each of the {tree.n_nodes} inner nodes.")

    layout = _layout(tree.n_classes, short_names, ax, with_bar=node_values is not None)
    r, t = _coordinates(tree)
    colours = _vertex_colours(tree, marked, plain=node_values is not None)
    _draw_branches(tree, layout, r, t, colours)
    _draw_names(tree, layout, short_names, marked, colours)
    if node_values is not None:
        _draw_node_values(layout, r[: tree.n_nodes], t[: tree.n_nodes], node_values)
    return cast("Figure", layout.ax.figure.figure)  # the whole figure, also from within a sub-figure


@dataclass(frozen=True)
class _Layout:
    """Where things go on paper. `place` maps (r, t) to x and y in inches."""

    ax: Axes
    place: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    reach: float  # inches from the root to the leaves
    pitch: float  # inches between neighbouring leaves
    font: float  # points
    step: float  # the angle of one leaf on a disc; 0 in rows
    bar: tuple[float, float, float, float]  # x, y, width and height of the colour bar

    def angle(self, t: float) -> float:
        """The direction of a leaf in degrees, anticlockwise from the right."""
        return np.degrees(np.pi / 2 - (t + 0.5) * self.step) if self.step else 0.0

    def branch(self, node: tuple[float, float], child: tuple[float, float]) -> np.ndarray:
        """The line from a node to its child: along the node's arc, around a corner, straight on."""
        (r, t), (child_r, child_t) = node, child
        inches = max(self.pitch * r, 1e-9) if self.step else self.pitch  # of one leaf along the arc
        corner = min(_CORNER, abs(child_t - t) * inches, (child_r - r) * self.reach)
        corner_t, corner_r = np.copysign(corner / inches, child_t - t), corner / self.reach
        arc = np.linspace(t, child_t - corner_t, 2 + int(abs(child_t - t) * self.step / 0.03))
        bend = np.linspace(0.0, np.pi / 2, 7)
        line_r = np.concatenate((np.full(len(arc), r), r + corner_r * (1 - np.cos(bend)), [child_r]))
        line_t = np.concatenate((arc, child_t - corner_t * (1 - np.sin(bend)), [child_t]))
        return np.column_stack(self.place(line_r, line_t))


def _layout(n_classes: int, names: list[str], ax: Axes | None, with_bar: bool) -> _Layout:
    if n_classes <= _MAX_ROWS:
        return _rows(n_classes, names, ax, with_bar)
    return _disc(n_classes, names, ax)


def _rows(n_classes: int, names: list[str], ax: Axes | None, with_bar: bool) -> _Layout:
    """The root on the left, a column of names on the right."""
    strip = 0.55 if with_bar else 0.0  # room for the colour bar at the foot
    pitch = _LINE * _FONT / 72
    across = 2.4 + 0.6 * np.log2(n_classes)
    if ax is None:
        width = across + _GAP + _text_width(names, _FONT) + 2 * _MARGIN
        ax = _new_axes(max(width, 3.6), n_classes * pitch + strip + 2 * _MARGIN)
    width, height = _inches(ax)
    pitch = (height - strip - 2 * _MARGIN) / n_classes
    font = min(_FONT, 72 * pitch / _LINE)
    across = max(width - 2 * _MARGIN - _GAP - _text_width(names, font), 0.3 * width)

    def place(r: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _MARGIN + across * r, height - _MARGIN - pitch * (t + 0.5)

    return _Layout(ax, place, across, pitch, font, 0.0, (_MARGIN, 0.34, min(2.0, across), 0.09))


def _disc(n_classes: int, names: list[str], ax: Axes | None) -> _Layout:
    """The root in the middle, the names around."""
    step = 2 * np.pi / (n_classes + 2)  # a gap of two leaves at the top shows where the order begins
    if ax is None:
        radius = min(_LINE * _DISC_FONT / 72 / step, _MAX_RADIUS)
        side = 2 * (radius + _GAP + _text_width(names, _DISC_FONT) + _MARGIN)
        ax = _new_axes(side, side)
    width, height = _inches(ax)
    # Names take their share of the half side in proportion to the font, and so does the circle of leaves.
    share = _text_width(names, 1.0) + _LINE / 72 / step
    font = min(_DISC_FONT, (min(width, height) / 2 - _GAP - _MARGIN) / share)
    radius = min(width, height) / 2 - _GAP - _MARGIN - font * _text_width(names, 1.0)

    def place(r: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        angle = np.pi / 2 - (t + 0.5) * step
        return width / 2 + radius * r * np.cos(angle), height / 2 + radius * r * np.sin(angle)

    return _Layout(ax, place, radius, radius * step, font, step, (_MARGIN, 0.4, min(2.0, 0.2 * width), 0.09))


def _new_axes(width: float, height: float) -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=150, facecolor="white").add_axes((0.0, 0.0, 1.0, 1.0))


def _inches(ax: Axes) -> tuple[float, float]:
    """The size of the axes, which become a blank sheet with inches as units."""
    box = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
    ax.set(xlim=(0.0, box.width), ylim=(0.0, box.height))
    ax.set_axis_off()
    return box.width, box.height


def _text_width(names: list[str], font: float) -> float:
    """The width of the widest name in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    longest = sorted(set(names), key=len)[-20:]
    properties = FontProperties(size=100, weight="bold")  # highlighted names are bold
    widths = [text_to_path.get_text_width_height_descent(name, properties, False)[0] for name in longest]
    return max(widths) / 100 * font / 72


def _coordinates(tree: ClassTree) -> tuple[np.ndarray, np.ndarray]:
    """(r, t) of every vertex: a node stands in the middle of its children, one level above the taller one."""
    height = np.zeros(2 * tree.n_classes - 1)
    t = np.concatenate((np.zeros(tree.n_nodes), np.arange(tree.n_classes)))
    for v in reversed(range(tree.n_nodes)):
        children = [tree.left_child[v], tree.right_child[v]]
        height[v] = 1 + height[children].max()
        t[v] = t[children].mean()
    return 1 - height / max(height[0], 1), t


def _vertex_colours(tree: ClassTree, marked: np.ndarray, plain: bool) -> np.ndarray:
    """The colour of the branch that leads to each vertex.

    Grey, with the accent on marked sub-trees; or, where nothing is marked, a colour for each of a few large
    sub-trees, found by cutting the largest again and again.
    """
    lo = np.concatenate((tree.lo, np.arange(tree.n_classes)))
    hi = np.concatenate((tree.hi, np.arange(tree.n_classes) + 1))
    size = hi - lo
    colours = np.full(len(size), _BRANCH)
    if plain or marked.any():
        marked_before = np.concatenate(([0], np.cumsum(marked[tree.order])))
        colours[marked_before[hi] - marked_before[lo] == size] = _ACCENT
        return colours
    clades = [0]
    while len(clades) < min(len(_CLADES), tree.n_classes // 3):
        largest = max(clades, key=size.__getitem__)
        at = clades.index(largest)
        clades[at : at + 1] = [tree.left_child[largest], tree.right_child[largest]]
    for colour, clade in zip(_CLADES, (clade for clade in clades if 1 < size[clade] < size[0]), strict=False):
        colours[(lo >= lo[clade]) & (hi <= hi[clade])] = colour
    return colours


def _draw_branches(tree: ClassTree, layout: _Layout, r: np.ndarray, t: np.ndarray, colours: np.ndarray) -> None:
    from matplotlib.collections import LineCollection

    points = list(zip(r.tolist(), t.tolist(), strict=True))
    vertices = [v for v in range(len(points)) if tree.parent[v] >= 0]
    lines = [layout.branch(points[tree.parent[v]], points[v]) for v in vertices]
    width = np.clip(8.5 * layout.pitch, 0.5, 1.2)  # points; thinner where leaves are close
    branches = LineCollection(lines, colors=colours[vertices].tolist(), linewidths=width, capstyle="round")
    layout.ax.add_collection(branches, autolim=False)
    root = layout.place(r[:1], t[:1])
    layout.ax.scatter(*root, s=14 * width, color=_INK, linewidths=0, zorder=3)


def _draw_names(tree: ClassTree, layout: _Layout, names: list[str], marked: np.ndarray, colours: np.ndarray) -> None:
    positions = np.arange(tree.n_classes)
    x, y = layout.place(np.ones(tree.n_classes), positions)
    size = min(2.6, 25 * layout.pitch)  # points
    layout.ax.scatter(x, y, s=size**2, c=colours[tree.n_nodes :].tolist(), linewidths=0, zorder=3)
    if layout.font < _MIN_FONT:
        return
    for position, c in enumerate(tree.order):
        angle = layout.angle(position)
        direction = np.radians(angle)
        upside_down = angle < -90
        layout.ax.text(
            x[position] + _GAP * np.cos(direction),
            y[position] + _GAP * np.sin(direction),
            names[c],
            fontsize=layout.font,
            color=_ACCENT if marked[c] else _INK,
            fontweight="bold" if marked[c] else "normal",
            rotation=angle + 180 if upside_down else angle,
            rotation_mode="anchor",
            ha="right" if upside_down else "left",
            va="center_baseline",
            parse_math=False,  # a $ in a name is a $
        )


def _draw_node_values(layout: _Layout, r: np.ndarray, t: np.ndarray, values: np.ndarray) -> None:
    x, y = layout.place(r, t)
    given = np.isfinite(values)
    style = {"s": 34, "cmap": "viridis", "edgecolors": "white", "linewidths": 0.8, "zorder": 4}
    dots = layout.ax.scatter(x[given], y[given], c=values[given], **style)
    bar_axes = layout.ax.inset_axes(layout.bar, transform=layout.ax.transData)
    bar = layout.ax.figure.colorbar(dots, cax=bar_axes, orientation="horizontal")
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.ax.tick_params(labelsize=8, length=2, colors=_INK)
