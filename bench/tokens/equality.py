"""Whether our counts equal those of independent tokenizers: other engines, other copies of the vocabularies.

    python -m bench.tokens.equality [--fixture tests/tokens/counts.json]

With `--fixture` the counts in the file are made again, by the independent tokenizers alone: those of its
texts, or of the thousand that chunks.py makes where it has none (tests/tokens/chunks.json).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.targets import at_least, leave
from bench.tokens.chunks import chunks
from bench.tokens.corpus import corpus
from bench.tokens.truths import truth
from tollbridge.tokens.tokenizers import tokenizer

# Our vocabulary, and the independent tokenizer of the same models.
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
    """The targets that were missed: every count is to be equal."""
    if arguments[:1] == ["--fixture"]:
        _write(Path(arguments[1]))
        return []
    chunks = [chunk for seed in range(2) for kind in corpus(seed).values() for chunk in kind]
    table = Table("vocabulary", "chunks", "equal", title="counts beside an independent tokenizer")
    missed: list[str] = []
    for name, other in PAIRS.items():
        ours, theirs = tokenizer(name), truth(other)
        assert ours is not None, name
        equal = sum(ours.count(chunk) == theirs(chunk) for chunk in chunks)
        table.add_row(name, f"{len(chunks):,}", f"{equal:,}")
        missed += at_least(f"{name}: equal counts", equal, len(chunks))
    Console().print(table)
    return missed


def _write(path: Path) -> None:
    told = json.loads(path.read_text()) if path.exists() else {}
    texts = told.get("texts", chunks())
    told["counts"] = {name: [truth(other)(text) for text in texts] for name, other in PAIRS.items()}
    path.write_text(json.dumps(told, ensure_ascii=False, indent=1 if "texts" in told else None) + "\n")


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
