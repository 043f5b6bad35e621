"""The answers of the scripted model."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.testing.client import LIST_DIR, WEATHER, Answer, Client, assistant, calls, result, user

from tollbridge.types.media import draw_png, image_size

AGENT_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": LIST_DIR["parameters"]}
    for name in ("create_file", "file_search", "grep_search", "list_dir", "read_file", "run_in_terminal")
]


def image(data: bytes, label: str = "image/png") -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:{label};base64,{base64.b64encode(data).decode()}"}


async def test_the_same_request_gets_the_same_answer(client: Client) -> None:
    assert (await client.ask("Hello")).text == (await client.ask("Hello")).text


async def test_the_answer_describes_what_the_model_received(client: Client) -> None:
    items = [{"role": "developer", "content": "Be kind."}, user("One"), assistant("Two"), user("Three")]
    answer = await client.ask(items, instructions="Be brief.", tools=[WEATHER])
    assert answer.text == (
        "You said “Three”. I was given 4 items and the system prompt “Be brief.\nBe kind.” of 18 characters, "
        "with the tools get_weather."
    )


async def test_the_request_is_extracted_from_the_context_of_an_editor(client: Client) -> None:
    wrapped = "<context>A tool to draw an image</context><userRequest>\nHello\n</userRequest>"
    assert (await client.ask(wrapped, tools=[WEATHER])).text.startswith("You said “Hello”.")


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("list the directory /home/me", "list_dir"),
        ("List directories please", "list_dir"),
        ("call grep_search", "grep_search"),
        ("read the file /srv/me/notes.txt", "read_file"),
        ("use a tool", "create_file"),
    ],
)
async def test_the_requested_tool_is_called(client: Client, prompt: str, name: str) -> None:
    [call] = calls((await client.ask(prompt, tools=AGENT_TOOLS)).json)
    assert call["name"] == name


async def test_no_tool_is_called_without_a_request(client: Client) -> None:
    assert calls((await client.ask("Hello there", tools=AGENT_TOOLS)).json) == []


@pytest.mark.parametrize(
    ("prompt", "path"),
    [
        ("list the directory /home/me", "/home/me"),
        ("list the directory `src/some folder`", "src/some folder"),
        ("list the directory", "path"),
    ],
)
async def test_arguments_are_taken_from_the_request(client: Client, prompt: str, path: str) -> None:
    [call] = calls((await client.ask(prompt, tools=AGENT_TOOLS)).json)
    assert json.loads(call["arguments"]) == {"path": path}


async def test_a_path_is_found_in_the_context_of_an_editor(client: Client) -> None:
    items = [user("<workspace_info>I work in /srv/me/project</workspace_info>"), user("List the directory")]
    [call] = calls((await client.ask(items, tools=AGENT_TOOLS)).json)
    assert json.loads(call["arguments"]) == {"path": "/srv/me/project"}


async def test_tool_choice_none_prevents_tool_calls(client: Client) -> None:
    assert calls((await client.ask("Use a tool", tools=[WEATHER], tool_choice="none")).json) == []


async def test_only_allowed_tools_are_called(client: Client) -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "get_weather"}]}
    prompt = "call list_dir, with a tool"
    [call] = calls((await client.ask(prompt, tools=[LIST_DIR, WEATHER], tool_choice=choice)).json)
    assert call["name"] == "get_weather"


async def test_the_answer_quotes_the_result_of_a_tool(client: Client) -> None:
    question = user("What is the weather?")
    [call] = calls((await client.ask([question], tools=[WEATHER])).json)
    answer = await client.ask([question, call, result(call["call_id"], "Sunny, 21 °C")], tools=[WEATHER])
    assert answer.text.startswith("The tool get_weather answered: “Sunny, 21 °C”.")


async def test_the_answer_quotes_every_result_of_parallel_calls(client: Client) -> None:
    question = user("Both in parallel")
    tools = [WEATHER, LIST_DIR]
    tool_calls = calls((await client.ask([question], tools=tools)).json)
    results = [result(call["call_id"], f"result {index}") for index, call in enumerate(tool_calls)]
    answer = await client.ask([question, *tool_calls, *results], tools=tools)
    assert "get_weather answered: “result 0”" in answer.text
    assert "list_dir answered: “result 1”" in answer.text


async def test_images_are_identified_by_their_bytes_and_not_by_their_media_type(client: Client) -> None:
    content = [{"type": "input_text", "text": "What is this?"}, image(draw_png(7, 5), "image/jpeg")]
    assert "I see image/png, 7 × 5 pixels." in (await client.ask([user(content)])).text


async def test_images_in_tool_results_are_described(client: Client) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "shoot", "arguments": "{}"}
    items = [user("Take a screenshot"), call, result("c1", [image(draw_png(4, 4))])]
    assert "I see image/png, 4 × 4 pixels." in (await client.ask(items)).text


async def test_urls_are_not_fetched(client: Client) -> None:
    content = [{"type": "input_image", "image_url": "http://example.invalid/picture.png"}]
    assert "an image at a URL, which I do not fetch" in (await client.ask([user(content)])).text


async def test_a_generated_image_is_a_real_png(client: Client) -> None:
    response = (await client.ask("Draw a bridge")).json
    assert image_size(base64.b64decode(response["output"][0]["result"])) == (320, 180)


async def test_output_items_can_be_sent_back(client: Client) -> None:
    question = user("Think and draw a bridge")
    items = (await client.ask([question], include=["reasoning.encrypted_content"])).json["output"]
    assert [item["type"] for item in items] == ["reasoning", "image_generation_call", "message"]
    assert (await client.ask([question, *items, user("Thanks")])).status == 200


async def test_the_effort_sets_the_length_of_the_reasoning(client: Client) -> None:
    async def thought(effort: str) -> int:
        answer = await client.ask("Hello", reasoning={"effort": effort})
        tokens: int = answer.json["usage"]["output_tokens_details"]["reasoning_tokens"]
        return tokens

    none, low, high = await thought("none"), await thought("low"), await thought("high")
    assert none == 0
    assert high == 4 * low > 0


async def test_structured_output_follows_its_schema(client: Client) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"enum": ["a"]}}}
    form = {"type": "json_schema", "name": "it", "schema": schema}
    answer = await client.ask("Hello", text={"format": form})
    assert json.loads(answer.text) == {"n": 1, "s": "a"}


async def test_a_long_answer_has_the_requested_length(client: Client) -> None:
    answer = await client.ask("long 500")
    assert answer.text.endswith(" w499 w500")
    assert answer.json["usage"]["output_tokens"] >= 500


async def test_the_plain_model_has_no_reasoning_and_no_images(client: Client) -> None:
    answer = await client.post("/responses", {"model": "tollbridge/plain", "input": "Think and draw"})
    assert [item["type"] for item in answer.json["output"]] == ["message"]


async def test_a_scenario_adds_words_to_the_request(client: Client) -> None:
    answer: Answer = await client.ask("Hello fault:refusal")
    assert answer.json["output"][0]["content"][0]["type"] == "refusal"


async def test_a_scenario_of_an_earlier_message_does_not_count_again(client: Client) -> None:
    """After a failed answer, VS Code's next request has both questions, which become one message."""
    questions = [f"<userRequest>\n{text}\n</userRequest>" for text in ("fault:overloaded One", "Two")]
    for parts in (["\n\n".join(questions)], questions, ["fault:overloaded One", "Two"]):
        content = [{"type": "input_text", "text": text} for text in parts]
        answer = await client.ask([{"type": "message", "role": "user", "content": content}])
        assert answer.json["status"] == "completed"
    content = [
        {"type": "input_text", "text": text} for text in ("fault:refusal", "<system-reminder>Be kind.")
    ]
    answer = await client.ask([{"type": "message", "role": "user", "content": content}])
    assert answer.json["output"][0]["content"][0]["type"] == "refusal"


