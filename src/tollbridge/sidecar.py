"""Entry point `python -m tollbridge.sidecar`: the JSON-RPC server that an editor starts."""

from tollbridge.frontends.stdio import main

__all__ = ["main"]

if __name__ == "__main__":
    raise SystemExit(main())
