"""Reasoning markers: VS Code can read them, and only ours are decoded."""

from __future__ import annotations

import pytest

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.answers import encode_parts
from tollbridge.frontends.vscode.markers import decode_marker, encode_marker
from tollbridge.frontends.vscode.requests import decode_message
from tollbridge.types.messages import PACK_MIME, DataPart, ReasoningBlock, ReasoningPack
from tollbridge.types.text import write_json

PACK = write_json(
    ReasoningPack("m", "g", (ReasoningBlock("back\\slash ÿ", "rs_1", {"encrypted_content": "+/\\"}),))
).encode()


def test_a_reasoning_pack_survives_encoding_as_a_marker() -> None:
    [sent] = encode_parts([DataPart(PACK, PACK_MIME)], "creator/model")
    assert isinstance(sent, wire.Data)
    assert sent.mime_type == "stateful_marker"
    assert sent.data.startswith(b"creator/model\\")
    assert decode_message(wire.Message(wire.ASSISTANT, [sent])).parts == (DataPart(PACK, PACK_MIME),)


def test_a_marker_always_has_two_pieces() -> None:
    assert len(encode_marker("odd\\name", PACK).decode().split("\\")) == 2


@pytest.mark.parametrize(
    "marker", [b"", b"gpt-5\\resp_123", b"no backslash", b"m\\e30", b"m\\\xff\xfe", b"m\\{}"]
)
def test_markers_of_other_providers_are_ignored(marker: bytes) -> None:
    assert decode_marker(marker) is None
