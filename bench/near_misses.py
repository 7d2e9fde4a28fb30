"""Edits as models send them, with what has to come of each: the table of the edit-apply rate.

A row is a file's bytes, old_string, new_string and the bytes afterwards; None where the only right answer is a refusal
that leaves the file alone. Most are one small program under one small mistake each.
"""

from __future__ import annotations

from dataclasses import dataclass

PY = """\
import os


class Cart:
    def __init__(self, items):
        self.items = items

    def total(self):
        total = 0
        for item in self.items:
            total += item.price * item.count
        return total

    def names(self):
        return [item.name for item in self.items]
"""
GO = "package main\n\nfunc f(x bool) int {\n\tif x {\n\t\treturn 1\n\t}\n\treturn 2\n}\n"
JS = "export function add(a, b) {\n  return a + b;\n}\n\nexport function sub(a, b) {\n  return a - b;\n}\n"
HTML = "<ul>\n  <li>one</li>\n  <li>two</li>\n</ul>\n"

LOOP = "        for item in self.items:\n            total += item.price * item.count\n        return total\n"
SUM = """\
        for item in self.items:
            if item.count:
                total += item.price
        return total
"""


@dataclass(frozen=True)
class Row:
    """One edit. `kind` is the mistake, for the summary."""

    kind: str
    before: bytes
    old: str
    new: str
    after: bytes | None


def _row(kind: str, before: str | bytes, old: str, new: str, after: str | bytes | None) -> Row:
    raw = before.encode() if isinstance(before, str) else before
    wanted = after.encode() if isinstance(after, str) else after
    return Row(kind, raw, old, new, wanted)


def _dedent(text: str, by: int) -> str:
    return "".join(line[by:] if line.strip() else line for line in text.splitlines(keepends=True))


def _indent(text: str, blank: str) -> str:
    return "".join(blank + line if line.strip() else line for line in text.splitlines(keepends=True))


