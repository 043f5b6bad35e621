"""How we count: vocabularies, estimates, and a ledger of what prompts really cost."""

from tollbridge.tokens.accuracy import Accuracy
from tollbridge.tokens.ledger import EstimationResult, Ledger
from tollbridge.tokens.shares import Share
from tollbridge.tokens.tokenizers import warm

__all__ = ["Accuracy", "EstimationResult", "Ledger", "Share", "warm"]
