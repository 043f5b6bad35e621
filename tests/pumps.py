"""Measure whether code takes linear time, and derive inputs that make a regular expression slow.

A pump is a function from a number n to an input of about n characters. Code is linear if the input of 2n
takes at most `MAX_RATIO` times as long as the input of n.
"""

from __future__ import annotations

import ast
import gc
import importlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent.parent / "src" / "tollbridge"

# Twice the input may take this much longer. Quadratic code takes 4 times as long, n log n about 2.1 times.
MAX_RATIO = 2.5
# The input grows until reading it takes this long (seconds of CPU time); a shorter time cannot be compared.
MIN_SECONDS = 0.02
_FIRST_SIZE = 200
# Code that reads this many characters in less than `MIN_SECONDS` is linear: n² steps would take far longer.
MAX_SIZE = 512_000
# How often code is measured that seems not to be linear.
_REPEATS = 6

Pump = Callable[[int], Any]


def pump(prefix: Any, unit: Any, suffix: Any = "") -> Pump:
    """Return the pump `prefix unit unit unit … suffix`, of text or bytes."""
    suffix = suffix or unit[:0]
    return lambda size: prefix + unit * max(1, size // len(unit)) + suffix


def measure(read: Callable[[Any], object], data: Any) -> float:
    """Return the CPU time of one call in seconds."""
    start = time.thread_time()
    read(data)
    return time.thread_time() - start


def compare(
    read: Callable[[Any], object], single: Any, double: Any, limit: float = MAX_RATIO, repeats: int = _REPEATS
) -> float:
    """Return how much longer the second input takes than the first, in CPU time.

    Code that stays within the limit passes at once. A busy machine can disturb a measurement, so other code
    is measured several times, alternating, because the speed of the processor changes.
    """
    with _without_collections():
        singles, doubles = [measure(read, single)], [measure(read, double)]
        while min(doubles) > limit * min(singles) and len(doubles) < repeats:
            singles.append(measure(read, single))
            doubles.append(measure(read, double))
        return min(doubles) / min(singles)


def find_ratio(read: Callable[[Any], object], make: Pump, limit: int = MAX_SIZE) -> tuple[int, float]:
    """Return a size, and how much longer an input of twice this size takes than one of this size.

    The ratio is 1 if an input of `limit` characters needs no measurable time.
    """
    with _without_collections():
        size = min(_FIRST_SIZE, limit // 2)
        while (seconds := measure(read, make(size))) < MIN_SECONDS:
            if size * 2 > limit:
                return size, 1.0
            # Large steps only far below the minimum, so that cubic code is stopped before it takes minutes.
            size = min(limit, size * (2 if seconds > MIN_SECONDS / 16 else 8))
        return size, compare(read, make(size), make(2 * size))


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage: a collection takes as long as the heap is large, whatever the input."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# --- The regular expressions of the source ---

_FUNCTIONS = frozenset(
    {"compile", "search", "match", "fullmatch", "split", "findall", "finditer", "sub", "subn"}
)


def find_patterns() -> dict[str, list[re.Pattern[Any]]]:
    """Return the regular expressions in the source by their places.

    A place is `module.py:NAME` if the pattern is assigned to a variable of the module, or else
    `module.py:function`. Patterns that are not constants and not in a variable of a module are missing.
    """
    places: dict[str, list[re.Pattern[Any]]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        relative, source = path.relative_to(SOURCE), path.read_text()
        for name, call in _find_calls(ast.parse(source).body) if re.search(r"\bre\b", source) else ():
            patterns = places.setdefault(f"{relative.as_posix()}:{name}", [])
            constant = _compile(call)
            if constant is not None:
                patterns.append(constant)
            else:
                module = importlib.import_module(
                    ".".join(("tollbridge", *relative.with_suffix("").parts)).removesuffix(".__init__")
                )
                patterns += _flatten(getattr(module, name, None))
    return places


def _find_calls(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.Call]]:
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                name = prefix + statement.name
            case ast.ClassDef():
                yield from _find_calls(statement.body, f"{prefix}{statement.name}.")
                continue
            case ast.Assign(targets=[ast.Name(id=target)]) | ast.AnnAssign(target=ast.Name(id=target)):
                name = prefix + target
            case _:
                name = prefix + "<module>"
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=attr)) if attr in _FUNCTIONS:
                    yield name, node


def _compile(call: ast.Call) -> re.Pattern[Any] | None:
    """Compile the pattern of a call, if it is a constant."""
    try:
        pattern = ast.literal_eval(call.args[0])
    except ValueError:
        return None
    position = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(ast.unparse(call.func)[3:], 2)
    flags = [keyword.value for keyword in call.keywords if keyword.arg == "flags"] + call.args[position:]
    return re.compile(pattern, eval(ast.unparse(flags[0]), {"re": re}) if flags else 0)


