"""Counting without a tokenizer: a token for every three characters, more rather than fewer."""

from __future__ import annotations

import msgspec

from tollbridge.core.messages import Message


class Characters:
    def estimate_text(self, model: str, text: str) -> int:  # noqa: ARG002
        return -(-len(text) // 3)

    def estimate_message(self, model: str, message: Message) -> int:
        return self.estimate_text(model, msgspec.json.encode(message.parts).decode())
