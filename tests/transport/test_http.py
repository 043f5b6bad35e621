"""The HTTP client against real sockets that misbehave."""

from __future__ import annotations

import asyncio
import ssl
import time
from pathlib import Path

import pytest
import trustme
from tests.transport.servers import OK, Proxy, deaf, dripping, saying, serving, silent, unused_port

from tollbridge.testing.server import Gateway
from tollbridge.testing.service import SCENARIO_HEADER
from tollbridge.transport.http import REDIRECT_LIMIT, HttpClient, Timeouts, check_url
from tollbridge.types.errors import (
    BridgeError,
    Disconnected,
    NetworkFailed,
    RequestError,
    StreamError,
    TimedOut,
)

KEY = "sk-planted-0123456789abcdef"
AUTH = {"authorization": f"Bearer {KEY}"}
# Far from each other, so that a test can tell which one ran out.
LONG = 30.0


async def get(client: HttpClient, url: str, headers: dict[str, str] | None = None) -> bytes:
    async with client.send("GET", url, headers or AUTH) as reply:
        return await reply.read()


async def failure(url: str, client: HttpClient, method: str = "GET") -> BridgeError:
    """The error of a request, which must come soon and without the key."""
    started = time.monotonic()
    async with client:
        with pytest.raises(BridgeError) as caught:
            async with client.send(method, url, AUTH, b"{}" if method == "POST" else None) as reply:
                await reply.read()
    assert time.monotonic() - started < 5
    error: BaseException | None = caught.value
    while error is not None:
        assert KEY not in f"{error} {error!r} {error.args} {vars(error)}"
        error = error.__cause__ or error.__context__
    return caught.value


# --- times -------------------------------------------------------------------------------------------------


async def test_a_listener_that_accepts_nobody_runs_out_of_the_connect_time() -> None:
    with deaf() as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(0.2, LONG, LONG)))
    assert isinstance(error, TimedOut)
    assert "did not accept a connection" in error.message


async def test_a_server_that_never_shakes_hands_runs_out_of_the_connect_time() -> None:
    async with serving(silent) as port:
        error = await failure(f"https://127.0.0.1:{port}/", HttpClient(Timeouts(0.2, LONG, LONG)))
    assert isinstance(error, TimedOut)
    assert "did not accept a connection" in error.message


async def test_a_server_that_never_answers_runs_out_of_the_idle_time() -> None:
    async with serving(silent) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(LONG, 0.2, LONG)))
    assert isinstance(error, TimedOut)
    assert "(idle timeout)" in error.message


async def test_a_server_that_stops_in_the_middle_runs_out_of_the_idle_time() -> None:
    async def stopping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")
        await silent(reader, writer)

    async with (
        serving(stopping) as port,
        HttpClient(Timeouts(LONG, 0.2, LONG)) as client,
        client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply,
    ):
        chunks = reply.chunks()
        assert await anext(chunks) == b"abc"
        with pytest.raises(TimedOut, match="idle timeout"):
            await anext(chunks)


async def test_a_server_that_drips_is_not_idle_but_runs_out_of_the_total_time() -> None:
    async with serving(dripping) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(LONG, 0.2, 0.6)))
    assert isinstance(error, TimedOut)
    assert "exceeded the total timeout (0.6 s)" in error.message


async def test_without_a_total_time_a_slow_answer_may_take_longer_than_the_idle_time() -> None:
    async with (
        serving(dripping) as port,
        HttpClient(Timeouts(LONG, 0.2)) as client,
        client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply,
    ):
        assert len(await reply.read_start(15)) == 15  # 0.3 s of dripping


# --- no connection -----------------------------------------------------------------------------------------


async def test_nobody_listens() -> None:
    error = await failure(f"http://127.0.0.1:{unused_port()}/", HttpClient())
    assert isinstance(error, NetworkFailed)
    assert "Could not connect to 127.0.0.1:" in error.message
    assert ": connect" in error.message  # "connection refused", or "connect call failed"


@pytest.mark.parametrize("host", ["nowhere.invalid", f"{'a' * 70}.test", "two..dots"])
async def test_a_name_that_nobody_knows_is_told(host: str) -> None:
    error = await failure(f"https://{host}/v1", HttpClient(Timeouts(connect=3)))
    assert error == NetworkFailed(f"Could not resolve host {host}.")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"", Disconnected),
        (b"\x00\x01garbage\r\n\r\n", StreamError),
        (b"SSH-2.0-OpenSSH_9.6\r\n", StreamError),
        (b"HTTP/1.1 abc OK\r\n\r\n", StreamError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc", Disconnected),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab", Disconnected),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nab", Disconnected | StreamError),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc", StreamError),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n", StreamError),
    ],
)
async def test_what_is_no_http_or_breaks_off_is_told_in_a_sentence(
    answer: bytes, kind: type[BridgeError]
) -> None:
    async with serving(saying(answer)) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(idle=2)))
    assert isinstance(error, kind), error
    assert error.message.startswith("127.0.0.1 ")


