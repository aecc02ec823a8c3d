"""HTML from values: whatever is not marked as HTML already is escaped."""

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from unicodedata import category

__all__ = ["Markup", "element", "pairs", "printable", "table", "text"]

# Control characters, halves of pairs, and what is no character.
_UNSHOWN = ("Cc", "Cs", "Cn")


class Markup(str):
    """Text that is HTML, and is not escaped again."""

    __slots__ = ()


def text(value: Any) -> Markup:
    """Return a value as HTML shows it; control characters, which it cannot, as a sign of them."""
    return value if isinstance(value, Markup) else Markup(html.escape(printable(str(value))))


def printable(words: str) -> str:
    """Return text with a sign in place of each letter that HTML cannot have."""
    return "".join(
        letter if letter in "\n\t" or category(letter) not in _UNSHOWN else "\ufffd"
        for letter in words
    )


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return an element.

    Parameters
    ----------
    name : str
        Of the tag.
    *children
        Markup, or values to be escaped.
    **attributes
        A ``_`` at the end of a name is dropped, others become ``-``; those that are None are left
        out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(map(text, children))}</{name}>")


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    """Return a table; columns of numbers stand to the right.

    Parameters
    ----------
    headings : sequence of str
    rows : sequence of sequences
    """
    columns = range(len(headings))
    looks = [
        "number" if _are_numbers([row[column] for row in rows]) else None for column in columns
    ]
    head = (
        element("th", heading, scope="col", class_=look)
        for heading, look in zip(headings, looks, strict=True)
    )
    lines = (
        element(
            "tr",
            *(
                element("td", _shown(cell), class_=look)
                for cell, look in zip(row, looks, strict=True)
            ),
        )
        for row in rows
    )
    return _scrolling(
        element("thead", element("tr", *head)),
        element("tbody", *lines),
    )


def pairs(rows: Sequence[tuple[str, Any]]) -> Markup:
    """Return a table of names and values."""
    lines = (
        element("tr", element("th", name, scope="row"), element("td", _shown(value)))
        for name, value in rows
    )
    return _scrolling(element("tbody", *lines))


def _scrolling(*parts: Markup) -> Markup:
    return element("div", element("table", *parts), class_="scroll")


def _are_numbers(cells: Sequence[Any]) -> bool:
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(
        isinstance(cell, int | float) and not isinstance(cell, bool) for cell in known
    )


def _shown(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}"
    return value