def _retab(text: str, step: int, unit: str) -> str:
    """Every step of `step` spaces at the start of a line as `unit`."""
    out = []
    for line in text.splitlines(keepends=True):
        body = line.lstrip(" ")
        out.append(unit * ((len(line) - len(body)) // step) + body)
    return "".join(out)


def _numbered(text: str, first: int, mark: str = "\t") -> str:
    return "".join(f"{n}{mark}{line}" for n, line in enumerate(text.splitlines(keepends=True), first))


def _blanks(text: str, blanks: str) -> str:
    return "".join(line.rstrip("\n") + blanks + "\n" for line in text.splitlines(keepends=True))


DONE = PY.replace(LOOP, SUM)
CRLF, DONE_CRLF = PY.replace("\n", "\r\n"), DONE.replace("\n", "\r\n")
NAMES = "    def names(self):\n        return [item.name for item in self.items]\n"
LABELS = "    def labels(self):\n        return [item.label for item in self.items]\n"
LABELLED = PY.replace(NAMES, LABELS)


def rows() -> list[Row]:
    """The whole table."""
    return [*_exact(), *_line_ends(), *_encodings(), *_trailing(), *_indentation(), *_copied(), *_refusals()]


def _exact() -> list[Row]:
    return [
        _row("exact", PY, LOOP, SUM, DONE),
        _row("exact", PY, NAMES, LABELS, LABELLED),
        _row("exact", PY, "import os", "import sys", PY.replace("import os", "import sys")),
        _row("exact", JS, "a + b", "a + b + 0", JS.replace("a + b", "a + b + 0")),
        _row(
            "exact", PY, "self.items = items", r"self.items = \1", PY.replace("self.items = items", r"self.items = \1")
        ),
        _row("exact", "a $x\n", "$x", "$0 \\g<0>", "a $0 \\g<0>\n"),
    ]


def _line_ends() -> list[Row]:
    mixed = PY.replace("\n", "\r\n").replace("total = 0\r\n", "total = 0\n")
    mixed_done = mixed.replace("item.name", "item.label")
    return [
        _row("line ends", CRLF, LOOP, SUM, DONE_CRLF),
        _row("line ends", CRLF, NAMES, LABELS, LABELLED.replace("\n", "\r\n")),
        _row("line ends", CRLF, "import os\n\n\nclass", "import re\n\n\nclass", CRLF.replace("import os", "import re")),
        _row("line ends", CRLF, "import os", "import os\nimport re", CRLF.replace("os\r\n", "os\r\nimport re\r\n", 1)),
        _row("line ends", PY, LOOP.replace("\n", "\r\n"), SUM.replace("\n", "\r\n"), DONE),
        _row("line ends", JS, "  return a + b;\r\n}", "  return b;\r\n}", JS.replace("a + b", "b")),
        _row("line ends", CRLF, LOOP.replace("\n", "\r\n"), SUM.replace("\n", "\r\n"), DONE_CRLF),
        _row("line ends", mixed, "item.name for", "item.label for", mixed_done),
        _row("line ends", "a\r\nb\nc\r\n", "a\nb\nc\n", "a\nB\nc\n", b"a\r\nB\nc\r\n"),
        _row("line ends", "a\rb\rc\r", "a\nb\n", "a\nB\n", "a\rB\rc\r"),
    ]


def _encodings() -> list[Row]:
    german, chinese = "# Grüße, Maße\nx = 1\ny = 2\n", "# 这个函数用来计算总价\nx = 1\ny = 2\n"
    table = [
        ("latin-1", german),
        ("cp1252", german + "# “so” – nun\n"),
        ("gbk", chinese),
        ("utf-16", german),
        ("utf-8-sig", chinese),
    ]
    found = [
        _row("encoding", text.encode(name), "x = 1\n", "x = 11\n", text.replace("x = 1\n", "x = 11\n").encode(name))
        for name, text in table
    ]
    first = "import a\nb\n".encode("utf-8-sig")
    return [
        *found,
        _row("encoding", german.encode("latin-1"), "Grüße", "Güte", german.replace("Grüße", "Güte").encode("latin-1")),
        _row("encoding", chinese.encode("gbk"), "总价", "单价", chinese.replace("总价", "单价").encode("gbk")),
        _row("encoding", first, "import a\n", "import c\n", first.replace(b"import a", b"import c")),
        _row("encoding", first, "\ufeffimport a", "\ufeffimport c", first.replace(b"import a", b"import c")),
    ]


def _trailing() -> list[Row]:
    loose, loose_done = PY.replace("items:\n", "items:  \n"), DONE.replace("items:\n", "items:  \n")
    gap, gap_done = (
        PY.replace("\n\n    def n", "\n    \n    def n"),
        LABELLED.replace("\n\n    def l", "\n    \n    def l"),
    )
    end = "        return total\n\n"
    sub = "export function sub(a, b) {\n  return a - b;\n"
    other = "export const sub = 1;\n"
    return [
        _row("trailing blanks", PY, _blanks(LOOP, "  "), SUM, DONE),
        _row("trailing blanks", PY, _blanks(LOOP, "\t"), SUM, DONE),
        _row("trailing blanks", loose, LOOP, SUM, loose_done),
        _row("trailing blanks", gap, end + NAMES, end + LABELS, gap_done),
        _row("trailing blanks", JS, _blanks(sub, " "), sub.replace("a -", "b -"), JS.replace("a - b", "b - b")),
        _row("final newline", PY.rstrip("\n"), NAMES, LABELS, LABELLED.rstrip("\n")),
        _row("final newline", "a\nb", "a\nb\n", "a\nc\n", "a\nc"),
        _row("blank lines around", PY, f"\n\n{NAMES}\n\n", f"\n\n{LABELS}\n\n", LABELLED),
        _row("blank lines around", JS, f"\n{sub}}}\n\n\n", f"\n{other}\n\n", JS.replace(sub + "}\n", other)),
    ]


def _indentation() -> list[Row]:
    body = "\tif x {\n\t\treturn 1\n\t}\n"
    deeper = "\tif x {\n\t\tif y {\n\t\t\treturn 3\n\t\t}\n\t\treturn 1\n\t}\n"
    tabbed, tabbed_done = _retab(PY, 4, "\t"), _retab(DONE, 4, "\t")
    two, two_done = _retab(PY, 4, "  "), _retab(DONE, 4, "  ")
    spaces, spaces_deeper = body.replace("\t", "    "), deeper.replace("\t", "    ")
    items, more = "  <li>one</li>\n  <li>two</li>\n", "  <li>one</li>\n  <li>1.5</li>\n  <li>two</li>\n"
    return [
        _row("indentation lost", PY, _dedent(LOOP, 8), _dedent(SUM, 8), DONE),
        _row("indentation lost", PY, _dedent(LOOP, 4), _dedent(SUM, 4), DONE),
        _row("indentation lost", PY, _dedent(NAMES, 4), _dedent(LABELS, 4), LABELLED),
        _row("indentation lost", GO, _dedent(body, 1), _dedent(deeper, 1), GO.replace(body, deeper)),
        _row("indentation lost", HTML, _dedent(items, 2), _dedent(more, 2), HTML.replace(items, more)),
        _row("indentation lost", CRLF, _dedent(LOOP, 8), _dedent(SUM, 8), DONE_CRLF),
        _row("indented too far", PY, _indent(LOOP, "    "), _indent(SUM, "    "), DONE),
        _row("indented too far", PY, _indent(NAMES, "  "), _indent(LABELS, "  "), LABELLED),
        _row("indented too far", GO, _indent(body, "\t"), _indent(deeper, "\t"), GO.replace(body, deeper)),
        _row(
            "indented too far", JS, "    return a - b;\n  }\n", "    return b - a;\n  }\n", JS.replace("a - b", "b - a")
        ),
        _row("spaces for tabs", GO, spaces, spaces_deeper, GO.replace(body, deeper)),
        _row("spaces for tabs", GO, _dedent(spaces, 4), _dedent(spaces_deeper, 4), GO.replace(body, deeper)),
        _row("spaces for tabs", GO, body.replace("\t", "  "), deeper.replace("\t", "  "), GO.replace(body, deeper)),
        _row("spaces for tabs", tabbed, LOOP, SUM, tabbed_done),
        _row("spaces for tabs", tabbed, _dedent(LOOP, 8), _dedent(SUM, 8), tabbed_done),
        _row("tabs for spaces", PY, _retab(LOOP, 4, "\t"), _retab(SUM, 4, "\t"), DONE),
        _row("tabs for spaces", two, _retab(LOOP, 4, "\t"), _retab(SUM, 4, "\t"), two_done),
        _row("another step", two, LOOP, SUM, two_done),
        _row("another step", PY, _retab(LOOP, 4, "  "), _retab(SUM, 4, "  "), DONE),
        _row("first line only", PY, LOOP.lstrip(), SUM.lstrip(), DONE),
    ]


def _copied() -> list[Row]:
    return [
        _row("line numbers", PY, _numbered(LOOP, 10), _numbered(SUM, 10), DONE),
        _row("line numbers", PY, _numbered(LOOP, 10), SUM, DONE),
        _row("line numbers", PY, _numbered(LOOP, 10, "→"), SUM, DONE),
        _row("line numbers", PY, _numbered(NAMES, 14).rstrip("\n"), LABELS.rstrip("\n"), LABELLED),
        _row("line numbers", CRLF, _numbered(LOOP, 10), SUM, DONE_CRLF),
    ]


def _refusals() -> list[Row]:
    twice = "def a():\n    x = 1\n    return x\n\ndef b():\n    x = 1\n    return x\n"
    return [
        _row("ambiguous", twice, "    x = 1\n    return x\n", "    return 1\n", None),
        _row("ambiguous", twice, "x = 1\nreturn x\n", "return 1\n", None),
        _row("ambiguous", "aaa\n", "aa", "b", None),
        _row("not there", PY, "total += item.cost", "total += 1", None),
        _row("not there", PY, LOOP.replace("price", "prize"), SUM, None),
        _row("looks alike", "say “hi”\n", 'say "hi"', 'say "ho"', None),
        _row("empty", "abc\n", "", "X", None),
        _row("same", PY, "import os", "import os", None),
        _row("binary", b"abc\0def", "abc", "x", None),
        _row("cannot be kept", "x = 1 # é\n".encode("latin-1"), "x = 1", "x = '→'", None),
    ]
