"""The host's marker: what it can read, and what is ours in it."""

from __future__ import annotations

import pytest

from tollbridge.core.json import write_json
from tollbridge.core.messages import DataPart
from tollbridge.core.reasoning import CARRIED, Block, Carried
from tollbridge.editors.vscode import wire
from tollbridge.editors.vscode.decode import decode_message
from tollbridge.editors.vscode.encode import encode_parts
from tollbridge.editors.vscode.marker import decode_marker, encode_marker

PACK = write_json(
    Carried("m", "g", (Block("back\\slash ÿ", "rs_1", {"encrypted_content": "+/\\"}),))
).encode()


def test_a_pack_goes_out_as_a_marker_and_comes_back_as_it_was() -> None:
    [sent] = encode_parts([DataPart(PACK, CARRIED)], "creator/model")
    assert isinstance(sent, wire.Data)
    assert sent.mime_type == "stateful_marker"
    assert sent.data.startswith(b"creator/model\\")
    assert decode_message(wire.Message(wire.ASSISTANT, [sent])).parts == (DataPart(PACK, CARRIED),)


def test_the_host_finds_two_pieces_whatever_is_in_the_pack() -> None:
    assert len(encode_marker("odd\\name", PACK).decode().split("\\")) == 2


@pytest.mark.parametrize(
    "marker", [b"", b"gpt-5\\resp_123", b"no backslash", b"m\\e30", b"m\\\xff\xfe", b"m\\{}"]
)
def test_markers_of_others_are_not_ours(marker: bytes) -> None:
    assert decode_marker(marker) is None
