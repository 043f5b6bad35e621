"""The text of a prompt-tsx tree: what an extension's tool answers when it renders its result as a prompt."""

from __future__ import annotations

from typing import Any

import msgspec

# PromptNodeType, as the JSON of a rendered element spells it.
PIECE, TEXT = 1, 2
MAX_DEPTH = 200


def read_text(value: Any) -> str:
    """The text of the tree, in order; of a value that is no such tree, its JSON."""
    root = value.get("node") if isinstance(value, dict) else None
    if isinstance(root, dict) and ("children" in root or "text" in root):
        said: list[str] = []
        _collect(root, said, 0)
        return "".join(said)
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _collect(node: Any, said: list[str], depth: int) -> None:
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        return
    if node.get("type") == TEXT or isinstance(node.get("text"), str):
        if node.get("lineBreakBefore") and said:
            said.append("\n")
        text = node.get("text")
        said.append(text if isinstance(text, str) else "")
    children = node.get("children")
    for child in children if isinstance(children, list) else ():
        _collect(child, said, depth + 1)
