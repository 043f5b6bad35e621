from __future__ import annotations

import io
import sys
from contextlib import closing

import pytest

from tollbridge.cli.connection import DownloadProgress


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_bar_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Tty()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with closing(DownloadProgress()) as progress:
        progress(0, 92_871_040)
        progress(92_871_040, 92_871_040)
    assert "Downloading a small model" in terminal.getvalue()
    assert "92.9/92.9 MB" in terminal.getvalue()


def test_without_a_terminal_one_line_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(DownloadProgress()) as progress:
        progress(0, 92_871_040)
        progress(50_000_000, 92_871_040)
    assert capsys.readouterr().err == "Downloading a small model (93 MB, first run only)…\n"


def test_without_a_download_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with closing(DownloadProgress()):
        pass
    assert capsys.readouterr().err == ""
