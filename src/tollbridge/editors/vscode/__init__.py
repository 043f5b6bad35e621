"""How VS Code's language-model API talks, as its extension carries it: `wire`, `decode`, `encode`."""
