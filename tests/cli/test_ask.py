from __future__ import annotations

import json
import re
import time
from pathlib import Path

import click
import pytest
from tests.cli.cli_process import Result, tollbridge
from tests.storage.locking import locked
from tests.storage.stored import create_database

from tollbridge.cli.connection import Session, pick_model
from tollbridge.config.schema import Account
from tollbridge.engine import Engine
from tollbridge.testing.server import Gateway
from tollbridge.types.media import draw_png

KEY = "tk-0123456789-secret"


async def ask(gateway: Gateway, *arguments: str, stdin: bytes = b"", **env: str) -> Result:
    where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
    return await tollbridge("ask", *where, *arguments, env=env, stdin=stdin)


async def test_the_answer_goes_to_stdout_and_the_usage_line_to_stderr() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "hello")
    assert result.code == 0
    assert result.out == "You said “hello”. I was given 1 item and no system prompt, with no tools.\n"
    assert result.err.startswith("5 in (0 cached) · 20 out (0 reasoning) · first token ")


async def test_the_protocol_can_be_chosen() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "hello", "--backend", "chat-completions")
        assert [request.path for request in gateway.requests] == ["/v1/chat/completions"]
    assert result.out == "You said “hello”. I was given 1 item and no system prompt, with no tools.\n"
    assert result.err.startswith("5 in (0 cached) · 20 out (0 reasoning) · first token ")


async def test_the_prompt_can_be_read_from_stdin() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "-", stdin="h\u00e9llo\n".encode())
    assert "You said “héllo”." in result.out


async def test_standard_input_joins_the_prompt() -> None:
    async with Gateway() as gateway:
        joined = await ask(gateway, "Sum", "this", "up:", stdin=b"Some notes.\n")
        alone = await ask(gateway, stdin=b"Only notes.\n")
        named = await ask(gateway, "Sum this up:", "-", stdin=b"Some notes.\n")
        bodies = [request.body["input"] for request in gateway.requests]
    assert joined.code == alone.code == named.code == 0
    texts = [body if isinstance(body, str) else body[-1]["content"] for body in bodies]
    assert texts == ["Some notes.\n\nSum this up:", "Only notes.", "Some notes.\n\nSum this up:"]


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--temperature", "nan", "'nan' is not a number. Pass a number such as 0.2."),
        ("--temperature", "inf", "'inf' is not a number."),
        ("--temperature", "warm", "'warm' is not a number."),
        ("--max-tokens", "abc", "'abc' is not a whole number of at least 1."),
        ("--max-tokens", "-3", "'-3' is not a whole number of at least 1."),
    ],
)
async def test_an_option_that_is_not_a_number_is_named(option: str, value: str, words: str) -> None:
    result = await tollbridge("ask", "hi", option, value)
    assert result.code == 2
    assert words in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--base-url", "http://127.0.0.1:99999/v1"), "'http://127.0.0.1:99999/v1' is not a valid URL."),
        (("--header", "x-a: sk-0123456789abcdef"), "Use --secret-header 'x-a: environment:NAME'"),
        (("--record", ""), "The name is empty. Pass the name of a directory."),
    ],
)
async def test_an_unusable_option_is_a_usage_error_with_a_remedy(
    arguments: tuple[str, ...], words: str
) -> None:
    result = await tollbridge("ask", "hi", *arguments, env={"COLUMNS": "300"})
    assert result.code == 2
    assert words in result.err
    assert "secret =" not in result.err


async def test_a_small_limit_is_accepted_in_chat_completions() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "hi", "--backend", "chat-completions", "--max-tokens", "5")
        body = gateway.requests[-1].body
    assert result.code == 0, result.err
    assert body["max_tokens"] == 5


async def test_unquoted_words_are_the_prompt() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "what", "is", "a", "bridge?")
    assert result.out.startswith("You said “what is a bridge?”.")


