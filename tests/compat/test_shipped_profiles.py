from __future__ import annotations

import re
from importlib.resources import files

from tollbridge.compat.profiles import known_quirks, known_server, known_servers

NAMES = {"Vercel AI Gateway", "OpenAI", "llama.cpp", "vLLM", "LM Studio", "litellm", "Ollama"}


def test_every_server_of_the_list_has_its_profile() -> None:
    assert {known.name for known in known_servers()} == NAMES


def test_every_profile_names_its_sources() -> None:
    for entry in (files("tollbridge.compat") / "data").iterdir():
        assert re.match(r"# .+(Source|Measured)", entry.read_text()), entry.name


def test_a_server_is_known_by_its_host() -> None:
    vercel = known_server("https://ai-gateway.vercel.sh/v1")
    assert vercel is not None
    assert vercel.name == "Vercel AI Gateway"
    assert known_server("https://example.com/v1") is None


def test_a_port_counts_on_this_machine_alone() -> None:
    here = known_server("http://localhost:11434/v1")
    assert here is not None
    assert here.name == "Ollama"
    assert known_server("https://example.com:11434/v1") is None
    assert known_server("http://localhost:99999/v1") is None


def test_what_a_server_says_of_itself_counts_for_more_than_its_place() -> None:
    proxied = known_server("http://127.0.0.1:11434/v1", {"x-litellm-version": "1.106.0", "server": "uvicorn"})
    assert proxied is not None
    assert proxied.name == "litellm"
    owned = known_server("http://127.0.0.1:8000/v1", {"server": "uvicorn"}, {"vllm"})
    assert owned is not None
    assert owned.name == "vLLM"


def test_a_profile_can_be_had_by_name() -> None:
    assert known_quirks("vLLM").reasoning is False
