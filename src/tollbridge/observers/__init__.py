"""The observers of every request: what is done with it besides sending it, one concern per module."""