# --- bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["gzip", "brotli"])
async def test_compressed_answers_are_unpacked(scenario: str) -> None:
    async with Gateway() as gateway, HttpClient() as client:
        body = b'{"model": "tollbridge/demo", "input": "Hi", "stream": true}'
        headers = {SCENARIO_HEADER: scenario, "content-type": "application/json"}
        async with client.send("POST", f"{gateway.url}/responses", headers, body) as reply:
            assert reply.headers["content-encoding"] == {"gzip": "gzip", "brotli": "br"}[scenario]
            assert (await reply.read()).endswith(b"data: [DONE]\n\n")
        assert "br" in gateway.requests[0].headers["accept-encoding"]


async def test_a_body_larger_than_the_limit_is_an_error_that_names_the_limit() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000
    async with serving(saying(answer)) as port, HttpClient() as client:
        async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
            with pytest.raises(StreamError, match="larger than 1,999 bytes"):
                await reply.read(1999)
        async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
            assert len(await reply.read(2000)) == 2000
        async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
            assert await reply.read_start(5) == b"xxxxx"


# --- where a key may travel --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:1/v1", "http://localhost/v1", "http://a.localhost/", "http://[::1]:8080/v1"),
        *("https://example.com/v1", "http://127.9.9.9/"),
    ],
)
def test_https_and_this_machine_may_have_the_key(url: str) -> None:
    assert str(check_url(url)).startswith(url.rstrip("/"))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/v1",
        "http://10.0.0.1/v1",
        "http://localhost.example.com/",
        "http://127.0.0.1.example.com/",
    ],
)
def test_plain_http_to_another_machine_is_refused_unless_allowed(url: str) -> None:
    with pytest.raises(RequestError, match="unencrypted HTTP"):
        check_url(url)
    assert check_url(url, allow_http=True).host


@pytest.mark.parametrize("url", ["https://user:pw-secret@example.com/", "http://pw-secret@localhost/"])
def test_an_address_with_a_password_in_it_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(RequestError, match="must not contain a user name or a password") as caught:
        check_url(url)
    assert "pw-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "example.com/v1", "ftp://example.com", "https://", "http://[", KEY, "file:///x"]
)
def test_what_is_no_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(RequestError, match="Expected something like https://host/v1") as caught:
        check_url(url)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("value", ["a\nb", "a\r\nx: y", "a\0b"])
async def test_a_header_that_would_break_the_request_is_refused_and_not_repeated(value: str) -> None:
    async with HttpClient() as client:
        with pytest.raises(RequestError, match="header") as caught:
            await get(client, "http://127.0.0.1:1/", {"x-custom": value})
    assert value not in str(caught.value)


# --- redirects ---------------------------------------------------------------------------------------------


async def test_a_redirect_within_the_host_is_followed_with_the_key() -> None:
    async with Gateway(scenario="redirect", api_key=KEY) as gateway, HttpClient() as client:
        assert b"tollbridge/demo" in await get(client, f"{gateway.url}/models")
        assert [arrival.bearer for arrival in gateway.requests] == [KEY, KEY]


async def test_a_redirect_to_another_host_is_refused_and_nothing_arrives_there() -> None:
    async with Gateway(scenario="redirect-elsewhere", api_key=KEY) as gateway:
        error = await failure(f"{gateway.url}/models", HttpClient())
        assert isinstance(error, NetworkFailed)
        assert "to another origin (http://localhost:" in error.message
        assert "to which the API key is not sent" in error.message
        assert error.status == 307
        assert len(gateway.requests) == 1


def moved(status: int, location: str) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_any_redirect_of_a_look_up_is_followed_within_the_host(status: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(OK if asked.startswith(b"GET /there") else moved(status, "/there"))

    async with serving(handle) as port, HttpClient() as client:
        assert await get(client, f"http://127.0.0.1:{port}/here") == b"ok"


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_lose_the_question_is_refused(status: int) -> None:
    async with serving(saying(moved(status, "/there"))) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(), "POST")
    assert f"to /there with HTTP {status}; the request body would be dropped" in error.message


@pytest.mark.parametrize(
    "location", ["", "mailto:x", "http://[", "//evil.example/x", "ftp://127.0.0.1/", "https:x"]
)
async def test_a_redirect_to_anything_odd_is_refused(location: str) -> None:
    async with serving(saying(moved(307, location))) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient())
    assert isinstance(error, NetworkFailed)
    assert "redirected" in error.message


async def test_a_circle_of_redirects_ends() -> None:
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await saying(moved(307, "/again"))(reader, writer)

    async with serving(handle) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient())
    assert f"more than {REDIRECT_LIMIT} times" in error.message
    assert asked == REDIRECT_LIMIT + 1


# --- proxies -----------------------------------------------------------------------------------------------


