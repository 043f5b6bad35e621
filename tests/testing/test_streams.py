"""Rules for every stream of the gateway: the schema, the order of events, and matching totals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.testing.client import LIST_DIR, WEATHER, Client, calls, output_text, types, user
from tests.testing.protocol import check_event_shapes, check_shape, check_stream, check_usage

from tollbridge.testing.scenarios import VALID

PROMPTS: dict[str, dict[str, Any]] = {
    "text": {"input": "Hello"},
    "unicode": {"input": 'Grüße, 漢字, 🌉 \u2028 and \\ " back'},
    "reasoning": {"input": "Think about it"},
    "effort": {"input": "Hello", "reasoning": {"effort": "high", "summary": "auto"}},
    "sealed": {"input": "Think", "include": ["reasoning.encrypted_content"]},
    "tool": {"input": "Use a tool", "tools": [WEATHER]},
    "think-then-call": {"input": "Think and use a tool", "tools": [WEATHER]},
    "parallel": {"input": "Both in parallel", "tools": [WEATHER, LIST_DIR]},
    "required": {"input": "Hello", "tools": [WEATHER], "tool_choice": "required"},
    "named": {
        "input": "Hello",
        "tools": [WEATHER, LIST_DIR],
        "tool_choice": {"type": "function", "name": "list_dir"},
    },
    "allowed": {
        "input": "Use a tool",
        "tools": [WEATHER, LIST_DIR],
        "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "list_dir"}]},
    },
    "refusal": {"input": "Please refuse"},
    "incomplete": {"input": "Be incomplete"},
    "cut-call": {"input": "Use a tool and be incomplete: `" + "x" * 400 + "`", "tools": [WEATHER]},
    "cut-thought": {"input": "Think and be incomplete"},
    "capped": {"input": "long", "max_output_tokens": 40},
    "cited": {"input": "Cite a source"},
    "every-setting": {
        "input": [user("Hello")],
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "metadata": {"a": "b"},
        "text": {"verbosity": "low"},
        "truncation": "auto",
        "service_tier": "flex",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "max_tool_calls": 2,
        "parallel_tool_calls": False,
        "store": False,
        "top_logprobs": 3,
        "max_output_tokens": 500,
        "stream_options": {"include_obfuscation": False},
    },
    "structured": {
        "input": "Hello",
        "text": {
            "format": {"type": "json_schema", "name": "it", "schema": WEATHER["parameters"], "strict": True}
        },
    },
}


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_every_stream_is_valid_and_in_order(client: Client, prompt: str) -> None:
    answer = await client.stream(**_make_body(prompt))
    check_event_shapes(answer.events)
    check_shape(check_stream(answer.events), "ResponseResource")


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_a_stream_ends_with_the_same_response_as_an_answer_in_one_body(
    client: Client, prompt: str
) -> None:
    streamed = (await client.stream(**_make_body(prompt))).events[-1]["response"]
    whole = (await client.ask(**_make_body(prompt))).json
    check_shape(whole, "ResponseResource")
    check_usage(whole)
    assert _without_ids(streamed) == _without_ids(whole)


@pytest.mark.parametrize("scenario", sorted(VALID))
async def test_every_scenario_without_a_fault_is_valid(client: Client, scenario: str) -> None:
    answer = await client.stream(f"Hello fault:{scenario}", tools=[WEATHER, LIST_DIR])
    check_event_shapes(answer.events)
    check_shape(check_stream(answer.events), "ResponseResource")


async def test_the_events_of_an_image_are_in_order(client: Client) -> None:
    answer = await client.stream("Draw a bridge")
    final = check_stream(answer.events)
    assert [item["type"] for item in final["output"]] == ["image_generation_call", "message"]
    check_shape({**final, "output": final["output"][1:]}, "ResponseResource")


async def test_tool_calls_stream_their_arguments(client: Client) -> None:
    events = (await client.stream("Use a tool", tools=[WEATHER])).events
    assert list(dict.fromkeys(types(events))) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]


async def test_usage_counts_the_deltas(client: Client) -> None:
    events = (await client.stream("Think, then answer")).events
    deltas = [event["type"] for event in events if "delta" in event]
    usage = events[-1]["response"]["usage"]
    assert usage["output_tokens"] == len(deltas)
    thought = deltas.count("response.reasoning_summary_text.delta")
    assert usage["output_tokens_details"]["reasoning_tokens"] == thought > 0


async def test_an_incomplete_answer_has_a_reason_and_an_incomplete_last_item(client: Client) -> None:
    final = (await client.stream("long", max_output_tokens=40)).events[-1]
    assert final["type"] == "response.incomplete"
    response = final["response"]
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][-1]["status"] == "incomplete"
    assert response["usage"]["output_tokens"] == 40


async def test_citations_have_the_position_of_their_text(client: Client) -> None:
    events = (await client.stream("Cite a source")).events
    added = [event["annotation"] for event in events if event["type"].endswith("annotation.added")]
    response = events[-1]["response"]
    text = output_text(response)
    assert added == response["output"][0]["content"][0]["annotations"]
    assert [text[one["start_index"] : one["end_index"]] for one in added] == [
        "the first source",
        "the second source",
    ]


async def test_parallel_calls_have_different_ids(client: Client) -> None:
    response = (await client.ask("In parallel", tools=[WEATHER])).json
    assert len({call["call_id"] for call in calls(response)}) == 2
    one = (await client.ask("In parallel", tools=[WEATHER, LIST_DIR], parallel_tool_calls=False)).json
    assert len(calls(one)) == 1


async def test_a_hundred_concurrent_slow_streams_are_valid(client: Client) -> None:
    answers = await asyncio.gather(*(client.stream(f"slow {index}") for index in range(100)))
    texts = [output_text(check_stream(answer.events)) for answer in answers]
    assert all(f"“slow {index}”" in text for index, text in enumerate(texts))


def _make_body(prompt: str) -> dict[str, Any]:
    fields = dict(PROMPTS[prompt])
    return {"input_value": fields.pop("input"), **fields}


def _without_ids(response: dict[str, Any]) -> dict[str, Any]:
    items = [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in response["output"]]
    usage = {**response["usage"], "input_tokens_details": None}
    left_out = ("id", "created_at", "completed_at")
    kept = {key: value for key, value in response.items() if key not in left_out}
    return {**kept, "output": items, "usage": usage}