async def test_long_texts_are_not_searched_for_words(client: Client) -> None:
    pages = "Draw a long, slow picture with a tool and think about its length. " * 20
    answer = await client.ask(pages, tools=[WEATHER])
    assert [item["type"] for item in answer.json["output"]] == ["message"]
    assert answer.json["status"] == "completed"


# --- a task in several steps --------------------------------------------------------------------------------

BUG = """def toll(axles):
    \"\"\"
    >>> toll(3)
    6
    \"\"\"
    return 2 + axles  # should be: return 2 * axles
"""


def tool(name: str, **properties: str) -> dict[str, Any]:
    schema = {"type": "object", "required": list(properties)}
    types = {key: {"type": kind} for key, kind in properties.items()}
    return {"type": "function", "name": name, "parameters": {**schema, "properties": types}}


async def run_task(client: Client, tools: list[dict[str, Any]], folder: Path, request: str) -> list[Any]:
    """Run the tools that the model calls, as an agent does. Return the names of the calls, and the answer."""
    items: list[Any] = [user(request)]
    steps: list[Any] = []
    while len(steps) < 10:
        answer = await client.ask(items, tools=tools)
        items += answer.json["output"]
        called = calls(answer.json)
        if not called:
            return [*steps, answer.text]
        for call in called:
            arguments = json.loads(call["arguments"])
            steps.append(call["name"])
            items.append(result(call["call_id"], run_tool(call["name"], arguments, folder)))
    raise AssertionError(steps)


