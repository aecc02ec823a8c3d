"""A little SVG: shapes on a light card, which reads well on light and on dark pages."""

from collections.abc import Iterable
from html import escape

INK = "#22304a"
FAINT = "#8a94a6"
# From near to far; they differ in lightness too, for readers who do not tell the colours apart.
SHADES = ("#1d4ed8", "#6d9bf1", "#b9c8dd", "#dde3ea")
ACCENT = "#c2410c"


class Drawing:
    """Shapes in the order in which they were added."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'role="img" font-family="system-ui, sans-serif" font-size="14" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="10" fill="#fbfcfe"/>',
        ]

    def add(self, part: str) -> None:
        """Add what is SVG already."""
        self.parts.append(part)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        anchor: str = "middle",
        size: int = 14,
        fill: str = INK,
        mono: bool = False,
        bold: bool = False,
    ) -> None:
        """Write words at a point of their base line."""
        style = ' font-family="ui-monospace, monospace"' if mono else ""
        style += ' font-weight="600"' if bold else ""
        self.add(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{fill}"{style}>{escape(words)}</text>'
        )

    def circle(
        self, x: float, y: float, radius: float, fill: str, stroke: str = "none", width: float = 1
    ) -> None:
        """Draw a dot."""
        self.add(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" '
            f'stroke="{stroke}" stroke-width="{width}"/>'
        )

    def dots(self, points: Iterable[tuple[float, float]], radius: float, fill: str) -> None:
        """Draw many dots alike."""
        circles = "".join(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{radius}"/>' for x, y in points)
        self.add(f'<g fill="{fill}" stroke="{FAINT}" stroke-width="0.5">{circles}</g>')

    def line(
        self,
        points: Iterable[tuple[float, float]],
        stroke: str,
        width: float = 1.5,
        dash: str = "none",
    ) -> None:
        """Join points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.add(
            f'<polyline points="{path}" fill="none" stroke="{stroke}" '
            f'stroke-width="{width}" stroke-dasharray="{dash}" stroke-linejoin="round"/>'
        )

    def box(self, x: float, y: float, width: float, height: float, fill: str, stroke: str) -> None:
        """Draw a rectangle with round corners."""
        self.add(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="7" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw a straight arrow, along an axis."""
        self.line([(x, y), (to_x, to_y)], INK)
        if x == to_x:
            back = -6 if to_y > y else 6
            head = [(to_x - 4, to_y + back), (to_x, to_y), (to_x + 4, to_y + back)]
        else:
            back = -6 if to_x > x else 6
            head = [(to_x + back, to_y - 4), (to_x, to_y), (to_x + back, to_y + 4)]
        self.line(head, INK)

    def star(self, x: float, y: float) -> None:
        """Mark the query."""
        self.circle(x, y, 7, ACCENT, "#ffffff", 2)

    def svg(self) -> str:
        """Return the file."""
        return "\n".join([*self.parts, "</svg>"]) + "\n"
