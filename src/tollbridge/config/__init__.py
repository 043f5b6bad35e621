"""Configuration: the settings and their sources, accounts, keys, and the paths of our files."""
