"""Class trees as text: for the terminal, for Graphviz, and in Newick format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gptree.tree.structure import ClassTree


def to_text(tree: ClassTree, names: Sequence[Any], *, max_depth: int | None = None, width: int = 60) -> str:
    """The tree in box-drawing characters, one line a class.

    Parameters
    ----------
    tree : ClassTree
    names : sequence of C names
    max_depth : int or None
        Below so many decisions a sub-tree is summed up in one line.
    width : int
        Names are cut to so many characters.

    Returns
    -------
    str
        Plain text: hand it to rich as `rich.text.Text`, for names may hold square brackets.

    Examples
    --------
    >>> from gptree.tree import ClassTree, to_text
    >>> print(to_text(ClassTree.from_nested([["cat", "dog"], "car"], ["car", "cat", "dog"]), ["car", "cat", "dog"]))
    ┬─┬─ cat
    │ └─ dog
    └─ car
    """
    names = class_names(tree, names, width)
    lines = []
    stack = [(0, 0, "", "")]  # (vertex, depth, the start of its first line, the start of its other lines)
    while stack:
        vertex, depth, first, other = stack.pop()
        if vertex >= tree.n_nodes:
            lines.append(_labelled(first, names[tree.members(vertex)[0]]))
        elif depth == max_depth:
            members = tree.members(vertex)
            some = shorten(", ".join(names[c] for c in members[:4]), width)
            lines.append(_labelled(first, f"[{len(members)} classes: {some}{', …' * (len(members) > 4)}]"))
        else:
            # The right child is pushed first, so that the left one comes out first.
            stack.append((int(tree.right_child[vertex]), depth + 1, other + "└─", other + "  "))
            stack.append((int(tree.left_child[vertex]), depth + 1, first + "┬─", other + "│ "))
    return "\n".join(lines)


def to_dot(tree: ClassTree, names: Sequence[Any]) -> str:
    """The tree in Graphviz's language; draw it with `dot -Tsvg`.

    Parameters
    ----------
    tree : ClassTree
    names : sequence of C names

    Returns
    -------
    str
    """
    names = class_names(tree, names)
    lines = ["digraph classes {", "  rankdir=LR;", "  node [shape=point, width=0.08]; edge [arrowhead=none];"]
    lines += [
        f"  v{tree.n_nodes + p} [shape=plaintext, label={_dot_quoted(names[c])}];" for p, c in enumerate(tree.order)
    ]
    for v in range(tree.n_nodes):
        lines.append(f"  v{v} -> v{tree.left_child[v]};")
        lines.append(f"  v{v} -> v{tree.right_child[v]};")
    return "\n".join([*lines, "}", ""])


def to_newick(tree: ClassTree, names: Sequence[Any]) -> str:
    """The tree in Newick format, which programs for phylogenetic trees read.

    Parameters
    ----------
    tree : ClassTree
    names : sequence of C names

    Returns
    -------
    str
    """
    names = class_names(tree, names)
    parts = []
    stack: list[int | str] = [0]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            parts.append(item)
        elif item >= tree.n_nodes:
            parts.append(_newick_quoted(names[tree.members(item)[0]]))
        else:
            parts.append("(")
            stack += (")", int(tree.right_child[item]), ",", int(tree.left_child[item]))
    return "".join(parts) + ";"


def class_names(tree: ClassTree, names: Sequence[Any], width: int | None = None) -> list[str]:
    """The names as single lines of text, cut to `width` characters where one is given."""
    if len(names) != tree.n_classes:
        raise ValueError(f"{len(names)} names given for {tree.n_classes} classes.")
    lines = [" ".join(str(name).split()) for name in names]
    return lines if width is None else [shorten(name, width) for name in lines]


def shorten(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1].rstrip() + "…"


def _labelled(branch: str, name: str) -> str:
    return f"{branch} {name}" if branch else name


def _dot_quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _newick_quoted(name: str) -> str:
    # Unquoted, an underscore would mean a blank, and punctuation would end the name.
    return name if re.fullmatch(r"[A-Za-z0-9.+-]+", name) else "'" + name.replace("'", "''") + "'"
