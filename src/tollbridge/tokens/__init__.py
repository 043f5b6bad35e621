"""Token counting: tokenizers, features, the learner, and the ledger of measured prompts."""
