"""The HTTP client against real servers that misbehave."""

from __future__ import annotations

import asyncio
import ssl
import time
import zlib
from pathlib import Path

import pytest
import trustme
from tests.transport.servers import OK, Proxy, dripping, not_accepting, saying, serving, silent, unused_port

from tollbridge.testing.server import Gateway
from tollbridge.testing.service import SCENARIO_HEADER
from tollbridge.transport.http import (
    CHUNK_SIZE,
    LARGEST_CHUNK_SIZE,
    REDIRECT_LIMIT,
    SMALLEST_CHUNK_SIZE,
    TIME_SLICE,
    HttpClient,
    check_url,
)
from tollbridge.transport.retry import Timeouts
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
# Much longer than the timeout under test, so that it is clear which one expired.
LONG = 30.0


async def get(client: HttpClient, url: str, headers: dict[str, str] | None = None) -> bytes:
    async with client.send("GET", url, headers or AUTH) as reply:
        return await reply.read()


async def failure(url: str, client: HttpClient, method: str = "GET") -> BridgeError:
    """Send a request and return its error, which must be raised soon and not contain the key."""
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


# --- timeouts ----------------------------------------------------------------------------------------------


async def test_a_listener_that_accepts_no_connection_causes_a_connect_timeout() -> None:
    with not_accepting() as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(0.2, LONG, LONG)))
    assert isinstance(error, TimedOut)
    assert "did not accept a connection" in error.message


async def test_a_missing_tls_handshake_causes_a_connect_timeout() -> None:
    async with serving(silent) as port:
        error = await failure(f"https://127.0.0.1:{port}/", HttpClient(Timeouts(0.2, LONG, LONG)))
    assert isinstance(error, TimedOut)
    assert "did not accept a connection" in error.message


async def test_a_missing_response_causes_an_idle_timeout() -> None:
    async with serving(silent) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(LONG, 0.2, LONG)))
    assert isinstance(error, TimedOut)
    assert "(idle timeout)" in error.message


async def test_a_pause_in_the_body_causes_an_idle_timeout() -> None:
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


async def test_a_slow_response_is_not_idle_but_causes_a_total_timeout() -> None:
    async with serving(dripping) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(LONG, 0.2, 0.6)))
    assert isinstance(error, TimedOut)
    assert "exceeded the total timeout (0.6 s)" in error.message


async def test_without_a_total_timeout_a_slow_response_can_last_longer_than_the_idle_timeout() -> None:
    async with (
        serving(dripping) as port,
        HttpClient(Timeouts(LONG, 0.2)) as client,
        client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply,
    ):
        assert len(await reply.read_start(15)) == 15  # 0.3 s of dripping


# --- no connection -----------------------------------------------------------------------------------------


async def test_a_refused_connection_is_reported() -> None:
    error = await failure(f"http://127.0.0.1:{unused_port()}/", HttpClient())
    assert isinstance(error, NetworkFailed)
    assert "Could not connect to 127.0.0.1:" in error.message
    assert ": connect" in error.message  # "connection refused", or "connect call failed"


@pytest.mark.parametrize("host", ["nowhere.invalid", f"{'a' * 70}.test", "two..dots"])
async def test_a_host_that_cannot_be_resolved_is_reported(host: str) -> None:
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
async def test_invalid_and_truncated_responses_are_reported(answer: bytes, kind: type[BridgeError]) -> None:
    async with serving(saying(answer)) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(Timeouts(idle=2)))
    assert isinstance(error, kind), error
    assert error.message.startswith("127.0.0.1 ")


# --- bodies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["gzip", "brotli"])
async def test_compressed_responses_are_decompressed(scenario: str) -> None:
    async with Gateway() as gateway, HttpClient() as client:
        body = b'{"model": "tollbridge/demo", "input": "Hi", "stream": true}'
        headers = {SCENARIO_HEADER: scenario, "content-type": "application/json"}
        async with client.send("POST", f"{gateway.url}/responses", headers, body) as reply:
            assert reply.headers["content-encoding"] == {"gzip": "gzip", "brotli": "br"}[scenario]
            assert (await reply.read()).endswith(b"data: [DONE]\n\n")
        assert "br" in gateway.requests[0].headers["accept-encoding"]


async def test_a_body_larger_than_the_limit_is_an_error_with_the_limit() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000
    async with serving(saying(answer)) as port, HttpClient() as client:
        async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
            with pytest.raises(StreamError, match="larger than 1,999 bytes"):
                await reply.read(1999)
        async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
            assert len(await reply.read(2000)) == 2000
        async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
            assert await reply.read_start(5) == b"xxxxx"


