"""`tollbridge count` and `tollbridge accuracy`."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.cli.cli_process import tollbridge
from tests.tokens.samples import PROSE, assistant, request, system, user

from tollbridge.cli.count import count_text, plot, read_request
from tollbridge.cli.prompt import PROMPT_LIMIT
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.testing.server import Gateway
from tollbridge.types.errors import RequestError
from tollbridge.types.events import Usage
from tollbridge.types.messages import DataPart, Role, TextPart, ToolCallPart, ToolResultPart

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


async def test_a_model_name_that_is_not_utf8_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello world")
    result = await tollbridge("count", str(tmp_path / "text"), "--model", "a\udcffb")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("2 tokens for a\ufffdb ")


async def test_a_text_is_counted_from_a_file_and_from_standard_input(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello world")
    result = await tollbridge("count", str(tmp_path / "text"), "--model", GPT)
    line = f"2 tokens for {GPT} (exact, vocabulary o200k_base)\n"
    assert (result.code, result.out, result.err) == (0, line, "")
    result = await tollbridge("count", "-", "--model", GPT, "--json", stdin=b"hello world")
    assert json.loads(result.out) == {
        "model": GPT,
        "tokens": 2,
        "method": "exact",
        "vocabulary": "o200k_base",
        "parts": [{"label": "o200k_base tokens", "tokens": 2}],
    }


async def test_without_the_models_own_vocabulary_the_count_is_approximate(tmp_path: Path) -> None:
    new = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    command = ("count", "-", "-m", "anthropic/claude-sonnet-4.5")
    counted = json.loads((await tollbridge(*command, "--json", env=new, stdin=PROSE.encode())).out)
    assert (counted["method"], counted["vocabulary"]) == ("weighted", "o200k_base")
    plain, weighted = (part["tokens"] for part in counted["parts"])
    assert plain + weighted == counted["tokens"]
    shown = await tollbridge(*command, env=new, stdin=PROSE.encode())
    assert "(approximate, based on o200k_base)" in shown.out
    assert shown.out.splitlines()[1].split() == [str(plain), "o200k_base", "tokens"]


def test_a_text_that_is_counted_by_samples_is_not_called_exact() -> None:
    result = count_text(HybridTokenEstimator(), GPT, "word and\n" * 500_000)
    assert result.method == "weighted"
    assert result.tokens == pytest.approx(1_500_000, rel=0.01)


def test_without_any_vocabulary_characters_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tollbridge.tokens.tokenizers._loaded", {"o200k_base": None})
    result = count_text(HybridTokenEstimator(), GPT, "hello world")
    assert (result.method, result.vocabulary) == ("characters", None)
    assert result.tokens > 0


async def test_bytes_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    image = tmp_path / "pixel.png"
    image.write_bytes(PIXEL)
    result = await tollbridge("count", str(image), "--model", GPT)
    assert (result.code, result.out) == (1, "")
    assert f"{image} is not UTF-8 text (byte 0)" in result.err.replace("\n", " ")
    result = await tollbridge("count", "-", "--model", GPT, stdin=b"hello \xff")
    assert (result.code, result.out) == (1, "")
    assert "Standard input is not UTF-8 text (byte 6)" in result.err


async def test_a_lone_surrogate_in_a_conversation_is_counted(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps([{"role": "user", "content": "cut \ud83d"}]))
    result = await tollbridge("count", "--messages", str(tmp_path / "talk.json"), "-m", GPT)
    assert (result.code, result.err) == (0, "")


async def test_the_count_of_a_conversation_shows_its_parts(tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text(json.dumps(TALK))
    new = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}  # without calibration data
    command = ("count", "--messages", str(tmp_path / "talk.json"), "-m", GPT)
    result = await tollbridge(*command, "--json", env=new)
    counted = json.loads(result.out)
    assert counted["method"] == "estimated"
    assert counted["tokens"] == sum(part["tokens"] for part in counted["parts"])
    result = await tollbridge(*command, env=new)
    assert result.out.startswith(f"{counted['tokens']} tokens for {GPT} (estimated, confidence 50%)\n")
    assert "tools\n" in result.out


async def test_the_accuracy_of_earlier_estimates_is_shown(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "tollbridge.db")
    estimator = HybridTokenEstimator(store.tokens)
    messages = [system(PROSE * 3)]
    for turn in range(4):
        messages += [user(f"Question {turn}: {PROSE}")]
        tokens = estimator.estimate_request(request(messages, model=GPT)).tokens
        assert estimator.calibrate(GPT, messages, Usage(tokens + turn))
        messages += [assistant("Yes.")]
    assert estimator.calibrate(GPT, messages[:-1], Usage(tokens + 3))
    assert not estimator.calibrate(GPT, [user(f"Another. {PROSE}")], Usage(1_000_000))
    store.close()
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    result = await tollbridge("accuracy", env=env)
    assert (result.code, result.err) == (0, "")
    lines = {line.split()[0]: line.split(maxsplit=1)[1] for line in result.out.splitlines()}
    assert lines[f"{GPT}:"] == "5 requests, 2 exact"
    assert lines["first"].startswith("1 request, median 0.0%")
    assert lines["later"].startswith("3 requests, median ")
    assert lines["repeated"].startswith("1 request, median 0.0%")
    assert lines["refused"] == "1 report: 1 implausible"
    assert (len(lines["recent"]), lines["recent"][0], lines["recent"][-2:]) == (6, "▁", "▁x")
    result = await tollbridge("accuracy", "--json", env=env)
    measured = json.loads(result.out)
    assert (measured["model"], measured["requests"], measured["exact"]) == (GPT, 5, 2)
    assert measured["refused"] == {"implausible": 1}
    assert measured["recent_kinds"] == ["opening", "later", "later", "later", "repeat", "refused"]


async def test_answers_of_ask_and_chat_calibrate_the_estimator(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path)}
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        await tollbridge("ask", "Hello there.", *where, env=env)
        await tollbridge("chat", *where, env=env, stdin=b"Hello there.\nAnd again.\n")
        await tollbridge("ask", "fault:failed", *where, env=env)
    measured = json.loads((await tollbridge("accuracy", "--json", env=env)).out)
    assert (measured["model"], measured["requests"]) == ("tollbridge/demo", 3)
    assert measured["exact"] >= 1  # the same question, the second time
    lines = (await tollbridge("accuracy", env=env)).out.splitlines()
    assert lines[0] == f"tollbridge/demo: 3 requests, {measured['exact']} exact"
    labels = [line.split()[0] for line in lines[1:-1]]
    assert labels == ["error", "first", "later", "repeated", "uncalibrated", "recent"]
    assert f"median {measured['plain_median']:.1%}" in lines[5]
    assert len(lines[6].split()[1]) == 3


async def test_accuracy_without_data_is_reported(tmp_path: Path) -> None:
    result = await tollbridge("accuracy", env={"TOLLBRIDGE_DATA_DIR": str(tmp_path)})
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("No data yet. Send a request first")


@pytest.mark.parametrize("arguments", [("-m", GPT), ("-", "--messages", "-", "-m", GPT), ("-",)])
async def test_count_needs_a_model_and_one_input(arguments: tuple[str, ...]) -> None:
    result = await tollbridge("count", *arguments)
    assert result.code == 2
    assert "Error: " in result.err


def test_chat_completions_messages_are_read() -> None:
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


def test_images_files_and_audio_are_read() -> None:
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
        DataPart(b"", "image/png"),  # a remote image is counted but not downloaded
        DataPart(b"%PDF", "application/pdf"),
        DataPart(b"RIFF", "audio/wav"),
    )


def test_our_own_message_shape_is_read() -> None:
    own = [
        {"role": "user", "parts": [{"type": "tool_result", "call_id": "c", "parts": [], "is_error": True}]}
    ]
    (message,) = read_request(GPT, json.dumps(own).encode()).messages
    assert message.parts == (ToolResultPart("c", (), is_error=True),)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "not valid JSON"),
        ("3", "The body must be an object"),
        ('{"messages": 1}', "messages must be an array"),
        ("[1]", r"messages\[0\] must be an object"),
        ('[{"role": "user", "content": "a"}, {"role": "robot"}]', r"messages\[1\].role"),
        ('[{"role": "user"}]', r"messages\[0\].content"),
        ('[{"role": "user", "content": [{"image": 1}]}]', r"messages\[0\].content\[0\]"),
        ('[{"role": "user", "content": [{"text": 5}]}]', r"messages\[0\].content\[0\]"),
        ('[{"role": "user", "content": 5}]', r"messages\[0\].content"),
        ('[{"role": ["user"], "content": "a"}]', r"messages\[0\].role"),
        ('[{"role": "user", "content": "a", "name": 5}]', r"messages\[0\].name"),
        (
            '[{"role": "assistant", "content": "a", "tool_calls": 5}]',
            r"messages\[0\].tool_calls must be an array",
        ),
        ('{"messages": [], "tools": 5}', "tools must be an array"),
        ('[{"role": "user", "content": [{"image_url": {"url": "file:///etc/passwd"}}]}]', "not downloaded"),
        ('[{"role": "user", "content": [{"image_url": {"url": "data:image/png;base64,***"}}]}]', "base64"),
        ('[{"role": "user", "content": [{"input_audio": 5}]}]', r"content\[0\] .* input_audio"),
        ('[{"role": "user", "parts": [{"type": "smell"}]}]', r"messages\[0\]"),
        ('[{"role": "assistant", "tool_calls": [1]}]', r"messages\[0\].tool_calls\[0\]"),
        ('{"messages": [], "tools": [{}]}', r"tools\[0\]"),
    ],
)
def test_an_error_names_the_invalid_field(data: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read_request(GPT, data.encode())


def test_the_height_of_a_bar_is_the_size_of_the_error() -> None:
    assert plot((0.0, 0.001, -0.05, 0.10, -3.0), ["later"] * 5) == "▁▂▅██"
    assert plot((0.0, -0.5), ("later", "refused")) == "▁x"
    assert plot((), ()) == ""


async def test_endless_input_is_rejected() -> None:
    endless = Path("/dev/zero")
    if not endless.exists():
        pytest.skip("this system has no /dev/zero")
    counted = await tollbridge("count", str(endless), "-m", GPT)
    replayed = await tollbridge("replay", str(endless))
    result = await tollbridge("ask", "-", stdin=b"a" * (PROMPT_LIMIT + 1))
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
        chatted = await tollbridge("chat", *where, stdin=b"a" * (PROMPT_LIMIT + 1))
    assert (counted.code, replayed.code, result.code, chatted.code) == (1, 1, 1, 1)
    assert "Error: A line of standard input exceeds the 16 MiB limit" in chatted.err
    assert counted.err == "Error: /dev/zero exceeds the 256 MiB limit.\n"
    assert replayed.err == "Error: /dev/zero exceeds the 512 MiB limit.\n"
    assert "Error: Standard input exceeds the 16 MiB limit." in result.err


async def test_the_model_can_come_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Hello")
    named = await tollbridge("count", str(tmp_path / "a.txt"), env={"TOLLBRIDGE_MODEL": "openai/gpt-5"})
    nameless = await tollbridge("count", str(tmp_path / "a.txt"))
    assert "1 token for openai/gpt-5 (exact" in named.out
    assert nameless.code == 2
    assert "Name the model with --model, TOLLBRIDGE_MODEL or the setting `model`." in " ".join(
        nameless.err.split()
    )


@pytest.mark.parametrize("arguments", [("missing.txt",), ("--messages", "missing.txt")])
async def test_a_missing_file_is_named(arguments: tuple[str, ...]) -> None:
    result = await tollbridge("count", *arguments, "-m", "openai/gpt-5")
    assert result.code == 1
    expected = (
        "Error: Cannot read missing.txt: No such file or directory. Name another file, or - for standard"
    )
    assert expected in " ".join(result.err.split())
