"""Make the pictures of the README and the guides: `make pictures`, or `python -m docs.pictures charts`.

Every picture is made twice, for light and dark pages. The terminal and VS Code are real: the scripts run the
programs and draw what they show. The charts are drawn from the results in `bench/results`.
"""

from __future__ import annotations

import sys
from importlib import import_module

PICTURES = ("diagram", "charts", "terminal", "vscode")


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        sys.exit(f"Unknown picture {unknown[0]!r}. Valid names: {', '.join(PICTURES)}.")
    for name in names or PICTURES:
        import_module(f"docs.pictures.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
