"""The clients of an engine: opened on first use, shared by requests, and closed when nothing uses them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Unpack

import msgspec

from tollbridge.clients.base import ClientOptions, GatewayClient
from tollbridge.config.schema import Account
from tollbridge.estimator import HybridTokenEstimator
from tollbridge.protocols import find_protocol
from tollbridge.storage.limits import LIMITS
from tollbridge.storage.worker import WRITE_TIMEOUT, WorkerThread
from tollbridge.token_accounting import TokenAccounting


class Connection(msgspec.Struct, frozen=True):
    """A client for one gateway, and the token accounting of its turns."""

    client: GatewayClient
    tokens: TokenAccounting | None


class ConnectionPool:
    """One connection per gateway, protocol and set of headers. Accounts that share these share a connection.

    A connection holds no key, only the values of secret headers.

    Args:
        open_client: Opens a client for an account without its key.
        worker: The thread that learns from the usage of turns.
        client: Use this client for all accounts. It is not closed.
        short_lived: For programs that run a few turns and exit: see `TokenAccounting`.
    """

    def __init__(
        self,
        open_client: Callable[[Account], GatewayClient],
        estimator: Callable[[], HybridTokenEstimator],
        worker: WorkerThread,
        *,
        client: GatewayClient | None = None,
        short_lived: bool = False,
    ) -> None:
        self._worker = worker
        self._open_client = open_client
        self._estimator = estimator
        self._client = client
        self._short_lived = short_lived
        self._connections: dict[tuple[object, ...], Connection] = {}
        self._retired: list[Connection] = []
        self._in_use = 0
        self._account_names: dict[str, str] = {}  # by base URL

    def get(self, account: Account) -> Connection:
        """Return the connection of an account."""
        key = account.backend, account.base_url, account.auth, frozenset(account.headers.items())
        connection = self._connections.get(key)
        if connection is None:
            client = self._client or self._open_client(msgspec.structs.replace(account, api_key=None))
            connection = Connection(client, self._token_accounting(client))
            self._connections[key] = connection
        self._account_names.setdefault(connection.client.base_url, account.name)
        return connection

    @asynccontextmanager
    async def use(self, account: Account) -> AsyncIterator[Connection]:
        """Yield the connection of an account. No connection is closed until the block is left."""
        self._in_use += 1
        try:
            yield self.get(account)
        finally:
            self._in_use -= 1
            await self.close_retired()

    def account_name(self, base_url: str) -> str:
        """Return the name of the first account that used a gateway; the empty string if none did."""
        return self._account_names.get(base_url, "")

    def retire(self) -> None:
        """Open new connections for the requests from now on."""
        self._retired += self._connections.values()
        self._connections = {}

    async def close_retired(self) -> None:
        """Close the retired connections if no request is running."""
        # One after the other: if this is cancelled, the next call closes the rest.
        while self._retired and self._in_use == 0:
            await self._close(self._retired.pop())

    async def aclose(self) -> None:
        """Close all connections. Requests that are running fail."""
        self.retire()
        while self._retired:
            await self._close(self._retired.pop())

    async def _close(self, connection: Connection) -> None:
        try:
            if connection.tokens is not None:
                await connection.tokens.aclose(LIMITS.busy_timeout if self._short_lived else WRITE_TIMEOUT)
        finally:
            if connection.client is not self._client:
                await connection.client.aclose()

    def _token_accounting(self, client: GatewayClient) -> TokenAccounting | None:
        if not client.protocol.reports_model:
            return None
        counter = None if client.protocol.counter is None or self._short_lived else client
        return TokenAccounting(self._estimator(), self._worker, counter, short_lived=self._short_lived)


def open_client(
    backend: str,
    base_url: str,
    api_key: str | None = None,
    *,
    auth: str | None = None,
    **options: Unpack[ClientOptions],
) -> GatewayClient:
    """Return a client for a gateway and one of its protocols.

    Gateways that support several serve most of them under `/v1` and the others next to it, so all can be used
    with the same base URL.

    Args:
        backend: The name of the protocol.
        auth: How the key is sent; ignored if the protocol leaves no choice.
        **options: See `GatewayClient`.
    """
    protocol = find_protocol(backend)
    base_url = protocol.complete_url(base_url)
    auth = auth if auth in protocol.auth else None
    return GatewayClient(protocol.at(base_url), base_url, api_key, auth=auth, **options)
