"""From refusals, as real servers word them, to cures."""

from __future__ import annotations

import msgspec
import pytest

from tollbridge.compat.profiles import REFUSED_LIMIT, LearnedQuirks
from tollbridge.compat.repairs import find_repair
from tollbridge.types.errors import GatewayError, InvalidRequest, NotFound, RateLimited
from tollbridge.types.media import fingerprint
from tollbridge.types.messages import (
    ChatRequest,
    DataPart,
    Message,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from tollbridge.types.quirks import Quirks
from tollbridge.types.reasoning import digest

PROOF = {"encrypted_content": "sealed"}
REQUEST = ChatRequest(
    model="m",
    messages=(
        Message(Role.SYSTEM, "Be brief."),
        Message(
            Role.USER, (TextPart("Hi"), DataPart(b"\0", "image/png"), DataPart(b"\0", "application/pdf"))
        ),
        Message(Role.ASSISTANT, (ThinkingPart("Hm.", "rs_1", PROOF), ToolCallPart("c1", "weather", {}))),
    ),
)
BARE = ChatRequest(model="m", messages=(Message(Role.USER, "Hi"),))


@pytest.mark.parametrize(
    ("message", "quirks"),
    [
        (
            "Item 'rs_68' not found. Items are not persisted when `store` is set to false.",
            {"reasoning_ids": False},
        ),
        (
            "Duplicate item found with id rs_1. Remove duplicate items from your input and try again.",
            {"reasoning_ids": False},
        ),
        ("No tool call found for function call output with call_id c1.", {"calls": False}),
        ("messages.2: `tool_use_id` unexpected in tool_result", {"calls": False}),
        ("Invalid value: 'developer'. Supported values are: 'system', 'user'.", {"system": "system"}),
        ("Unexpected message role: developer", {"system": "system"}),
        ("This model does not support image inputs", {"images": False}),
        ("Invalid content type: 'input_file' is not supported", {"files": False}),
        ("item['content'] is not an array", {"reasoning_as": "content"}),
        ("Unknown item type 'reasoning'", {"reasoning": False}),
    ],
)
def test_what_real_servers_say_is_understood(message: str, quirks: dict[str, object]) -> None:
    cure = find_repair(InvalidRequest(message, status=400), REQUEST, LearnedQuirks())
    assert cure is not None
    assert cure.learned.quirks == Quirks(**quirks)  # type: ignore[arg-type]
    assert len(cure.changes) == 1


def test_a_signature_that_is_refused_takes_the_calls_it_led_to_with_it() -> None:
    error = InvalidRequest("messages.1.content.0: Invalid `signature` in `thinking` block", status=400)
    cure = find_repair(error, REQUEST, LearnedQuirks())
    assert cure is not None
    assert cure.learned == LearnedQuirks(refused=frozenset({digest(PROOF)}), spoken=frozenset({"c1"}))


@pytest.mark.parametrize(
    "message",
    [
        "Could not process image",
        "Unsupported image format: image/bmp",
        "messages.1.content.0.image: image exceeds 5 MB maximum",
        "You uploaded an unsupported image. Make sure that it has one of the following formats: ['png']",
        "Invalid base64 image_url.",
        "The PDF file could not be read: it is corrupt",
    ],
)
def test_a_file_that_cannot_be_read_is_left_out_and_the_next_one_is_tried(message: str) -> None:
    cure = find_repair(InvalidRequest(message, status=400), REQUEST, LearnedQuirks())
    assert cure is not None
    assert cure.learned == LearnedQuirks(refused=frozenset({fingerprint(b"\0")}))


def test_a_parameter_that_shares_its_name_with_items_is_meant_by_what_calls_it_one() -> None:
    asked = msgspec.structs.replace(REQUEST, reasoning_effort="low")
    cure = find_repair(InvalidRequest("Unknown parameter: 'reasoning'.", status=400), asked, LearnedQuirks())
    assert cure is not None
    assert cure.learned == LearnedQuirks(Quirks(without=frozenset({"reasoning"})))


def test_what_the_request_does_not_have_is_not_taken_away() -> None:
    for message in ("This model does not support image inputs", "Unexpected message role: developer"):
        assert find_repair(InvalidRequest(message, status=400), BARE, LearnedQuirks()) is None


def test_a_cure_that_was_tried_is_not_tried_again() -> None:
    error = InvalidRequest("This model does not support image inputs", status=400)
    assert find_repair(error, REQUEST, LearnedQuirks(Quirks(images=False))) is None


def test_the_system_prompt_ends_as_the_users_own_words() -> None:
    error = InvalidRequest("Unexpected message role: system", status=400)
    cure = find_repair(error, REQUEST, LearnedQuirks(Quirks(system="system")))
    assert cure is not None
    assert cure.learned.quirks.system == "user"


def test_other_failures_are_left_to_others() -> None:
    words = "The encrypted content could not be verified."
    assert find_repair(RateLimited(words, status=429), REQUEST, LearnedQuirks()) is None
    assert find_repair(NotFound("The model does not exist.", status=404), REQUEST, LearnedQuirks()) is None
    assert find_repair(GatewayError(words), REQUEST, LearnedQuirks()) is not None


def test_what_is_remembered_is_bounded() -> None:
    known = LearnedQuirks(refused=frozenset(str(number) for number in range(REFUSED_LIMIT)))
    error = InvalidRequest("No.", status=400, code="invalid_encrypted_content")
    cure = find_repair(error, REQUEST, known)
    assert cure is not None
    assert len(cure.learned.refused) == REFUSED_LIMIT
    assert digest(PROOF) in cure.learned.refused
