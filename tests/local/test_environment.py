from __future__ import annotations

from tollbridge.local.process import environment_without_keys


def test_the_environment_of_child_processes_has_no_keys() -> None:
    variables = {
        "PATH": "/bin",
        "TOLLBRIDGE_API_KEY_WORK": "a",
        "AI_GATEWAY_API_KEY": "b",
        "VERCEL_OIDC_TOKEN": "c",
        "PIP_INDEX_PASSWORD": "d",
        "OMP_NUM_THREADS": "2",
    }
    assert list(environment_without_keys(variables)) == ["PATH", "PIP_INDEX_PASSWORD", "OMP_NUM_THREADS"]
