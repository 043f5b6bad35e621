"""Repairs for errors, with error messages of real servers."""

from __future__ import annotations

import msgspec
import pytest

from tollbridge.compat.repairs import find_repair
from tollbridge.compat.rules import REFUSED_LIMIT
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
    digest,
)
from tollbridge.types.quirks import LearnedQuirks, Quirks

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
def test_errors_of_real_servers_are_repaired(message: str, quirks: dict[str, object]) -> None:
    repair = find_repair(InvalidRequest(message, status=400), REQUEST, LearnedQuirks())
    assert repair is not None
    assert repair.learned.quirks == Quirks(**quirks)  # type: ignore[arg-type]
    assert len(repair.changes) == 1


def test_calls_are_sent_as_text_if_the_signature_before_them_is_rejected() -> None:
    error = InvalidRequest("messages.1.content.0: Invalid `signature` in `thinking` block", status=400)
    repair = find_repair(error, REQUEST, LearnedQuirks())
    assert repair is not None
    assert repair.learned == LearnedQuirks(
        refused=frozenset({digest(PROOF)}), calls_as_text=frozenset({"c1"})
    )


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
def test_an_unreadable_file_is_left_out_and_later_files_are_sent(message: str) -> None:
    repair = find_repair(InvalidRequest(message, status=400), REQUEST, LearnedQuirks())
    assert repair is not None
    assert repair.learned == LearnedQuirks(refused=frozenset({fingerprint(b"\0")}))


def test_the_parameter_reasoning_is_distinguished_from_the_item_by_the_message() -> None:
    with_effort = msgspec.structs.replace(REQUEST, reasoning_effort="low")
    repair = find_repair(
        InvalidRequest("Unknown parameter: 'reasoning'.", status=400), with_effort, LearnedQuirks()
    )
    assert repair is not None
    assert repair.learned == LearnedQuirks(Quirks(without=frozenset({"reasoning"})))


def test_a_rule_does_not_apply_to_a_request_without_the_rejected_content() -> None:
    for message in ("This model does not support image inputs", "Unexpected message role: developer"):
        assert find_repair(InvalidRequest(message, status=400), BARE, LearnedQuirks()) is None


def test_a_repair_is_not_tried_twice() -> None:
    error = InvalidRequest("This model does not support image inputs", status=400)
    assert find_repair(error, REQUEST, LearnedQuirks(Quirks(images=False))) is None


def test_the_last_role_of_the_system_prompt_is_user() -> None:
    error = InvalidRequest("Unexpected message role: system", status=400)
    repair = find_repair(error, REQUEST, LearnedQuirks(Quirks(system="system")))
    assert repair is not None
    assert repair.learned.quirks.system == "user"


def test_other_errors_are_not_repaired() -> None:
    words = "The encrypted content could not be verified."
    assert find_repair(RateLimited(words, status=429), REQUEST, LearnedQuirks()) is None
    assert find_repair(NotFound("The model does not exist.", status=404), REQUEST, LearnedQuirks()) is None
    assert find_repair(GatewayError(words), REQUEST, LearnedQuirks()) is not None


def test_the_number_of_rejected_items_is_bounded() -> None:
    earlier = LearnedQuirks(refused=frozenset(str(number) for number in range(REFUSED_LIMIT)))
    error = InvalidRequest("No.", status=400, code="invalid_encrypted_content")
    repair = find_repair(error, REQUEST, earlier)
    assert repair is not None
    assert len(repair.learned.refused) == REFUSED_LIMIT
    assert digest(PROOF) in repair.learned.refused
