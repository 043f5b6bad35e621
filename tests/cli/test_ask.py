from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from tests.cli.cli_process import Result, tollbridge
from tests.storage.locked_database import held

from tollbridge.storage.database import Database
from tollbridge.testing.server import Gateway
from tollbridge.types.media import draw_png

KEY = "tk-0123456789-secret"


async def ask(gateway: Gateway, *arguments: str, stdin: bytes = b"", **env: str) -> Result:
    where = ("--base-url", gateway.url, "--model", "tollbridge/demo")
    return await tollbridge("ask", *where, *arguments, env=env, stdin=stdin)


async def test_the_answer_goes_to_standard_output_and_the_toll_beside_it() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "hello")
    assert result.code == 0
    assert result.out == "You said “hello”. I was given 1 item and no system prompt, with no tools.\n"
    assert result.err.startswith("5 in (0 cached) · 20 out (0 reasoning) · first token ")


async def test_the_question_can_come_from_standard_input() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "-", stdin="h\u00e9llo\n".encode())
    assert "You said “héllo”." in result.out


async def test_the_wishes_reach_the_gateway(tmp_path: Path) -> None:
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
    assert "The user said “hello”." in result.err  # thinking is shown beside the answer


async def test_what_the_settings_say_a_model_cannot_do_is_not_asked_of_it_and_told(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(draw_png())
    (tmp_path / "config.toml").write_text("[models.demo]\ncapabilities = { images = false }\n")
    config = str(tmp_path / "config.toml")
    image = ("--image", str(tmp_path / "picture.png"))
    async with Gateway() as gateway:
        result = await ask(gateway, "hello", *image, TOLLBRIDGE_CONFIG=config)
        said = json.loads((await ask(gateway, "hello", *image, "--json", TOLLBRIDGE_CONFIG=config)).out)
        bodies = [json.dumps(each.body) for each in gateway.requests]
    told = "was left out: the model takes no images."
    assert [("data:image" in body, "left out" in body) for body in bodies] == [(False, True)] * 2
    assert f"{told}]\n" in result.err
    assert told not in result.out
    assert [change.endswith(told) for change in said["changes"]] == [True]
    assert said["counts"] == {"image": 1}


async def test_what_was_healed_is_told() -> None:
    async with Gateway(scenario="reject-effort") as gateway:
        result = await ask(gateway, "hello", "--reasoning", "low")
    assert result.code == 0
    assert "[Sent without reasoning: the server does not take it.]" in result.err


async def test_json_is_one_object_with_everything() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, "think and cite", "--json")
        drawn = json.loads((await ask(gateway, "draw", "--json")).out)
    assert (result.code, result.err) == (0, "")
    said = json.loads(result.out)
    assert said["model"] == "tollbridge/demo"
    assert said["reasoning"].startswith("The user said")
    assert [source["url"] for source in said["sources"]] == [
        "https://example.com/first",
        "https://example.org/second",
    ]
    assert [file["mime"] for file in drawn["files"]] == ["image/png"]
    assert (said["finish_reason"], said["ended"], said["errors"]) == ("stop", "finish", [])
    assert 0 < said["timing"]["first_token_seconds"] <= said["timing"]["total_seconds"]


async def test_a_wait_for_another_attempt_is_told_beside_the_answer() -> None:
    async with Gateway(scenario="rate-limit-once") as gateway:
        result = await ask(gateway, "hello")
    async with Gateway(scenario="rate-limit-once") as gateway:
        quiet = await ask(gateway, "hello", "--json")
    assert result.out.startswith("You said “hello”.")
    assert result.err.startswith("[The gateway answered 429; trying again in 1 s]\n")
    assert (quiet.code, quiet.err) == (0, "")


async def test_a_failure_in_the_middle_keeps_what_was_said_and_ends_with_1() -> None:
    async with Gateway(scenario="disconnect") as gateway:
        plain = await ask(gateway, "hello")
        as_json = await ask(gateway, "hello", "--json")
    assert plain.code == as_json.code == 1
    said = json.loads(as_json.out)
    assert plain.out == said["text"] + "\n"
    assert said["text"].startswith("You said")
    assert [error["kind"] for error in said["errors"]] == ["disconnected"]
    assert said["ended"] == "cut"
    assert plain.err.startswith("Error: ")


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ("unauthorized", "Set TOLLBRIDGE_API_KEY"),
        ("forbidden", "Ask for access"),
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


