"""An edit lands where it was meant or nowhere, and touches no byte besides."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corecoder.errors import ToolError
from corecoder.tool import ToolContext, ToolResult, Workspace
from corecoder.tools.diff import Span, spliced, unified
from corecoder.tools.edit_file import EditFileTool
from corecoder.tools.files import decode, lines_from
from corecoder.tools.matching import Source, find
from corecoder.tools.read_file import ReadFileTool


@pytest.fixture
def ctx(project: Path) -> ToolContext:
    return ToolContext(Workspace.at(project))


def edit(ctx: ToolContext, old: str, new: str, *, name: str = "f.txt", replace_all: bool = False) -> ToolResult:
    arguments = {"file_path": name, "old_string": old, "new_string": new, "replace_all": replace_all}
    return EditFileTool().run(arguments, ctx)


def edited(ctx: ToolContext, before: bytes, old: str, new: str, *, name: str = "f.txt") -> bytes:
    """The bytes after one edit of a file that holds `before`."""
    path = ctx.workspace.root / name
    path.write_bytes(before)
    edit(ctx, old, new, name=name)
    return path.read_bytes()


def refusal(ctx: ToolContext, before: bytes, old: str, new: str, **more: bool) -> str:
    """The words of the refusal of an edit, which must leave the file as it was."""
    path = ctx.workspace.root / "f.txt"
    path.write_bytes(before)
    state = os.stat(path)
    with pytest.raises(ToolError) as caught:
        edit(ctx, old, new, **more)
    assert path.read_bytes() == before
    assert os.stat(path).st_mtime_ns == state.st_mtime_ns
    return str(caught.value)


# --- bytes ---------------------------------------------------------------------------------------------------------

CRLF = b"def greet(name):\r\n    print(name)\r\n\r\ndef add(a, b):\r\n    return a + b\r\n"


def test_an_edit_over_several_lines_lands_in_a_crlf_file_and_every_line_stays_crlf(ctx: ToolContext) -> None:
    after = edited(ctx, CRLF, "    print(name)\n\ndef add", "    print(name.upper())\n    return\n\ndef add")
    assert after == CRLF.replace(b"print(name)\r\n", b"print(name.upper())\r\n    return\r\n")


def test_carriage_returns_in_old_string_do_not_matter_in_an_lf_file(ctx: ToolContext) -> None:
    assert edited(ctx, b"a\nb\nc\n", "a\r\nb\r\n", "x\r\ny\r\n") == b"x\ny\nc\n"


def test_mixed_line_ends_stay_line_by_line(ctx: ToolContext) -> None:
    before = b"one\r\ntwo\nthree\r\nfour\nfive\r\n"
    after = edited(ctx, before, "two\nthree\nfour\n", "two\nthree\nnew\nfour\n")
    assert after == b"one\r\ntwo\nthree\r\nnew\r\nfour\nfive\r\n"
    assert edited(ctx, before, "one\ntwo\nthree\n", "one\nTWO\nthree\n") == before.replace(b"two", b"TWO")


def test_a_new_line_takes_the_line_end_of_its_neighbours(ctx: ToolContext) -> None:
    assert edited(ctx, b"a\r\nb\r\nc\n", "b", "b\nb2") == b"a\r\nb\r\nb2\r\nc\n"
    assert edited(ctx, b"a\r\nlast", "last", "last\nmore") == b"a\r\nlast\r\nmore"


def test_between_two_places_that_differ_in_line_ends_only_the_exact_one_is_meant(ctx: ToolContext) -> None:
    assert edited(ctx, b"a\r\nb\r\n-\na\nb\n", "a\nb\n", "c\nd\n") == b"a\r\nb\r\n-\nc\nd\n"


def test_the_old_macintosh_line_end_is_kept(ctx: ToolContext) -> None:
    assert edited(ctx, b"a\rb\rc\r", "a\nb\n", "a\nx\nb\n") == b"a\rx\rb\rc\r"


def test_a_byte_order_mark_stays_and_does_not_hide_the_first_line(ctx: ToolContext) -> None:
    before = b"\xef\xbb\xbfhello\n\xe4\xb8\xad\xe6\x96\x87\n"
    assert edited(ctx, before, "hello", "hello2") == before.replace(b"hello", b"hello2")
    assert edited(ctx, before, "\ufeffhello\n", "\ufeffbye\n") == before.replace(b"hello", b"bye")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("latin-1", "const x = 1;\n// café note\n"),
        ("cp1252", "const x = 1;\n// “café” – note\n"),
        ("gb18030", "const x = 1;\n// 这是一个注释，说明变量的用途。\n"),
        ("utf-16", "const x = 1;\n// café 中文 😀\n"),
        ("utf-8-sig", "const x = 1;\n// café\n"),
        ("utf-32", "const x = 1;\n// café\n"),
    ],
)
def test_the_bytes_around_an_edit_survive_in_every_encoding(ctx: ToolContext, encoding: str, text: str) -> None:
    expected = text.replace("= 1;", "= 22;").encode(encoding)
    assert edited(ctx, text.encode(encoding), "x = 1;", "x = 22;") == expected


def test_a_character_that_the_encoding_lacks_is_refused_by_name(ctx: ToolContext) -> None:
    said = refusal(ctx, "x = 1  # café\n".encode("latin-1"), "x = 1", "x = '→'")
    assert "latin-1" in said
    assert "U+2192" in said


def test_bytes_that_are_no_text_are_refused(ctx: ToolContext) -> None:
    assert "binary" in refusal(ctx, b"abc\0def", "abc", "x")
    assert "utf-16" in refusal(ctx, b"\xff\xfea\0b", "a", "x")


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(st.sampled_from(["a", "b", "é", "中", " ", "\t", "x = 1", "”", "  "]), min_size=1, max_size=12),
    ends=st.lists(st.sampled_from(["\n", "\r\n", ""]), min_size=12, max_size=12),
    at=st.integers(0, 11),
    new=st.sampled_from(["", "N", "N\nM", "N\r\nM\n", "  é"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
)
def test_nothing_outside_of_the_replaced_place_changes(
    pieces: list[str], ends: list[str], at: int, new: str, encoding: str
) -> None:
    head = "".join(piece + end for piece, end in zip(pieces[:at], ends, strict=False))
    tail = "".join(piece + end for piece, end in zip(pieces[at:], ends[::-1], strict=False))
    data = f"{head}<<MARK>>{tail}".encode(encoding)
    content = decode(data, "f")
    match = find(Source(content.text), "<<MARK>>", new, False)
    assert match is not None
    (span,) = match.spans
    after = content.encode(content.text[: span.start] + span.text + content.text[span.end :])
    assert content.text[: span.start] == head
    assert content.text[span.end :] == tail
    assert after.decode(encoding) == head + span.text + tail
    assert span.text.replace("\r\n", "\n") == new.replace("\r\n", "\n")


# --- the file itself -----------------------------------------------------------------------------------------------


def test_links_are_followed_and_stay_links(ctx: ToolContext, project: Path) -> None:
    (project / "real.md").write_bytes(b"hello\nworld\n")
    (project / "link.md").symlink_to("real.md")
    (project / "chain.md").symlink_to(project / "link.md")
    result = edit(ctx, "hello", "bye", name="chain.md")
    assert (project / "real.md").read_bytes() == b"bye\nworld\n"
    assert os.readlink(project / "link.md") == "real.md"
    assert (project / "chain.md").is_symlink()
    assert result.data["path"] == str(project / "real.md")


def test_loops_of_links_and_dangling_links_are_named(ctx: ToolContext, project: Path) -> None:
    (project / "loop").symlink_to("loop")
    (project / "dangling").symlink_to("nowhere")
    with pytest.raises(ToolError, match="symbolic link"):
        edit(ctx, "a", "b", name="loop")
    with pytest.raises(ToolError, match="symbolic link to nowhere"):
        edit(ctx, "a", "b", name="dangling")


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o640, 0o4711])
def test_the_mode_survives(ctx: ToolContext, project: Path, mode: int) -> None:
    path = project / "f.txt"
    path.write_text("#!/bin/sh\necho a\n")
    path.chmod(mode)
    edit(ctx, "echo a", "echo b")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_survives(ctx: ToolContext, project: Path) -> None:
    path = project / "f.txt"
    path.write_text("a\n")
    os.chown(path, 12345, 23456)
    edit(ctx, "a", "b")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_hard_links_stay_one_file_and_no_copy_is_left(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("long old content\n")
    os.link(project / "f.txt", project / "other.txt")
    edit(ctx, "long old content", "new")
    assert (project / "other.txt").read_text() == "new\n"
    assert os.path.samefile(project / "f.txt", project / "other.txt")
    assert sorted(os.listdir(project)) == ["f.txt", "other.txt"]


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes here")
def test_extended_attributes_survive(ctx: ToolContext, project: Path) -> None:
    path = project / "f.txt"
    path.write_text("a\n")
    try:
        os.setxattr(path, "user.note", b"keep")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    edit(ctx, "a", "b")
    assert os.getxattr(path, "user.note") == b"keep"


@pytest.fixture
def commoner() -> Iterator[Path]:
    """A directory of a user who may not do everything, which is also who the test runs as."""
    directory = Path(tempfile.mkdtemp())
    user = os.geteuid()
    try:
        if user == 0:
            os.chown(directory, 65534, 65534)
            os.seteuid(65534)
        yield directory
    finally:
        os.seteuid(user)
        shutil.rmtree(directory)


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_a_read_only_file_is_not_written_through_its_directory(commoner: Path) -> None:
    path = commoner / "f.txt"
    path.write_text("a\n")
    path.chmod(0o444)
    with pytest.raises(ToolError, match="read-only"):
        edit(ToolContext(Workspace.at(commoner)), "a", "b")
    assert path.read_text() == "a\n"


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_a_file_in_a_directory_that_takes_no_new_files_is_edited_in_place(commoner: Path) -> None:
    path = commoner / "f.txt"
    path.write_text("a\n")
    commoner.chmod(0o555)
    edit(ToolContext(Workspace.at(commoner)), "a", "b")
    assert path.read_text() == "b\n"


def test_two_edits_of_one_file_both_land_under_any_name(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("".join(f"{n}\n" for n in range(1, 101)))
    (project / "link").symlink_to("f.txt")
    assert not EditFileTool.parallel
    edit(ctx, "50\n", "FIFTY\n")
    edit(ctx, "\n75\n", "\nSEVENTY-FIVE\n", name="./f.txt")
    edit(ctx, "\n99\n", "\nNINETY-NINE\n", name="link")
    lines = (project / "f.txt").read_text().splitlines()
    assert (lines[49], lines[74], lines[98]) == ("FIFTY", "SEVENTY-FIVE", "NINETY-NINE")


def test_what_is_no_file_is_named(ctx: ToolContext, project: Path) -> None:
    (project / "src").mkdir()
    (project / "src" / "app.py").touch()
    with pytest.raises(ToolError, match=r"directory.*app\.py"):
        edit(ctx, "a", "b", name="src")
    with pytest.raises(ToolError, match=r"Similar: src/app\.py"):
        edit(ctx, "a", "b", name="src/apq.py")
    with pytest.raises(ToolError, match="nor does the directory src/deep"):
        edit(ctx, "a", "b", name="src/deep/er/x.py")
    with pytest.raises(ToolError, match="NUL"):
        edit(ctx, "a", "b", name="a\0b")


def test_an_edit_of_a_file_that_changed_meanwhile_says_so_and_keeps_the_change(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("a\nb\n")
    ReadFileTool().run({"file_path": "f.txt"}, ctx)
    (project / "f.txt").write_text("a\nb\nfrom outside\n")
    assert "changed on disk" in edit(ctx, "a", "A").content
    assert (project / "f.txt").read_text() == "A\nb\nfrom outside\n"
    assert "changed on disk" not in edit(ctx, "b", "B").content


# --- matching ------------------------------------------------------------------------------------------------------


def test_an_empty_old_string_is_an_error(ctx: ToolContext) -> None:
    assert "empty" in refusal(ctx, b"abc", "", "X")
    assert "empty" in refusal(ctx, b"abc", "", "X", replace_all=True)


def test_several_matches_are_an_error_with_their_lines(ctx: ToolContext) -> None:
    said = refusal(ctx, b"x\ny\nx\nx\n", "x", "z")
    assert "3 places" in said
    assert "1, 3, 4" in said
    assert "2 places" in refusal(ctx, b"aaa", "aa", "b")


def test_replace_all_changes_every_occurrence_and_counts_them(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_bytes(b"x1\r\nx2\r\ny\r\nx3 x4\n")
    result = edit(ctx, "x", "zz", replace_all=True)
    assert (project / "f.txt").read_bytes() == b"zz1\r\nzz2\r\ny\r\nzz3 zz4\n"
    assert "4 places" not in result.content.splitlines()[1]
    assert "at 4 places" in result.content
    assert (result.data["added"], result.data["removed"]) == (3, 3)


def test_the_replacement_is_taken_literally(ctx: ToolContext) -> None:
    assert edited(ctx, b"a.b\n", "a.b", r"\1 \g<0> $1 \n") == rb"\1 \g<0> $1 \n" + b"\n"


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        # blanks at the end of lines, on either side
        (
            "def f():  \n    return 1\n",
            "def f():\n    return 1",
            "def f():\n    return 2",
            "def f():  \n    return 2\n",
        ),
        ("a = 1\nb = 2\n", "a = 1  \nb = 2\t", "a = 3\nb = 4", "a = 3\nb = 4\n"),
        # taken out of its indentation, and put back
        (
            "class A:\n    def f(self):\n        x = 1\n        return x\n",
            "def f(self):\n    x = 1\n    return x\n",
            "def f(self):\n    x = 2\n    if x:\n        x += 1\n    return x\n",
            "class A:\n    def f(self):\n        x = 2\n        if x:\n            x += 1\n        return x\n",
        ),
        # indented too far
        (
            "if a:\n    b()\n    c()\n",
            "        b()\n        c()\n",
            "        b(1)\n        c(2)\n",
            "if a:\n    b(1)\n    c(2)\n",
        ),
        # spaces where the file has tabs, and the other way round
        (
            "func f() {\n\tif x {\n\t\ty()\n\t}\n}\n",
            "    if x {\n        y()\n    }\n",
            "    if x {\n        y()\n        if z {\n            w()\n        }\n    }\n",
            "func f() {\n\tif x {\n\t\ty()\n\t\tif z {\n\t\t\tw()\n\t\t}\n\t}\n}\n",
        ),
        (
            "if x:\n    y()\n    z()\n",
            "if x:\n\ty()\n\tz()\n",
            "if x:\n\ty()\n\tif a:\n\t\tz()\n",
            "if x:\n    y()\n    if a:\n        z()\n",
        ),
        # two spaces a step where the file has four
        (
            "def f():\n    for a in b:\n        c(a)\n",
            "def f():\n  for a in b:\n    c(a)\n",
            "def f():\n  for a in b:\n    if a:\n      c(a)\n",
            "def f():\n    for a in b:\n        if a:\n            c(a)\n",
        ),
        # line numbers of read_file copied along
        ("a\nb\nc\nd\n", "2\tb\n3\tc", "2\tB\n3\tC", "a\nB\nC\nd\n"),
        ("a\n  b\n  c\nd\n", "     2→  b\n     3→  c\n", "  B\n", "a\n  B\nd\n"),
        # blank lines around it that are not there
        ("a\nb\nc\n", "\nb\nc\n\n", "\nB\nc\n\n", "a\nB\nc\n"),
        # the last line has no line end, and gets none
        ("a\nb", "b\n", "c\nd\n", "a\nc\nd"),
        # a line taken over unchanged keeps the file's own blanks
        ("\tx = 1 \n\ty = 2\n", "x = 1\ny = 2\nz", "q", None),
        ("\tif x: \n\t\ty()\n", "if x:\n    y()\n", "if x:\n    y(1)\n", "\tif x: \n\t\ty(1)\n"),
    ],
)
def test_small_differences_in_blanks_are_forgiven(
    ctx: ToolContext, before: str, old: str, new: str, after: str | None
) -> None:
    if after is None:
        assert refusal(ctx, before.encode(), old, new)
    else:
        assert edited(ctx, before.encode(), old, new).decode() == after


def test_a_forgiving_match_says_what_it_forgave_and_shows_the_place(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("class A:\n    def f(self):\n        return 1\n")
    said = edit(ctx, "def f(self):\n    return 1\n", "def f(self):\n    return 2\n").content
    assert "indentation adjusted" in said
    assert "3\t        return 2" in said


def test_a_forgiving_match_must_be_the_only_one(ctx: ToolContext) -> None:
    text = b"class A:\n    def f(self):\n        return 1\nclass B:\n  def f(self):\n    return 1\n"
    said = refusal(ctx, text, "def f(self):\n      return 1\n", "x")
    assert "2 places" in said
    assert "2, 5" in said


def test_replace_all_forgives_blanks_in_every_place(ctx: ToolContext, project: Path) -> None:
    path = project / "f.txt"
    path.write_text("def a():\n    x = 1   \n\ndef b():\n    x = 1   \n")
    result = edit(ctx, "    x = 1\n", "    x = 2\n", replace_all=True)
    assert path.read_text() == "def a():\n    x = 2\n\ndef b():\n    x = 2\n"
    assert result.content.startswith("Edited f.txt at 2 places (+2 -2; trailing blanks disregarded).")
    path.write_text("a\n  b\nc\n    b\n")
    edit(ctx, "\tb\n", "\td\n\te\n", replace_all=True)
    assert path.read_text() == "a\n  d\n  e\nc\n    d\n    e\n"


def test_equal_lines_by_the_thousands_are_counted_and_compared_in_bounds(ctx: ToolContext, project: Path) -> None:
    path = project / "f.txt"
    said = refusal(ctx, b"a\n" * 50_000, " a\n" * 20_000, "b\n")
    assert said.startswith("old_string fits more than 100 places once blanks are disregarded, at lines 1, 2, 3,")
    assert "fits more than 100 places, at" in refusal(ctx, b"a\n" * 50_000, "a\n" * 20_000, "b\n")
    path.write_text("x\n" + "a\n" * 20_000 + "y\n")
    edit(ctx, " x\n" + " a\n" * 20_000 + " y\n", " x\n" + " a\n" * 19_000 + " y\n")
    assert path.read_text() == "x\n" + "a\n" * 19_000 + "y\n"


def test_very_many_places_are_replaced_in_one_go(ctx: ToolContext, project: Path) -> None:
    path = project / "f.txt"
    for end in ("\n", "\r\n", "\r"):
        path.write_bytes(f"a;b{end}".encode() * 20_000)
        result = edit(ctx, ";b\na", ",\n", replace_all=True)
        assert path.read_bytes() == f"a{f',{end}' * 19_999};b{end}".encode()
        assert result.content.startswith("Edited f.txt at 19,999 places (+20000 -20000).")
    path.write_bytes(b"a\r\nb\n" * 20_000)
    edit(ctx, "\n", " \n", replace_all=True)
    assert path.read_bytes() == b"a \r\nb \n" * 20_000


def test_in_a_very_large_file_only_the_exact_text_is_looked_for(ctx: ToolContext) -> None:
    assert "too large to look for text that is nearly the same" in refusal(ctx, b"line 1 \n" * 300_000, "line 2\n", "x")


def test_an_indentation_that_would_have_to_be_guessed_is_refused(ctx: ToolContext) -> None:
    text = b"<a>\n  <b>\n    <c>\n  <d>\n"
    assert "nearest" in refusal(ctx, text, "<a>\n<b>\n<c>\n<d>\n", "<a>\n<b>\n<x>\n<c>\n<d>\n")


def test_the_nearest_place_is_shown_with_what_differs(ctx: ToolContext) -> None:
    text = b"import os\n\n\ndef total(items):\n    return sum(item.price for item in items)\n"
    said = refusal(ctx, text, "def total(items):\n    return sum(i.price for i in items)\n", "x")
    assert "lines 4 to 5" in said
    assert "-     return sum(item.price for item in items)" in said
    assert "+     return sum(i.price for i in items)" in said


def test_signs_that_look_alike_are_named(ctx: ToolContext) -> None:
    text = "a\nd\u2019apostrophe \u201cwhat\u201d\n".encode()
    assert edited(ctx, text, "\u201cwhat\u201d", "\u201cthat\u201d") == text.replace(b"what", b"that")
    said = refusal(ctx, text, 'd\'apostrophe "what"', "x")
    assert "U+2019 right single quotation mark" in said


def test_signs_that_look_alike_in_a_part_of_a_line_are_named(ctx: ToolContext) -> None:
    said = refusal(ctx, "say(\u201cwhat is it\u201d, 1)\n".encode(), 'say("what is it"', "x")
    assert "the file has \u201c U+201C left double quotation mark" in said


@pytest.mark.parametrize(
    ("text", "old", "words"),
    [
        ("x  =  1 + 2\n", "x = 1 + 2\n", "the file has 2 spaces where old_string has 1 space"),
        ("x\u00a0= value\n", "x = value", "the file has 1 no-break space (U+00A0) where old_string has 1 space"),
        ("a\tb c d\n", "a b c d\n", "the file has 1 tab where old_string has 1 space"),
        ("call(a, b)\n", "call(a,b)\n", "the file has 1 space where old_string has none"),
    ],
)
def test_blanks_that_differ_are_named(ctx: ToolContext, text: str, old: str, words: str) -> None:
    assert f"(they differ only in blanks: {words})" in refusal(ctx, text.encode(), old, "z")


def test_a_nul_is_not_written_into_a_text(ctx: ToolContext) -> None:
    assert "NUL character (line 2)" in refusal(ctx, b"a\nb\n", "b", "\0")


def test_a_python_file_is_written_in_the_encoding_that_it_declares(ctx: ToolContext, project: Path) -> None:
    head = b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\n"
    assert edited(ctx, head + b"x = 0\n", "0", "'é'", name="a.py") == head + b"x = '\xe9'\n"
    assert edited(ctx, head + b"x = 0\n", "0", "'é'", name="a.txt") == head + "x = 'é'\n".encode()
    assert edited(ctx, head + b"x = '\xe9'\n", "latin-1", "utf-8", name="a.py").endswith("x = 'é'\n".encode())
    cyrillic = b"# coding: cp1251\nx = '%s'\n"
    assert edited(ctx, cyrillic % b"\xe9\xe0", "йа", "б", name="a.py") == cyrillic % b"\xe1"
    utf8 = head + "x = 'é'\ny = 2\n".encode()  # declared wrongly: the bytes that are there decide
    assert edited(ctx, utf8, "2", "'ü'", name="a.py") == utf8.replace(b"2", "'ü'".encode())
    assert edited(ctx, b"# coding: utf-7\na + b\n", "b", "c", name="a.py") == b"# coding: utf-7\na + c\n"
    for odd in (b"# coding: rot13\nx = 1\n", b"# coding: none-such\nx = 1\n", b"import os\n# coding: latin-1\nx = 1\n"):
        assert edited(ctx, odd, "x = 1", "x = 'é'", name="a.py") == odd.replace(b"x = 1", "x = 'é'".encode())
    with pytest.raises(ToolError, match="which has no '→'"):
        edited(ctx, head + b"x = 1\n", "x = 1", "'→'", name="a.py")


def test_an_edit_that_was_made_already_is_recognised(ctx: ToolContext) -> None:
    said = refusal(ctx, b"x\ndef total(values):\n", "def total(items):\n", "def total(values):\n")
    assert "there already, at line 2" in said


def test_an_edit_that_changes_nothing_is_an_error(ctx: ToolContext) -> None:
    assert "the same" in refusal(ctx, b"a\n", "a", "a")
    assert "line ends" in refusal(ctx, b"a\r\nb\r\n", "a\r\n", "a\n")


def test_a_hopeless_search_in_a_large_file_ends_soon_and_shows_no_other_place(ctx: ToolContext) -> None:
    text = "".join(f"value_{n} = compute({n})\n" for n in range(60_000))
    said = refusal(ctx, text.encode(), "zzz yyy xxx\nwww vvv\n", "")
    assert "Nothing in the file is like it" in said


# --- what comes back -----------------------------------------------------------------------------------------------


def test_the_result_is_short_for_the_model_and_a_diff_for_the_person(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("".join(f"line {n}\n" for n in range(1, 21)))
    result = edit(ctx, "line 10\n", "LINE 10\nextra\n")
    assert result.content.splitlines()[0] == "Edited f.txt at line 10 (+2 -1)."
    assert "10\tLINE 10" in result.content
    assert result.display.splitlines()[1:] == [
        "--- a/f.txt",
        "+++ b/f.txt",
        "@@ -7,7 +7,8 @@",
        " line 7",
        " line 8",
        " line 9",
        "-line 10",
        "+LINE 10",
        "+extra",
        " line 11",
        " line 12",
        " line 13",
    ]
    assert result.data == {"path": str(project / "f.txt"), "action": "edit", "added": 2, "removed": 1}


def test_a_file_can_be_emptied_and_text_be_deleted(ctx: ToolContext) -> None:
    assert edited(ctx, b"only\n", "only\n", "") == b""
    assert edited(ctx, b"a\nb\nc\n", "b\n", "") == b"a\nc\n"


def test_a_syntax_error_that_the_edit_made_is_mentioned(ctx: ToolContext, project: Path) -> None:
    (project / "a.py").write_text("def f():\n    return 1\n")
    (project / "b.json").write_text('{"a": 1}\n')
    broken = edit(ctx, "return 1", "return (1", name="a.py").content
    assert "Warning: the file does not parse as Python" in broken
    assert "line 2" in broken
    assert "still does not parse" in edit(ctx, "def f():", "def g():", name="a.py").content
    assert "Warning" not in edit(ctx, "(1", "1", name="a.py").content
    assert "does not parse as JSON" in edit(ctx, "1}", "1,}", name="b.json").content
    if sys.version_info >= (3, 11):
        (project / "c.toml").write_text("a = 1\n")
        assert "does not parse as TOML" in edit(ctx, "1", "", name="c.toml").content


def test_json_with_comments_is_left_in_peace(ctx: ToolContext, project: Path) -> None:
    (project / "tsconfig.json").write_text('{\n  // comment\n  "a": 1\n}\n')
    assert "Warning" not in edit(ctx, "1", "2", name="tsconfig.json").content


def test_the_whole_result_stays_small_for_a_large_change(ctx: ToolContext, project: Path) -> None:
    (project / "f.txt").write_text("x\n" * 20_000)
    result = edit(ctx, "x", "y" * 300, replace_all=True)
    assert len(result.content) < 5_000
    assert len(result.display.splitlines()) < 500
    assert json.dumps(result.data)


@settings(max_examples=200, deadline=None)
@given(
    old=st.lists(st.sampled_from(["a\n", "b\n", "\n", "c\r\n"]), max_size=14),
    new=st.lists(st.sampled_from(["a\n", "b\n", "\n", "d\n"]), max_size=14),
    unfinished=st.booleans(),
)
def test_a_diff_applied_to_the_old_text_gives_the_new_one(old: list[str], new: list[str], unfinished: bool) -> None:
    before, after = "".join(old), "".join(new) + ("end" if unfinished else "")
    diff = unified("f", before, [Span(0, len(before), after)])
    assert applied(before, diff.text) == after.replace("\r\n", "\n")
    body = [line for line in diff.text.splitlines()[2:] if line]
    assert diff.added == sum(line.startswith("+") for line in body)
    assert diff.removed == sum(line.startswith("-") for line in body)


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.sampled_from(["a\n", "b\n", "\n", "dd"]), min_size=1, max_size=30),
    places=st.lists(st.integers(0, 60), min_size=2, max_size=4),
    new=st.sampled_from(["", "x", "x\n", "\n", "\nx", "x\ny\nz\n"]),
)
def test_a_diff_of_a_few_places_is_right_wherever_they_lie(lines: list[str], places: list[int], new: str) -> None:
    before = "".join(lines)
    cuts = sorted(min(place, len(before)) for place in places)
    pairs = zip(cuts[::2], cuts[1::2], strict=False)
    spans = [Span(start, end, new) for start, end in pairs if start < end]  # as edits make them
    spans = spans or [Span(0, 1, new)]
    diff = unified("f", before, spans)
    after = spliced(before, spans)
    assert applied(before, diff.text) == after
    added = [line[1:] for line in diff.text.split("\n")[2:] if line.startswith("+")]
    shown = [line for first, count in diff.places for line in lines_from(after, first, count)]
    assert added == shown


def applied(before: str, diff: str) -> str:
    """What patch(1) would make of `before`, its line ends as newlines; context and removals are checked."""
    old = before.replace("\r\n", "\n").splitlines(keepends=True)
    out: list[str] = []
    at = 0
    sign = ""
    for line in diff.splitlines()[2:]:
        if line.startswith("@@"):
            first, _, count = line.split()[1][1:].partition(",")
            start = int(first) - (count != "0")
            out += old[at:start]
            at = start
            continue
        if line.startswith("\\"):
            if sign in " +":
                out[-1] = out[-1].removesuffix("\n")
            continue
        sign, text = line[0], line[1:]
        if sign in " -":
            assert old[at].removesuffix("\n") == text
            at += 1
        if sign in " +":
            out.append(text + "\n")
    return "".join(out + old[at:])
