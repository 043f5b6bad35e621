"""A local model: downloaded once, and served by llama.cpp on loopback."""

from __future__ import annotations

from tollbridge.local.process import SMOLLM2, LocalModel, LocalModelFailed, PinnedModel, fetch, is_installed

__all__ = ["SMOLLM2", "LocalModel", "LocalModelFailed", "PinnedModel", "fetch", "is_installed"]
