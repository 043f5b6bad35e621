"""A request, read for counting: the fingerprints of its prefixes and the content of its messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tollbridge.core.messages import ChatRequest, Message, Role
from tollbridge.tokens.estimate import Content, Toolset, last_word_of_user, read_message, read_toolset
from tollbridge.tokens.families import Family, family_of
from tollbridge.tokens.fingerprints import (
    answer_fingerprint,
    chain,
    editing_fingerprint,
    fingerprint,
    message_key,
    toolset_fingerprint,
)
from tollbridge.tokens.recent import Recent
from tollbridge.tokens.texts import Texts


class Line(msgspec.Struct, frozen=True):
    """One message: its content, and the keys under which its real tokens may be known."""

    content: Content
    key: bytes
    answer: bytes | None


class Prompt(msgspec.Struct, frozen=True):
    """`links` has a fingerprint for every prefix; `spoken` is where the user spoke last."""

    model: str
    family: Family
    lines: Sequence[Line]
    links: Sequence[bytes]
    toolset_key: bytes
    toolset: Toolset
    spoken: int


class Reader:
    """Reads requests. A message or tool set met again is not counted again."""

    def __init__(self) -> None:
        self.texts = Texts()
        self._lines: Recent[tuple[str, bytes], Line] = Recent(20_000)
        self._toolsets: Recent[tuple[str, bytes], Toolset] = Recent(200)

    def read(self, request: ChatRequest) -> Prompt:
        model, family = request.model, family_of(request.model)
        digests = [fingerprint(message) for message in request.messages]
        toolset_key = toolset_fingerprint(request)
        toolset = self._toolsets.get((family.name, toolset_key))
        if toolset is None:
            toolset = read_toolset(self.texts, family, request)
            self._toolsets.put((family.name, toolset_key), toolset)
        return Prompt(
            model=model,
            family=family,
            lines=[
                self._line(model, family, message, digest)
                for message, digest in zip(request.messages, digests, strict=True)
            ],
            links=chain(model, digests, editing_fingerprint(request)),
            toolset_key=toolset_key,
            toolset=toolset,
            spoken=last_word_of_user(request.messages),
        )

    def read_line(self, model: str, message: Message) -> Line:
        return self._line(model, family_of(model), message, fingerprint(message))

    def _line(self, model: str, family: Family, message: Message, digest: bytes) -> Line:
        line = self._lines.get((model, digest))
        if line is None:
            line = Line(
                content=read_message(self.texts, family, model, message),
                key=message_key(model, digest),
                answer=answer_fingerprint(model, message.parts) if message.role is Role.ASSISTANT else None,
            )
            self._lines.put((model, digest), line)
        return line