async def test_a_body_that_takes_long_to_decode_arrives_in_smaller_chunks() -> None:
    answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2000000\r\n\r\n" + bytes(2_000_000)
    sizes: list[int] = []
    async with (
        serving(saying(answer)) as port,
        HttpClient() as client,
        client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply,
    ):
        async for chunk in reply.chunks():
            sizes.append(len(chunk))
            time.sleep(2 * TIME_SLICE)  # noqa: ASYNC251 - as a decoder does, without waiting
    assert sum(sizes) == 2_000_000
    assert max(sizes) <= CHUNK_SIZE
    assert max(sizes[len(sizes) // 2 :]) <= SMALLEST_CHUNK_SIZE


async def test_a_body_that_is_decoded_fast_arrives_in_larger_chunks() -> None:
    body = zlib.compress(bytes(16 * 2**20), wbits=31)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    sizes: list[int] = []
    async with (
        serving(saying(head + body)) as port,
        HttpClient() as client,
        client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply,
    ):
        sizes.extend([len(chunk) async for chunk in reply.chunks()])
    assert sum(sizes) == 16 * 2**20
    assert max(sizes) == LARGEST_CHUNK_SIZE


async def test_two_large_bodies_and_another_task_take_turns() -> None:
    """All data is in the buffers of this process, so that no read has to wait."""
    body = zlib.compress(bytes(64 * 2**20), wbits=31)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(body)
    order: list[str] = []

    async def download(name: str, url: str) -> None:
        async with client.send("GET", url, AUTH) as reply:
            async for _ in reply.chunks():
                order.append(name)
                time.sleep(TIME_SLICE / 8)  # noqa: ASYNC251

    async def tick() -> None:
        while True:
            order.append("tick")
            await asyncio.sleep(0)

    async with serving(saying(head + body)) as port, HttpClient() as client:
        url = f"http://127.0.0.1:{port}/"
        ticking = asyncio.create_task(tick())
        await asyncio.gather(download("a", url), download("b", url))
        ticking.cancel()
    both = "".join({"a": "a", "b": "b", "tick": " "}[name] for name in order)
    assert both.count("a") >= 256
    assert both.count("b") >= 256
    # A time slice is eight chunks here; the slice of one stream can follow that of the other.
    assert max(map(len, both.split())) <= 40


# --- where a key may be sent -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:1/v1", "http://localhost/v1", "http://a.localhost/", "http://[::1]:8080/v1"),
        *("https://example.com/v1", "http://127.9.9.9/"),
    ],
)
def test_https_and_loopback_urls_are_accepted(url: str) -> None:
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
    with pytest.raises(RequestError, match="Unencrypted HTTP"):
        check_url(url)
    assert check_url(url, allow_http=True).host


@pytest.mark.parametrize("url", ["https://user:pw-secret@example.com/", "http://pw-secret@localhost/"])
def test_a_url_with_a_password_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(RequestError, match="must not contain a user name or a password") as caught:
        check_url(url)
    assert "pw-secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["", "example.com/v1", "ftp://example.com", "https://", "http://[", KEY, "file:///x"]
)
def test_an_invalid_url_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(RequestError, match="Expected something like https://host/v1") as caught:
        check_url(url)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("value", ["a\nb", "a\r\nx: y", "a\0b"])
async def test_a_header_with_control_characters_is_refused_and_not_quoted(value: str) -> None:
    async with HttpClient() as client:
        with pytest.raises(RequestError, match="header") as caught:
            await get(client, "http://127.0.0.1:1/", {"x-custom": value})
    assert value not in str(caught.value)


# --- redirects ---------------------------------------------------------------------------------------------


async def test_a_redirect_within_the_origin_is_followed_with_the_key() -> None:
    async with Gateway(scenario="redirect", api_key=KEY) as gateway, HttpClient() as client:
        assert b"tollbridge/demo" in await get(client, f"{gateway.url}/models")
        assert [arrival.bearer for arrival in gateway.requests] == [KEY, KEY]


async def test_a_redirect_to_another_origin_is_refused_and_nothing_is_sent_there() -> None:
    async with Gateway(scenario="redirect-elsewhere", api_key=KEY) as gateway:
        error = await failure(f"{gateway.url}/models", HttpClient())
        assert isinstance(error, NetworkFailed)
        assert "to another origin (http://localhost:" in error.message
        assert "to which the API key is not sent" in error.message
        assert error.status == 307
        assert len(gateway.requests) == 1


