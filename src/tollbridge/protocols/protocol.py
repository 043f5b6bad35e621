"""What a protocol is: one descriptor with everything that differs between the protocols of gateways.

Clients, detection, replay, recorder, `serve`, settings, doctor and the error texts read the descriptors. They
find them in the table of `tollbridge.protocols`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from tollbridge.protocols.detect import Decoder
    from tollbridge.types.errors import Kind
    from tollbridge.types.messages import ChatRequest
    from tollbridge.types.models import Model

Json = Mapping[str, Any]


class Lazy:
    """A function, class or object of a protocol, imported on first use: most programs use one protocol."""

    def __init__(self, path: str) -> None:
        self.path = path  # of the module, and the name in it, after a colon

    def load(self) -> Any:
        """Return the object."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(module), name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the object."""
        return self.load()(*args, **options)


class KeyHeader(msgspec.Struct, frozen=True):
    """The request header that contains the key, and what stands before the key in it."""

    name: str
    prefix: str = ""

    def read(self, headers: Mapping[str, str]) -> str | None:
        """Return the key in the headers of a request, whose names are in lower case; `None` without one."""
        value = headers.get(self.name, "")
        start, key = value[: len(self.prefix)], value[len(self.prefix) :]
        return (key.strip() or None) if start.lower() == self.prefix.lower() else None


BEARER = KeyHeader("authorization", "Bearer ")


class EncodedRequest(msgspec.Struct, frozen=True):
    """A request in the form of a protocol. `headers` are added to those of every request."""

    body: Json
    headers: Mapping[str, str] = {}


class ModelList(msgspec.Struct, frozen=True):
    """The endpoint that lists the models.

    Attributes:
        path: The path, after the base URL.
        read: Returns the models of a response, and the id after which the next page starts, if there is one.
        next_page: The path of the next page, without that id; empty if there are no pages.
    """

    path: str
    read: Callable[[bytes], tuple[list[Model], str | None]]
    next_page: str = ""


class TokenCounter(msgspec.Struct, frozen=True):
    """The endpoint that counts the input tokens of a request.

    Attributes:
        path: The path, after the base URL.
        fields: The fields of a request that determine the count. Only they are sent.
    """

    path: str
    fields: frozenset[str]

    def select(self, body: Json) -> Json:
        """Return the body to send for a request for an answer."""
        return {name: value for name, value in body.items() if name in self.fields}


def _recognize_nothing(_chunk: Json, _is_event: bool, _name: bytes) -> str | None:
    return None


class Protocol(msgspec.Struct, frozen=True, kw_only=True):
    """A protocol that gateways speak.

    The fields with a default are what a protocol may have or lack; the default is what most have.

    Attributes:
        name: The name in the settings and in the table.
        title: The name for people.
        base_url: The base URL of the gateway that is used if none is named.
        path: The path of requests for an answer, after the base URL.
        encode: Returns a request, or the body of one, in the form of the protocol. Called with `stream`,
            whether the answer is to be streamed.
        decoders: The decoders by the names of the forms that responses have.
        response_form: The form of the responses of gateways, or `auto`. Recordings name it.
        complete_url: Completes the base URL that a user has entered.
        versions: Other versions of this protocol, by the end of the base URL that serves them.
        keeps_query: Whether the base URL can have a query, which is sent but never shown or stored.
        is_versioned: Whether the base URL usually ends in `/v1`.
        auth: How the key can be sent, by the names that the settings use; the first is the default.
        describe_key: Returns headers that say which kind of key is sent.
        headers: Headers of every request.
        feature_headers: Headers with which callers select features, which `serve` forwards.
        models: The endpoint that lists the models.
        endpoints_path: The path of the list of a model's providers; `{}` stands for the model.
        accounting_path: The path from the base URL to the endpoints `generation` and `credits`.
        counter: The endpoint that counts tokens.
        streams_only: Whether there is no answer as one JSON body.
        reports_model: Whether responses tell which model answers.
        min_output_tokens: The lowest output limit that the protocol allows.
        default_output_limit: Returns the output limit for a model, if the protocol requires one.
        diagnose_cache: Returns the fields that ask the server why a prompt is not read from its cache, given
            the request and the id of the previous response of the conversation; `None` if it is not asked.
        random_fields: The fields of a body that have another value in every request.
        is_examined: Whether `doctor` can examine a server of the protocol.
        response_headers: The names of streams by the response headers that identify them.
        first_lines: The names of streams by patterns of their first line.
        chunk_field: The field that only the chunks of this protocol have, as a list.
        recognize: Returns the name of the stream that a chunk belongs to, by its type, or `None`. Called with
            the chunk, whether it is the data of an event (otherwise it is a line), and that event's name.
        any_endpoint: A decoder that also accepts responses other than answers, for raw recordings.
        advice: What to do about an error, by its kind, where it is not the advice for every gateway.
        caller_codec: How `serve` decodes requests and encodes answers in this protocol.
    """

    name: str
    title: str
    base_url: str
    path: str
    encode: Callable[..., EncodedRequest]
    decoders: Mapping[str, Callable[..., Decoder]]
    response_form: str
    complete_url: Callable[[str], str] = str
    versions: Mapping[str, Protocol] = {}
    keeps_query: bool = False
    is_versioned: bool = True
    auth: Mapping[str, KeyHeader] = msgspec.field(default_factory=lambda: {"bearer": BEARER})
    describe_key: Callable[[str], Mapping[str, str]] | None = None
    headers: Mapping[str, str] = {}
    feature_headers: tuple[str, ...] = ()
    models: ModelList | None = None
    endpoints_path: str | None = None
    accounting_path: str = ""
    counter: TokenCounter | None = None
    streams_only: bool = False
    reports_model: bool = True
    min_output_tokens: int = 1
    default_output_limit: Callable[[str], int] | None = None
    diagnose_cache: Callable[[ChatRequest, str | None], Json | None] | None = None
    random_fields: tuple[str, ...] = ()
    is_examined: bool = False
    response_headers: Mapping[str, str] = {}
    first_lines: Mapping[re.Pattern[bytes], str] = {}
    chunk_field: str | None = None
    recognize: Callable[[Json, bool, bytes], str | None] = _recognize_nothing
    any_endpoint: Callable[[], Decoder] | None = None
    advice: Mapping[Kind, str] = {}
    caller_codec: Lazy | None = None

    def at(self, base_url: str) -> Protocol:
        """Return the version of the protocol that is served at a base URL."""
        versions = self.versions.items()
        return next((protocol for end, protocol in versions if base_url.endswith(end)), self)

    def request_diagnosis(self, request: ChatRequest, previous: str | None) -> ChatRequest:
        """Ask the server why the prompt is not read from its cache, if it is known to answer that.

        `previous` is the id of the previous response of the conversation, if there is one.
        """
        quirks = request.quirks
        if self.diagnose_cache is None or quirks is None or not quirks.cache_diagnostics:
            return request
        fields = self.diagnose_cache(request, previous) if request.conversation is not None else None
        if fields is None or quirks.without & fields.keys():
            return request  # the server cannot be asked, or has rejected the question
        return msgspec.structs.replace(request, extra={**(request.extra or {}), **fields})
