"""`make bench`, or `python -m bench streaming`: one table after the other; it fails by its targets."""

from __future__ import annotations

import sys
from importlib import import_module

from bench.targets import leave

BENCHES = {
    "streaming": "bench.streaming",
    "aisdk": "bench.aisdk",
    "tokens.equality": "bench.tokens.equality",
    "tokens.speed": "bench.tokens.speed",
    "tokens.simulate": "bench.tokens.simulate",
    "tokens.local": "bench.tokens.local",
    "tokens.store": "bench.tokens.store",
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"There is no bench {unknown[0]!r}. Known are: {', '.join(BENCHES)}.")
    leave([target for name in names or BENCHES for target in import_module(BENCHES[name]).main()])


if __name__ == "__main__":
    main(sys.argv[1:])
