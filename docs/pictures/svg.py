"""Write SVG pictures in a light and a dark version."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent
SANS = "-apple-system, BlinkMacSystemFont, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Theme(msgspec.Struct, frozen=True):
    """The colours of a picture. They contrast with GitHub's light or dark page by at least 4.5 to 1."""

    name: str
    page: str
    text: str
    muted: str
    line: str
    box: str
    accent: str
    accent_box: str
    second: str


LIGHT = Theme(
    name="light",
    page="#ffffff",
    text="#1f2328",
    muted="#59636e",
    line="#d1d9e0",
    box="#f6f8fa",
    accent="#0969da",
    accent_box="#ddf4ff",
    second="#bc4c00",
)
DARK = Theme(
    name="dark",
    page="#0d1117",
    text="#e6edf3",
    muted="#9198a1",
    line="#3d444d",
    box="#151b23",
    accent="#4493f8",
    accent_box="#11233d",
    second="#f0883e",
)


class Drawing:
    """An SVG picture, drawn from the back to the front."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._width, self._height, self._title = width, height, title
        self._shapes: list[str] = []

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str,
        *,
        stroke: str = "none",
        radius: float = 0,
    ) -> None:
        self._shapes.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius:g}" '
            f'fill="{fill}" stroke="{stroke}"/>'
        )

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1, end: str = "") -> None:
        """Draw a line through the points. `end` is the name of an arrow head."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        marker = f' marker-end="url(#{end})"' if end else ""
        self._shapes.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{marker}/>'
        )

    def arrow_head(self, name: str, colour: str) -> None:
        """Define an arrow head for lines."""
        self._shapes.append(
            f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'markerUnits="userSpaceOnUse" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{colour}"/></marker>'
        )

    def circle(self, x: float, y: float, radius: float, fill: str) -> None:
        self._shapes.append(f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{fill}"/>')

    def text(
        self,
        x: float,
        y: float,
        text: str,
        fill: str,
        *,
        size: float = 14,
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        family = f' font-family="{MONO}"' if mono else ""
        self._shapes.append(
            f'<text x="{x:g}" y="{y:g}" fill="{fill}" font-size="{size:g}" text-anchor="{anchor}"'
            f"{weight}{family}>{escape(text)}</text>"
        )

    def add(self, shape: str) -> None:
        """Add an SVG element."""
        self._shapes.append(shape)

    def to_svg(self) -> str:
        body = "\n".join(self._shapes)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self._width:g} {self._height:g}" '
            f'width="{self._width:g}" height="{self._height:g}" role="img" font-family="{SANS}">\n'
            f"<title>{escape(self._title)}</title>\n{body}\n</svg>\n"
        )


def draw_both(name: str, draw: Callable[[Theme], Drawing]) -> None:
    """Draw a picture in both themes and save it as NAME-light.svg and NAME-dark.svg."""
    for theme in (LIGHT, DARK):
        path = FOLDER / f"{name}-{theme.name}.svg"
        path.write_text(draw(theme).to_svg(), encoding="utf-8")
        print(f"docs/pictures/{path.name}")