def _flatten(value: object) -> list[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [leaf for item in value for leaf in _flatten(item)] if isinstance(value, tuple | list) else []


# --- Inputs that can make a pattern slow ---

# Characters of the usual classes. The text before a repeat is followed by many of one of these.
_ALPHABET = " \n\ta0Az-_.,:;/\\\"'`(<[{=é"
# A pattern that reads so many characters in less than this (seconds) is linear, see `MAX_SIZE`. The first
# size is small, because cubic patterns take minutes for the second.
_PUMP_LIMIT = 300
_SCREEN_SIZES, _SCREEN_SECONDS = (400, 8_000), 0.004


def find_slow_pumps(
    read: Callable[[Any], object], pattern: re.Pattern[Any], limit: int
) -> Iterator[tuple[str, Pump]]:
    """Yield the derived inputs that a pattern does not read at once, to be measured with `find_ratio`."""
    is_bytes = isinstance(pattern.pattern, bytes)
    # The long patterns of alternatives have thousands of similar inputs.
    pumps = sorted(derive_pumps(pattern))
    for prefix, unit in pumps[:: len(pumps) // _PUMP_LIMIT + 1]:
        for suffix in ("", "\x01"):
            make = pump(prefix, unit, suffix)
            if is_bytes:
                make = pump(*(text.encode("utf-8", "replace") for text in (prefix, unit, suffix)))
            inputs = [make(size) for size in (min(limit, _SCREEN_SIZES[0]), min(limit, _SCREEN_SIZES[1]))]
            # Measured again if it is slow, because a busy machine can make anything slow.
            if any(all(measure(read, data) > _SCREEN_SECONDS for _ in range(2)) for data in inputs):
                yield f"{prefix!r} + {unit!r} * n + {suffix!r}", make


def derive_pumps(pattern: re.Pattern[Any]) -> set[tuple[str, str]]:
    """Return pairs of a prefix and a unit, from the parts of a pattern: each part is repeated."""
    source = pattern.pattern.decode("latin-1") if isinstance(pattern.pattern, bytes) else pattern.pattern
    parser = importlib.import_module("re._parser")
    flags = pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags
    tree = parser.parse(pattern.pattern if isinstance(pattern.pattern, bytes) else source, flags)
    pumps: set[tuple[str, str]] = set()
    for prefix, items in _sequences(tree, ""):
        texts = [_example(item) for item in items]
        for start in range(len(items) + 1):
            before = prefix + "".join(texts[:start])
            pumps |= {(before, character) for character in _ALPHABET}
            pumps |= {
                (before, unit)
                for end in range(start, len(items))
                if (unit := "".join(texts[start : end + 1]))
            }
            pumps |= {("", before)} if before else set()
    return pumps


def _sequences(tree: Any, prefix: str) -> Iterator[tuple[str, list[Any]]]:
    """Yield every sequence in a pattern with an example of the text before it."""
    items = list(tree)
    yield prefix, items
    for item in items:
        for inner in _children(item):
            yield from _sequences(inner, prefix)
        prefix += _example(item)


def _children(item: Any) -> list[Any]:
    operation, value = str(item[0]), item[1]
    match operation:
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return [value[2]]
        case "SUBPATTERN":
            return [value[3]]
        case "BRANCH":
            return list(value[1])
        case "ASSERT" | "ASSERT_NOT":
            return [value[1]] if value[0] > 0 else []
        case "ATOMIC_GROUP":
            return [value]
    return []


def _example(item: Any) -> str:
    """Return a short text that an element of a pattern matches."""
    operation, value = str(item[0]), item[1]
    match operation:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL" | "ANY":
            return next(character for character in "a-" if ord(character) != value)
        case "IN":
            return _member(value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            return "".join(map(_example, value[2])) * max(1, min(int(value[0]), 10))
        case "ASSERT" | "ASSERT_NOT":
            return ""
        case "BRANCH":
            return "".join(map(_example, value[1][0]))
    return "".join("".join(map(_example, inner)) for inner in _children(item))


def _member(items: list[Any]) -> str:
    """Return a character of a character class."""
    pieces = {
        "CATEGORY_DIGIT": r"\d",
        "CATEGORY_NOT_DIGIT": r"\D",
        "CATEGORY_SPACE": r"\s",
        "CATEGORY_NOT_SPACE": r"\S",
        "CATEGORY_WORD": r"\w",
        "CATEGORY_NOT_WORD": r"\W",
    }
    text = ""
    for kind, value in items:
        match str(kind):
            case "NEGATE":
                text += "^"
            case "LITERAL":
                text += re.escape(chr(value))
            case "RANGE":
                text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
            case "CATEGORY":
                text += pieces[str(value)]
    member = re.compile(f"[{text}]")
    candidates: Iterator[str] = map(chr, (97, *range(9, 0xE000)))
    return next(character for character in candidates if member.match(character))