def redirect(status: int, location: str) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_every_redirect_of_a_get_request_is_followed_within_the_origin(status: int) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(OK if head.startswith(b"GET /there") else redirect(status, "/there"))

    async with serving(handle) as port, HttpClient() as client:
        assert await get(client, f"http://127.0.0.1:{port}/here") == b"ok"


async def test_the_total_timeout_includes_redirects() -> None:
    async def respond_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.4)
        writer.write(redirect(307, "/there"))
        await writer.drain()
        writer.close()

    async with serving(respond_slowly) as port, HttpClient(Timeouts(total=0.6)) as client:
        with pytest.raises(TimedOut, match=r"total timeout \(0.6 s\)"):
            async with client.send("GET", f"http://127.0.0.1:{port}/here", {}):
                pass


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_drop_the_body_is_refused(status: int) -> None:
    async with serving(saying(redirect(status, "/there"))) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(), "POST")
    assert f"to /there with HTTP {status}; the request body would be dropped" in error.message


@pytest.mark.parametrize(
    "location", ["", "mailto:x", "http://[", "//evil.example/x", "ftp://127.0.0.1/", "https:x"]
)
async def test_a_redirect_to_an_invalid_location_is_refused(location: str) -> None:
    async with serving(saying(redirect(307, location))) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient())
    assert isinstance(error, NetworkFailed)
    assert "redirected" in error.message


@pytest.mark.parametrize(
    ("location", "method"),
    [
        ("http://me:pw-secret@evil.example/x", "GET"),
        ("http://me:pw-secret@127.0.0.1:{port}/again", "GET"),
        ("http://me:pw-secret@127.0.0.1:{port}/there", "POST"),
        ("http://me:pw-secret@[", "GET"),
    ],
)
@pytest.mark.parametrize("status", [302, 307])
async def test_a_password_in_a_redirect_is_neither_used_nor_shown(
    location: str, method: str, status: int
) -> None:
    heads: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(redirect(status, location.format(port=port)))

    async with serving(handle) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient(), method)
    assert isinstance(error, NetworkFailed)
    shown: BaseException | None = error
    while shown is not None:
        assert "pw-secret" not in f"{shown} {shown!r} {shown.args} {vars(shown)}"
        shown = shown.__cause__ or shown.__context__
    assert all(f"Bearer {KEY}".encode() in head for head in heads)


async def test_a_redirect_loop_ends_at_the_limit() -> None:
    requests = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        await saying(redirect(307, "/again"))(reader, writer)

    async with serving(handle) as port:
        error = await failure(f"http://127.0.0.1:{port}/", HttpClient())
    assert f"more than {REDIRECT_LIMIT} times" in error.message
    assert requests == REDIRECT_LIMIT + 1


# --- proxies -----------------------------------------------------------------------------------------------


async def test_a_proxy_argument_is_used_and_the_proxy_resolves_the_host() -> None:
    proxy = Proxy()
    async with (
        serving(proxy) as port,
        HttpClient(proxy=f"http://me:pw@127.0.0.1:{port}", allow_http=True) as client,
    ):
        assert await get(client, "http://gateway.test/v1/models") == b"ok"
    assert proxy.heads[0].startswith("GET http://gateway.test/v1/models HTTP/1.1\r\n")
    assert "proxy-authorization: basic bwu6chc=" in proxy.heads[0].lower()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
async def test_a_proxy_from_the_environment_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "HTTP_PROXY":
        monkeypatch.delenv("REQUEST_METHOD", raising=False)
    proxy = Proxy()
    async with serving(proxy) as port, HttpClient(allow_http=True) as client:
        monkeypatch.setenv(name, f"127.0.0.1:{port}")  # without http://, as people write it
        assert await get(client, "http://gateway.test/v1/models") == b"ok"
    assert len(proxy.heads) == 1


async def test_loopback_requests_do_not_use_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = Proxy()
    async with serving(proxy) as port, Gateway() as gateway:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{port}")
        for client in (HttpClient(), HttpClient(proxy=f"http://127.0.0.1:{port}")):
            async with client:
                assert b"tollbridge/demo" in await get(client, f"{gateway.url}/models")
    assert proxy.heads == []


