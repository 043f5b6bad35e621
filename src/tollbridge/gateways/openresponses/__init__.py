"""OpenResponses, release 2026-04-24, and what OpenAI's own Responses API adds to it."""
