"""Markdown that is shown while it comes: nothing is lost, nothing depends on how it was cut, everything fits."""

from __future__ import annotations

import io
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import corecoder
from corecoder.highlight import CONTEXT, SIZE, Code, highlighted, lexer_for
from corecoder.layout import cells, cut, wrap
from corecoder.markdown import LIMIT, TAIL, MarkdownStream
from corecoder.terminal import Screen

MARKS = (
    "\n,\n\n,- ,  - ,1. ,12) ,    ,> ,>,```,```python\n,~~~,````,# ,## ,|,|---|---|\n,| :-: |,\n---\n,===,***,**,*,_,"
    "__,`,``,[,](,],![,),<b>,<!-- ,-->,\\,~~,  \n,\t,\r\n,\r,\x1b[31m,\x9b31m,$$,中文。,🎉,[/INST],[bold]"
).split(",")
SAMPLE = """\
# Title

Some **bold** and `code` and [a link](https://example.com/a_b), 中文文字也要正确换行，因为每个字占两列，而且没有空格。

- one
  - nested, and so long that it does not fit into a line of the terminal, whichever of the three it is, as it is long
- two 🎉

> quoted words, also more than fit into one line of the smallest of the terminals that are tried here

| name | what |
|:-----|-----:|
| `a.py` | a cell that is long enough to be wrapped in a terminal of sixty columns, and of eighty |
| 中文 | 字 |
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*pieces: str, width: int = 200, colour: bool = False) -> str:
    """What a terminal of this width gets; without colour as with NO_COLOR."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        out = Terminal()
        stream = MarkdownStream(Screen(out, {"TERM": "xterm"} if colour else {"NO_COLOR": "1"}))
        for piece in pieces:
            stream.feed(piece)
            assert len(stream.pending) <= TAIL + 200
        stream.finish()
        assert stream.pending == ""
    return out.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


words = st.integers(0, 999).map(lambda number: f" w{number}q ")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(words, st.sampled_from(MARKS)), max_size=60).map("".join),
    st.lists(st.integers(0, 300), max_size=8),
)
def test_no_word_of_a_model_is_lost_and_its_pieces_make_no_difference(text: str, cuts: list[int]) -> None:
    whole = shown(text)
    assert re.findall(r"w\d+q", whole) == re.findall(r"w\d+q", text)
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    assert shown(*(text[start:end] for start, end in pairwise(places))) == whole
    assert shown(*text) == whole
    assert plain(shown(text, colour=True)) == whole
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", whole)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_line_fits_the_terminal(width: int) -> None:
    text = shown(SAMPLE, width=width)
    assert max(cells(line) for line in text.splitlines()) < width
    assert "".join(re.findall("[一-鿿]", text)) == "".join(re.findall("[一-鿿]", SAMPLE))


def test_a_block_is_shown_as_soon_as_it_is_whole_and_not_before() -> None:
    out = io.StringIO()
    stream = MarkdownStream(Screen(out, {}))
    seen = ""
    for piece, new in [
        ("# Ti", ""),
        ("tle\nSome ", "Title\n"),
        ("words\n", ""),
        ("\n- one\n", "Some words\n"),
        ("- two\n", "\n• one\n"),
        ("\n```py\n", "• two\n\n╭─ py\n"),
        ("x = 1\n", ""),
        ("```\n| a |\n", "x = 1\n╰─\n"),
        ("|---|\n| 1 |\n", ""),
        ("\n", "a\n─\n1\n"),
    ]:
        stream.feed(piece)
        assert out.getvalue() == seen + new
        seen = out.getvalue()
    stream.feed("the *rest*")
    assert stream.pending == "the *rest*"
    stream.finish()
    assert out.getvalue() == seen + "\nthe rest\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb", "a\nb"),  # a model means a newline
        (f"{'word ' * 13}\nnext", f"{'word ' * 13}next"),  # but a full line was only broken
        ("**a**b_c_d *e* ~~f~~ `g  h`", "ab_c_d e f g  h"),
        ("[here](http://x.y/a_b) <http://x.y> ![pic](p.png)", "here (http://x.y/a_b) http://x.y pic (p.png)"),
        ('[here](http://x.y "The title")', "here (http://x.y The title)"),
        ("<details>a &amp; b</details> <!-- c -->", "<details>a & b</details> <!-- c -->"),
        ("[1]: http://x.y", "[1]: http://x.y"),
        ("arr[/] [bold]x[/bold] [/INST] [x]", "arr[/] [bold]x[/bold] [/INST] [x]"),
        ("3. c\n4. d", "3. c\n4. d"),
        ("1. a\n  - b\n    - c\n  - d", "1. a\n   • b\n     • c\n   • d"),  # indented less than CommonMark wants
        ("- a\n\n  b\n\nc", "• a\n\n  b\n\nc"),
        ("- a\nlazy\n- b", "• a\n  lazy\n• b"),
        ("-\n- b", "•\n• b"),
        ("in 2024. it", "in 2024. it"),
        ("it was\n2024. Then", "it was\n2024. Then"),  # no list in the middle of a paragraph
        ("> a\n> > b\n\nc", "│ a\n│ │ b\n\nc"),
        ("a\n===\nb\n---\nc", "a\n\nb\nc"),
        ("C#\n# C#\n## d ##", "C#\n\nC#\n\nd"),
        ("a\n\n***\nb", f"a\n\n{'─' * 40}\nb"),
        ("    a *b*\n    c", "    a *b*\n    c"),
        ("- x:\n  ```sh\n  a\n b\n    c\n  ```\n- y", "• x:\n  ╭─ sh\n  a\n  b\n    c\n  ╰─\n• y"),
        ("````\n```\na\n```\n````\nb", "╭─\n```\na\n```\n╰─\nb"),
        ("```no end\na\n", "╭─ no end\na\n╰─"),
        ("|a|b|\n|-|-|\n|`x|y`|z\\|w|\n|1|2|3|\nend", "a   │ b   │\n────┼─────┼──\nx|y │ z|w │\n1   │ 2   │ 3\nend"),
        ("a | b\nc | d", "a | b\nc | d"),
    ],
)
def test_markdown_is_laid_out(text: str, lines: str) -> None:
    assert shown(text) == f"{lines}\n"


