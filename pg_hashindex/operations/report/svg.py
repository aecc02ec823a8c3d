"""Figures as SVG inside of a page: without anything from elsewhere, in the page's own colours."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

# What is parsed is what matplotlib has just written.
from xml.etree import ElementTree

from ...quality.plots.figures import drawing
from .markup import Markup, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["embedded"]

_REFERENCE = re.compile(r"(?<=url\(#)[^)]+|(?<=^#).+")
_FONT = re.compile(r"font-family:[^;]*;?\s*")
# Those that cannot be seen on a dark page.
_COLOURS = {"#000000": "currentColor", "#0072b2": "var(--blue)"}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_PIXELS_PER_POINT = 96 / 72


def embedded(figure: Figure, key: str, title: str, description: str) -> Markup:
    """Return a figure as an element of HTML.

    Letters stay letters, black becomes the colour of the page's text, blue that of its style, and
    there is no background.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    key : str
        What its ids begin with, unique in the page.
    title, description : str
        For those who do not see it.

    Returns
    -------
    Markup
    """
    import matplotlib

    out = io.StringIO()
    # Salted, so that the same figure gives the same ids.
    with drawing(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}):
        figure.savefig(out, format="svg", transparent=True, metadata=_NO_METADATA)
    root = ElementTree.fromstring(out.getvalue())  # noqa: S314
    for style in [(parent, child) for parent in root.iter() for child in parent]:
        if style[1].tag.endswith("}style"):
            style[0].remove(style[1])
    _rename(root, key)
    width, height = (float(word) for word in root.attrib["viewBox"].split()[2:])
    root.attrib = {
        "viewBox": root.attrib["viewBox"],
        "width": f"{width * _PIXELS_PER_POINT:.0f}",
        "height": f"{height * _PIXELS_PER_POINT:.0f}",
        "role": "img",
        "aria-labelledby": f"{key}-title {key}-description",
    }
    for place, (name, words) in enumerate((("title", title), ("desc", description))):
        told = ElementTree.Element(name, {"id": f"{key}-{'description' if place else name}"})
        told.text = printable(words)
        root.insert(place, told)
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _rename(root: ElementTree.Element, key: str) -> None:
    """Leave out namespaces, which HTML has for SVG, and ids that nothing refers to."""
    used = {
        found: f"{key}-{number}"
        for number, found in enumerate(
            dict.fromkeys(
                match.group()
                for one in root.iter()
                for value in one.attrib.values()
                for match in _REFERENCE.finditer(value)
            )
        )
    }
    for one in root.iter():
        one.tag = one.tag.rpartition("}")[2]
        attributes = {}
        for name, value in one.attrib.items():
            if name == "id":
                if value in used:
                    attributes["id"] = used[value]
                continue
            renamed = _REFERENCE.sub(lambda match: used[match.group()], value)
            if name == "style":
                renamed = _FONT.sub("", renamed)
                for colour, here in _COLOURS.items():
                    renamed = renamed.replace(colour, here)
            between = "" if renamed.startswith("data:") else " "
            attributes[name.rpartition("}")[2]] = between.join(renamed.split())
        one.attrib = attributes
        # Blanks between elements say nothing.
        one.tail = None
        if one.text is not None and not one.text.strip():
            one.text = None
