from __future__ import annotations

import io
import os
import stat
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from prompt_toolkit.history import FileHistory

from tollbridge.cli.prompt import (
    HISTORY_LIMIT,
    PROMPT_LIMIT,
    clean_typed_text,
    hold_keyboard,
    prepare_history,
    read_piped_line,
    restore_echo,
)


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("next question", "next question"),
        ("two\rlines\r\nand more", "two\nlines\nand more"),
        ("helo\x7flo", "hello"),
        ("\x7f\x7fa", "a"),
        ("up\x1b[A and \x1bOBdown", "up and down"),
        ("\x1b[200~pasted\x1b[201~", "pasted"),
        ("\x04\x1bend", "end"),
        ("caf\u00e9 👩‍👧", "caf\u00e9 👩👧"),
    ],
)
def test_typed_text_has_no_control_characters(typed: str, text: str) -> None:
    assert clean_typed_text(typed) == text


def test_the_history_is_private_and_a_long_one_is_cut_to_its_newest_entries(tmp_path: Path) -> None:
    path = tmp_path / "data" / "prompt_history"
    assert prepare_history(path)
    entry = "\n# 2026-11-17 09:00:00\n+Question {number}\n+with two lines\n"
    path.write_text("".join(entry.format(number=number) for number in range(30_000)))
    path.chmod(0o644)
    assert path.stat().st_size > HISTORY_LIMIT
    assert prepare_history(path)
    assert path.stat().st_size <= HISTORY_LIMIT // 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    newest = list(FileHistory(path).load_history_strings())
    assert newest[0] == "Question 29999\nwith two lines"
    assert newest[-1].startswith("Question ")
    assert len(newest) > 5_000


def test_the_limit_of_a_piped_line_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "é" * (PROMPT_LIMIT // 2)  # two bytes each
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    assert read_piped_line() == line
    monkeypatch.setattr("sys.stdin", io.StringIO(line + "."))
    with pytest.raises(click.ClickException, match="exceeds the 16 MiB limit"):
        read_piped_line()


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as standard input; the value is where its keys are pressed."""
    master, slave = os.openpty()
    with os.fdopen(master, "rb", closefd=False), os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setenv("TERM", "xterm")
        yield master
    os.close(master)


def echoes() -> bool:
    return bool(termios.tcgetattr(sys.stdin.fileno())[3] & termios.ECHO)


def test_typed_text_is_not_echoed_between_an_answer_and_the_next_prompt(keyboard: int) -> None:
    before = termios.tcgetattr(sys.stdin.fileno())
    with hold_keyboard() as typed:
        os.write(keyboard, b"next")
    assert typed.text == "next"
    assert not echoes()
    restore_echo()
    assert termios.tcgetattr(sys.stdin.fileno()) == before


def test_the_echo_is_restored_at_once_after_an_error(keyboard: int) -> None:
    before = termios.tcgetattr(sys.stdin.fileno())
    os.write(keyboard, b"next")
    with pytest.raises(ValueError, match="broken"), hold_keyboard():
        raise ValueError("broken")
    assert termios.tcgetattr(sys.stdin.fileno()) == before


@pytest.mark.usefixtures("keyboard")
def test_a_terminal_that_does_not_echo_is_left_like_that() -> None:
    attributes = termios.tcgetattr(sys.stdin.fileno())
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, attributes)
    with hold_keyboard():
        pass
    restore_echo()
    assert not echoes()