def test_a_table_too_wide_for_columns_is_shown_row_by_row() -> None:
    names = [f"column{number}" for number in range(9)]
    rows = [f"|{'|'.join(f'{row}{name}' for name in names)}|\n" for row in "ab"]
    text = shown(f"|{'|'.join(names)}|\n|{'-|' * 9}\n", *rows, width=60)
    assert text.splitlines() == [*(f"{name}: a{name}" for name in names), "", *(f"{name}: b{name}" for name in names)]


def test_marks_are_styles_where_there_is_colour() -> None:
    text = shown("# T\n**b** *i* `c` [l](u)\n```python\ndef f(): return 1 # c\n```\n", colour=True)
    assert text == (
        "\x1b[1;4mT\x1b[0m\n\x1b[1mb\x1b[0m \x1b[3mi\x1b[0m \x1b[36mc\x1b[0m \x1b[4ml\x1b[0m\x1b[2m (u)\x1b[0m\n"
        "\x1b[2m╭─ python\x1b[0m\n\x1b[35mdef\x1b[0m \x1b[36mf\x1b[0m(): \x1b[35mreturn\x1b[0m \x1b[33m1\x1b[0m "
        "\x1b[2m# c\x1b[0m\n\x1b[2m╰─\x1b[0m\n"
    )


def test_long_code_comes_in_pieces_and_in_the_colours_of_the_whole() -> None:
    lines = Path(corecoder.__file__).with_name("agent.py").read_text(encoding="utf-8").splitlines() * 12
    code = Code("python")
    pieces = [code.add(line) for line in lines]
    pieces.append(code.finish())
    assert len([piece for piece in pieces if piece]) > 10
    assert max(map(len, pieces)) < 10 * CONTEXT
    assert [line for piece in pieces for line in piece] == highlighted(lexer_for("python"), lines)[0]


@pytest.mark.parametrize("info", ["", "no-such-language", "python", "html", "diff", "json {x}", "c++", "mermaid"])
def test_highlighting_changes_no_character(info: str) -> None:
    lines = ["\tif x:", "", " '''", "\x0c", "<a href='", "中文 \u2028 /* ", "-old", "x" * 3000, "{", "   "]
    assert ["".join(text for text, _ in line) for line in highlighted(lexer_for(info), lines)[0]] == lines


@pytest.mark.parametrize(
    ("begin", "unit"),
    [("", "word "), ("", "x"), ("```\n", "y"), ("```python\n", "z = 1\n"), ("", "- w\n"), ("|a|\n|-|\n", "|u|\n")],
)
def test_what_is_kept_back_is_bounded(begin: str, unit: str) -> None:
    def said(text: str) -> int:
        return text.count(re.sub(r"\W", "", unit)[0])

    text = begin + unit * (100_000 // len(unit))
    out = io.StringIO()
    stream = MarkdownStream(Screen(out, {}))
    stream.feed(text)
    kept = said(text) - said(out.getvalue())
    assert kept * len(unit) <= max(SIZE + LIMIT, 2 * CONTEXT * len(unit))
    before = out.getvalue()
    stream.finish()
    assert said(out.getvalue()) == said(text)
    assert out.getvalue().startswith(before)


def test_words_of_several_styles_stay_together_and_cjk_breaks_before_no_full_stop() -> None:
    assert wrap([("a ", ""), ("bold", "bold"), ("er", "")], 6) == [[("a", "")], [("bold", "bold"), ("er", "")]]
    assert wrap([("一二三四。五", "")], 8) == [[("一二三", "")], [("四。五", "")]]
    assert wrap([("a " + "x" * 9, "")], 4) == [[("a", "")], [("x" * 9, "")]]
    assert wrap([("a " + "x" * 9, "")], 4, fold=True) == [[("a", "")], [("xxxx", "")], [("xxxx", "")], [("x", "")]]
    assert list(cut([("一二", "a"), ("三b", "b")], 3)) == [[("一", "a")], [("二", "a")], [("三b", "b")]]
