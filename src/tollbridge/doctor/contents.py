"""What a message may hold: lists of parts, a system prompt, images, files."""

from __future__ import annotations

from tollbridge.core.messages import DataPart, Message, Role, TextPart
from tollbridge.core.quirks import SystemAs
from tollbridge.doctor import samples
from tollbridge.doctor.bench import Bench
from tollbridge.doctor.findings import Finding, amiss, not_seen, reason, well

_WORD = "Drawbridge"
_SYSTEM = Message(Role.SYSTEM, f"Whatever you are asked, your answer contains the word {_WORD}.")
_ROLES: tuple[SystemAs, ...] = ("developer", "system", "instructions", "user")
_CALLED: dict[SystemAs, str] = {
    "developer": "in the developer role",
    "system": "in the system role",
    "instructions": "as `instructions`",
    "user": "as words of the user",
}


async def arrays(bench: Bench) -> Finding:
    """Strings are known to be accepted or refused by the first answer."""
    if bench.quirks.text_as == "array":
        return well("Text is accepted as a list of parts alone.")
    heard = await bench.ask(bench.question("Say hello."), text_as="array")
    if heard.refusal is not None:
        return amiss(
            f"Text as a list of parts is refused: {reason(heard.refusal)}",
            "Text alone travels as a string anyway.",
        )
    return (
        not_seen(heard.error)
        if heard.error is not None
        else well("Text is accepted as a string and as a list.")
    )


async def system(bench: Bench) -> Finding:
    """The first role whose words are followed; where none is seen to be, the first that is accepted."""
    accepted: list[SystemAs] = []
    refusals: list[str] = []
    for role in _ROLES:
        heard = await bench.ask(bench.question(_SYSTEM, "Say hello."), system=role)
        if heard.refusal is not None:
            refusals.append(f"{_CALLED[role]}: {reason(heard.refusal)}")
            continue
        if heard.error is not None:
            return not_seen(heard.error)
        if _WORD.lower() in heard.text.lower():
            return _found(role, refusals, "and followed")
        accepted.append(role)
        if role == "instructions":
            break  # as words of the user it can always be said
    if not accepted:
        return amiss(f"A system prompt is refused {'; '.join(refusals)}", "It is left as it is.")
    return _found(accepted[0], refusals, "though the answer does not show that it was read")


def _found(role: SystemAs, refusals: list[str], how: str) -> Finding:
    if refusals and role != "developer":
        return amiss(
            f"A system prompt is refused {refusals[0]}",
            f"It is sent {_CALLED[role]}, which is accepted, {how}.",
            system=role,
        )
    return well(f"A system prompt is accepted {_CALLED[role]}, {how}.", system=role)


async def images(bench: Bench) -> Finding:
    return await _attached(bench, samples.image(), "image", "What colour is this?")


async def files(bench: Bench) -> Finding:
    return await _attached(bench, samples.document(), "file", "What does this page say?")


async def _attached(bench: Bench, part: DataPart, what: str, question: str) -> Finding:
    told = bench.question(Message(Role.USER, (TextPart(question), part)))
    heard = await bench.ask(told)
    field = f"{what}s"
    if heard.refusal is not None:
        return amiss(
            f"{bench.model} takes no {field}: {reason(heard.refusal)}",
            "A note is sent in the place of each.",
            **{field: False},
        )
    if heard.error is not None:
        return not_seen(heard.error)
    named = "An image" if what == "image" else f"A {what}"
    return well(f"{named} in a message is accepted.", **{field: True})
