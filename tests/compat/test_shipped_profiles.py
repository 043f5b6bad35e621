from __future__ import annotations

import re
from importlib.resources import files

from tollbridge.compat.known_servers import known_quirks, load_known_servers, recognize_server

NAMES = {
    "Vercel AI Gateway",
    "OpenAI",
    "llama.cpp",
    "vLLM",
    "LM Studio",
    "litellm",
    "Ollama",
    "Anthropic",
    "OpenRouter",
}


def test_every_known_server_has_a_profile() -> None:
    assert {server.name for server in load_known_servers()} == NAMES


def test_every_profile_names_its_sources() -> None:
    for entry in (files("tollbridge.compat") / "data").iterdir():
        assert re.match(r"# .+(Source|Measured)", entry.read_text()), entry.name


def test_a_server_is_recognized_by_its_host() -> None:
    vercel = recognize_server("https://ai-gateway.vercel.sh/v1")
    assert vercel is not None
    assert vercel.name == "Vercel AI Gateway"
    assert recognize_server("https://example.com/v1") is None


def test_a_port_identifies_a_server_only_on_this_machine() -> None:
    local = recognize_server("http://localhost:11434/v1")
    assert local is not None
    assert local.name == "Ollama"
    assert recognize_server("https://example.com:11434/v1") is None
    assert recognize_server("http://localhost:99999/v1") is None


def test_response_headers_and_model_owners_take_precedence_over_the_address() -> None:
    proxied = recognize_server(
        "http://127.0.0.1:11434/v1", {"x-litellm-version": "1.106.0", "server": "uvicorn"}
    )
    assert proxied is not None
    assert proxied.name == "litellm"
    owned = recognize_server("http://127.0.0.1:8000/v1", {"server": "uvicorn"}, {"vllm"})
    assert owned is not None
    assert owned.name == "vLLM"


def test_the_quirks_of_a_known_server_are_found_by_name() -> None:
    assert known_quirks("vLLM").reasoning is False
