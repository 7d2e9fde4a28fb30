"""The inside of Markdown blocks as styled pieces: emphasis, code, links, and tables made of them.

The inline rules are those of markdown-it, with what it would drop put back: the address of a link or an image stands
behind its words, and HTML is text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import TYPE_CHECKING

from .layout import Line, Piece, cells, width, wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

FULL = 60  # columns from which a line counts as one that its writer broke because it was full

_SPECIAL = re.compile(r"[\\`*_~<&]|\]\(")
_STYLES = {"em_open": "italic", "strong_open": "bold", "s_open": "strike", "link_open": "underline"}
_BAR = re.compile(r"\\.|`+[^`]*`+|(\|)")
_BARE_BAR = re.compile(r"\\.|(\|)")
_LEAST = 6  # columns that a cell needs to be readable


@cache
def _parser(links: bool) -> MarkdownIt:
    """The rules; without those for links many brackets cost little."""
    from markdown_it import MarkdownIt  # 30 ms, only with the first words of a model that need it

    parser = MarkdownIt("js-default")
    parser.normalizeLink = str  # type: ignore[assignment] # an address is shown as it was written
    return parser if links else parser.disable(["link", "image"])


def joined(lines: Sequence[str]) -> str:
    """The lines of a paragraph as one text, in which a newline is a break to keep.

    Markdown gives a single newline no meaning, but models mean one by it; so only a line that was full is joined.
    """
    out = []
    for line, after in zip_longest(lines, lines[1:]):
        full = cells(line) >= FULL and not line.endswith(("  ", "\\"))
        out.append(line.rstrip() + ("" if after is None else " " if full else "\n"))
    return "".join(out)


def inline(text: str, style: str = "") -> Line:
    """The pieces of `text`, in which `\\n` is a break; everything in `style`, and in what its marks say."""
    if not _SPECIAL.search(text):
        return [(text, style)]
    out: Line = []
    styles = [style]
    links: list[tuple[str, int]] = []
    for token in _parser("](" in text).parseInline(text)[0].children or []:
        if token.type in _STYLES:
            styles.append(f"{styles[-1]} {_STYLES[token.type]}".strip())
            links += [(_address(token, "href"), len(out))] if token.type == "link_open" else []
        elif token.type.endswith("_close"):
            styles.pop()
            if token.type == "link_close":
                address, start = links.pop()
                out += _behind(address, "".join(words for words, _ in out[start:]), style)
        elif token.type in ("softbreak", "hardbreak"):
            out.append(("\n", ""))
        elif token.type == "image":
            out.append((token.content, styles[-1]))
            out += _behind(_address(token, "src"), token.content, style)
        else:
            out.append((token.content, f"{styles[-1]} cyan".strip() if token.type == "code_inline" else styles[-1]))
    return out


def _address(token: Token, name: str) -> str:
    """Where a link leads, and its title."""
    title = token.attrGet("title")
    return f"{token.attrGet(name) or ''}{f' {title}' if title else ''}".strip()


def _behind(address: str, words: str, style: str) -> list[Piece]:
    """The address behind the words of a link, unless they are the same."""
    if not address or address in (words, f"mailto:{words}", f"http://{words}"):
        return []
    return [(f" ({address})" if words else address, f"{style} dim".strip())]


def row_cells(row: str, count: int = 0) -> list[str]:
    """The cells of a table's line; a bar within code separates none, unless only so there are `count` cells."""
    row = row.strip().removeprefix("|")
    found = _split(row, _BAR)
    return found if not count or len(found) == count else _split(row, _BARE_BAR)


def _split(row: str, bar: re.Pattern[str]) -> list[str]:
    ends = [match.start() for match in bar.finditer(row) if match[1]]
    starts = [0, *(end + 1 for end in ends)]
    found = [row[start:end].strip().replace("\\|", "|") for start, end in zip(starts, [*ends, len(row)], strict=True)]
    return found if found[-1] or len(found) == 1 else found[:-1]


class Table:
    """A table whose rows may come in several parts, all with the columns of the first."""

    def __init__(self, header: str, delimiter: str) -> None:
        self._header = row_cells(header)
        self._align = [(cell.startswith(":"), cell.endswith(":")) for cell in row_cells(delimiter)]
        self._widths: list[int] | None = None
        self._records = 0  # shown so far, where it has no columns

    def part(self, rows: Sequence[str], room: int) -> list[Line]:
        """The lines of some rows, behind those of the header if they are the first."""
        body = [[inline(text) for text in row_cells(row, len(self._header))] for row in rows]
        shown: list[list[Line]] = []
        if self._widths is None:
            head = [inline(text, "bold") for text in self._header]
            self._widths = _fitted([head, *body], room)
            shown += [self._row(head)] if self._widths else []
        if not self._widths:
            return [line for row in body for line in self._record(row, room)]
        shown += map(self._row, body)
        rule: Line = [("─┼─".join("─" * size for size in self._widths), "dim")]
        apart = any(len(lines) > 1 for lines in shown)
        out: list[Line] = []
        for at, lines in enumerate(shown):
            out += (
                [*lines, rule] if (apart or (at == 0 and len(shown) > len(body))) and lines is not shown[-1] else lines
            )
        return out if body else [*out, rule]

    def _row(self, row: Sequence[Line]) -> list[Line]:
        """The lines of one row; cells beyond the last column go into it."""
        assert self._widths
        last = len(self._widths) - 1
        cells_: list[Line] = [list(cell) for cell in row[: last + 1]] + [[] for _ in range(last + 1 - len(row))]
        for cell in row[last + 1 :]:
            cells_[last] += [(" | ", "dim"), *cell]
        columns = [wrap(cell, size, fold=True) for cell, size in zip(cells_, self._widths, strict=True)]
        lines = []
        for parts in zip_longest(*columns, fillvalue=[]):
            line: Line = []
            for at, (part, size) in enumerate(zip(parts, self._widths, strict=True)):
                left, right = self._align[at] if at < len(self._align) else (True, False)
                space = max(0, size - width(part))
                before = 0 if not right else space // 2 if left else space
                line += [(" │ ", "dim")] if at else []
                line += [(" " * before, ""), *part, (" " * (space - before), "")]
            lines.append(line)
        return lines

    def _record(self, row: Sequence[Line], room: int) -> list[Line]:
        """A row of a table that is too wide for the terminal: a line for each cell, behind the name of its column."""
        lines: list[Line] = [[]] if self._records else []
        self._records += 1
        for name, cell in zip_longest(self._header, row, fillvalue=None):
            words = [*inline(f"{name}: " if name else "", "bold"), *(cell or [])]
            lines += wrap(words, room)
        return lines


def _fitted(rows: Sequence[Sequence[Line]], room: int) -> list[int]:
    """The width of each column: what its cells need, or less where the widest must give way; [] if none would do."""
    widths = [max(map(width, column)) for column in zip_longest(*rows, fillvalue=[])]
    left = room - 3 * (len(widths) - 1)
    if sum(widths) <= left:
        return [max(size, 1) for size in widths]
    most = max(widths)
    while sum(min(size, most) for size in widths) > left and most >= _LEAST:
        most -= 1
    return [max(1, min(size, most)) for size in widths] if most >= _LEAST else []
