"""VS Code's language-model API: its messages, parts and models, converted to and from ours."""
