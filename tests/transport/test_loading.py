"""How much of aiohttp is loaded, and that https works with it. In new processes: it is imported only once."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from pathlib import Path

import pytest
import trustme
from tests.transport.servers import OK, saying, serving

# Prints the number of certificates of aiohttp's default contexts, then of a context made afterwards.
COUNT = """
import ssl, sys
{imports}
from aiohttp import connector
contexts = [connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED, ssl.create_default_context()]
other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
other.set_default_verify_paths()
counts = [len(context.get_ca_certs()) for context in (*contexts, other)]
print(*counts, "frozenlist._frozenlist" in sys.modules)
"""
OURS = """
from tollbridge.transport.loading import declare_own_program, load_http_client
declare_own_program()
load_http_client()
"""

GET = """
import asyncio, sys
from tollbridge.transport.loading import declare_own_program, load_http_client
declare_own_program()

async def main():
    async with load_http_client()() as client, client.send("GET", sys.argv[1], {}) as response:
        print((await response.read()).decode())

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


async def run(program: str, *arguments: str, authority: trustme.CA, folder: Path) -> tuple[str, str]:
    """Run a program on a machine that trusts this authority alone; return what it wrote."""
    path = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments),
        env={**os.environ, "SSL_CERT_FILE": str(path), "SSL_CERT_DIR": str(folder / "none")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        output, errors = await process.communicate()
    return output.decode().strip(), errors.decode()


async def test_aiohttp_loads_certificates_for_contexts_that_are_not_used_only_if_others_import_it(
    authority: trustme.CA, tmp_path: Path
) -> None:
    by_others = await run(COUNT.format(imports="import aiohttp"), authority=authority, folder=tmp_path)
    ours = await run(COUNT.format(imports=OURS), authority=authority, folder=tmp_path)
    assert by_others == ("1 1 1 1 True", "")
    assert ours == ("0 0 1 1 False", "")


async def test_the_library_leaves_the_contexts_of_aiohttp_as_they_are(
    authority: trustme.CA, tmp_path: Path
) -> None:
    imports = "from tollbridge.transport.loading import load_http_client; load_http_client()"
    assert await run(COUNT.format(imports=imports), authority=authority, folder=tmp_path) == (
        "1 1 1 1 True",
        "",
    )


async def test_a_program_of_ours_trusts_the_certificates_of_the_system_and_no_others(
    authority: trustme.CA, tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    async with serving(saying(OK), context) as port:
        url = f"https://127.0.0.1:{port}/"
        assert await run(GET, url, authority=authority, folder=tmp_path) == ("ok", "")
        output, errors = await run(GET, url, authority=trustme.CA(), folder=tmp_path)
    assert output == ""
    assert "TLS certificate verification failed for 127.0.0.1 (" in errors
