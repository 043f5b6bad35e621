"""The words both sides use. Nothing here imports anything else of ours, and nothing waits."""
