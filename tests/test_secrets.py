"""A key, planted in every place a key can come from, is looked for everywhere it could be found.

Real programs, real sockets: what they print, log, write to disk, and show in the list of processes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from tests.cli.cli_process import environment
from tests.frontends.stdio.stdio_client import Editor, Refusal

ROOT = Path(__file__).parents[1]
KEY = "tk-planted-4711-0815-secret"
RECORDINGS = ROOT / "tests" / "recordings" / "openresponses"
ACCOUNTS = """
record = "{tapes}"
[accounts.named]
base_url = "{url}"
key = "environment:MY_OWN_KEY"
[accounts.ringed]
base_url = "{url}"
"""
# Keys of providers behind the gateway, in every place of the settings where a request takes them from.
PROVIDERS_KEY = "pk-planted-1618-3141-secret"
OPTIONS = """
[models."m".provider_options.azure]
api-key = "{key}"
bearer = "{key}"
headers = {{ x-api-key = "{key}" }}
list = [{{ apiKey = "{key}" }}]
[models."m".provider_options.gateway.byok]
anthropic = [{{ secretAccessKey = "{key}" }}]
[models."m".parameters]
extra_headers = {{ X-Api-Key = "{key}" }}
"""
# The login of the Vercel CLI, which is not ours, and which makes expired tokens good.
LOGIN = "vc-planted-2718-2818-secret"
# Where the key is put for a command, and the account that has it there.
PLACES = {
    "TOLLBRIDGE_API_KEY": ("--base-url", "{url}"),
    "AI_GATEWAY_API_KEY": ("--base-url", "{url}"),
    "VERCEL_OIDC_TOKEN": ("--base-url", "{url}"),
    "MY_OWN_KEY": ("--account", "named"),
    "TOLLBRIDGE_API_KEY_RINGED": ("--account", "ringed"),
    "keyring": ("--account", "ringed"),
}


# The files in which keys stand because a test, or the keyring, put them there.
PLANTED = ("config.toml", "the-keyring-itself", "auth.json")


class Server:
    """Answers as servers do, in pieces; quotes the key it was given where it refuses."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[str] = []
        self.bodies: list[str] = []

    async def respond(self, request: web.Request) -> web.StreamResponse:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.keys.append(key)
        question = await request.text()
        self.bodies.append(question)
        if "refuse" in question:
            return web.json_response({"error": {"message": f"Bad key {key}", "type": "x"}}, status=401)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        if "break" in question:
            failure = json.dumps({"type": "error", "error": {"message": f"Key {key} is spent", "code": "x"}})
            for start in range(0, len(failure), 9):
                piece = ("data: " if start == 0 else "") + failure[start : start + 9]
                await response.write(piece.encode())
                await asyncio.sleep(0.001)
            await response.write(b"\n\n")
            return response
        if "wait" in question:
            await asyncio.sleep(1.0)
        await response.write((RECORDINGS / "litellm.text-stream.sse").read_bytes())
        return response

    async def list_models(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        return web.json_response({"data": [{"id": "m", "description": "A model."}]})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/responses", server.respond)
    app.router.add_get("/v1/models", server.list_models)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    yield server
    await runner.cleanup()


class Machine:
    """A machine of its own for the programs: what they said, and all they left behind."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.output = ""
        self.env = environment(
            {
                "HOME": str(folder),
                "XDG_DATA_HOME": str(folder / "share"),
                "TOLLBRIDGE_CONFIG": str(folder / "config.toml"),
                "TOLLBRIDGE_DATA_DIR": str(folder / "data"),
                "TOLLBRIDGE_CATALOG_DIR": str(folder / "catalog"),
                "PYTHON_KEYRING_BACKEND": "tests.cli.file_keyring.FileKeyring",
                "TEST_KEYRING": str(folder / "the-keyring-itself"),
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
                "TOLLBRIDGE_DEBUG": "1",  # as much as can be said
            }
        )

    async def run(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] = {}) -> int | None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tollbridge", *arguments),
            env={**self.env, **env},
            cwd=self.folder,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with watched(process.pid) as seen, asyncio.timeout(60):
            out, _ = await process.communicate(stdin)
        self.output += out.decode() + "".join(seen)
        return process.returncode

    def files(self) -> Iterator[tuple[Path, bytes]]:
        for path in self.folder.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


@asynccontextmanager
async def watched(pid: int) -> AsyncIterator[set[str]]:
    """The command line of a process, and of what it starts, as anyone on the machine can read it; and what
    its children are given in their environment."""
    seen: set[str] = set()

    async def look() -> None:
        while True:
            try:
                process = psutil.Process(pid)
                seen.add(" ".join(process.cmdline()))
                for child in process.children(recursive=True):
                    seen.add(" ".join(child.cmdline()))
                    seen.add(str(child.environ()))
            except psutil.Error:
                pass
            await asyncio.sleep(0.05)

    looking = asyncio.ensure_future(look())
    try:
        yield seen
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


@pytest.fixture
def machine(tmp_path: Path, server: Server) -> Machine:
    machine = Machine(tmp_path)
    text = ACCOUNTS.format(url=server.url, tapes=tmp_path / "tapes") + OPTIONS.format(key=PROVIDERS_KEY)
    (tmp_path / "config.toml").write_text(text)
    return machine


def assert_not_found(machine: Machine, *keys: str) -> None:
    kept = list(machine.files())
    assert any(path.name == "tollbridge.db" for path, _ in kept)
    for key in (KEY, PROVIDERS_KEY, *keys):
        assert key not in machine.output
        for path, data in kept:
            if path.name not in PLANTED:
                assert key.encode() not in data, path
                assert key[4:-4].encode() not in data, path


# Each takes a dozen programs.
@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
async def test_a_key_is_sent_and_found_nowhere_else(place: str, machine: Machine, server: Server) -> None:
    where = [part.format(url=server.url) for part in PLACES[place]]
    env = {} if place == "keyring" else {place: KEY}
    if place == "keyring":
        assert await machine.run("login", "ringed", stdin=f"{KEY}\n".encode()) == 0
    ask = ("ask", "--model", "m", *where)
    assert await machine.run(*ask, "hello", env=env) == 0
    assert await machine.run(*ask, "wait", "--json", env=env) == 0
    assert await machine.run(*ask, "refuse", env=env) == 1
    assert await machine.run(*ask, "break", env=env) == 1
    assert await machine.run("chat", "--model", "m", *where, stdin=b"hello\nrefuse\nbreak\n", env=env) == 1
    assert await machine.run("models", *where, env=env) == 0
    assert await machine.run("config", *where, env=env) == 0
    assert await machine.run("usage", env=env) == 0
    assert await machine.run("doctor", *where, env=env) == 0
    assert await machine.run("doctor", "--model", "m", "--json", *where, env=env) == 0
    assert await machine.run("login", "named", stdin=b"another-key\n", env=env) == 0
    assert await machine.run("logout", "named", env=env) == 0
    tapes = [str(path) for path in (machine.folder / "tapes").iterdir()]
    assert len(tapes) >= 7
    assert await machine.run("replay", *tapes, env=env) == 0
    assert await machine.run("replay", "--json", *tapes, env=env) == 0
    assert set(server.keys) == {KEY}
    assert server.bodies[0].count(PROVIDERS_KEY) == 6
    assert "Bad key [key]" in machine.output or "Bad key *" in machine.output
    assert_not_found(machine)


async def test_a_key_the_editor_gives_is_sent_and_found_nowhere_else(
    machine: Machine, server: Server
) -> None:
    account = {"baseUrl": server.url, "apiKey": KEY}
    async with Editor(env=machine.env) as editor, watched(editor.process.pid) as seen:
        await editor.initialize(record=str(machine.folder / "tapes"))
        await editor.request("models", {"account": account})
        for text in ("hello", "refuse", "break", "wait"):
            messages = [{"role": 1, "content": [{"type": "text", "value": text}]}]
            try:
                await editor.request("chat", {"account": account, "model": "m", "messages": messages})
            except Refusal as refusal:
                machine.output += f"{refusal.message} {refusal.data}"
        # Invalid requests: the error says what is invalid, and does not quote the request.
        for params in (
            {"account": {**account, "baseUrl": 3}},
            {"account": [KEY]},
            {"account": {"apiKey": KEY}},
        ):
            with pytest.raises(Refusal) as caught:
                await editor.request("chat", params)
            machine.output += f"{caught.value.message} {caught.value.data}"
        machine.output += str(await editor.request("status")) + str(await editor.request("usage"))
    machine.output += editor.stderr + "".join(seen)
    assert set(server.keys) == {KEY}
    assert len(list((machine.folder / "tapes").iterdir())) == 4
    assert_not_found(machine)


async def test_the_login_of_the_vercel_cli_is_found_nowhere_else(machine: Machine, server: Server) -> None:
    """Nothing leaves the machine: the way out leads through a proxy that refuses every address."""
    share, folder = machine.folder / "share" / "com.vercel.cli", machine.folder / ".vercel"
    for path in (share, folder):
        path.mkdir(parents=True)
    (share / "auth.json").write_text(json.dumps({"token": LOGIN, "expiresAt": time.time() + 3600}))
    (folder / "project.json").write_text(json.dumps({"projectId": "prj_1", "orgId": "team_2"}))
    payload = base64.urlsafe_b64encode(b'{"exp": 1}').decode().rstrip("=")
    expired = f"e30.{payload}.{KEY}"
    env = {"VERCEL_OIDC_TOKEN": expired, "https_proxy": server.url.removesuffix("/v1")}
    vercel = ("--base-url", "https://ai-gateway.vercel.sh/v1")
    for command in (("ask", "--model", "m", "hello"), ("models",), ("doctor",)):
        assert await machine.run(*command, *vercel, env=env) == 1
    assert machine.output.count("has expired and could not be refreshed") == 3
    assert await machine.run("config", "--json", *vercel, env=env) == 0
    assert "expired (environment VERCEL_OIDC_TOKEN)" in machine.output
    # A server on this machine is asked without it.
    assert await machine.run("ask", "--model", "m", "--base-url", server.url, "hello", env=env) == 0
    assert server.keys == [""]
    assert_not_found(machine, LOGIN)


async def test_a_broken_key_is_found_nowhere_either(machine: Machine, server: Server) -> None:
    broken = f"{KEY} ü"
    assert (
        await machine.run("ask", "hello", "--base-url", server.url, env={"TOLLBRIDGE_API_KEY": broken}) == 1
    )
    assert await machine.run("login", "ringed", stdin=broken.encode()) == 1
    assert await machine.run("login", KEY) == 1  # an account by that name there is not
    config = machine.folder / "config.toml"
    config.write_text(f'[accounts.work]\nkey = "{KEY}"\n')
    assert await machine.run("config") == 1
    config.unlink()
    assert server.keys == []
    text = machine.output.replace(f"login {KEY}", "").replace(f'Account "{KEY}"', "")  # what was typed
    assert KEY not in text
