from __future__ import annotations

import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from random_trees import chain, class_trees, random_tree

from gptree.tree import ClassTree, plot_tree, to_dot, to_newick, to_text

ANIMALS = ["cat", "dog", "car", "lorry", "ship"]
TREE = ClassTree.from_nested([["cat", "dog"], [["car", "lorry"], "ship"]], ANIMALS)


# ---------------------------------------------------------------- text


def test_text():
    assert to_text(TREE, ANIMALS) == "\n".join(
        [
            "┬─┬─ cat",
            "│ └─ dog",
            "└─┬─┬─ car",
            "  │ └─ lorry",
            "  └─ ship",
        ]
    )


def test_text_to_a_depth():
    assert to_text(TREE, ANIMALS, max_depth=1) == "\n".join(
        [
            "┬─ [2 classes: cat, dog]",
            "└─ [3 classes: car, lorry, ship]",
        ]
    )
    assert to_text(TREE, ANIMALS, max_depth=0) == "[5 classes: cat, dog, car, lorry, …]"


def test_text_of_odd_names_and_sizes():
    assert to_text(random_tree(1, 0), ["only"]) == "only"
    assert to_text(chain(2), ["two\nlines", "x" * 99], width=10) == "┬─ two lines\n└─ xxxxxxxxx…"
    assert to_text(chain(3), [1, 2.5, None]).endswith("─ None")
    assert to_text(chain(10_000), range(10_000), max_depth=3).count("\n") == 3


@settings(deadline=None)
@given(class_trees())
def test_text_has_one_line_a_class_in_leaf_order(tree: ClassTree):
    lines = to_text(tree, range(tree.n_classes)).split("\n")
    assert [int(line.split()[-1]) for line in lines] == tree.order.tolist()


def test_wrong_number_of_names():
    for draw in (to_text, to_dot, to_newick, plot_tree):
        with pytest.raises(ValueError, match="2 names given for 5"):
            draw(TREE, ["a", "b"])


# ---------------------------------------------------------------- Graphviz and Newick


def test_newick():
    assert to_newick(TREE, ANIMALS) == "((cat,dog),((car,lorry),ship));"
    assert to_newick(chain(3), ["a b", "it's", "x_(y)"]) == "('a b',('it''s','x_(y)'));"
    assert to_newick(random_tree(1, 0), [""]) == "'';"
    assert to_newick(chain(10_000), range(10_000)).endswith("9998,9999" + ")" * 9_999 + ";")


def parse_newick(text: str):
    """A small reader of Newick: nested lists of names."""
    tokens = re.findall(r"'(?:[^']|'')*'|[(),;]|[^(),;']+", text)
    assert "".join(tokens) == text
    stack: list[list] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif token not in ",;":
            stack[-1].append(token[1:-1].replace("''", "'") if token[0] == "'" else token)
    return stack[0][0]


@settings(deadline=None)
@given(class_trees(8), st.data())
def test_newick_reads_back(tree: ClassTree, data):
    words = st.text("aB9'_-.()[]:;,\"\\/é漢🐝", min_size=1)  # what a tree is written with, and letters of any kind
    names = data.draw(st.lists(words, min_size=tree.n_classes, max_size=tree.n_classes))
    assert parse_newick(to_newick(tree, names)) == tree.to_nested(names)


@settings(deadline=None)
@given(class_trees())
def test_dot_holds_every_edge_and_name(tree: ClassTree):
    names = [f'the "{c}" \\ class' for c in range(tree.n_classes)]
    text = to_dot(tree, names)
    edges = {(int(u), int(v)) for u, v in re.findall(r"^  v(\d+) -> v(\d+);$", text, re.MULTILINE)}
    assert edges == {(int(u), v) for v, u in enumerate(tree.parent) if u >= 0}
    labels = re.findall(r'^  v(\d+) \[shape=plaintext, label="((?:[^"\\]|\\.)*)"\];$', text, re.MULTILINE)
    assert {int(v): re.sub(r"\\(.)", r"\1", label) for v, label in labels} == {
        tree.n_nodes + p: names[c] for p, c in enumerate(tree.order)
    }
    assert text.startswith("digraph")
    assert text.count("{") == text.count("}") == 1


# ---------------------------------------------------------------- picture


def shown_names(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


@pytest.mark.parametrize("n_classes", [1, 2, 10, 60, 80, 81, 200])
def test_picture_shows_all_names_inside_the_figure_without_overlap(n_classes: int):
    names = [f"class number {c}" for c in range(n_classes)]
    tree = random_tree(n_classes, 1)
    figure = plot_tree(tree, names)
    assert shown_names(figure) == [names[c] for c in tree.order]
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        assert 0 <= box.x0 <= box.x1 <= width
        assert 0 <= box.y0 <= box.y1 <= height
    anchors = np.array([figure.axes[0].transData.transform(text.get_position()) for text in figure.axes[0].texts])
    gaps = np.hypot(*np.diff(anchors, axis=0).T) / figure.dpi * 72  # points between neighbouring names
    assert all(gap >= 1.1 * figure.axes[0].texts[0].get_fontsize() for gap in gaps)
    assert all(text.get_fontsize() >= 7 for text in figure.axes[0].texts)


def test_names_around_a_disc_point_outwards_and_are_never_upside_down():
    figure = plot_tree(random_tree(120, 0), [f"class number {c}" for c in range(120)])
    figure.draw_without_rendering()
    middle = np.array(figure.bbox.size) / 2
    for text in figure.axes[0].texts:
        assert text.get_rotation() <= 90 or text.get_rotation() >= 270
        box, anchor = text.get_window_extent(), figure.axes[0].transData.transform(text.get_position())
        assert np.hypot(*(np.mean(box.get_points(), axis=0) - middle)) > np.hypot(*(anchor - middle))


def test_picture_can_be_saved_and_cuts_long_names():
    figure = plot_tree(chain(3), ["$not math", "_x", "a very long name that nobody wants to read in full"])
    assert shown_names(figure) == ["$not math", "_x", "a very long name that nob…"]
    file = io.BytesIO()
    figure.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")


def test_picture_marks_classes_and_nodes():
    names = list("abcde")
    figure = plot_tree(TREE, names, highlight=[2, 3], node_values=[0.5, 0.9, np.nan, 0.7])
    bold = [text.get_text() for text in figure.axes[0].texts if text.get_fontweight() == "bold"]
    assert bold == ["c", "d"]
    plain = plot_tree(TREE, names)
    assert len(figure.axes[0].collections) == len(plain.axes[0].collections) + 1
    np.testing.assert_array_equal(figure.axes[0].collections[-1].get_array(), [0.5, 0.9, 0.7])


def test_picture_in_given_axes():
    figure = Figure()
    upper, lower = figure.subplots(2, 1)
    assert plot_tree(TREE, ANIMALS, lower) is figure
    assert len(lower.texts) == 5
    assert not upper.texts
    part = figure.subfigures(1, 1)
    assert plot_tree(TREE, ANIMALS, part.add_subplot()) is figure


def test_picture_of_ten_thousand_classes_leaves_the_names_out():
    figure = plot_tree(chain(10_000), range(10_000))
    assert not figure.axes[0].texts
    assert max(figure.get_size_inches()) < 40


def test_bad_marks():
    with pytest.raises(ValueError, match="Cannot highlight class 5"):
        plot_tree(TREE, ANIMALS, highlight=[5])
    with pytest.raises(ValueError, match="each of the 4 inner nodes"):
        plot_tree(TREE, ANIMALS, node_values=[1.0])
