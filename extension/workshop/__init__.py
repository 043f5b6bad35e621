"""Development tools of the extension: build it, pack it, and open it in a real VS Code. Not shipped."""