def run_tool(name: str, arguments: dict[str, Any], folder: Path) -> str:
    match name:
        case "read_file":
            lines = (folder / arguments["filePath"]).read_text().splitlines()
            return "\n".join(lines[arguments["startLine"] - 1 : arguments["endLine"]])
        case "replace_string_in_file":
            path = folder / arguments["filePath"]
            assert path.read_text().count(arguments["oldString"]) == 1
            path.write_text(path.read_text().replace(arguments["oldString"], arguments["newString"]))
            return "The file was edited."
        case _:
            command = arguments["command"].replace("python3", sys.executable)
            done = subprocess.run(
                command, shell=True, cwd=folder, capture_output=True, text=True, check=False
            )
            return done.stdout + done.stderr


VSCODE_TOOLS = [
    tool("list_dir", path="string"),
    tool("read_file", filePath="string", startLine="integer", endLine="integer"),
    tool("replace_string_in_file", filePath="string", oldString="string", newString="string"),
    tool("run_in_terminal", command="string", explanation="string"),
]


async def test_a_bug_is_fixed_in_several_steps(client: Client, tmp_path: Path) -> None:
    (tmp_path / "tolls.py").write_text(BUG)
    steps = await run_task(client, VSCODE_TOOLS, tmp_path, "Fix the bug in tolls.py")
    assert steps[:3] == ["read_file", "replace_string_in_file", "run_in_terminal"]
    assert steps[3].endswith("All its examples pass.")
    assert (tmp_path / "tolls.py").read_text() == BUG.replace(
        "2 + axles  # should be: return 2 * axles", "2 * axles"
    )


async def test_the_report_says_when_the_examples_still_fail(client: Client, tmp_path: Path) -> None:
    (tmp_path / "tolls.py").write_text(BUG.replace("should be: return 2 *", "should be: return 3 *"))
    steps = await run_task(client, VSCODE_TOOLS, tmp_path, "Fix the bug in tolls.py")
    assert "Its examples fail" in steps[-1]


async def test_without_the_tools_for_the_task_the_model_says_so(client: Client, tmp_path: Path) -> None:
    steps = await run_task(client, VSCODE_TOOLS[:2], tmp_path, "Fix the bug in tolls.py")
    assert steps == ["I need tools that read a file, edit a file and run a command."]