async def test_every_request_field_can_be_set(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    (tmp_path / "person.json").write_text(json.dumps(schema))
    (tmp_path / "notes.txt").write_text("A ``` fence.\n")
    async with Gateway() as gateway:
        result = await ask(
            gateway,
            *(
                "Who?",
                "-m",
                "tollbridge/plain",
                "-s",
                "Be brief.",
                "--max-tokens",
                "50",
                "--temperature",
                "0.5",
            ),
            *("-o", "top_p=0.9", "-o", "service_tier=flex", "-o", 'metadata={"a": "b"}'),
            *("-f", str(tmp_path / "notes.txt"), "--schema", str(tmp_path / "person.json")),
        )
        body = gateway.requests[-1].body
    assert result.code == 0, result.err
    assert body["model"] == "tollbridge/plain"
    assert (body["max_output_tokens"], body["temperature"], body["top_p"]) == (50, 0.5, 0.9)
    assert (body["service_tier"], body["metadata"]) == ("flex", {"a": "b"})
    assert body["text"]["format"] == {"type": "json_schema", "name": "person", "schema": schema}
    sent = json.dumps(body["input"])
    assert "Be brief." in json.dumps(body)
    assert json.dumps("notes.txt:\n\n````\nA ``` fence.\n````")[1:-1] in sent


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("top_p", "'top_p' is not KEY=VALUE"),
        ("top_p=much", "top_p: expected a number, got a string"),
        ("model=x", "'model' cannot be set with -o"),
    ],
)
async def test_a_wrong_request_field_is_not_sent(option: str, words: str) -> None:
    result = await tollbridge("ask", "hi", "-o", option)
    assert result.code == 2
    assert words in " ".join(result.err.split())


async def test_a_schema_must_be_a_json_object(tmp_path: Path) -> None:
    for content, words in (("{", "is not valid JSON"), ("[]", "expected a JSON object")):
        (tmp_path / "schema.json").write_text(content)
        result = await tollbridge("ask", "hi", "--schema", str(tmp_path / "schema.json"))
        assert result.code == 1
        assert words in " ".join(result.err.split())


async def test_without_streaming_the_answer_is_the_same() -> None:
    async with Gateway() as gateway:
        streamed = await ask(gateway, "think and cite")
        complete = await ask(gateway, "think and cite", "--no-stream")
    assert complete.out == streamed.out
    assert complete.err.splitlines()[:-1] == streamed.err.splitlines()[:-1]  # the last line has the timing


async def test_json_errors_have_the_details_of_the_gateway() -> None:
    async with Gateway(scenario="unauthorized") as gateway:
        result = await ask(gateway, "hello", "--json")
        (error,) = json.loads(result.out)["errors"]
        assert error["request_id"] == gateway.requests[-1].id
    assert (result.code, error["status"], error["code"]) == (1, 401, "invalid_api_key")
    assert error["retry_after"] is None


async def test_another_model_than_the_local_one_is_an_error() -> None:
    account = Account("local", "http://127.0.0.1:9/v1", "openresponses", "none")
    async with Engine.open(persistent=False) as engine:
        session = Session(engine, account, "this computer", "smollm2", is_local=True)
        with pytest.raises(click.UsageError, match="The local model is smollm2, not nothing"):
            await pick_model(session, "nothing")
        assert await pick_model(session, None) == await pick_model(session, "smollm2") == "smollm2"


async def test_the_prompt_options_are_sent_to_the_gateway(tmp_path: Path) -> None:
    picture = tmp_path / "picture.dat"
    picture.write_bytes(draw_png())
    async with Gateway() as gateway:
        result = await ask(
            gateway,
            *(
                "hello",
                "--system",
                "Be brief.",
                "--image",
                str(tmp_path / "picture.dat"),
                "--reasoning",
                "low",
            ),
        )
        sent = gateway.requests[-1].body
    assert result.code == 0
    assert sent["reasoning"]["effort"] == "low"
    assert [item["role"] for item in sent["input"]] == ["developer", "user"]
    assert sent["input"][1]["content"][1]["image_url"].startswith("data:image/png;base64,")
    assert "The user said “hello”." in result.err  # reasoning goes to standard error


