"""Matching tool results to their calls."""

from __future__ import annotations

import pytest

from tollbridge.types.messages import (
    Message,
    Part,
    PartIndex,
    Role,
    ToolCallPart,
    ToolResultPart,
    match_results,
)

CALL, RESULT = ToolCallPart("c", "look", {}), ToolResultPart("c", "seen")


@pytest.mark.parametrize(
    ("messages", "matches"),
    [
        ([[CALL], [RESULT]], {(0, 0): (1, 0)}),
        ([[CALL], [RESULT], [CALL], [RESULT]], {(0, 0): (1, 0), (2, 0): (3, 0)}),
        ([[CALL], [CALL], [RESULT]], {(1, 0): (2, 0)}),
        ([[CALL, CALL], [RESULT, RESULT]], {(0, 0): (1, 0), (0, 1): (1, 1)}),
        ([[RESULT], [CALL]], {(1, 0): (0, 0)}),
        ([[RESULT], [CALL], [RESULT]], {(1, 0): (2, 0)}),
        ([[CALL], [RESULT, RESULT]], {(0, 0): (1, 0)}),
        ([[RESULT]], {}),
    ],
)
def test_a_result_is_matched_to_the_call_that_it_follows(
    messages: list[list[Part]], matches: dict[PartIndex, PartIndex]
) -> None:
    assert match_results([Message(Role.USER, parts) for parts in messages]) == matches
