"""`tollbridge count` and `tollbridge accuracy`, as a person runs them."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge
from tests.tokens.conversations import PROSE, assistant, request, system, user

from tollbridge.cli.accuracy import plot
from tollbridge.cli.count import count_text, read_request
from tollbridge.cli.options import PROMPT_LIMIT
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import RequestError
from tollbridge.types.messages import DataPart, Role, TextPart, ToolCallPart, ToolResultPart
from tollbridge.types.usage import Usage

GPT = "openai/gpt-5"
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TALK = {
    "messages": [
        {"role": "developer", "content": "You are kind."},
        {"role": "user", "content": [{"type": "input_text", "text": "Read a.py"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "function": {"name": "read", "arguments": '{"path":"a.py"}'}}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "print(1)"},
    ],
    "tools": [{"type": "function", "function": {"name": "read", "description": "Reads a file."}}],
}


async def test_a_text_is_counted_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello world")
    result = await tollbridge("count", str(tmp_path / "text"), "--model", GPT)
    said = f"2 tokens for {GPT} (exact, vocabulary o200k_base)\n"
    assert (result.code, result.out, result.err) == (0, said, "")
    result = await tollbridge("count", "-", "--model", GPT, "--json", stdin=b"hello world")
    assert json.loads(result.out) == {
        "model": GPT,
        "tokens": 2,
        "method": "exact",
        "vocabulary": "o200k_base",
        "parts": [{"label": "tokens of o200k_base", "tokens": 2}],
    }


async def test_a_text_without_a_vocabulary_of_its_own_is_weighted_and_says_so(tmp_path: Path) -> None:
    new = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    asked = ("count", "-", "-m", "anthropic/claude-sonnet-4.5")
    found = json.loads((await tollbridge(*asked, "--json", env=new, stdin=PROSE.encode())).out)
    assert (found["method"], found["vocabulary"]) == ("weighted", "o200k_base")
    plain, weighted = (part["tokens"] for part in found["parts"])
    assert plain + weighted == found["tokens"]
    told = await tollbridge(*asked, env=new, stdin=PROSE.encode())
    assert told.out.splitlines()[1].split() == [str(plain), "tokens", "of", "o200k_base"]


def test_a_text_too_long_to_read_whole_is_not_called_exact() -> None:
    found = count_text(HybridTokenEstimator(), GPT, "word and\n" * 500_000)
    assert found.method == "weighted"
    assert found.tokens == pytest.approx(1_500_000, rel=0.01)


def test_without_a_vocabulary_characters_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollbridge.tokens.tokenizers._loaded", {"o200k_base": None})
    found = count_text(HybridTokenEstimator(), GPT, "hello world")
    assert (found.method, found.vocabulary) == ("characters", None)
    assert found.tokens > 0


async def test_bytes_that_are_no_text_are_counted_all_the_same() -> None:
    result = await tollbridge("count", "-", "--model", GPT, stdin=b"\xff\xfe\x00hello")
    assert (result.code, result.err) == (0, "")


async def test_half_an_emoji_in_a_conversation_is_counted_as_a_character(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps([{"role": "user", "content": "cut \ud83d"}]))
    result = await tollbridge("count", "--messages", str(tmp_path / "talk.json"), "-m", GPT)
    assert (result.code, result.err) == (0, "")


async def test_a_conversation_is_counted_in_its_parts(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    new = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}  # where nothing was learned yet
    asked = ("count", "--messages", str(tmp_path / "talk.json"), "-m", GPT)
    result = await tollbridge(*asked, "--json", env=new)
    counted = json.loads(result.out)
    assert counted["method"] == "estimated"
    assert counted["tokens"] == sum(part["tokens"] for part in counted["parts"])
    result = await tollbridge(*asked, env=new)
    assert result.out.startswith(f"{counted['tokens']} tokens for {GPT} (estimated, confidence 50%)\n")
    assert "tools\n" in result.out


async def test_what_was_learned_is_used_and_shown(tmp_path: Path) -> None:
    estimator = HybridTokenEstimator(tmp_path / "tollbridge.db")
    messages = [system(PROSE * 3)]
    for turn in range(4):
        messages += [user(f"Question {turn}: {PROSE}")]
        tokens = estimator.estimate_request(request(messages, model=GPT)).tokens
        assert estimator.calibrate(GPT, messages, Usage(tokens + turn))
        messages += [assistant("Yes.")]
    estimator.close()
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    result = await tollbridge("accuracy", env=env)
    assert (result.code, result.err) == (0, "")
    assert GPT in result.out
    result = await tollbridge("accuracy", "--json", env=env)
    measured = json.loads(result.out)
    assert (measured["model"], measured["requests"], measured["exact"]) == (GPT, 4, 1)
    assert len(measured["recent"]) == 4


async def test_answers_in_the_terminal_are_learned_from(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        await tollbridge("ask", "Hello there.", *where, env=env)
        await tollbridge("chat", *where, env=env, stdin=b"Hello there.\nAnd again.\n")
        await tollbridge("ask", "fault:failed", *where, env=env)
    measured = json.loads((await tollbridge("accuracy", "--json", env=env)).out)
    assert (measured["model"], measured["requests"]) == ("tollbridge/demo", 3)
    assert measured["exact"] >= 1  # the same question, the second time
    told = (await tollbridge("accuracy", env=env)).out.splitlines()
    assert told[0] == f"tollbridge/demo: 3 requests, {measured['exact']} exact"
    assert [line.split()[0] for line in told[1:4]] == ["error", "unlearned", "latest"]
    assert f"median {measured['plain_median']:.1%}" in told[2]
    assert len(told[3].split()[1]) == 3


async def test_nothing_measured_is_said_so(tmp_path: Path) -> None:
    result = await tollbridge("accuracy", env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    assert (result.code, result.out) == (0, "")
    assert "Nothing was measured yet" in result.err


@pytest.mark.parametrize("arguments", [("-m", GPT), ("-", "--messages", "-", "-m", GPT), ("-",)])
async def test_one_thing_is_counted_for_one_model(arguments: tuple[str, ...]) -> None:
    result = await tollbridge("count", *arguments)
    assert result.code == 2
    assert "Error: " in result.err


def test_conversations_are_read_as_people_write_them() -> None:
    read = read_request(GPT, json.dumps(TALK).encode())
    assert [message.role for message in read.messages] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER]
    assert read.messages[1].parts == (TextPart("Read a.py"),)
    assert read.messages[2].parts == (ToolCallPart("call_1", "read", '{"path":"a.py"}'),)
    assert read.messages[3].parts == (ToolResultPart("call_1", (TextPart("print(1)"),)),)
    assert read.tools[0].name == "read"


def test_a_byte_order_mark_and_a_name_are_read() -> None:
    data = b"\xef\xbb\xbf" + json.dumps([{"role": "user", "content": "Hi", "name": "ada"}]).encode()
    (message,) = read_request(GPT, data).messages
    assert (message.parts, message.name) == ((TextPart("Hi"),), "ada")


def test_images_files_and_sound_are_read_as_apis_spell_them() -> None:
    bytes_ = base64.b64encode(PIXEL).decode()
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{bytes_}", "detail": "low"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{bytes_}"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg=="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    ]
    (message,) = read_request(GPT, json.dumps([{"role": "user", "content": content}]).encode()).messages
    assert message.parts == (
        TextPart("Look:"),
        DataPart(PIXEL, "image/png"),
        DataPart(PIXEL, "image/png"),
        DataPart(b"", "image/png"),  # what is elsewhere is counted, and not fetched
        DataPart(b"%PDF", "application/pdf"),
        DataPart(b"RIFF", "audio/wav"),
    )


def test_our_own_shape_is_read_whole() -> None:
    own = [
        {"role": "user", "parts": [{"type": "tool_result", "call_id": "c", "parts": [], "is_error": True}]}
    ]
    (message,) = read_request(GPT, json.dumps(own).encode()).messages
    assert message.parts == (ToolResultPart("c", (), is_error=True),)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("{", "not JSON"),
        ("3", "no list of messages"),
        ('{"messages": 1}', "no list of messages"),
        ("[1]", r"messages\[0\].role"),
        ('[{"role": "user", "content": "a"}, {"role": "robot"}]', r"messages\[1\].role"),
        ('[{"role": "user"}]', r"messages\[0\].content"),
        ('[{"role": "user", "content": [{"image": 1}]}]', r"messages\[0\].content\[0\]"),
        ('[{"role": "user", "content": [{"text": 5}]}]', r"messages\[0\].content\[0\]"),
        ('[{"role": "user", "content": 5}]', r"messages\[0\].content"),
        ('[{"role": ["user"], "content": "a"}]', r"messages\[0\].role"),
        ('[{"role": "user", "content": "a", "name": 5}]', r"messages\[0\].name"),
        ('[{"role": "assistant", "content": "a", "tool_calls": 5}]', r"messages\[0\].tool_calls is not"),
        ('{"messages": [], "tools": 5}', "tools is not a list"),
        ('[{"role": "user", "content": [{"image_url": {"url": "file:///etc/passwd"}}]}]', "not fetched"),
        ('[{"role": "user", "content": [{"image_url": {"url": "data:image/png;base64,***"}}]}]', "base64"),
        ('[{"role": "user", "content": [{"input_audio": 5}]}]', "base64"),
        ('[{"role": "user", "parts": [{"type": "smell"}]}]', r"messages\[0\]"),
        ('[{"role": "assistant", "tool_calls": [1]}]', r"messages\[0\].tool_calls\[0\]"),
        ('{"messages": [], "tools": [{}]}', r"tools\[0\]"),
    ],
)
def test_what_does_not_fit_is_named(given: str, named: str) -> None:
    with pytest.raises(RequestError, match=named):
        read_request(GPT, given.encode())


def test_errors_are_drawn_by_their_size() -> None:
    assert plot((0.0, 0.001, -0.05, 0.10, -3.0)) == "▁▂▅██"
    assert plot(()) == ""


async def test_what_has_no_end_is_not_counted_replayed_or_asked() -> None:
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("this system has no /dev/zero")
    counted = await tollbridge("count", str(endless), "-m", GPT)
    replayed = await tollbridge("replay", str(endless))
    asked = await tollbridge("ask", "-", stdin=b"a" * (PROMPT_LIMIT + 1))
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        chatted = await tollbridge("chat", *where, stdin=b"a" * (PROMPT_LIMIT + 1))
    assert (counted.code, replayed.code, asked.code, chatted.code) == (1, 1, 2, 2)
    assert "Error: A line of standard input is longer than 16 MiB" in chatted.err
    assert counted.err == "Error: /dev/zero is longer than 256 MiB, the most that is counted.\n"
    assert replayed.err == "Error: /dev/zero is longer than 512 MiB, the most that is replayed.\n"
    assert "Error: Standard input is longer than 16 MiB, the most that is asked at once." in asked.err
