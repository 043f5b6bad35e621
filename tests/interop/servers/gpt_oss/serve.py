"""OpenAI's gpt-oss reference server with a scripted model instead of weights.

It runs in the environment of the server: `python serve.py PORT`. The server renders the prompt and parses the
tokens of the model, in OpenAI's Harmony format, as it does for real weights. Its own stub model is not used,
because it answers every prompt with the same text, one token per 0.1 s.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

THOUGHT = "The user wants something. I look at what I was given."
TEXT = "Hello from the scripted model."
_MESSAGE = re.compile(
    r"<\|start\|>(?P<header>.*?)<\|message\|>(?P<text>.*?)<\|(?:end|call|return)\|>", re.DOTALL
)


class ScriptedModel:
    """Calls the tool that is offered if the user says "tool"; answers with what it received otherwise."""

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding = encoding
        self._completion: list[int] = []

    def infer_next_token(self, tokens: list[int], *, temperature: float, new_request: bool) -> int:
        if new_request:
            completion = answer(self._encoding.decode_utf8(tokens))
            self._completion = self._encoding.encode(completion, allowed_special="all")
        return self._completion.pop(0)


def answer(prompt: str) -> str:
    """Return the completion of a prompt, which ends with the start of a message of the assistant."""
    messages = [
        (match["header"].split("<|channel|>")[0], match["text"]) for match in _MESSAGE.finditer(prompt)
    ]
    author, last = messages[-1]
    thinking = f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant"
    tools = re.findall(r"^type (\w+) = ", prompt, re.MULTILINE)
    if tools and author == "user" and "tool" in last:
        header = f"<|channel|>commentary to=functions.{tools[0]} <|constrain|>json"
        return f'{thinking}{header}<|message|>{{"city":"Paris"}}<|call|>'
    quoted = [text for header, text in messages if header.startswith("functions.")]
    # The first message is the server's own; tools are described in a message of the developer.
    prompts = [text for header, text in messages[1:] if header in ("system", "developer")]
    quoted += [text for text in prompts if not text.startswith("# Tools")]
    numbers = [str(number) for number in range(1, 201)] if "two hundred" in last else []
    text = " ".join([TEXT, *quoted, *numbers])
    return f"{thinking}<|channel|>final<|message|>{text}<|return|>"


def main(port: int) -> None:
    # Imported here: the tests import this module for its texts, in an environment without the server.
    import uvicorn
    from gpt_oss.responses_api.api_server import create_api_server
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    app = create_api_server(ScriptedModel(encoding).infer_next_token, encoding)
    uvicorn.run(app, host="127.0.0.1", port=port)


if __name__ == "__main__":
    main(int(sys.argv[1]))
