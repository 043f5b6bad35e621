"""Configuration: settings and their sources, accounts, API keys, and the paths of Tollbridge's files."""
