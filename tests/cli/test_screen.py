from __future__ import annotations

import io

import pytest

from tollbridge.cli.screen import Screen


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_piped_text_is_not_changed() -> None:
    out, side = io.StringIO(), io.StringIO()
    screen = Screen(out, side)
    screen.text("\x1b[31mred\r\n" + "word " * 50)
    screen.end()
    assert out.getvalue() == "\x1b[31mred\r\n" + "word " * 50 + "\n"
    assert side.getvalue() == ""


def test_a_models_escape_sequences_do_not_reach_a_terminal() -> None:
    for raw in (True, False):
        out = Tty()
        screen = Screen(out, io.StringIO(), raw=raw)
        screen.text("\x1b]0;title\x07 \x9b31m\r\nfine\t👩‍👧 text")
        screen.end()
        shown = out.getvalue() if raw else out.getvalue().replace(" " * 4, "\t")
        assert shown == "\ufffd]0;title\ufffd \ufffd31m\nfine\t👩‍👧 text\n"


def test_reasoning_is_dimmed_and_separate_from_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Tty()
    screen = Screen(terminal, terminal)
    screen.thinking("Let me see. ")
    screen.text("Hello.")
    screen.thinking("And now?")
    screen.call("get_weather", {"city": "Oslo"})
    screen.text("Bye.")
    screen.note("5 in")
    assert terminal.getvalue() == (
        "\x1b[2mLet me see.\x1b[0m\n\nHello.\n\x1b[2mAnd\x1b[0m\x1b[2m now?\x1b[0m\n"
        '\x1b[2m→ get_weather {"city": "Oslo"}\x1b[0m\n\nBye.\n\x1b[2m5 in\x1b[0m\n'
    )


def test_a_call_is_printed_on_one_truncated_line() -> None:
    side = io.StringIO()
    Screen(io.StringIO(), side).call("write\nfile", {"text": "x" * 10_000}, offered=False)
    assert len(side.getvalue()) < 500
    assert side.getvalue().startswith('→ write file {"text": "xxx')
    assert side.getvalue().endswith("… (run by the provider)\n")
