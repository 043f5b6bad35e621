"""The catalog with a real server on a loopback socket, whose list the tests change and break."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tollbridge.catalog.cache import CachedModels, CatalogCache
from tollbridge.catalog.limits import LIMITS
from tollbridge.catalog.models import Catalog
from tollbridge.clients.protocols import OpenResponsesClient
from tollbridge.frontends.vscode.models import encode_models
from tollbridge.protocols.model_list import MODEL_LIMIT
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.models import Model


class Server:
    """Serves a list of models and records the requests."""

    def __init__(self) -> None:
        self.ids = ["a/one", "a/two"]
        self.requests: list[str] = []
        self.status = 200
        self.url = ""
        self.open = asyncio.Event()
        self.open.set()
        self.body: bytes | None = None  # instead of the list of `ids`

    async def list_models(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        await self.open.wait()
        if self.body is not None:
            return web.Response(body=self.body, content_type="application/json")
        return web.json_response({"data": [{"id": name} for name in self.ids]}, status=self.status)

    async def list_endpoints(self, request: web.Request) -> web.Response:
        self.requests.append(request.path)
        if "a/" not in request.path:
            raise web.HTTPNotFound
        return web.json_response({"data": {"endpoints": [{"context_length": 77, "status": 0}]}})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_get("/v1/models", server.list_models)
    app.router.add_get("/v1/models/{id:.+}/endpoints", server.list_endpoints)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


@pytest.fixture
async def client(server: Server) -> AsyncIterator[OpenResponsesClient]:
    async with OpenResponsesClient(server.url, retries=RetryPolicy(attempts=1)) as client:
        yield client


def names(models: tuple[Model, ...]) -> list[str]:
    return [model.id for model in models]


def put_old(folder: Path, url: str, *ids: str) -> None:
    """Cache a list that was fetched two hours ago."""
    models = tuple(Model(id=name) for name in ids)
    CatalogCache(folder).put(CachedModels(base_url=url, fetched=time.time() - 7200, models=models))


async def test_the_list_is_fetched_once_and_cached_for_the_next_process(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    first = Catalog(tmp_path)
    lists = await asyncio.gather(*(first.models(client) for _ in range(20)))
    assert [names(listing.models) for listing in lists] == [server.ids] * 20
    assert server.requests.count("/v1/models") == 1
    assert names((await Catalog(tmp_path).models(client)).models) == server.ids
    assert server.requests.count("/v1/models") == 1
    await Catalog(tmp_path).models(client, refresh=True)
    assert server.requests.count("/v1/models") == 2


async def test_missing_fields_are_filled_from_the_endpoints(
    server: Server, client: OpenResponsesClient
) -> None:
    listing = await Catalog().models(client)
    assert [model.context_window for model in listing.models] == [77, 77]
    assert set(server.requests) == {"/v1/models", "/v1/models/a/one/endpoints", "/v1/models/a/two/endpoints"}


async def test_a_server_without_endpoints_gets_one_request_for_them(
    server: Server, client: OpenResponsesClient
) -> None:
    server.ids = ["one", "two", "three"]
    catalog = Catalog()
    await catalog.models(client)
    await catalog.models(client, refresh=True)
    assert server.requests == ["/v1/models", "/v1/models/one/endpoints", "/v1/models"]


async def test_endpoints_are_requested_again_after_a_day(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    yesterday = time.time() - 90_000
    old = CachedModels(
        base_url=server.url, fetched=yesterday, models=(Model(id="a/one"),), no_endpoints=yesterday
    )
    CatalogCache(tmp_path).put(old)
    listing = await Catalog(tmp_path).models(client, timeout=10)
    assert [model.context_window for model in listing.models] == [77, 77]


async def test_a_stale_list_is_returned_at_once_and_refreshed_in_the_background(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.open.clear()
    changed: asyncio.Queue[str] = asyncio.Queue()
    catalog = Catalog(tmp_path, changed.put_nowait)
    for _ in range(5):
        assert names((await catalog.models(client)).models) == ["old/one"]
    server.open.set()
    assert await asyncio.wait_for(changed.get(), 10) == server.url
    assert names((await catalog.models(client)).models) == server.ids
    assert server.requests.count("/v1/models") == 1


async def test_with_a_timeout_the_fresh_list_is_awaited(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    assert names((await Catalog(tmp_path).models(client, timeout=10)).models) == server.ids


@pytest.mark.parametrize("refresh", [False, True])
async def test_a_failure_never_empties_the_list(
    server: Server, client: OpenResponsesClient, tmp_path: Path, refresh: bool
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.status = 500
    catalog = Catalog(tmp_path)
    listing = await catalog.models(client, refresh=refresh, timeout=10)
    assert names(listing.models) == ["old/one"]
    assert listing.error is not None
    assert listing.error.status == 500
    # A gateway that is down does not get a request for every call.
    assert (await catalog.models(client)).error == listing.error
    assert server.requests == ["/v1/models"]


async def test_an_empty_list_does_not_replace_an_earlier_one(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.ids = []
    listing = await Catalog(tmp_path).models(client, timeout=10)
    assert names(listing.models) == ["old/one"]
    assert listing.error is not None


async def test_a_failure_without_an_earlier_list_is_raised(
    server: Server, client: OpenResponsesClient
) -> None:
    server.status = 500
    with pytest.raises(BridgeError):
        await Catalog().models(client)


async def test_cancelling_one_caller_does_not_cancel_the_fetch_for_others(
    server: Server, client: OpenResponsesClient
) -> None:
    server.open.clear()
    catalog = Catalog()
    cancelled, waiting = [asyncio.ensure_future(catalog.models(client)) for _ in range(2)]
    await asyncio.sleep(0)
    cancelled.cancel()
    server.open.set()
    assert names((await waiting).models) == server.ids


async def test_two_keys_have_two_lists_and_no_key_is_on_disk(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    catalog = Catalog(tmp_path)
    await catalog.models(client, api_key="tk-one")
    server.ids = ["b/three"]
    await catalog.models(client, api_key="tk-two", refresh=True)
    assert catalog.find(client, "a/one", api_key="tk-one") is not None
    assert catalog.find(client, "a/one", api_key="tk-two") is None
    data = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"tk-" not in data


async def test_two_accounts_at_one_gateway_have_two_lists_on_disk(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    await Catalog(tmp_path).models(client, account="one")
    server.ids = ["b/three"]
    assert names((await Catalog(tmp_path).models(client, account="two")).models) == ["b/three"]
    again = Catalog(tmp_path)
    assert names((await again.models(client, account="one")).models) == ["a/one", "a/two"]
    assert again.find(client, "b/three", account="two") is not None
    assert again.find(client, "b/three", account="one") is None


async def test_a_list_without_an_account_is_kept_in_memory_only(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    catalog = Catalog(tmp_path)
    await catalog.models(client, api_key="tk-one", account=None)
    assert catalog.find(client, "a/one", api_key="tk-one", account=None) is not None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
async def test_cached_lists_are_private_and_existing_ones_become_private(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    folder = tmp_path / "tollbridge" / "catalog"
    await Catalog(folder).models(client)
    (file,) = folder.iterdir()
    assert (file.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)
    file.chmod(0o644)
    assert Catalog(folder).find(client, "a/one") is not None
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_second_key_does_not_get_the_list_of_the_first(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    catalog = Catalog(tmp_path)
    await catalog.models(client, api_key="tk-one")
    server.ids = ["b/three"]
    assert names((await catalog.models(client, api_key="tk-two")).models) == ["b/three"]


async def test_the_missing_fields_of_a_long_list_are_filled_in_several_refreshes(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    server.ids = [f"a/{number}" for number in range(2 * LIMITS.details + 5)]
    results = []
    for _ in range(4):
        server.requests.clear()
        listing = await Catalog(tmp_path).models(client, refresh=True)  # as the next process would
        results.append(
            (sum(model.context_window == 77 for model in listing.models), len(server.requests) - 1)
        )
    assert results == [(50, 50), (100, 50), (105, 5), (105, 0)]


async def test_closing_cancels_running_fetches(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.open.clear()
    catalog = Catalog(tmp_path)
    await catalog.models(client)
    await catalog.aclose()
    server.open.set()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"models": 3}', b"\xff" * 100, b'{"base_url": "\xff"}']
)
async def test_a_corrupt_cache_file_is_ignored(
    server: Server, client: OpenResponsesClient, tmp_path: Path, damage: bytes
) -> None:
    put_old(tmp_path, server.url, "old/one")
    for path in tmp_path.iterdir():
        path.write_bytes(damage)
    assert names((await Catalog(tmp_path).models(client)).models) == server.ids


def test_every_field_of_a_model_is_cached(tmp_path: Path) -> None:
    model: Any = msgspec.convert(
        {
            "id": "m",
            "tags": ["vision"],
            "reasoning_efforts": ["low"],
            "prices": {"input": "0.00000000000000000000125"},
            "overrides": {"tools": False},
        },
        Model,
    )
    CatalogCache(tmp_path).put(CachedModels(base_url="u", fetched=1.0, models=(model,)))
    cached = CatalogCache(tmp_path).get("u")
    assert cached is not None
    assert cached.models == (model,)


def test_the_oldest_cache_files_are_deleted(tmp_path: Path) -> None:
    for number in range(LIMITS.files + 5):
        CatalogCache(tmp_path).put(CachedModels(base_url=f"u{number}", fetched=1.0, models=()))
    assert len(list(tmp_path.iterdir())) == LIMITS.files
    assert CatalogCache(tmp_path).get(f"u{LIMITS.files + 4}") is not None


def test_a_list_from_the_future_is_stale() -> None:
    assert CachedModels(base_url="u", fetched=time.time() + 9999, models=()).age == float("inf")


async def test_the_embedded_gateway_has_endpoints() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        endpoints = await client.endpoints("tollbridge/demo")
        listed = {model.id: model for model in await client.models()}
    assert endpoints is not None
    demo = listed["tollbridge/demo"]
    assert (endpoints.context_window, endpoints.max_output_tokens) == (
        demo.context_window,
        demo.max_output_tokens,
    )
    assert endpoints.prices == demo.prices
    assert endpoints.parameters == demo.parameters
    assert endpoints.providers == ("tollbridge",)


def test_a_temporary_file_that_cannot_be_renamed_is_deleted(tmp_path: Path) -> None:
    cache = CatalogCache(tmp_path)
    cache.put(CachedModels(base_url="u", fetched=1.0, models=()))
    (path,) = tmp_path.iterdir()
    path.unlink()
    path.mkdir()  # so that it cannot be replaced
    cache.put(CachedModels(base_url="u", fetched=1.0, models=()))
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    killed, writing = tmp_path / "0123456789abcdef0123.4711", tmp_path / "0123456789abcdef0123.4712"
    killed.touch()
    writing.touch()
    os.utime(killed, (1.0, 1.0))
    CatalogCache(tmp_path).put(CachedModels(base_url="u", fetched=1.0, models=()))
    assert not killed.exists()
    assert writing.exists()


async def test_after_a_restart_a_key_does_not_get_the_list_of_another_key(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    await Catalog(tmp_path).models(client, api_key="tk-one")
    server.ids = ["b/three"]
    second = Catalog(tmp_path)
    assert second.find(client, "a/one", api_key="tk-two") is None
    assert names((await second.models(client, api_key="tk-two")).models) == ["b/three"]
    third = Catalog(tmp_path)  # the list on disk is now that of the second key
    assert third.find(client, "b/three", api_key="tk-two") is not None
    assert third.find(client, "b/three", api_key="tk-one") is None
    assert third.find(client, "b/three") is None


async def test_a_list_with_odd_entries_is_listed_and_cached(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    odd = [
        '{"id": "a/window", "context_length": ' + "9" * 401 + "}",
        '{"id": "a/price", "pricing": {"prompt": "1e999999"}}',
        r'{"id": "a/name", "name": "\ud83d"}',
    ]
    server.body = ('{"data": [{"id": "a/one"}, ' + ", ".join(odd) + "]}").encode()
    ids = ["a/one", "a/window", "a/price", "a/name"]
    assert names((await Catalog(tmp_path).models(client)).models) == ids
    again = await Catalog(tmp_path).models(client)
    assert names(again.models) == ids
    assert [info.model for info in encode_models(again.models)] == ids


def test_a_model_that_cannot_be_encoded_is_left_out_of_the_cache(tmp_path: Path) -> None:
    models = (Model(id="a"), Model(id="b", name="\ud83d"), Model(id="c", tags=frozenset({"\ud83d"})))
    CatalogCache(tmp_path).put(CachedModels(base_url="u", fetched=1.0, models=models))
    cached = CatalogCache(tmp_path).get("u")
    assert cached is not None
    assert names(cached.models) == ["a"]


@pytest.mark.timed
async def test_a_list_of_14_megabytes_does_not_stall_the_event_loop(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    entries = (f'{{"id": "m-{n}", "description": "{"x" * 80}"}}' for n in range(120_000))
    server.body = f'{{"data": [{",".join(entries)}]}}'.encode()
    assert len(server.body) > 14_000_000
    pauses: list[float] = []

    async def watch() -> None:
        while True:
            start = time.thread_time()  # of the loop's thread: other processes do not count
            await asyncio.sleep(0)
            pauses.append(time.thread_time() - start)

    watching = asyncio.ensure_future(watch())
    listing = await Catalog(tmp_path).models(client)
    watching.cancel()
    assert len(listing.models) == MODEL_LIMIT
    assert max(pauses) < 0.5
