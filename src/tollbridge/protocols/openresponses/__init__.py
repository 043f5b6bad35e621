"""OpenResponses, release 2026-04-24, and the additions of OpenAI's Responses API."""
