"""The strict check compared with the JSON schema of the specification."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from tests.testing.protocol import allows

from tollbridge.testing.refusals import RequestRejected
from tollbridge.testing.strict import check_schema

TOOL = {
    "type": "function",
    "name": "list_dir",
    "description": "Lists.",
    "parameters": {"type": "object"},
    "strict": False,
}
# A request with every field.
FULL: dict[str, Any] = {
    "model": "tollbridge/demo",
    "input": [
        {"type": "message", "role": "developer", "content": "Be brief.", "id": None, "status": None},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be kind."}]},
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Hi"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "x",
        },
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "list_dir",
            "arguments": "{}",
            "status": "completed",
        },
        {
            "type": "function_call_output",
            "call_id": "c1",
            "output": [{"type": "input_video", "video_url": "u"}],
        },
        {
            "type": "message",
            "role": "assistant",
            "phase": "final_answer",
            "content": [
                {
                    "type": "output_text",
                    "text": "See there.",
                    "annotations": [
                        {"type": "url_citation", "start_index": 0, "end_index": 3, "url": "u", "title": "t"}
                    ],
                },
                {"type": "refusal", "refusal": "No."},
            ],
        },
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "item_reference", "id": "msg_1"},
        {"id": "msg_2"},
    ],
    "include": ["reasoning.encrypted_content"],
    "tools": [TOOL],
    "tool_choice": {
        "type": "allowed_tools",
        "tools": [{"type": "function", "name": "list_dir"}],
        "mode": "auto",
    },
    "metadata": {"a": "b"},
    "text": {
        "format": {"type": "json_schema", "name": "n", "schema": {}, "strict": None},
        "verbosity": "low",
    },
    "temperature": 1,
    "top_p": 0.5,
    "presence_penalty": None,
    "frequency_penalty": 0,
    "parallel_tool_calls": True,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "background": False,
    "max_output_tokens": 16,
    "max_tool_calls": 1,
    "reasoning": {"effort": "low", "summary": "auto"},
    "safety_identifier": "s",
    "prompt_cache_key": "p",
    "truncation": "auto",
    "instructions": "Be there.",
    "store": False,
    "service_tier": "auto",
    "top_logprobs": 3,
    "providerOptions": {"gateway": {}},
}
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 16.0, 10**6, "", "x", "x" * 64, "x" * 65, "x" * 513, "a b"),
    *("user", "auto", "low", "function", "message", "required", "text"),
    *([], {}, [1], ["x"], {"type": "function"}, {"type": "message"}, {"id": "x"}),
)
MUTATIONS = 600


def accepts(body: Any) -> bool:
    try:
        check_schema(body)
    except RequestRejected:
        return False
    return True


def mutated(chance: random.Random) -> dict[str, Any]:
    """Return a part of the full request with one to three values changed or removed."""
    fields = chance.sample(list(FULL), 6)
    body = copy.deepcopy({"model": "m", **{name: FULL[name] for name in fields}})
    body["input"] = copy.deepcopy(chance.sample(FULL["input"], 2))
    for _ in range(chance.randint(1, 3)):
        at: Any = body
        while True:
            key = chance.choice(list(at) if isinstance(at, dict) else range(len(at)))
            if isinstance(at[key], dict | list) and at[key] and chance.random() < 0.8:
                at = at[key]
                continue
            if isinstance(at, dict) and chance.random() < 0.3:
                del at[key]
            else:
                at[key] = chance.choice(VALUES)
            break
    return body


def test_a_request_with_every_field_is_accepted() -> None:
    check_schema(FULL)
    assert allows(FULL, "CreateResponseBody") in (True, None)


def test_the_check_and_the_json_schema_agree_on_hundreds_of_requests() -> None:
    if allows({}, "CreateResponseBody") is None:
        pytest.skip("the specification's schema is not available")
    chance = random.Random(6)
    verdicts = {True: 0, False: 0}
    for _ in range(MUTATIONS):
        body = mutated(chance)
        expected = allows(body, "CreateResponseBody")
        assert accepts(body) is expected, body
        verdicts[bool(expected)] += 1
    assert min(verdicts.values()) > MUTATIONS // 10, "both verdicts must be tried"


USER = {"type": "message", "role": "user"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"stream": None}, "stream"),
        ({"metadata": {"a": "b" * 513}}, "metadata[...]"),
        ({"reasoning": {"effort": "minimal"}}, "reasoning.effort"),
        (
            {"input": [{**USER, "content": [{"type": "output_text", "text": "x"}]}]},
            "input[0].content[0].type",
        ),
        ({"input": [{"type": "reasoning", "summary": [], "content": []}]}, "input[0].content"),
        ({"input": [{**CALL, "name": "a b"}]}, "input[0].name"),
        ({"input": [{"role": "user", "content": "x"}]}, "input[0].type"),
        ({"tools": [TOOL, {**TOOL, "name": ""}]}, "tools[1].name"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
    ],
)
def test_an_error_names_the_exact_path(change: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestRejected) as refused:
        check_schema({**FULL, **change})
    assert refused.value.param == param
