"""Three OpenResponses servers from PyPI, each in an environment of its own, for `test_servers.py`."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import splintr
from tests.interop import environment

_HERE = Path(__file__).resolve().parent
PYTHON = (3, 12)  # the oldest version that these servers support


class Server(NamedTuple):
    url: str
    model: str


def _install(name: str) -> Path:
    return environment.install(_HERE / name / "requirements.txt", environment.require_python(PYTHON)) / "bin"


# --- ogx (formerly Llama Stack), in front of an upstream ---


@contextlib.asynccontextmanager
async def run_ogx(upstream: str) -> AsyncIterator[Server]:
    programs = _install("ogx")

    def command(port: int, folder: Path) -> list[str | Path]:
        settings = folder / "config.yaml"
        settings.write_text(json.dumps(_ogx_config(upstream, folder)))  # JSON is valid YAML
        return [programs / "ogx", "run", settings, "--port", str(port), "--insecure"]

    async with environment.running(command, "/v1/health") as address:
        yield Server(f"{address}/v1", "upstream/bridge-test")


def _ogx_config(upstream: str, folder: Path) -> dict[str, object]:
    """Return a configuration with only what the Responses API needs; nothing in it downloads a model."""
    tables = ("inference", "conversations", "prompts", "connectors", "responses")
    sql = {name: {"table_name": name, "backend": "sql"} for name in tables}
    files = {"storage_dir": f"{folder}/files", "metadata_store": {"table_name": "files", "backend": "sql"}}
    providers = {
        "inference": ("upstream", "remote::vllm", {"base_url": upstream, "api_token": "none"}),
        "files": ("files", "inline::localfs", files),
        "responses": ("builtin", "inline::builtin", {"persistence": {"responses": sql.pop("responses")}}),
    }
    model = {"model_id": "bridge-test", "provider_id": "upstream", "provider_model_id": "mock"}
    return {
        "version": 2,
        "distro_name": "interop",
        "apis": ["files", "inference", "responses", "tool_runtime", "vector_io"],
        "providers": {
            "tool_runtime": [],
            "vector_io": [],
            **{
                api: [{"provider_id": name, "provider_type": kind, "config": config}]
                for api, (name, kind, config) in providers.items()
            },
        },
        "storage": {
            "backends": {
                "kv": {"type": "kv_sqlite", "db_path": f"{folder}/kv.db"},
                "sql": {"type": "sql_sqlite", "db_path": f"{folder}/sql.db"},
            },
            "stores": {"metadata": {"namespace": "registry", "backend": "kv"}, **sql},
        },
        "registered_resources": {"models": [{**model, "model_type": "llm", "metadata": {}}]},
        "server": {"host": "127.0.0.1"},
        "connectors": [],
    }


# --- OpenAI's reference server for gpt-oss, with a scripted model ---

# The published checksum of o200k_base.tiktoken; the server rejects any other file.
_VOCABULARY_HASH = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_VOCABULARY_SIZE = 199_998


@contextlib.asynccontextmanager
async def run_gpt_oss() -> AsyncIterator[Server]:
    programs = _install("gpt_oss")
    vocabulary = _write_vocabulary(programs.parent)

    def command(port: int, _folder: Path) -> list[str | Path]:
        return [programs / "python", _HERE / "gpt_oss" / "serve.py", str(port)]

    variables = {"TIKTOKEN_ENCODINGS_BASE": str(vocabulary)}
    async with environment.running(command, "/v1/models", variables) as address:
        yield Server(f"{address}/v1", "gpt-oss-120b")


def _write_vocabulary(folder: Path) -> Path:
    """Write the vocabulary of the model, which the server would download, and return its folder.

    The vocabulary is part of a dependency of Tollbridge.
    """
    path = folder / "vocabulary" / "o200k_base.tiktoken"
    if not path.is_file():
        decode = splintr.Tokenizer.from_pretrained("o200k_base").decode_bytes
        ranks = range(_VOCABULARY_SIZE)
        text = b"".join(b"%s %d\n" % (base64.b64encode(decode([rank])), rank) for rank in ranks)
        assert hashlib.sha256(text).hexdigest() == _VOCABULARY_HASH
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    return path.parent


# --- open-responses-server, in front of an upstream ---


@contextlib.asynccontextmanager
async def run_open_responses_server(upstream: str) -> AsyncIterator[Server]:
    programs = _install("open_responses_server")
    variables = {
        "API_ADAPTER_HOST": "127.0.0.1",
        "API_ADAPTER_PORT": "{port}",
        "OPENAI_BASE_URL_INTERNAL": upstream.removesuffix("/v1"),
        "OPENAI_API_KEY": "none",
    }
    async with environment.running(
        lambda _port, _folder: [programs / "otc", "start"], "/", variables
    ) as address:
        yield Server(address, "mock")