async def test_unsupported_content_is_removed_as_set_and_reported(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(draw_png())
    (tmp_path / "config.toml").write_text("[models.demo]\ncapabilities = { images = false }\n")
    config = str(tmp_path / "config.toml")
    image = ("--image", str(tmp_path / "picture.png"))
    async with Gateway() as gateway:
        result = await ask(gateway, "hello", *image, TOLLBRIDGE_CONFIG=config)
        output = json.loads((await ask(gateway, "hello", *image, "--json", TOLLBRIDGE_CONFIG=config)).out)
        bodies = [json.dumps(request.body) for request in gateway.requests]
    note = ": the model does not accept images."
    assert [("data:image" in body, "removed: " in body) for body in bodies] == [(False, True)] * 2
    assert f"{note}]\n" in result.err
    assert note not in result.out
    assert [change.endswith(note) for change in output["changes"]] == [True]
    assert output["counts"] == {"image": 1}


async def test_changes_of_a_rejected_request_are_reported() -> None:
    async with Gateway(scenario="reject-effort") as gateway:
        result = await ask(gateway, "hello", "--reasoning", "low")
    assert result.code == 0
    assert "[Removed reasoning: not supported by this server.]" in result.err


async def test_json_is_one_object_with_the_full_result() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "think and cite", "--json")
        drawn = json.loads((await ask(gateway, "draw", "--json")).out)
    assert (result.code, result.err) == (0, "")
    output = json.loads(result.out)
    assert output["model"] == "tollbridge/demo"
    assert output["reasoning"].startswith("The user said")
    assert [source["url"] for source in output["sources"]] == [
        "https://example.com/first",
        "https://example.org/second",
    ]
    assert [file["mime"] for file in drawn["files"]] == ["image/png"]
    assert (output["finish_reason"], output["ended"], output["errors"]) == ("stop", "finish", [])
    assert 0 < output["timing"]["first_token_seconds"] <= output["timing"]["total_seconds"]


async def test_waiting_for_a_retry_is_reported_on_stderr() -> None:
    async with Gateway(scenario="rate-limit-once") as gateway:
        result = await ask(gateway, "hello")
    async with Gateway(scenario="rate-limit-once") as gateway:
        quiet = await ask(gateway, "hello", "--json")
    assert result.out.startswith("You said “hello”.")
    assert result.err.startswith("[The gateway returned HTTP 429; retrying in 1 s]\n")
    assert (quiet.code, quiet.err) == (0, "")


async def test_text_before_a_failure_is_kept_and_the_exit_code_is_1() -> None:
    async with Gateway(scenario="disconnect") as gateway:
        plain = await ask(gateway, "hello")
        as_json = await ask(gateway, "hello", "--json")
    assert plain.code == as_json.code == 1
    output = json.loads(as_json.out)
    assert plain.out == output["text"] + "\n"
    assert output["text"].startswith("You said")
    assert [error["kind"] for error in output["errors"]] == ["disconnected"]
    assert output["ended"] == "cut"
    assert plain.err.startswith("Error: ")


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("unauthorized", "set TOLLBRIDGE_API_KEY"),
        ("forbidden", "Request access"),
        ("not-found", "tollbridge models"),
        ("context-too-long", "131072"),
        ("html-error", "Bad Gateway"),
        ("garbage", "OpenResponses server"),
        ("failed", "Try again"),
    ],
)
async def test_an_error_is_one_line_that_says_what_to_do(scenario: str, words: str) -> None:
    async with Gateway(scenario=scenario) as gateway:
        result = await ask(gateway, "hello")
    assert result.code == 1
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1
    assert words in result.err


