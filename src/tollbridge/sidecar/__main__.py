"""`python -m tollbridge.sidecar`."""

from tollbridge.sidecar import main

if __name__ == "__main__":
    raise SystemExit(main())
