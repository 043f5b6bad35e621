"""Scripted answers: cutting, and how chunks are split and joined."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tollbridge.testing.faults import Chunk, join_chunks, split_chunks
from tollbridge.testing.responses import (
    Block,
    Call,
    Disconnect,
    Draw,
    Pause,
    Refuse,
    Say,
    ScriptedAnswer,
    Think,
    cut_answer,
    decode_encrypted_content,
    encode_encrypted_content,
)

TEXT = st.text(min_size=1, max_size=30)
BLOCKS = st.lists(
    st.builds(Say, TEXT)
    | st.builds(Think, TEXT)
    | st.builds(Refuse, TEXT)
    | st.builds(Call, st.just("a_tool"), TEXT)
    | st.builds(Draw, st.just("aGk=")),
    max_size=4,
)


def read_text(block: Block) -> str:
    match block:
        case Call():
            return block.arguments
        case Draw():
            return block.png
        case _:
            return block.text


@given(BLOCKS, st.integers(0, 60))
def test_a_cut_answer_is_a_prefix_of_the_whole_answer(blocks: list[Say], limit: int) -> None:
    whole = ScriptedAnswer(blocks=tuple(blocks))
    cut = cut_answer(whole, limit)
    assert cut.output_tokens <= max(limit, 0)
    assert (cut.cut is None) == (cut == whole)
    for kept, full in zip(cut.blocks, whole.blocks, strict=False):
        assert type(kept) is type(full)
        assert read_text(full).startswith(read_text(kept))


def test_a_citation_is_dropped_with_the_text_it_refers_to() -> None:
    cites = (("first", "https://example.com/1", "One"), ("second", "https://example.com/2", "Two"))
    whole = ScriptedAnswer(blocks=(Say("See the first and the second source", cites),))
    assert cut_answer(whole, 4).blocks == (Say("See the first and", cites[:1]),)


def test_pauses_and_disconnects_keep_their_position_when_bytes_are_split_or_joined() -> None:
    chunks: list[Chunk] = [b"abc", Pause(1), b"defg", b"h", Disconnect()]
    assert list(join_chunks(chunks)) == [b"abc", Pause(1), b"defgh", Disconnect()]
    assert list(split_chunks(chunks)) == [b"a", b"bc", Pause(1), b"def", b"g", b"h", Disconnect()]


def test_only_encrypted_content_of_this_gateway_is_decoded() -> None:
    assert decode_encrypted_content(encode_encrypted_content("Grüße")) == "Grüße"
    assert [
        decode_encrypted_content(sealed) for sealed in ("gAAAA", "tollbridge1.!", "tollbridge1._w==")
    ] == [None] * 3