@pytest.mark.parametrize("exception", ["gateway.test", ".test", "gateway.test:81", "*"])
async def test_hosts_in_no_proxy_are_requested_directly(
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
async def test_an_unsupported_kind_of_proxy_is_refused(proxy: str) -> None:
    error = await failure("https://gateway.test/", HttpClient(proxy=proxy))
    assert isinstance(error, RequestError)
    assert "must start with http:// or https://, not socks" in error.message.lower()
    assert "pw-secret" not in error.message


async def test_a_failing_proxy_is_reported_as_such() -> None:
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


async def test_an_untrusted_certificate_is_refused_and_the_key_is_not_sent(
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
    """The certificate authority, trusted by a setting of the machine, as a company's is."""
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return authority


async def test_certificate_authorities_of_the_system_are_trusted(trusted: trustme.CA) -> None:
    async with serving(saying(OK), server_side(trusted, "127.0.0.1")) as port, HttpClient() as client:
        assert await get(client, f"https://127.0.0.1:{port}/") == b"ok"


async def test_a_certificate_for_another_name_is_refused(trusted: trustme.CA) -> None:
    async with serving(saying(OK), server_side(trusted, "other.test")) as port:
        error = await failure(f"https://127.0.0.1:{port}/", HttpClient())
    assert "TLS certificate verification failed" in error.message


async def test_tls_is_tunnelled_and_the_proxy_does_not_get_the_key(trusted: trustme.CA) -> None:
    async with serving(saying(OK), server_side(trusted, "gateway.test")) as target:
        proxy = Proxy(target)
        async with serving(proxy) as port, HttpClient(proxy=f"http://127.0.0.1:{port}") as client:
            assert await get(client, "https://gateway.test/v1/models") == b"ok"
    assert proxy.heads[0].startswith("CONNECT gateway.test:443 HTTP/1.1\r\n")
    assert KEY not in "".join(proxy.heads)


async def test_https_to_a_plain_http_server_is_reported() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    async with serving(handle) as port:
        error = await failure(f"https://127.0.0.1:{port}/", HttpClient(Timeouts(connect=2)))
    assert error == NetworkFailed("TLS handshake with 127.0.0.1 failed. Did you mean http://?")


# --- the client itself -------------------------------------------------------------------------------------


async def test_a_closed_client_raises_an_error() -> None:
    client = HttpClient()
    await client.aclose()
    await client.aclose()
    with pytest.raises(RequestError, match="closed"):
        await get(client, "http://127.0.0.1:1/")


async def sending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send the start of a body, and then nothing."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc")
    await silent(reader, writer)


@pytest.mark.parametrize("phase", ["connecting", "waiting for the response", "reading", "between two reads"])
async def test_closing_the_client_fails_running_requests_at_once(phase: str) -> None:
    client = HttpClient(Timeouts(LONG, LONG, LONG))
    reached = asyncio.Event()
    resumed = asyncio.Event()

    async def request(port: int) -> None:
        async with client.send("GET", f"http://127.0.0.1:{port}/", AUTH) as reply:
            async for _ in reply.chunks():
                reached.set()
                if phase == "between two reads":
                    await resumed.wait()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if phase == "waiting for the response":
            reached.set()
            await silent(reader, writer)
        await sending(reader, writer)

    with not_accepting() as full_port:
        async with serving(handle) as port, asyncio.timeout(5):
            task = asyncio.create_task(request(full_port if phase == "connecting" else port))
            if phase == "connecting":
                reached.set()
                await asyncio.sleep(0.1)
            await reached.wait()
            await asyncio.sleep(0.05)
            await client.aclose()
            resumed.set()
            with pytest.raises(Disconnected, match="The client was closed") as caught:
                await task
    assert not caught.value.transient


async def test_waiting_between_two_attempts_ends_when_the_client_is_closed() -> None:
    client = HttpClient()
    async with asyncio.timeout(5):
        waiting = asyncio.create_task(client.sleep(LONG))
        await asyncio.sleep(0)
        await client.aclose()
        with pytest.raises(Disconnected, match="The client was closed"):
            await waiting


async def test_five_hundred_requests_at_once_do_not_wait_for_each_other() -> None:
    """Each is answered only when all have arrived. The connect timeout is shorter than that takes."""
    count, arrived, complete = 500, 0, asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal arrived
        await reader.readuntil(b"\r\n\r\n")
        arrived += 1
        if arrived == count:
            complete.set()
        await complete.wait()
        writer.write(OK)
        await writer.drain()

    async with serving(handle) as port, HttpClient(Timeouts(5, LONG, LONG)) as client:
        url = f"http://127.0.0.1:{port}/"
        assert await asyncio.gather(*(get(client, url) for _ in range(count))) == [b"ok"] * count


async def test_a_connection_is_reused_only_if_its_response_was_read() -> None:
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
