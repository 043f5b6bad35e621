"""`python -m tollbridge` is `tollbridge`."""

from tollbridge.cli import main

if __name__ == "__main__":
    main()
