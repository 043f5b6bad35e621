"""Compare our token counts with independent tokenizers: other engines, other copies of the vocabularies.

    python -m bench.tokens.equality [--fixture tests/tokens/counts.json]

`--fixture` writes the counts of the independent tokenizers to a file: for the texts in the file, or for the
thousand texts of chunks.py if it has none (tests/tokens/chunks.json).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.targets import at_least, exit_if_missed
from bench.tokens.chunks import chunks
from bench.tokens.corpus import corpus
from bench.tokens.references import reference
from tollbridge.tokens.tokenizers import tokenizer

# Our vocabulary and the reference tokenizer of the same models.
PAIRS = {
    "o200k_base": "o200k",
    "cl100k_base": "cl100k",
    "gemma4": "gemma4",
    "qwen3": "qwen3",
    "deepseek_v3": "deepseek",
    "llama3": "llama3",
    "mistral_v3": "tekken",
}


def main(arguments: Sequence[str] = ()) -> list[str]:
    """Run the benchmark and return the missed targets: all counts must be equal."""
    if arguments[:1] == ["--fixture"]:
        _write_fixture(Path(arguments[1]))
        return []
    chunks = [chunk for seed in range(2) for kind in corpus(seed).values() for chunk in kind]
    table = Table("vocabulary", "chunks", "equal", title="Counts equal to those of an independent tokenizer")
    missed: list[str] = []
    for name, other in PAIRS.items():
        ours, theirs = tokenizer(name), reference(other)
        assert ours is not None, name
        equal = sum(ours.count(chunk) == theirs(chunk) for chunk in chunks)
        table.add_row(name, f"{len(chunks):,}", f"{equal:,}")
        missed += at_least(f"{name}: equal counts", equal, len(chunks))
    Console().print(table)
    return missed


def _write_fixture(path: Path) -> None:
    fixture = json.loads(path.read_text()) if path.exists() else {}
    texts = fixture.get("texts", chunks())
    fixture["counts"] = {name: [reference(other)(text) for text in texts] for name, other in PAIRS.items()}
    path.write_text(json.dumps(fixture, ensure_ascii=False, indent=1 if "texts" in fixture else None) + "\n")


if __name__ == "__main__":
    exit_if_missed(main(sys.argv[1:]))
