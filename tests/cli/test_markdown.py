from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollbridge.cli.markdown import MarkdownWriter

STYLES = re.compile(r"\x1b\[[0-9;]*m")
WIDTH = 40


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


class Paper(io.StringIO):
    """A terminal of 24 lines that moves the cursor up and clears the rest, as the writer asks for."""

    def lines(self, *, styles: bool = False) -> list[str]:
        rows: list[str] = [""]
        for piece in re.split(r"(\x1b\[\d+A\r\x1b\[J|\n)", self.getvalue()):
            if move := re.match(r"\x1b\[(\d+)A", piece):
                assert rows[-1] == ""
                up = int(move[1])
                assert up < 24  # lines that have left the screen cannot be drawn again
                del rows[-1]
                while up > 0:
                    up -= max(1, -(-len(STYLES.sub("", rows.pop())) // WIDTH))
                assert up == 0
                rows.append("")
            elif piece == "\n":
                rows.append("")
            else:
                rows[-1] += piece
        assert rows[-1] == ""
        return [row if styles else STYLES.sub("", row).rstrip() for row in rows[:-1]]


def render(*pieces: str, styles: bool = False) -> list[str]:
    paper, now = Paper(), 0
    writer = MarkdownWriter(paper, lambda: now)
    for piece in pieces:
        now += 1  # long enough for every piece to be drawn
        writer.write(piece)
    writer.close_line()
    return paper.lines(styles=styles)


TEXTS = st.text(st.sampled_from("ab \n\n*_`#->|1.~[]()<\\"), max_size=120)


@given(text=TEXTS, size=st.integers(1, 9))
def test_the_pieces_in_which_a_text_arrives_do_not_change_it(text: str, size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert render(*pieces) == render(text)


@given(
    words=st.lists(
        st.sampled_from(["word", "**bold**", "`code`", "a_b", "<div>", "x < y", "&lt"]), max_size=40
    )
)
def test_no_word_is_lost(words: list[str]) -> None:
    text = " ".join(words)
    shown = " ".join(render(text))
    assert re.findall(r"\w+", shown) == re.findall(r"\w+", text.replace("**", "").replace("`", ""))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("# A *big* heading #\ntext", ["A big heading", "text"]),
        ("one\ntwo\n\n\n\nthree", ["one", "two", "", "three"]),
        ("- a\n- b\n  * c\n\n1) d", ["• a", "• b", "  • c", "", "1) d"]),
        ("- " + "word " * 10, ["• word word word word word word word", "  word word word"]),
        ("2. a\n\n   more\n3. b", ["2. a", "", "   more", "3. b"]),
        ("> one\n> two\nthree", ["│ one", "│ two", "three"]),
        ("```\n**raw**\n\n  - x\n```\nend", ["```", "**raw**", "", "  - x", "```", "end"]),
        ("```sh\n" + "x" * 60 + "\n", ["```sh", "x" * 60]),  # code is not wrapped: it must be copied as it is
        ("~~~\n```\n~~~", ["~~~", "```", "~~~"]),
        ("![a picture](https://x.example/a.png)", ["!a picture (https://x.example/a.png)"]),
        ("[1]: https://x.example", ["[1]: https://x.example"]),
        ("<b>bold</b> a<b", ["<b>bold</b> a<b"]),
        ("    four spaces", ["    four spaces"]),
        ("a --- b\n\n---\n\nc", ["a --- b", "", "-" * WIDTH, "", "c"]),
    ],
)
def test_blocks(text: str, lines: list[str]) -> None:
    assert render(text) == lines


def test_styles() -> None:
    (line,) = render("**bold** and `code`", styles=True)
    assert line == "\x1b[1mbold\x1b[0m and \x1b[36mcode\x1b[0m"
    lines = render("```python\nx = 1  # note\n```", styles=True)
    assert lines[0] == "\x1b[2m```python\x1b[0m"
    assert "\x1b[94m1\x1b[0m" in lines[1]


def test_only_lines_that_changed_are_drawn_again() -> None:
    paper, now = Paper(), 0
    writer = MarkdownWriter(paper, lambda: now)
    writer.write("word " * 20)  # three lines
    drawn, now = len(paper.getvalue()), 1
    writer.write("end")
    assert paper.getvalue()[drawn:].startswith("\x1b[1A\r\x1b[J")


def test_a_block_higher_than_the_screen_is_drawn_once() -> None:
    words = [f"word{number}" for number in range(600)]
    assert " ".join(render(*(f"{word} " for word in words))).split() == words


@pytest.mark.parametrize("text", ["word " * 8_000, "x" * 40_000, "```\n" + "x = 123;" * 5_250])
def test_a_long_line_is_printed_in_pieces_that_do_not_depend_on_the_writes(text: str) -> None:
    lines = render(text)
    assert "".join("".join(lines).split()) == "".join(text.split())
    if text.startswith("```"):
        assert [len(line) for line in lines] == [3, *[8_000] * 5, 2_000]
    for size in (1_000, 7_999, 8_001):
        assert render(*(text[start : start + size] for start in range(0, len(text), size))) == lines
