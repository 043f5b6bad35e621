"""What builds the extension and shows it in a real VS Code: for developers, never shipped."""