async def test_a_refused_connection_is_reported() -> None:
    result = await tollbridge("ask", "hi", "--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    assert result.code == 1
    assert result.err.startswith("Error: Could not connect to 127.0.0.1:")
    assert "Check --base-url" in result.err


async def test_the_key_is_sent_to_the_gateway_and_never_printed() -> None:
    async with Gateway(api_key=KEY) as gateway:
        right = await ask(gateway, "hello", TOLLBRIDGE_API_KEY=KEY, AI_GATEWAY_API_KEY="other")
        wrong = await ask(gateway, "hello", "--json", AI_GATEWAY_API_KEY=KEY + "x")
    assert right.code == 0
    assert wrong.code == 1
    assert "authentication" in wrong.out
    assert KEY not in "".join((right.out, right.err, wrong.out, wrong.err))


async def test_with_several_models_one_must_be_chosen() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("ask", "hi", "--base-url", gateway.url)
    assert result.code == 2
    assert "Choose a model with --model, for example tollbridge/demo (2 available" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "The prompt is empty. Pass a prompt, or pipe a text to standard input."),
        (("",), "The prompt is empty"),
        ((" \n",), "The prompt is empty"),
        (("hi", "--base-url", "gateway"), "'gateway' is not an http or https URL"),
        (("hi", "--base-url", "http://[oops/v1"), "is not a valid URL"),
        (("hi", "--base-url", "ftp://example.com/"), "is not an http or https URL"),
        (("hi", "--reasoning", "enormous"), "'enormous' is not one of"),
        (
            ("hi", "--local", "--base-url", "http://127.0.0.1:9/v1"),
            "--local and --base-url are mutually exclusive",
        ),
        (("hi", "--api-key", "k"), "No such option"),
    ],
)
async def test_bad_usage_exits_with_2(arguments: tuple[str, ...], words: str) -> None:
    result = await tollbridge("ask", *arguments)
    assert (result.code, result.out) == (2, "")
    assert words in " ".join(result.err.split())


@pytest.mark.parametrize(
    ("path", "words"),
    [("none.png", "Cannot read none.png: No such file or directory."), (__file__, "is not an image")],
)
async def test_an_image_that_cannot_be_used_is_named(path: str, words: str) -> None:
    result = await tollbridge("ask", "hi", "--image", path)
    assert (result.code, result.out) == (1, "")
    assert path in result.err
    assert words in " ".join(result.err.split())


async def test_an_image_that_is_too_large_is_rejected(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.write(draw_png())
        file.truncate(20 * 1024 * 1024 + 1)
    result = await tollbridge("ask", "hi", "--image", str(large))
    assert result.code == 1
    assert "exceeds the 20 MiB limit" in " ".join(result.err.split())


async def test_stdin_that_is_not_text_is_rejected() -> None:
    result = await tollbridge("ask", "-", stdin=b"ok \xff\xfe")
    assert result.code == 1
    assert "not UTF-8 text (byte 3)" in result.err


async def test_plain_http_to_a_remote_host_must_be_allowed() -> None:
    result = await tollbridge("ask", "hi", "--model", "m", "--base-url", "http://example.invalid/v1")
    assert result.code == 1
    assert "Unencrypted HTTP" in result.err


async def test_invalid_unicode_in_a_prompt_is_replaced() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, b"h\xffi".decode(errors="surrogateescape"))
    assert result.code == 0
    assert "You said “h\ufffdi”." in result.out


@pytest.mark.timed
async def test_a_locked_database_does_not_delay_the_answer(tmp_path: Path) -> None:
    create_database(tmp_path / "tollbridge.db")
    async with Gateway() as gateway:
        with locked(tmp_path / "tollbridge.db"):
            started = time.monotonic()
            result = await ask(gateway, "hello", TOLLBRIDGE_DATA_DIR=str(tmp_path))
            assert time.monotonic() - started < 10  # in which a single wait of its writes would not end
    assert (result.code, result.out[:8]) == (0, "You said")
    assert result.err.count("The usage of 1 attempt was not recorded") == 1
    assert result.err.count("calibration from this request was not saved") == 1


async def test_a_prompt_over_the_context_limit_is_sent_with_a_warning(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOG_DIR": str(tmp_path / "lists")}
    async with Gateway() as gateway:
        await tollbridge("models", "--base-url", gateway.url, env=env)
        where = ("--base-url", gateway.url, "--model", "tollbridge/plain")
        long = await tollbridge("ask", "-", *where, env=env, stdin=b"word " * 4000)
        brief = await tollbridge("ask", "word", *where, env=env)
        requests = [request for request in gateway.requests if request.path.endswith("/responses")]
    assert (long.code, len(requests)) == (0, 2)
    assert re.match(
        r"Note: The prompt uses about \d,\d{3} tokens, more than the limit of 4,096\.\n", long.err
    )
    assert "The prompt uses" not in brief.err
