"""Token counts of documents and audio."""

from __future__ import annotations

import io
import wave

import pytest

from tollbridge.history.normalize import normalize_request
from tollbridge.protocols.openresponses.requests import translate_messages
from tollbridge.tokens.media import audio_seconds, count_pages, media_tokens, text_of
from tollbridge.types.messages import PACK_MIME, ChatRequest, DataPart, Message, Role, TextPart

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type /Pages /Kids [2 0 R 3 0 R] /Count 2>>endobj\n"
    b"2 0 obj<</Type /Page>>endobj\n3 0 obj<</Type/Page>>endobj"
)


def audio(length: float) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(b"\0\0" * round(8000 * length))
    return buffer.getvalue()


def test_pages_are_counted_if_their_objects_are_not_compressed() -> None:
    assert count_pages(PDF) == 2
    assert count_pages(b"%PDF-1.7 1 0 obj<</Count 12/Kids[2 0 R]/Type/Pages>>") == 12


def test_bookmarks_are_not_counted_as_pages() -> None:
    assert count_pages(PDF + b"4 0 obj<</Type/Outlines/First 5 0 R/Count 480>>endobj") == 2


def test_compressed_pages_are_estimated_from_the_size() -> None:
    assert count_pages(b"%PDF-1.7" + bytes(200_000)) == 4
    assert count_pages(b"%PDF-1.7") == 1


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("anthropic/claude-sonnet-4.5", 6000), ("google/gemini-2.5-pro", 516), ("google/gemini-3-pro", 1120)],
)
def test_a_page_has_the_documented_number_of_tokens(model: str, tokens: int) -> None:
    assert media_tokens(model, DataPart(PDF, "application/pdf")) == tokens


def test_the_duration_of_audio_is_read_from_its_header() -> None:
    assert audio_seconds(audio(2.5)) == pytest.approx(2.5)
    assert media_tokens("google/gemini-2.5-pro", DataPart(audio(2.5), "audio/wav")) == 80


def test_the_content_decides_the_type_and_not_the_label() -> None:
    assert media_tokens("google/gemini-2.5-pro", DataPart(PDF, "image/png")) == 516


def test_a_text_part_is_decoded() -> None:
    assert text_of(DataPart('{"a": "ü"}'.encode(), "application/json; charset=utf-8")) == '{"a": "ü"}'
    assert text_of(DataPart(b"<a/>", "application/atom+xml")) == "<a/>"
    assert text_of(DataPart(b"\xff\xfe", "text/plain")) == "\ufffd\ufffd"
    assert text_of(DataPart(b"", "image/png")) is None
    assert text_of(DataPart(b"{}", PACK_MIME)) is None


LABELS = (
    "text/plain; charset=utf-8",
    "Text/CSV",
    "application/json",
    "application/xml",
    "application/yaml",
    "application/javascript",
    "application/geo+json",
    "application/atom+xml",
    "image/svg+xml",
    "image/png",
    "application/pdf",
    "application/x-private",
    "application/vnd.maker.part+json",
    "",
)


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("data", [b"<a>1</a>", b"\x89PNG\r\n\x1a\n\0\0\0", PDF])
def test_parts_are_estimated_as_text_if_they_are_sent_as_text(data: bytes, label: str) -> None:
    part = DataPart(data, label)
    [item] = translate_messages([Message(Role.USER, (part,))])
    sent = item["content"] if isinstance(item["content"], str) else item["content"][0].get("text")
    normalized = normalize_request(ChatRequest(model="m", messages=(Message(Role.USER, (part,)),)))
    [normal_part] = normalized.request.messages[0].parts
    assert text_of(part) == sent == (normal_part.text if isinstance(normal_part, TextPart) else None)


def test_a_type_that_is_not_sent_has_no_tokens() -> None:
    assert media_tokens("openai/gpt-5", DataPart(b"anything", "application/x-private")) == 0
