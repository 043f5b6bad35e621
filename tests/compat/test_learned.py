"""Quirks learned at run time: in memory and in the database, with limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.storage.stored import open_database, open_store

from tollbridge.compat.lessons import LIFETIME, conversation_digest
from tollbridge.compat.memory import CompatMemory
from tollbridge.config.schema import Settings
from tollbridge.engine import Engine
from tollbridge.storage.limits import LIMITS
from tollbridge.storage.sqlite import SqliteStore
from tollbridge.types.messages import ChatRequest, DataPart, Message, Role
from tollbridge.types.quirks import Evidence, Hypothesis, LearnedQuirks, Quirks, Scope

URL = "http://here"


def ask(text: str = "Hi", model: str = "m") -> ChatRequest:
    return ChatRequest(model=model, messages=(Message(Role.USER, text),), temperature=0.5)


def omits(field: str, scope: Scope = "model") -> Hypothesis:
    return Hypothesis("without", field, None, scope, Evidence("code", "Unsupported.", 400))


class Clock:
    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


def test_the_profile_provides_the_quirks_if_there_is_one() -> None:
    profiles = {("http://here", "m"): Quirks(files=False)}
    memory = CompatMemory(lambda url, model: profiles.get((url, model)))
    assert memory.recall("http://here", "m") == LearnedQuirks(Quirks(files=False))
    assert memory.recall("http://here", "n") == memory.recall("http://there", "m") == LearnedQuirks()
    assert memory.profile("http://here", "n") is None


def test_a_new_profile_takes_effect_immediately() -> None:
    profiles: dict[str, Quirks] = {"m": Quirks(images=False)}
    memory = CompatMemory(lambda _url, model: profiles.get(model))
    assert memory.recall("u", "m") == LearnedQuirks(Quirks(images=False))
    profiles["m"] = Quirks(system="system")
    assert memory.recall("u", "m") == LearnedQuirks(Quirks(system="system"))


def accept(memory: CompatMemory, request: ChatRequest, *hypotheses: Hypothesis) -> None:
    learned = memory.recall(URL, request.model, request)
    without = learned.quirks.without.union(each.subject for each in hypotheses)
    sent = ChatRequest(
        model=request.model,
        messages=request.messages,
        temperature=request.temperature,
        quirks=Quirks(without=without),
    )
    memory.accept(URL, request, sent, hypotheses)


def test_a_lesson_is_applied_until_it_expires() -> None:
    clock = Clock()
    memory = CompatMemory(clock=clock)
    accept(memory, ask(), omits("top_p"))
    assert memory.recall(URL, "m").quirks.without == {"top_p"}
    clock.time += LIFETIME["code"]
    assert memory.recall(URL, "m").quirks.without == frozenset()


def test_refused_items_of_a_conversation_are_added_up() -> None:
    memory = CompatMemory()
    for digest in ("a", "b"):
        evidence = Evidence("words", "Could not process image", 400)
        accept(memory, ask(), Hypothesis("refused", "", [digest], "conversation", evidence))
    assert memory.recall(URL, "m", ask()).refused == {"a", "b"}
    assert memory.recall(URL, "m", ask("Another conversation")).refused == frozenset()
    assert memory.recall(URL, "m").refused == frozenset()


def test_a_lesson_about_a_value_does_not_change_another_value() -> None:
    profile = Quirks()
    memory = CompatMemory(lambda _url, _model: profile)
    evidence = Evidence("words", "Unexpected role", 400)
    accept(memory, ask(), Hypothesis("system", "developer", "system", "server", evidence))
    assert memory.recall(URL, "another").quirks.system == "system"
    profile = Quirks(system="instructions")
    assert memory.recall(URL, "another").quirks.system == "instructions"


def test_lessons_about_successive_values_are_all_applied() -> None:
    memory = CompatMemory()
    evidence = Evidence("words", "Unexpected role", 400)
    accept(memory, ask(), Hypothesis("system", "developer", "system", "server", evidence))
    accept(memory, ask(), Hypothesis("system", "system", "user", "server", evidence))
    assert memory.recall(URL, "m").quirks.system == "user"


def test_a_conversation_is_recognized_by_its_first_user_message() -> None:
    first = Message(Role.USER, "Hi")
    start = ChatRequest(model="m", messages=(Message(Role.SYSTEM, "It is Monday."), first))
    later = ChatRequest(
        model="m",
        messages=(Message(Role.SYSTEM, "It is Tuesday."), first, Message(Role.ASSISTANT, "Hello.")),
    )
    image = ChatRequest(model="m", messages=(Message(Role.USER, (DataPart(b"Hi", "image/png"),)),))
    assert conversation_digest(start) == conversation_digest(later)
    assert conversation_digest(start) != conversation_digest(image)
    assert conversation_digest(ChatRequest(model="m", messages=())) != conversation_digest(start)


def stored_subjects(path: Path) -> list[str]:
    with open_store(path) as store:
        return [lesson.subject for lesson in store.lessons.load().result(10)]


def test_the_number_of_lessons_is_bounded_in_memory_and_in_the_database(tmp_path: Path) -> None:
    with open_store(tmp_path / "store.db") as store:
        memory = CompatMemory(store=store.lessons)
        accept(memory, ask(), *(omits(f"field{number}") for number in range(LIMITS.lessons + 10)))
    subjects = stored_subjects(tmp_path / "store.db")
    assert len(subjects) == LIMITS.lessons == len(memory.lessons(URL, ask()))
    assert subjects[-1] == f"field{LIMITS.lessons + 9}"


async def test_lessons_wait_while_the_database_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    folder.write_text("in the way")
    with open_store(folder / "store.db") as store:
        memory = CompatMemory(store=store.lessons)
        accept(memory, ask(), omits("top_p"))
        await memory.refresh(5)
        assert caplog.text.count("what is learned about servers is not stored") == 1
        assert memory.recall(URL, "m").quirks.without == {"top_p"}
        folder.unlink()
        accept(memory, ask(), omits("metadata"))
    assert set(stored_subjects(folder / "store.db")) == {"top_p", "metadata"}


async def test_a_corrupt_database_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"not a database" * 100)
    with open_store(path) as store:
        memory = CompatMemory(store=store.lessons)
        await memory.refresh(5)
        assert memory.lessons(URL, ask()) == []
        accept(memory, ask(), omits("top_p"))
    assert stored_subjects(path) == ["top_p"]


async def test_forgetting_deletes_the_selected_lessons(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with Engine.open(Settings(), store=SqliteStore(path)) as engine:
        assert await engine.forget_lessons(lambda _: True) == []
    assert not path.exists()
    with open_store(path) as store:
        accept(CompatMemory(store=store.lessons), ask(), omits("top_p"), omits("metadata"))
        async with Engine.open(Settings(), store=store) as engine:
            forgotten = await engine.forget_lessons(lambda each: each.number == 1)
    assert [each.subject for each in forgotten] == ["top_p"]
    assert stored_subjects(path) == ["metadata"]


def test_a_model_name_that_is_not_valid_text_does_not_stop_the_store(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path) as store:
        memory = CompatMemory(store=store.lessons)
        accept(memory, ask(model="\udcff"), omits("top_p"))
        accept(memory, ask(), omits("metadata"))
    assert stored_subjects(path) == ["metadata"]


@pytest.mark.parametrize("change", ["value = '7'", "feature = 'colour'", "feature = 'refused', value = '{}'"])
async def test_a_lesson_that_is_not_valid_in_this_version_has_no_effect(change: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    evidence = Evidence("words", "Unexpected role", 400)
    system = Hypothesis("system", "developer", "system", "model", evidence)
    with open_store(path) as store:
        accept(CompatMemory(store=store.lessons), ask(), system, omits("metadata"))
    with open_database(path) as database:
        database.query(f"UPDATE lesson SET {change} WHERE feature = 'system'")
    with open_store(path) as store:
        memory = CompatMemory(store=store.lessons)
        await memory.refresh(5)
        assert memory.recall(URL, "m", ask()) == LearnedQuirks(Quirks(without=frozenset({"metadata"})))
        accept(memory, ask())
