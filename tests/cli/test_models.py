from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.cli.cli_process import tollbridge

from tollbridge.testing.server import Gateway


async def test_models_are_shown_as_a_table() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("models", env={"TOLLBRIDGE_BASE_URL": gateway.url})
    assert (result.code, result.err) == (0, "")
    header, demo, *_ = result.out.splitlines()
    assert header.split() == [
        "model",
        "context",
        "output",
        "in",
        "$/M",
        "out",
        "$/M",
        "price",
        "capabilities",
    ]
    assert demo.split()[:6] == ["tollbridge/demo", "128,000", "64,000", "1.00", "4.00", "medium"]
    assert "embedding" not in result.out


async def test_models_are_printed_as_json_lines() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("models", "--json", "--base-url", gateway.url)
    demo, *_ = [json.loads(line) for line in result.out.splitlines()]
    assert demo["id"] == "tollbridge/demo"
    assert demo["context_window"] == 128_000
    assert "vision" in demo["tags"]
    assert "tools" in demo["supported_parameters"]
    assert demo["price_category"] == "medium"
    assert demo["capabilities"] == {"tools": True, "images": True, "files": True, "reasoning": True}
    assert demo["identity"]["creator"] == "tollbridge"
    assert demo["prices"] == {
        "input": "0.000001",
        "output": "0.000004",
        "cache_read": "0.0000001",
        "cache_write": "0.00000125",
    }


async def test_a_failing_gateway_is_reported_on_one_line() -> None:
    async with Gateway(api_key="k") as gateway:
        result = await tollbridge("models", "--base-url", gateway.url + "/nowhere")
    assert result.code == 1
    assert result.err.startswith("Error: ")
    assert result.err.count("\n") == 1


async def ids(gateway: Gateway, *arguments: str, **env: str) -> list[str]:
    result = await tollbridge("models", "--json", *arguments, "--base-url", gateway.url, env=env)
    assert result.code == 0
    return [json.loads(line)["id"].removeprefix("tollbridge/") for line in result.out.splitlines()]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ((), ["demo", "plain"]),
        (("--all",), ["demo", "plain", "embed"]),
        (("--search", "SMALL context"), ["plain"]),
        (("--search", "scripted", "--search", "image"), ["demo"]),
        (("--tag", "vision", "--tag", "tool-use"), ["demo"]),
        (("--max-price", "$1"), ["plain"]),
        (("--max-price", "4"), ["demo", "plain"]),
        (("--search", "nothing of the kind"), []),
    ],
)
async def test_models_can_be_filtered(arguments: tuple[str, ...], names: list[str]) -> None:
    async with Gateway() as gateway:
        assert await ids(gateway, *arguments) == names


