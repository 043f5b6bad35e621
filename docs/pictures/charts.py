"""Draw the results of the benchmarks that are stored in `bench/results`."""

from __future__ import annotations

from bench.results import load
from docs.pictures.svg import Drawing, Theme, draw_both

WIDTH = 760
TAIL = 20


def main() -> None:
    draw_both("benchmark", draw_benchmark)
    draw_both("learning", draw_learning)


def draw_benchmark(theme: Theme) -> Drawing:
    """Draw the CPU time per streamed event as bars."""
    results = load("streaming")
    rows = [
        ("bare socket read", "nothing is decoded", results["cpu_us"]["socket"], theme.muted),
        ("Tollbridge", "from the socket to parts", results["cpu_us"]["ours"], theme.accent),
        ("openai", "async create(stream=True)", results["cpu_us"]["openai"], theme.second),
    ]
    top, step, bar, left = 64, 56, 28, 210
    drawing = Drawing(WIDTH, top + len(rows) * step + 6, "CPU time per streamed event")
    drawing.text(0, 22, "CPU time per streamed event", theme.text, size=17, bold=True)
    note = f"microseconds; a stream of {results['events']:,} events; median of {results['rounds']} rounds"
    drawing.text(0, 43, note, theme.muted, size=13)
    scale = (WIDTH - left - 80) / max(value for _, _, value, _ in rows)
    for index, (name, what, value, colour) in enumerate(rows):
        y = top + index * step
        drawing.text(left - 14, y + 13, name, theme.text, size=15, anchor="end", bold=name == "Tollbridge")
        drawing.text(left - 14, y + 30, what, theme.muted, size=12, anchor="end")
        drawing.rect(left, y + 4, max(2, value * scale), bar, colour, radius=3)
        drawing.text(left + value * scale + 10, y + 24, f"{value:.1f}", theme.text, size=15, bold=True)
    return drawing


def draw_learning(theme: Theme) -> Drawing:
    """Draw the mean error of the estimates by request, with and without learning."""
    results = load("learning")
    lines = [
        ("without learning", results["without_learning"], theme.second),
        ("with learning", results["with_learning"], theme.accent),
    ]
    left, top, width, height = 52, 74, WIDTH - 200, 220
    drawing = Drawing(WIDTH, top + height + 54, "Error of token estimates by request")
    drawing.text(0, 22, "Error of token estimates, in % of the prompt", theme.text, size=17, bold=True)
    note = f"a model with an unknown tokenizer; mean of {results['simulations']} simulated coding sessions"
    drawing.text(0, 43, note, theme.muted, size=13)
    count = len(lines[0][1])
    highest = max(max(values) for _, values, _ in lines)
    unit = next(unit for unit in (1, 2, 5, 10, 20, 50) if highest / unit <= 6)
    ceiling = unit * -(-highest // unit)

    def place(request: float, error: float) -> tuple[float, float]:
        return left + (request - 1) / (count - 1) * width, top + height * (1 - error / ceiling)

    for error in range(0, int(ceiling) + 1, unit):
        _, y = place(1, error)
        drawing.line([(left, y), (left + width, y)], theme.line)
        drawing.text(left - 10, y + 5, f"{error} %", theme.muted, size=13, anchor="end")
    for request in [1, *range(10, count + 1, 10)]:
        x, y = place(request, 0)
        drawing.text(x, y + 22, str(request), theme.muted, size=13, anchor="middle")
    drawing.text(left + width / 2, top + height + 44, "request", theme.muted, size=13, anchor="middle")
    for label, values, colour in lines:
        points = [place(number, value) for number, value in enumerate(values, start=1)]
        drawing.line(points, colour, 2)
        x, y = points[-1]
        drawing.circle(x, y, 3.5, colour)
        drawing.text(x + 14, y - 6, label, colour, size=14, bold=True)
        drawing.text(x + 14, y + 11, f"last {TAIL} requests: {_tail(values):.1f} %", theme.muted, size=12)
    return drawing


def _tail(values: list[float]) -> float:
    """Return the mean of the last values."""
    return sum(values[-TAIL:]) / TAIL
