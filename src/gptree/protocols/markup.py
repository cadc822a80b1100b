"""HTML pages that need nothing else: elements, tables, and matplotlib figures as inline SVG."""

from __future__ import annotations

import html
import io
import unicodedata
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def one_line(value: Any) -> str:
    """A label as one line of text, with a mark for characters that a page cannot hold."""
    line = " ".join(str(value).split())
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs", "Cn") else c for c in line)


def escaped(value: Any) -> str:
    """A label as markup."""
    return html.escape(one_line(value))


def element(name: str, *children: str, **attributes: Any) -> str:
    """An element. Children are markup; attributes are text, or None to leave them out; `class_` stands for class."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"


def page(title: str, *parts: str, pictures: bool = False) -> str:
    """A whole page: no network, no scripts, light or dark as the reader likes; `pictures` allows those it holds."""
    style = files("gptree.protocols").joinpath("report.css").read_text(encoding="utf-8")
    allowed = "default-src 'none'; style-src 'unsafe-inline'" + ("; img-src data:" if pictures else "")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        # Nothing is loaded or run, whatever a label says.
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">'
        f"<title>{escaped(title)}</title><style>{style}</style>"
    )
    main = element("main", element("h1", escaped(title)), *parts)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body>{main}</body></html>\n'


def section(heading: str, explanation: str, *parts: str) -> str:
    """A heading, a paragraph that explains, and what follows."""
    return element("section", element("h2", escaped(heading)), element("p", escaped(explanation)), *parts)


def folded(title: str, *parts: str, is_open: bool = False) -> str:
    """Parts that unfold below a title."""
    return element("details", element("summary", escaped(title)), *parts, open="" if is_open else None)


def charts(*figures: str) -> str:
    """Figures side by side."""
    return element("div", *figures, class_="charts")


def axes(width: float = 4.0, height: float = 2.8, blank: bool = False) -> Axes:
    """Axes of a new figure, of so many inches; blank ones fill it."""
    from matplotlib.figure import Figure

    if blank:
        return Figure(figsize=(width, height)).add_axes((0.0, 0.0, 1.0, 1.0))
    return Figure(figsize=(width, height), layout="constrained").subplots()


def table(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose header is markup; a row is the text of its head and then `td` elements.

    It scrolls sideways where the page is too narrow, also by keyboard.
    """
    heads = (element("th", name, scope="col") for name in header)
    lines = (element("tr", element("th", escaped(head), scope="row"), *cells) for head, *cells in rows)
    whole = element(
        "table",
        element("caption", escaped(caption)),
        element("thead", element("tr", *heads)),
        element("tbody", *lines),
    )
    return element("div", whole, class_="scroll", role="region", tabindex=0, aria_label=caption)


def figure_element(key: str, title: str, description: str, figure: Figure, max_width: str | None = None) -> str:
    """A figure with a caption, and a description for those who do not see it. No other figure has this key.

    It is as wide as its card; with `max_width`, as wide as it was drawn, and no wider than that.
    """
    names = (
        element("title", escaped(title), id=f"{key}-title"),
        element("desc", escaped(description), id=f"{key}-desc"),
    )
    width = 72 * figure.get_size_inches()[0]
    style = None if max_width is None else f"width: {width:.0f}pt; max-width: {max_width}"
    labels = {"role": "img", "aria_labelledby": f"{key}-title {key}-desc", "style": style}
    return element("figure", element("figcaption", escaped(title)), inline_svg(figure, key, *names, **labels))


def inline_svg(figure: Figure, key: str, *first: str, **attributes: Any) -> str:
    """A figure as an `svg` element of a page. No other element has this key.

    It has no style sheet, which would rule the page, and its ids begin with the key. Text stays text, in the reader's
    fonts.
    """
    import matplotlib

    file = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(file, format="svg", transparent=True)
    svg = ElementTree.fromstring(file.getvalue())
    for parent in list(svg.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    for node in svg.iter():
        node.tag = node.tag.rpartition("}")[2]  # markup of a page has no name spaces
        node.attrib = {name.rpartition("}")[2]: value for name, value in node.attrib.items()}
        for name, before in (("id", ""), ("href", "#"), ("clip-path", "url(#"), ("style", "url(#")):
            if name in node.attrib:
                node.attrib[name] = node.attrib[name].replace(before, f"{before}{key}-", 1)
    drawing = "".join(ElementTree.tostring(child, encoding="unicode") for child in svg)
    width, height = 72 * figure.get_size_inches()
    return element("svg", *first, drawing, viewBox=f"0 0 {width:g} {height:g}", **attributes)
