"""The host's marker: what it can read, and what is ours in it."""

from __future__ import annotations

import pytest

from tollbridge.frontends.vscode import wire
from tollbridge.frontends.vscode.decode import decode_message
from tollbridge.frontends.vscode.encode import encode_parts
from tollbridge.frontends.vscode.wire import decode_marker, encode_marker
from tollbridge.types.messages import DataPart
from tollbridge.types.reasoning import PACK_MIME, ReasoningBlock, ReasoningPack
from tollbridge.types.text import write_json

PACK = write_json(
    ReasoningPack("m", "g", (ReasoningBlock("back\\slash ÿ", "rs_1", {"encrypted_content": "+/\\"}),))
).encode()


def test_a_pack_goes_out_as_a_marker_and_comes_back_as_it_was() -> None:
    [sent] = encode_parts([DataPart(PACK, PACK_MIME)], "creator/model")
    assert isinstance(sent, wire.Data)
    assert sent.mime_type == "stateful_marker"
    assert sent.data.startswith(b"creator/model\\")
    assert decode_message(wire.Message(wire.ASSISTANT, [sent])).parts == (DataPart(PACK, PACK_MIME),)


def test_the_host_finds_two_pieces_whatever_is_in_the_pack() -> None:
    assert len(encode_marker("odd\\name", PACK).decode().split("\\")) == 2


@pytest.mark.parametrize(
    "marker", [b"", b"gpt-5\\resp_123", b"no backslash", b"m\\e30", b"m\\\xff\xfe", b"m\\{}"]
)
def test_markers_of_others_are_not_ours(marker: bytes) -> None:
    assert decode_marker(marker) is None
