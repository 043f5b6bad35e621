from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tollbridge.cli.screen import Wrapper

PROSE = st.text(alphabet="ab \n\t`é漢😀", max_size=200)


def wrapped(*pieces: str, width: int = 20) -> str:
    wrapper = Wrapper(lambda: width)
    return "".join(wrapper.feed(piece) for piece in pieces) + wrapper.flush()


def test_lines_are_wrapped_between_words() -> None:
    assert wrapped("the quick brown fox jumps over") == "the quick brown fox\njumps over"


def test_a_word_is_held_back_until_it_is_complete() -> None:
    wrapper = Wrapper(lambda: 10)
    assert wrapper.feed("12345 678") == "12345"
    assert wrapper.feed("90") == ""
    assert wrapper.feed(" ") == "\n67890"


def test_a_word_longer_than_the_line_is_left_to_the_terminal() -> None:
    assert wrapped("x" * 50) == "x" * 50


def test_code_is_not_wrapped() -> None:
    code = "```sh\necho a very long line of code that goes on and on\n```\n"
    assert wrapped(code) == code
    assert wrapped(code + "and then some prose again") == code + "and then some prose\nagain"


def test_wide_characters_take_two_columns() -> None:
    assert wrapped("漢字漢字 漢字漢字 漢字漢字") == "漢字漢字 漢字漢字\n漢字漢字"


def test_the_width_can_change() -> None:
    width = 8
    wrapper = Wrapper(lambda: width)
    first = wrapper.feed("aaa bbb ccc ddd\n")
    width = 80
    assert first + wrapper.feed("aaa bbb ccc ddd\n") == "aaa bbb\nccc ddd\naaa bbb ccc ddd\n"


@given(PROSE, st.integers(1, 30))
def test_only_white_space_changes(text: str, width: int) -> None:
    assert wrapped(text, width=width).split() == text.split()


@given(st.text(alphabet="ab \n`", max_size=120), st.sets(st.integers(0, 120)))
def test_the_chunks_of_ascii_text_do_not_matter(text: str, cuts: set[int]) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert wrapped(*pieces) == wrapped(text)


@given(st.text(alphabet="ab \n", max_size=200), st.integers(12, 30))
def test_lines_of_short_words_fit_the_width(text: str, width: int) -> None:
    words = " ".join(word[:10] for word in text.split(" "))
    shortened = "\n".join(line if max(map(len, line.split(" "))) <= 10 else "" for line in words.split("\n"))
    assert all(len(line.rstrip()) <= width for line in wrapped(shortened, width=width).split("\n"))


def test_a_word_after_a_full_line_starts_a_new_line() -> None:
    assert wrapped("aaaaaaaaaa a a", width=12) == "aaaaaaaaaa a\na"
