"""The content of messages: images, files, texts and their limits."""

from __future__ import annotations

import pytest

from tollbridge.history.contents import Changes, valid_content
from tollbridge.history.normalize import normalize_request
from tollbridge.protocols.openresponses.requests import encode_request
from tollbridge.testing.strict import check_rules, check_schema
from tollbridge.types.messages import ChatRequest, DataPart, Message, Role, TextPart, ToolResultPart
from tollbridge.types.quirks import LearnedQuirks, Quirks
from tollbridge.types.text import MAX_FILE_DATA, MAX_IMAGE_URL, MAX_TEXT

PNG = b"\x89PNG\r\n\x1a\n"


def content(
    part: TextPart | DataPart, *, images: bool = True, files: bool = True
) -> tuple[list[TextPart | DataPart], Changes]:
    changes = Changes()
    return valid_content(part, LearnedQuirks(Quirks(images=images, files=files)), changes), changes


def test_images_become_notes_if_the_model_does_not_accept_them() -> None:
    [note], changes = content(DataPart(PNG, "image/jpeg"), images=False)
    assert note == TextPart("[image, image/png, 8 bytes, removed: the model does not accept images]")
    assert changes.sentences == ("Removed an image (image/png, 8 bytes): the model does not accept images.",)
    assert changes.counts == {"image": 1}


def test_files_become_notes_if_the_model_does_not_accept_them() -> None:
    [note], _ = content(DataPart(b"%PDF-1", "application/pdf"), files=False)
    assert note == TextPart("[file, application/pdf, 6 bytes, removed: the model does not accept files]")


@pytest.mark.parametrize("mime", ["text/plain", "application/json", "image/svg+xml", "application/xml"])
def test_a_text_file_becomes_text(mime: str) -> None:
    assert content(DataPart(b"<a/>", mime), files=False)[0] == [TextPart("<a/>")]


def test_a_file_wrongly_labelled_as_text_keeps_its_bytes() -> None:
    assert content(DataPart(b"\xff\xfe", "text/plain"))[0] == [
        DataPart(b"\xff\xfe", "application/octet-stream")
    ]


@pytest.mark.parametrize(
    ("start", "mime", "limit"),
    [(PNG, "image/png", MAX_IMAGE_URL), (b"%PDF-", "application/pdf", MAX_FILE_DATA)],
)
def test_only_files_over_the_size_limit_become_notes(start: bytes, mime: str, limit: int) -> None:
    most = (limit - len(f"data:{mime};base64,")) // 4 * 3
    fits = DataPart(start.ljust(most, b"\0"), mime)
    assert content(fits)[0] == [fits]
    [note], changes = content(DataPart(start.ljust(most + 1, b"\0"), mime))
    assert isinstance(note, TextPart)
    assert f"larger than the limit of {limit // 2**20} MiB" in note.text
    assert changes.counts.total() == 1


def test_a_text_over_the_size_limit_is_split() -> None:
    long = "x" * (MAX_TEXT + 1)
    parts, changes = content(TextPart(long))
    assert "".join(part.text for part in parts if isinstance(part, TextPart)) == long
    assert changes.counts == {"oversized": 1}


@pytest.mark.parametrize("role", list(Role))
def test_long_messages_of_every_role_match_the_schema(role: Role) -> None:
    half = TextPart("x" * (MAX_TEXT // 2 + 10))
    request = ChatRequest(model="m", messages=(Message(role, (half, half)), Message(Role.USER, "Hi")))
    body = encode_request(normalize_request(request).request)
    check_schema(body)
    check_rules(body["input"])
    assert str(body["input"]).count("x") >= 2 * len(half.text)


def test_a_long_result_matches_the_schema() -> None:
    result = ToolResultPart("c1", (TextPart("x" * (MAX_TEXT + 10)),))
    body = encode_request(
        normalize_request(ChatRequest(model="m", messages=(Message(Role.USER, (result,)),))).request
    )
    check_schema(body)


def test_lone_surrogates_are_replaced_and_adjacent_halves_joined() -> None:
    assert content(TextPart("a\ud83d"))[0] == [TextPart("a�")]
    assert content(TextPart("\ud83d\ude00"))[0] == [TextPart("😀")]