async def test_the_settings_choose_and_order_the_models(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('favourites = ["*/plain"]\ndeny = ["*/embed"]\n[models.plain]\ncontext_window = 9000\n')
    async with Gateway() as gateway:
        assert await ids(gateway, "--all", TOLLBRIDGE_CONFIG=str(path)) == ["plain", "demo"]
        env = {"TOLLBRIDGE_CONFIG": str(path), "TOLLBRIDGE_BASE_URL": gateway.url}
        table = await tollbridge("models", env=env)
        result = await tollbridge("ask", "hello", env=env)
    assert table.out.splitlines()[1].split()[:3] == ["tollbridge/plain", "★", "9,000"]
    assert result.code == 0  # with the favourite, as nobody named a model


async def test_an_empty_list_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    async with Gateway() as gateway:
        env = {"TOLLBRIDGE_CONFIG": str(path), "TOLLBRIDGE_BASE_URL": gateway.url}
        path.write_text('deny = ["*"]')
        hidden = await tollbridge("models", env=env)
        path.write_text("")
        searched = await tollbridge("models", "--search", "nothing of the kind", env=env)
        every = await tollbridge("models", "--all", "--search", "nothing of the kind", env=env)
    assert hidden.err.startswith(
        "All 3 models are excluded by your `allow` and `deny` settings. Run `tollbridge config` "
    )
    assert searched.err == (
        'None of 2 models matches --search "nothing of the kind". Use --all to include other types.\n'
    )
    assert every.err == 'None of 3 models matches --search "nothing of the kind".\n'


async def test_capabilities_from_the_settings_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[models.demo]\ncapabilities = { images = false, files = false, reasoning = true }\n")
    async with Gateway() as gateway:
        env = {"TOLLBRIDGE_CONFIG": str(path), "COLUMNS": "200"}
        table = await tollbridge("models", "--search", "demo", "--base-url", gateway.url, env=env)
    assert "vision" not in table.out
    assert "file-input" not in table.out
    assert "reasoning" in table.out


async def test_two_accounts_at_one_gateway_see_their_own_models(tmp_path: Path) -> None:
    async def list_models(request: web.Request) -> web.Response:
        key = request.headers["authorization"].removeprefix("Bearer ")
        return web.json_response({"data": [{"id": f"only/{key}"}]})

    app = web.Application()
    app.router.add_get("/v1/models", list_models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    names = ("one", "two")
    accounts = [f'[accounts.{name}]\nbase_url = "{url}"\nkey = "environment:K_{name}"\n' for name in names]
    (tmp_path / "config.toml").write_text("".join(accounts))
    env = {"TOLLBRIDGE_CONFIG": str(tmp_path / "config.toml"), "K_one": "tk-1", "K_two": "tk-2"}
    try:
        results = [
            await tollbridge("models", "--json", "--account", name, env=env) for name in (*names, "one")
        ]
    finally:
        await runner.cleanup()
    assert [json.loads(result.out)["id"] for result in results] == ["only/tk-1", "only/tk-2", "only/tk-1"]


async def test_the_cached_list_is_shown_if_the_gateway_is_unreachable(tmp_path: Path) -> None:
    env = {"TOLLBRIDGE_CATALOG_DIR": str(tmp_path)}
    async with Gateway() as gateway:
        assert await ids(gateway, **env) == ["demo", "plain"]
    result = await tollbridge("models", "--refresh", "--base-url", gateway.url, env=env)
    assert result.code == 0
    assert "tollbridge/demo" in result.out
    assert result.err.startswith("Showing a cached list; refresh failed: Could not connect")


@pytest.mark.parametrize("price", ["much", "-1", "nan", "inf"])
async def test_an_invalid_price_is_reported(price: str) -> None:
    result = await tollbridge("models", f"--max-price={price}")
    assert result.code == 2
    assert "is not a valid price" in result.err


async def test_an_error_of_the_list_does_not_advise_to_list_models() -> None:
    async with Gateway() as gateway:
        result = await tollbridge("models", "--base-url", f"{gateway.url}/nope", env={"COLUMNS": "300"})
    assert result.code == 1
    assert result.err.endswith(" Check --base-url; it usually ends in /v1.\n")


@pytest.mark.parametrize("arguments", [(), ("--local",)])
async def test_the_local_model_is_listed_without_a_download(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    proxy = "http://127.0.0.1:9"  # a closed port: a download would fail
    env = {"TOLLBRIDGE_CACHE_DIR": str(tmp_path), "HTTPS_PROXY": proxy}
    result = await tollbridge("models", "--json", *arguments, env=env)
    assert result.code == 0, result.err
    (model,) = [json.loads(line) for line in result.out.splitlines()]
    assert (model["id"], model["context_window"]) == ("smollm2-135m-instruct", 8192)
    assert not (tmp_path / "models").exists()


async def test_the_hint_to_list_models_repeats_the_options() -> None:
    async with Gateway() as gateway:
        where = ("--base-url", gateway.url, "--backend", "chat-completions")
        result = await tollbridge("ask", *where, "Hello")
    assert result.code == 2
    assert f"run `tollbridge models {' '.join(where)}`" in result.err
