"""Configuration: settings and their sources, accounts, and API keys."""