async def test_a_proxy_given_as_an_argument_is_asked_for_names_nobody_else_knows() -> None:
    proxy = Proxy()
    async with (
        serving(proxy) as port,
        HttpClient(proxy=f"http://me:pw@127.0.0.1:{port}", allow_http=True) as client,
    ):
        assert await get(client, "http://gateway.test/v1/models") == b"ok"
    assert proxy.heads[0].startswith("GET http://gateway.test/v1/models HTTP/1.1\r\n")
    assert "proxy-authorization: basic bwu6chc=" in proxy.heads[0].lower()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_a_proxy_of_the_environment_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "HTTP_PROXY":
        monkeypatch.delenv("REQUEST_METHOD", raising=False)
    proxy = Proxy()
    async with serving(proxy) as port, HttpClient(allow_http=True) as client:
        monkeypatch.setenv(name, f"127.0.0.1:{port}")  # without http://, as people write it
        assert await get(client, "http://gateway.test/v1/models") == b"ok"
    assert len(proxy.heads) == 1


async def test_loopback_is_never_reached_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    async with serving(proxy) as port, Gateway() as gateway:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        for client in (HttpClient(), HttpClient(proxy=f"http://127.0.0.1:{port}")):
            async with client:
                assert b"tollbridge/demo" in await get(client, f"{gateway.url}/models")
    assert proxy.heads == []


@pytest.mark.parametrize("exception", ["gateway.test", ".test", "gateway.test:81", "*"])
async def test_names_that_need_no_proxy_go_without_one(
    exception: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy()
    async with serving(proxy) as port, HttpClient(Timeouts(connect=3), allow_http=True) as client:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        monkeypatch.setenv("NO_PROXY", exception)
        with pytest.raises(NetworkFailed, match=r"gateway\.test"):
            await get(client, "http://gateway.test:81/")
    assert proxy.heads == []


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "SOCKS4://me:pw-secret@127.0.0.1:1"])
async def test_a_proxy_of_a_kind_we_do_not_speak_is_refused(proxy: str) -> None:
    error = await failure("https://gateway.test/", HttpClient(proxy=proxy))
    assert isinstance(error, RequestError)
    assert "must start with http:// or https://, not socks" in error.message.lower()
    assert "pw-secret" not in error.message


async def test_a_proxy_that_is_away_or_says_no_is_told_apart_from_the_gateway() -> None:
    error = await failure("https://gateway.test/", HttpClient(proxy=f"http://127.0.0.1:{unused_port()}"))
    assert error == NetworkFailed("Could not connect to gateway.test through the proxy.")
    async with serving(Proxy()) as port:
        error = await failure("https://gateway.test/", HttpClient(proxy=f"http://127.0.0.1:{port}"))
    assert error == NetworkFailed("Could not connect to gateway.test through the proxy.")


# --- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_side(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_a_certificate_nobody_vouches_for_is_refused_and_the_key_not_sent(
    authority: trustme.CA,
) -> None:
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.read(1000))

    async with serving(handle, server_side(authority, "127.0.0.1")) as port:
        error = await failure(f"https://127.0.0.1:{port}/", HttpClient())
    assert isinstance(error, NetworkFailed)
    assert "TLS certificate verification failed for 127.0.0.1 (" in error.message
    assert seen in ([], [b""])


@pytest.fixture
def trusted(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """The authority, trusted as a company's is: by the machine's setting."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return authority


async def test_an_authority_the_machine_trusts_is_trusted(trusted: trustme.CA) -> None:
    async with serving(saying(OK), server_side(trusted, "127.0.0.1")) as port, HttpClient() as client:
        assert await get(client, f"https://127.0.0.1:{port}/") == b"ok"


async def test_a_certificate_for_another_name_is_refused(trusted: trustme.CA) -> None:
    async with serving(saying(OK), server_side(trusted, "other.test")) as port:
        error = await failure(f"https://127.0.0.1:{port}/", HttpClient())
    assert "TLS certificate verification failed" in error.message


async def test_tls_goes_through_a_proxy_and_the_proxy_sees_no_key(trusted: trustme.CA) -> None:
    async with serving(saying(OK), server_side(trusted, "gateway.test")) as target:
        proxy = Proxy(target)
        async with serving(proxy) as port, HttpClient(proxy=f"http://127.0.0.1:{port}") as client:
            assert await get(client, "https://gateway.test/v1/models") == b"ok"
    assert proxy.heads[0].startswith("CONNECT gateway.test:443 HTTP/1.1\r\n")
    assert KEY not in "".join(proxy.heads)


async def test_https_spoken_to_a_plain_server_is_told_as_that() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with serving(handle) as port:
        error = await failure(f"https://127.0.0.1:{port}/", HttpClient(Timeouts(connect=2)))
    assert error == NetworkFailed("TLS handshake with 127.0.0.1 failed. Did you mean http://?")


# --- the client itself -------------------------------------------------------------------------------------


async def test_a_closed_client_says_that_it_is() -> None:
    client = HttpClient()
    await client.aclose()
    await client.aclose()
    with pytest.raises(RequestError, match="closed"):
        await get(client, "http://127.0.0.1:1/")


async def test_a_connection_is_used_again_only_if_its_answer_was_read() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)

    async with serving(handle) as port, HttpClient() as client:
        for _ in range(3):
            await get(client, f"http://127.0.0.1:{port}/")
        assert connections == 1
    async with serving(dripping) as port, HttpClient() as client:
        for _ in range(2):
            async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
                assert reply.status == 200
