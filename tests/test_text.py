"""What may reach a terminal, and how text is shortened."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corecoder.text import clip_middle, one_line, plural, printable, revealed

CONTROLS = ["\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b\\", "\x9b", "\x9d", "\x9c", "\x07", "\x00", "\x7f", "\x85"]
OTHERS = ["31m", "52;c;", "0;t", "?2004h", "\n", "\r", "\r\n", "\t", "\u202e", "\u2066", "\ud83d", "\ude00", " ", "é"]
PIECES = st.sampled_from([*CONTROLS, *OTHERS])
SCRAMBLED = st.lists(PIECES | st.text(st.characters(exclude_categories=()), max_size=3), max_size=20).map("".join)

FORBIDDEN = {*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0)), *"\u202a\u202b\u202c\u202d\u202e"} - {"\n", "\t"}
FORBIDDEN |= {*"\u2066\u2067\u2068\u2069"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x9d0;title\x9cb", "ab"),
        ("a\x1b[2Jb\x1b[6nc\x1b[?2004hd", "abcd"),
        ("a\x1b[1;31mred\x1b[0mb", "aredb"),
        ("a\x9b31mb", "ab"),
        ("a\x1bPq#0;2\x1b\\b", "ab"),
        ("a\x1b_G\x1b\\b\x1b^x\x1b\\c\x1bXy\x1b\\d", "abcd"),
        ("a\x1b]0;never ended\nnext line", "a\nnext line"),
        ("a\x1b]x", "a"),
        ("a\x1b", "a"),
        ("a\x1b[", "a"),
        ("a\x1b[12", "a"),
        ("a\x1b(Bb\x1b7c\x1bcd", "abcd"),
        ("50%\r100%\r\ndone", "50%\n100%\ndone"),
        ("a\x00\x07\x08\x0b\x0c\x7fb", "ab"),
        ("a\u202eb\u2066c", "abc"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("[/Users/x/App.csproj] [bold]x[/bold] [/INST]", "[/Users/x/App.csproj] [bold]x[/bold] [/INST]"),
        ("é 中 😀 \u200d", "é 中 😀 \u200d"),
    ],
)
def test_no_terminal_control_survives_and_other_text_does(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lone_surrogates_do_not_stop_the_output() -> None:
    assert printable("a\ud83db").encode() == b"a?b"


@given(SCRAMBLED)
def test_whatever_comes_nothing_forbidden_is_left_and_a_second_pass_changes_nothing(text: str) -> None:
    shown = printable(text)
    assert not set(shown) & FORBIDDEN
    shown.encode()
    assert printable(shown) == shown


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="".join(FORBIDDEN))))
def test_text_without_controls_is_shown_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(SCRAMBLED, st.integers(1, 30))
def test_one_line_is_one_printable_line_within_the_limit(text: str, limit: int) -> None:
    line = one_line(text, limit)
    assert len(line) <= limit
    assert not set(line) & (FORBIDDEN | {"\n", "\t"})


def test_one_line_says_when_something_was_cut() -> None:
    assert one_line("two\n  lines\there") == "two lines here"
    assert one_line("x" * 100) == "x" * 100
    assert one_line("x" * 101) == "x" * 99 + "…"
    assert one_line("a" + " " * 1000 + "b", 10) == "a…"


@given(st.text(), st.integers(0, 50))
def test_a_clipped_text_keeps_head_and_tail_and_counts_what_is_left_out(text: str, limit: int) -> None:
    clipped = clip_middle(text, limit, "<{dropped}>")
    if len(text) <= limit:
        assert clipped == text
        return
    head, tail = limit * 2 // 3, limit - limit * 2 // 3
    assert clipped == f"{text[:head]}\n<{len(text) - limit}>\n{text[len(text) - tail :] if tail else ''}"


def test_clipping_says_how_much_by_default() -> None:
    assert clip_middle("a" * 5000, 30) == "a" * 20 + "\n… 4,970 characters left out …\n" + "a" * 10


def test_plurals() -> None:
    assert [plural(count, "line") for count in (0, 1, 2, 1204)] == ["0 lines", "1 line", "2 lines", "1,204 lines"]


def test_what_somebody_agrees_to_is_shown_whole_with_its_control_characters_as_escapes() -> None:
    nasty = "git add f \x1b]; touch PWNED;\x07 ; \x08\x9b31m\u202egnp.x\u2066\rrm -r src\n\tdone"
    assert revealed(nasty) == (
        r"git add f \x1b]; touch PWNED;\x07 ; \x08\x9b31m\u202egnp.x\u2066\x0drm -r src" + "\n\tdone"
    )
