"""Exit codes: 1 if a command fails, 2 if the command line is wrong. See docs/terminal.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from tollbridge.cli import _run
from tollbridge.cli import tollbridge as program

WRONG = "wrong-value"
# A wrong value of each option. Values of headers and tokens may be secret, so messages do not repeat them.
WRONG_VALUES = {
    **dict.fromkeys(
        ("--backend", "--by", "--print-config", "--protocol", "--reasoning", "--scenario"), WRONG
    ),
    **dict.fromkeys(("--context", "--count", "--days", "--limit", "--max-tokens", "--port"), WRONG),
    **dict.fromkeys(("--max-price", "--since", "--temperature", "--until"), WRONG),
    **dict.fromkeys(("--base-url", "--header", "--option", "--secret-header", "--ui-stream"), WRONG),
    "--host": "192.0.2.1",
    "--record": "",
    "--token": "",
}
SECRET = {"--header", "--secret-header"}
FILES = {"--file", "--image", "--messages", "--schema", "local --model"}
# Options with which any text is valid, or what is named must exist.
ANY_TEXT = {"--account", "--api-key", "--gateway", "--model", "--search", "--system", "--tag"}


class Option(NamedTuple):
    command: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return " ".join((*self.command, self.name))

    def is_in(self, names: set[str]) -> bool:
        return str(self) in names or (self.name in names and str(self) not in FILES)


def find_commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from find_commands(subcommand, (*path, name))


def find_options(path: tuple[str, ...]) -> Iterator[Option]:
    """Yield the options of a command that have a value."""
    command: click.Command = program
    for name in path:
        assert isinstance(command, click.Group)
        subcommand = command.get_command(click.Context(command), name)
        assert subcommand is not None
        command = subcommand
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.is_flag:
            yield Option(path, parameter.opts[0])


COMMANDS = list(find_commands(program))
OPTIONS = [option for path in COMMANDS for option in find_options(path)]


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ACCOUNT", "BACKEND", "BASE_URL", "MODEL", "SERVE_TOKEN"):
        monkeypatch.delenv(f"TOLLBRIDGE_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "10000")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the program in this process, where an unexpected exception fails the test."""
    code = _run(list(arguments))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Traceback" not in printed.err
    assert "Internal error" not in printed.err
    return code, printed.err


def test_every_option_is_in_one_of_the_tables() -> None:
    tables: list[set[str]] = [set(WRONG_VALUES), FILES, ANY_TEXT]
    unclear = [str(option) for option in OPTIONS if sum(option.is_in(table) for table in tables) != 1]
    assert unclear == []


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.is_in(set(WRONG_VALUES))], ids=str)
def test_a_wrong_value_of_an_option_gives_2(option: Option, capsys: pytest.CaptureFixture[str]) -> None:
    value = WRONG_VALUES[option.name]
    code, message = run(capsys, *option.command, option.name, value)
    assert code == 2
    assert option.name in message
    assert value in message or option.name in SECRET


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_an_unknown_option_gives_2(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    code, message = run(capsys, *path, *(("x", "1") if path == ("config", "set") else ()), "--no-such-option")
    assert code == 2
    assert "--no-such-option" in message


@pytest.mark.parametrize(
    "arguments",
    [
        ("budget", "set", WRONG, "1"),
        ("budget", "set", "day", WRONG),
        ("budget", "remove", WRONG),
        ("config", WRONG),
        ("config", "set", WRONG, "1"),
        ("config", "set", "timeouts.idle", WRONG),
        ("log", WRONG),
        ("quirks", "forget", WRONG),
        (WRONG,),
    ],
    ids=" ".join,
)
def test_a_wrong_value_of_an_argument_gives_2(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = run(capsys, *arguments)
    assert code == 2
    assert WRONG in message


@pytest.mark.parametrize(
    "arguments",
    [
        *(("budget", "set"), ("budget", "set", "day"), ("budget", "remove"), ("config", "set")),
        *(("config", "set", "model"), ("config", "unset"), ("count",), ("log", "delete"), ("replay",)),
        ("quirks", "forget"),
    ],
    ids=" ".join,
)
def test_a_missing_argument_gives_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *arguments)[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        *((*option.command, option.name) for option in OPTIONS if option.is_in(FILES)),
        ("count", "--model", "m"),
        ("replay",),
        ("replay", "--diff"),
    ],
    ids=" ".join,
)
def test_a_file_that_does_not_exist_gives_1(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "missing.json")
    code, message = run(capsys, *arguments, path)
    assert code == 1
    assert path in message


@pytest.mark.parametrize(
    "arguments",
    [
        *((*option.command, option.name) for option in OPTIONS if option.name in ("--image", "--schema")),
        *(("ask", "--file"), ("chat", "--file"), ("count", "--model", "m"), ("replay",)),
        *(("count", "--model", "m", "--messages"), ("ask", "--record"), ("chat", "--record")),
    ],
    ids=" ".join,
)
def test_a_file_that_is_not_what_it_must_be_gives_1(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "binary.dat"
    path.write_bytes(b"\x00\xff\xfe" * 100)
    code, message = run(capsys, *arguments, str(path))
    assert code == 1
    assert str(path) in message or "JSON" in message


@pytest.mark.parametrize(
    "arguments",
    [
        *((*path, "--account", WRONG) for path in (("ask", "Hi"), ("doctor",), ("models",))),
        *(("login", WRONG), ("logout", WRONG), ("explain", WRONG), ("config", "unset", WRONG)),
    ],
    ids=" ".join,
)
def test_something_that_is_named_and_does_not_exist_gives_1(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = run(capsys, *arguments)
    assert code == 1
    assert WRONG in message


@pytest.mark.parametrize("command", ["show", "delete"])
def test_a_conversation_that_is_not_kept_gives_1(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, message = run(capsys, "log", command, WRONG)
    assert code == 1
    assert "No conversation" in message
