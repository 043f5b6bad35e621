"""Draw the path of a request through the packages of `src/tollbridge`, and of its answer back."""

from __future__ import annotations

from docs.pictures.svg import Drawing, Theme, draw_both

WIDTH, HEIGHT = 960, 396
TOP, ROW, BOX, WIRE_BOX = 62, 74, 54, 64
# The left edge and the width of each column.
CALLERS, FRONT_ENDS, ENGINE, WIRE, GATEWAYS = (1, 152), (197, 158), (399, 226), (669, 138), (851, 108)
LANE = 9  # the distance of request and answer from the middle between them

# What calls Tollbridge, and the package that translates for it.
ROWS = (
    ("Editors", "VS Code, Neovim", "frontends/stdio/", "JSON-RPC on a pipe"),
    ("Agents", "Codex, Claude Code…", "frontends/http/", "tollbridge serve"),
    ("Your program", "import tollbridge", "Engine", "async, or SyncEngine"),
    ("You", "at a terminal", "cli/", "ask, chat, usage…"),
)
STEPS = (
    ("engine.py", "finds account, key and model"),
    ("history/", "makes the messages valid"),
    ("compat/", "avoids what the server rejects"),
    ("tokens/", "estimates; learns from usage"),
    ("observers/", "usage, budgets, learning"),
    ("storage/", "records tokens and cost"),
)
WIRE_BOXES = (
    ("clients/", "one per protocol"),
    ("protocols/", "encode, decode"),
    ("transport/", "HTTP, retries"),
)
SERVERS = ("Vercel", "OpenAI", "Anthropic", "llama.cpp", "vLLM", "Ollama", "LM Studio", "LiteLLM")


def main() -> None:
    draw_both("request-path", draw)


def draw(theme: Theme) -> Drawing:
    drawing = Drawing(WIDTH, HEIGHT, "The path of a request through Tollbridge, and of its answer back")
    drawing.arrow_head("request", theme.accent)
    drawing.arrow_head("answer", theme.second)
    for (x, width), heading in zip(
        (CALLERS, FRONT_ENDS, ENGINE, WIRE, GATEWAYS),
        ("Callers", "Front ends", "One turn", "The wire", "Gateways"),
        strict=True,
    ):
        drawing.text(x + width / 2, 34, heading, theme.muted, size=14, anchor="middle", bold=True)
    bottom = TOP + 3 * ROW + BOX
    for row, (caller, how, package, what) in enumerate(ROWS):
        y = TOP + row * ROW
        _box(drawing, theme, CALLERS, y, caller, how, outside=True)
        _box(drawing, theme, FRONT_ENDS, y, package, what)
        _arrows(drawing, theme, CALLERS, FRONT_ENDS, y + BOX / 2)
        _arrows(drawing, theme, FRONT_ENDS, ENGINE, y + BOX / 2)
    _draw_turn(drawing, theme, bottom)
    _draw_wire(drawing, theme, bottom)
    _arrows(drawing, theme, ENGINE, WIRE, TOP + WIRE_BOX / 2)
    _arrows(drawing, theme, WIRE, GATEWAYS, bottom - WIRE_BOX / 2)
    _draw_servers(drawing, theme, bottom)
    _draw_legend(drawing, theme)
    return drawing


def _box(
    drawing: Drawing,
    theme: Theme,
    column: tuple[float, float],
    y: float,
    title: str,
    text: str,
    *,
    height: float = BOX,
    outside: bool = False,
) -> None:
    x, width = column
    fill = theme.page if outside else theme.box
    drawing.rect(x, y, width, height, fill, stroke=theme.line, radius=8)
    middle = y + height / 2
    drawing.text(
        x + width / 2, middle - 4, title, theme.text, size=13, anchor="middle", bold=outside, mono=not outside
    )
    drawing.text(x + width / 2, middle + 14, text, theme.muted, size=12.5, anchor="middle")


def _arrows(
    drawing: Drawing, theme: Theme, left: tuple[float, float], right: tuple[float, float], y: float
) -> None:
    """Draw the request to the right and the answer back."""
    start, end = left[0] + left[1] + 4, right[0] - 4
    drawing.line([(start, y - LANE), (end, y - LANE)], theme.accent, 1.5, "request")
    drawing.line([(end, y + LANE), (start, y + LANE)], theme.second, 1.5, "answer")


def _draw_turn(drawing: Drawing, theme: Theme, bottom: float) -> None:
    x, width = ENGINE
    drawing.rect(x, TOP, width, bottom - TOP, theme.accent_box, stroke=theme.accent, radius=8)
    height = (bottom - TOP - 12) / len(STEPS)
    for index, (package, what) in enumerate(STEPS):
        y = TOP + 6 + (index + 0.5) * height
        drawing.text(x + width / 2, y - 4, package, theme.text, size=13, anchor="middle", mono=True)
        drawing.text(x + width / 2, y + 13, what, theme.muted, size=12.5, anchor="middle")


def _draw_wire(drawing: Drawing, theme: Theme, bottom: float) -> None:
    gap = (bottom - TOP - len(WIRE_BOXES) * WIRE_BOX) / (len(WIRE_BOXES) - 1)
    x = WIRE[0] + WIRE[1] / 2
    for index, (package, what) in enumerate(WIRE_BOXES):
        y = TOP + index * (WIRE_BOX + gap)
        _box(drawing, theme, WIRE, y, package, what, height=WIRE_BOX)
        if index:
            drawing.line([(x - LANE, y - gap + 3), (x - LANE, y - 3)], theme.accent, 1.5, "request")
            drawing.line([(x + LANE, y - 3), (x + LANE, y - gap + 3)], theme.second, 1.5, "answer")


def _draw_servers(drawing: Drawing, theme: Theme, bottom: float) -> None:
    x, width = GATEWAYS
    drawing.rect(x, TOP, width, bottom - TOP, theme.page, stroke=theme.line, radius=8)
    for index, server in enumerate(SERVERS):
        y = (TOP + bottom) / 2 + (index - (len(SERVERS) - 1) / 2) * 31 + 5
        drawing.text(x + width / 2, y, server, theme.text, anchor="middle")


def _draw_legend(drawing: Drawing, theme: Theme) -> None:
    y = HEIGHT - 24
    x = ENGINE[0] - 120
    drawing.line([(x, y), (x + 34, y)], theme.accent, 1.5, "request")
    drawing.text(x + 44, y + 5, "request", theme.text, size=13)
    drawing.line([(x + 174, y), (x + 140, y)], theme.second, 1.5, "answer")
    drawing.text(x + 184, y + 5, "answer: a list of events per network read", theme.text, size=13)
