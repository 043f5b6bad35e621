"""Every server rule rejects the feature it is named after, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tollbridge.testing.refusals import SERVER_RULES, RequestRejected, check_server_rules, flatten_tools

PLAIN = {"model": "m", "input": [{"role": "user", "content": "Hi"}], "stream": True}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": [IMAGE]}
BREAKING: dict[str, dict[str, Any]] = {
    "developer": {"input": [{"role": "developer", "content": [IMAGE]}]},
    "system": {"input": [{"role": "system", "content": [IMAGE]}]},
    "instructions": {"instructions": "Be kind."},
    "arrays": {"input": [{"role": "user", "content": [IMAGE]}]},
    "strings": {"input": [{"role": "user", "content": "Hi"}]},
    "calls": {"input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": "{}"}]},
    "rich results": {"input": [RESULT]},
    "images": {"input": [RESULT]},
    "files": {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
    "reasoning": {"input": [{"type": "reasoning", "summary": []}]},
    "flat tools": {"tools": [{"type": "function", "name": "n"}]},
    "include": {"include": []},
    "max_output_tokens": {"max_output_tokens": 16},
    "metadata": {"metadata": {}},
    "parallel_tool_calls": {"parallel_tool_calls": True},
    "store": {"store": False},
    "temperature": {"temperature": 1},
}


@pytest.mark.parametrize("rule", SERVER_RULES)
def test_a_rule_rejects_a_request_that_breaks_it(rule: str) -> None:
    with pytest.raises(RequestRejected) as caught:
        check_server_rules([rule], {**PLAIN, **BREAKING[rule]})
    assert caught.value.status == 400


def test_a_plain_request_breaks_only_the_rule_about_strings() -> None:
    check_server_rules([rule for rule in SERVER_RULES if rule != "strings"], PLAIN)
    check_server_rules(SERVER_RULES, None)


def test_nested_tools_are_converted_to_flat_tools() -> None:
    nested = {"tools": [{"type": "function", "function": {"name": "n"}}], "tool_choice": "auto"}
    assert flatten_tools(nested) == {"tools": [{"type": "function", "name": "n"}], "tool_choice": "auto"}
    named = flatten_tools({**nested, "tool_choice": {"type": "function", "function": {"name": "n"}}})
    assert named["tool_choice"] == {"type": "function", "name": "n"}
