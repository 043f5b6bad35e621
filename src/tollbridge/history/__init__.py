"""Message histories: make any history valid for its receiver, and turn an answer into a message."""
