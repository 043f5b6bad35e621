"""Message histories: make any history valid for its server, and convert an answer to a message."""
