"""Against a real server on a loopback socket, whose list the test can change and break."""

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

from tollbridge.catalog.cache import FILE_LIMIT, CachedModels, CatalogCache
from tollbridge.catalog.models import ENRICH_LIMIT, Catalog
from tollbridge.clients.openresponses import OpenResponsesClient
from tollbridge.testing.server import Gateway
from tollbridge.transport.retry import RetryPolicy
from tollbridge.types.errors import BridgeError
from tollbridge.types.models import Model


class Server:
    """A list of models, and how often it was asked for."""

    def __init__(self) -> None:
        self.ids = ["a/one", "a/two"]
        self.asked: list[str] = []
        self.status = 200
        self.url = ""
        self.open = asyncio.Event()
        self.open.set()

    async def list_models(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        await self.open.wait()
        return web.json_response({"data": [{"id": name} for name in self.ids]}, status=self.status)

    async def list_endpoints(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
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
    """A list that was fetched two hours ago."""
    models = tuple(Model(id=name) for name in ids)
    CatalogCache(folder).put(CachedModels(base_url=url, fetched=time.time() - 7200, models=models))


async def test_the_list_is_fetched_once_and_kept_for_the_next_process(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    first = Catalog(tmp_path)
    lists = await asyncio.gather(*(first.models(client) for _ in range(20)))
    assert [names(listing.models) for listing in lists] == [server.ids] * 20
    assert server.asked.count("/v1/models") == 1
    assert names((await Catalog(tmp_path).models(client)).models) == server.ids
    assert server.asked.count("/v1/models") == 1
    await Catalog(tmp_path).models(client, refresh=True)
    assert server.asked.count("/v1/models") == 2


async def test_gaps_are_filled_from_the_endpoints(server: Server, client: OpenResponsesClient) -> None:
    listing = await Catalog().models(client)
    assert [model.context_window for model in listing.models] == [77, 77]
    assert set(server.asked) == {"/v1/models", "/v1/models/a/one/endpoints", "/v1/models/a/two/endpoints"}


async def test_a_server_without_endpoints_is_asked_once_and_not_again(
    server: Server, client: OpenResponsesClient
) -> None:
    server.ids = ["one", "two", "three"]
    catalogue = Catalog()
    await catalogue.models(client)
    await catalogue.models(client, refresh=True)
    assert server.asked == ["/v1/models", "/v1/models/one/endpoints", "/v1/models"]


async def test_after_a_day_it_is_asked_again(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    yesterday = time.time() - 90_000
    old = CachedModels(
        base_url=server.url, fetched=yesterday, models=(Model(id="a/one"),), no_endpoints=yesterday
    )
    CatalogCache(tmp_path).put(old)
    listing = await Catalog(tmp_path).models(client, patience=10)
    assert [model.context_window for model in listing.models] == [77, 77]


async def test_a_stale_list_is_served_at_once_and_refreshed_behind(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.open.clear()
    changed: asyncio.Queue[str] = asyncio.Queue()
    catalogue = Catalog(tmp_path, changed.put_nowait)
    for _ in range(5):
        assert names((await catalogue.models(client)).models) == ["old/one"]
    server.open.set()
    assert await asyncio.wait_for(changed.get(), 10) == server.url
    assert names((await catalogue.models(client)).models) == server.ids
    assert server.asked.count("/v1/models") == 1


async def test_with_patience_the_fresh_list_is_waited_for(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    assert names((await Catalog(tmp_path).models(client, patience=10)).models) == server.ids


@pytest.mark.parametrize("refresh", [False, True])
async def test_a_failure_never_empties_the_list(
    server: Server, client: OpenResponsesClient, tmp_path: Path, refresh: bool
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.status = 500
    catalogue = Catalog(tmp_path)
    listing = await catalogue.models(client, refresh=refresh, patience=10)
    assert names(listing.models) == ["old/one"]
    assert listing.error is not None
    assert listing.error.status == 500
    # Nor is a gateway that is down asked at every turn.
    assert (await catalogue.models(client)).error == listing.error
    assert server.asked == ["/v1/models"]


async def test_a_list_that_is_suddenly_empty_is_not_believed(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.ids = []
    listing = await Catalog(tmp_path).models(client, patience=10)
    assert names(listing.models) == ["old/one"]
    assert listing.error is not None


async def test_a_failure_with_nothing_to_serve_is_raised(server: Server, client: OpenResponsesClient) -> None:
    server.status = 500
    with pytest.raises(BridgeError):
        await Catalog().models(client)


async def test_one_who_stops_waiting_does_not_take_the_list_from_the_others(
    server: Server, client: OpenResponsesClient
) -> None:
    server.open.clear()
    catalogue = Catalog()
    impatient, patient = [asyncio.ensure_future(catalogue.models(client)) for _ in range(2)]
    await asyncio.sleep(0)
    impatient.cancel()
    server.open.set()
    assert names((await patient).models) == server.ids


async def test_two_keys_have_two_lists_and_neither_is_on_disk(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    catalogue = Catalog(tmp_path)
    await catalogue.models(client, api_key="tk-one")
    server.ids = ["b/three"]
    await catalogue.models(client, api_key="tk-two", refresh=True)
    assert catalogue.find(client, "a/one", api_key="tk-one") is not None
    assert catalogue.find(client, "a/one", api_key="tk-two") is None
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"tk-" not in kept


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


async def test_a_second_key_is_not_served_the_list_of_the_first(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    catalogue = Catalog(tmp_path)
    await catalogue.models(client, api_key="tk-one")
    server.ids = ["b/three"]
    assert names((await catalogue.models(client, api_key="tk-two")).models) == ["b/three"]


async def test_of_a_long_list_the_gaps_are_filled_in_several_refreshes_and_stay_so(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    server.ids = [f"a/{number}" for number in range(2 * ENRICH_LIMIT + 5)]
    known = []
    for _ in range(4):
        server.asked.clear()
        listing = await Catalog(tmp_path).models(client, refresh=True)  # as the next process would
        known.append((sum(model.context_window == 77 for model in listing.models), len(server.asked) - 1))
    assert known == [(50, 50), (100, 50), (105, 5), (105, 0)]


async def test_giving_up_leaves_no_fetch_behind(
    server: Server, client: OpenResponsesClient, tmp_path: Path
) -> None:
    put_old(tmp_path, server.url, "old/one")
    server.open.clear()
    catalogue = Catalog(tmp_path)
    await catalogue.models(client)
    await catalogue.aclose()
    server.open.set()


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"models": 3}', b"\xff" * 100, b'{"base_url": "\xff"}']
)
async def test_a_damaged_file_is_fetched_anew(
    server: Server, client: OpenResponsesClient, tmp_path: Path, damage: bytes
) -> None:
    put_old(tmp_path, server.url, "old/one")
    for path in tmp_path.iterdir():
        path.write_bytes(damage)
    assert names((await Catalog(tmp_path).models(client)).models) == server.ids


def test_every_field_of_a_model_survives_the_disk(tmp_path: Path) -> None:
    odd: Any = msgspec.convert(
        {
            "id": "m",
            "tags": ["vision"],
            "reasoning_efforts": ["low"],
            "prices": {"input": "0.00000000000000000000125"},
            "told": {"tools": False},
        },
        Model,
    )
    CatalogCache(tmp_path).put(CachedModels(base_url="u", fetched=1.0, models=(odd,)))
    found = CatalogCache(tmp_path).get("u")
    assert found is not None
    assert found.models == (odd,)


def test_old_lists_are_removed(tmp_path: Path) -> None:
    for number in range(FILE_LIMIT + 5):
        CatalogCache(tmp_path).put(CachedModels(base_url=f"u{number}", fetched=1.0, models=()))
    assert len(list(tmp_path.iterdir())) == FILE_LIMIT
    assert CatalogCache(tmp_path).get(f"u{FILE_LIMIT + 4}") is not None


def test_a_clock_that_was_set_back_makes_a_list_old() -> None:
    assert CachedModels(base_url="u", fetched=time.time() + 9999, models=()).age == float("inf")


async def test_the_embedded_gateway_describes_its_endpoints() -> None:
    async with Gateway() as gateway, OpenResponsesClient(gateway.url) as client:
        found = await client.endpoints("tollbridge/demo")
        listed = {model.id: model for model in await client.models()}
    assert found is not None
    demo = listed["tollbridge/demo"]
    assert (found.context_window, found.max_output_tokens) == (demo.context_window, demo.max_output_tokens)
    assert found.prices == demo.prices
    assert found.parameters == demo.parameters
    assert found.providers == ("tollbridge",)


def test_a_draft_that_could_not_become_a_list_is_removed(tmp_path: Path) -> None:
    shelf = CatalogCache(tmp_path)
    shelf.put(CachedModels(base_url="u", fetched=1.0, models=()))
    (path,) = tmp_path.iterdir()
    path.unlink()
    path.mkdir()  # in the way
    shelf.put(CachedModels(base_url="u", fetched=1.0, models=()))
    assert list(tmp_path.iterdir()) == [path]


def test_drafts_of_processes_that_were_killed_are_cleared_away(tmp_path: Path) -> None:
    killed, writing = tmp_path / "0123456789abcdef0123.4711", tmp_path / "0123456789abcdef0123.4712"
    killed.touch()
    writing.touch()
    os.utime(killed, (1.0, 1.0))
    CatalogCache(tmp_path).put(CachedModels(base_url="u", fetched=1.0, models=()))
    assert not killed.exists()
    assert writing.exists()
