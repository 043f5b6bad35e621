"""Redaction, also of streams of real servers."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.protocols.detect import decoder_for
from tollbridge.recorder.keys import KeyRedactor, contains_key, hide_keys
from tollbridge.recorder.redaction import (
    ContentRedactor,
    hide_content,
    hide_secret_values,
    hide_secrets,
    redact_headers,
)

RECORDINGS = Path(__file__).parent.parent / "recordings"
STREAMS = sorted((RECORDINGS / "openresponses").glob("*.sse"))

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["delta", "text", "x y", "é"]), inner),
)


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


@given(JSON, st.booleans())
def test_redacted_json_is_json_of_the_same_length_without_words(value: Any, ascii_only: bool) -> None:
    data = json.dumps({"delta": value}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    hidden = hide_content(data)
    assert len(hidden) == len(data)
    for text in strings(json.loads(hidden)):
        # JSON inside a string keeps its literals and the letters of its escape sequences.
        assert not re.search(r"[^\W\d_x]", re.sub(r"true|false|null|\\[nrtbf]", "", text))


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.name)
def test_a_redacted_stream_has_the_same_events_without_words(path: Path) -> None:
    data = path.read_bytes()
    hidden = hide_content(data)
    assert len(hidden) == len(data)
    for word in (b"Hello", b"hello", b"Paris", b"San Francisco", b"think"):
        assert word not in hidden
    before, after = ([type(event) for event in events(body)] for body in (data, hidden))
    assert after == before


def events(body: bytes) -> list[Any]:
    decoder = decoder_for("openresponses", 200, {"content-type": "text/event-stream"})
    return decoder.feed(body) + decoder.close()


def feed_in_pieces(redactor: KeyRedactor | ContentRedactor, data: bytes, cuts: set[int]) -> bytes:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [redactor.feed(data[start:end]) for start, end in pairwise(edges)]
    return b"".join([*pieces, redactor.feed(b"", last=True)])


CUTS = st.sets(st.integers(0, 2000))


@given(CUTS)
def test_content_redaction_does_not_depend_on_how_the_bytes_are_split(cuts: set[int]) -> None:
    for path in STREAMS[:4]:
        data = path.read_bytes()
        assert feed_in_pieces(ContentRedactor(), data, cuts) == hide_content(data)


@given(st.lists(st.sampled_from([b"tk-1", b"key-22", b"tk-", b"k", b"x", b"1"]), max_size=60), CUTS)
def test_a_key_is_redacted_however_the_bytes_are_split(words: list[bytes], cuts: set[int]) -> None:
    data = b"".join(words)
    keys = ("tk-1", "key-22")
    assert feed_in_pieces(KeyRedactor(keys), data, cuts) == hide_keys(data, keys)


def test_arguments_inside_a_string_stay_json() -> None:
    data = json.dumps({"arguments": json.dumps({"city": 'Bo"b\n', "n": 42, "deeper": [True, None, "é"]})})
    hidden = json.loads(json.loads(hide_content(data.encode()))["arguments"])
    assert list(hidden.values())[1:] == [11, [True, None, "x"]]


@pytest.mark.parametrize(
    "body",
    [
        b'<html><a href="/x">Secret words</a></html>',
        b"Secret words",
        b"data: Secret words\n\n",
        b': a "comment with Secret words\ndata: {"delta":"Secret words"}\n\n',
        b'data: {"delta":"Secret words',
        b'0:"Secret words"\n',
        b'data: {"type":"x\ndata: "delta":"Secret words"}\n\n',
        b'{\n  "delta":\n  "Secret words"\n}',
    ],
)
def test_text_that_is_not_json_and_incomplete_json_are_redacted(body: bytes) -> None:
    hidden = hide_content(body)
    assert len(hidden) == len(body)
    assert b"Secret" not in hidden
    assert b"words" not in hidden


def test_structure_is_kept() -> None:
    body = b'event: a.created\ndata: {"type":"a.created","id":"resp_1","text":"abc 12"}\n\ndata: [DONE]\n'
    assert hide_content(body) == body.replace(b"abc 12", b"xxx 11")


def test_secrets_are_redacted_by_name_and_nothing_else_is() -> None:
    body = {"providerOptions": {"gateway": {"byok": {"a": [{"apiKey": "sk-1", "secretAccessKey": "Zz9"}]}}}}
    redacted = json.loads(hide_secrets(json.dumps({**body, "max_output_tokens": 5, "model": "m"}).encode()))
    keys = redacted["providerOptions"]["gateway"]["byok"]["a"][0]
    assert keys == {"apiKey": "xx-1", "secretAccessKey": "xx1"}
    assert (redacted["model"], redacted["max_output_tokens"]) == ("m", 5)


@pytest.mark.parametrize(
    "name",
    "api-key x-api-key X-Api-Key api_key bearer X-Auth-Key subscription-key proxy-auth Authorization "
    "session_token account_key passwd privateKey".split(),
)
def test_a_secret_is_recognized_by_its_name_in_any_spelling(name: str) -> None:
    assert hide_secret_values({"azure": [{name: "Zz9"}]}) == {"azure": [{name: "xx1"}]}
    assert hide_secret_values("Zz9", f'models."a/b".provider_options.azure.{name}') == "xx1"


@pytest.mark.parametrize("name", ["signature", "max_tokens", "prompt_cache_key", "author", "key", "text"])
def test_a_similar_name_is_not_a_secret(name: str) -> None:
    assert hide_secret_values({name: "Zz9"}) == {name: "Zz9"}


def test_keys_are_redacted_everywhere() -> None:
    assert hide_keys(b"a tk-1 b tk-1", ["tk-1", "none"]) == b"a **** b ****"


def test_only_values_of_safe_headers_are_recorded() -> None:
    shown = redact_headers(
        {"Authorization": "Bearer k", "Cookie": "c", "Content-Type": "text/plain", "X-Key": "k"}
    )
    assert shown["content-type"] == "text/plain"
    assert {shown[name] for name in ("authorization", "cookie", "x-key")} == {"[not recorded]"}


ESCAPED_KEY = "sk-ab/cd-0123456789"


def escapes(key: str) -> list[str]:
    """Return a key as JSON can contain it: plain, escaped, and in a string of JSON within JSON."""
    unicode = "".join(f"\\u{ord(character):04X}" if character in "-/" else character for character in key)
    slash = key.replace("/", "\\/")
    return [
        key,
        unicode,
        unicode.replace("002D", "002d"),
        slash,
        json.dumps(unicode)[1:-1],
        json.dumps(slash)[1:-1],
    ]


@pytest.mark.parametrize("form", escapes(ESCAPED_KEY))
def test_a_key_is_redacted_where_json_escapes_it(form: str) -> None:
    data = json.dumps({"a": "before"}).encode()[:-1] + f', "b": "x {form}y"}}'.encode()
    redacted = hide_keys(data, [ESCAPED_KEY])
    assert len(redacted) == len(data)
    assert json.loads(redacted)["b"] == f"x {'*' * len(form)}y"
    assert contains_key(data, [ESCAPED_KEY])
    for cut in range(len(data)):
        assert feed_in_pieces(KeyRedactor([ESCAPED_KEY]), data, {cut}) == redacted


def test_a_short_key_is_redacted_only_as_a_word() -> None:
    """Otherwise every letter of a recording is redacted if the key is one letter."""
    data = b'{"a": "a banana, a\\na \\u0041a key=a", "aa": 1}'
    assert hide_keys(data, ["a"]) == b'{"*": "* banana, *\\n* \\u0041* key=*", "aa": 1}'
    assert hide_keys(b"Incorrect API key: local1.", ["local1"]) == b"Incorrect API key: ******."
    assert not contains_key(b"banana", ["a"])


@given(
    st.lists(
        st.sampled_from([b"ab", b"a", b"b", b" ", b"\\n", b"\\", b"\\u0061", b"-", b"abcdefgh-1"]),
        max_size=12,
    ),
    st.sets(st.integers(0, 60)),
)
def test_redaction_of_short_and_long_keys_does_not_depend_on_how_the_bytes_are_split(
    words: list[bytes], cuts: set[int]
) -> None:
    data, keys = b"".join(words), ["ab", "abcdefgh-1"]
    assert feed_in_pieces(KeyRedactor(keys), data, cuts) == hide_keys(data, keys)
