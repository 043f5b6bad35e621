"""Run benchmarks: `make bench` for all, `python -m bench streaming` for some. Fails if a target is missed."""

from __future__ import annotations

import sys
from importlib import import_module

from bench.targets import exit_if_missed

BENCHES = {
    "streaming": "bench.streaming",
    "aisdk": "bench.aisdk",
    "decoders": "bench.decoders",
    "stop": "bench.stop",
    "tokens.equality": "bench.tokens.equality",
    "tokens.speed": "bench.tokens.speed",
    "tokens.simulate": "bench.tokens.simulate",
    "tokens.local": "bench.tokens.local",
    "tokens.store": "bench.tokens.store",
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        sys.exit(f"Unknown benchmark {unknown[0]!r}. Valid names: {', '.join(BENCHES)}.")
    exit_if_missed([target for name in names or BENCHES for target in import_module(BENCHES[name]).main()])


if __name__ == "__main__":
    main(sys.argv[1:])