async def test_without_a_server_it_says_so() -> None:
    result = await tollbridge("ask", "hi", "--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    assert result.code == 1
    assert result.err.startswith("Error: No connection to 127.0.0.1 could be made")
    assert "Check --base-url" in result.err


async def test_the_key_reaches_the_gateway_and_nothing_else() -> None:
    async with Gateway(api_key=KEY) as gateway:
        right = await ask(gateway, "hello", TOLLBRIDGE_API_KEY=KEY, AI_GATEWAY_API_KEY="other")
        wrong = await ask(gateway, "hello", "--json", AI_GATEWAY_API_KEY=KEY + "x")
    assert right.code == 0
    assert wrong.code == 1
    assert "authentication" in wrong.out
    assert KEY not in "".join((right.out, right.err, wrong.out, wrong.err))


async def test_the_only_model_there_is_is_used_and_otherwise_it_asks() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("ask", "hi", "--base-url", gateway.url)
    assert result.code == 2
    assert "The gateway has 2 models. Say which one with --model, for example tollbridge/demo" in result.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument 'PROMPT'"),
        (("",), "The question is empty"),
        ((" \n",), "The question is empty"),
        (("hi", "--base-url", "gateway"), "'gateway' is not an http or https URL"),
        (("hi", "--base-url", "http://[oops/v1"), "is not a URL"),
        (("hi", "--base-url", "ftp://example.com/"), "is not an http or https URL"),
        (("hi", "--reasoning", "enormous"), "'enormous' is not one of"),
        (("hi", "--image", "none.png"), "File 'none.png' does not exist"),
        (("hi", "--image", __file__), "is not an image"),
        (("hi", "--local", "--base-url", "http://127.0.0.1:9/v1"), "name two gateways"),
        (("hi", "--api-key", "k"), "No such option"),
    ],
)
async def test_bad_usage_is_told_with_exit_code_2(arguments: tuple[str, ...], words: str) -> None:
    result = await tollbridge("ask", *arguments)
    assert (result.code, result.out) == (2, "")
    assert words in " ".join(result.err.split())


async def test_an_image_that_is_too_large_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    with large.open("wb") as file:
        file.write(draw_png())
        file.truncate(20 * 1024 * 1024 + 1)
    result = await tollbridge("ask", "hi", "--image", str(large))
    assert result.code == 2
    assert "is larger than 20 MiB" in " ".join(result.err.split())


async def test_standard_input_that_is_not_text_is_refused() -> None:
    result = await tollbridge("ask", "-", stdin=b"ok \xff\xfe")
    assert result.code == 2
    assert "not UTF-8 text (byte 3)" in result.err


async def test_plain_http_beyond_this_machine_must_be_allowed() -> None:
    result = await tollbridge("ask", "hi", "--model", "m", "--base-url", "http://example.invalid/v1")
    assert result.code == 1
    assert "plain http" in result.err


async def test_a_prompt_that_is_not_unicode_is_mended() -> None:
    async with Gateway() as gateway:
        result = await ask(gateway, b"h\xffi".decode(errors="surrogateescape"))
    assert result.code == 0
    assert "You said “h\ufffdi”." in result.out


@pytest.mark.timed
async def test_a_store_that_another_process_holds_delays_nobody(tmp_path: Path) -> None:
    Database(tmp_path / "tollbridge.db").close()
    async with Gateway() as gateway:
        with held(tmp_path / "tollbridge.db"):
            started = time.monotonic()
            result = await ask(gateway, "hello", TOLLBRIDGE_DATA_DIR=str(tmp_path))
            assert time.monotonic() - started < 10  # in which a single wait of its writes would not end
    assert (result.code, result.out[:8]) == (0, "You said")
    assert result.err.count("a request is not written down") == 1
    assert result.err.count("what this request taught is lost") == 1


async def test_a_prompt_that_is_over_what_fits_is_warned_of_and_sent_all_the_same(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_DATA_DIR": str(tmp_path), "TOLLBRIDGE_CATALOGUE_DIR": str(tmp_path / "lists")}
    async with Gateway() as gateway:
        await tollbridge("models", "--base-url", gateway.url, env=env)
        where = ("--base-url", gateway.url, "--model", "tollbridge/plain")
        long = await tollbridge("ask", "-", *where, env=env, stdin=b"word " * 3905)
        brief = await tollbridge("ask", "word", *where, env=env)
        asked = [request for request in gateway.requests if request.path.endswith("/responses")]
    assert (long.code, len(asked)) == (0, 2)
    assert re.match(r"Note: The prompt is about \d,\d{3} tokens, more than the 3,072 that fit\.\n", long.err)
    assert "that fit" not in brief.err
