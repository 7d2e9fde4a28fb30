"""Markdown that is shown block by block while it still comes, by appending only.

The lines of a block are kept until it is whole: a paragraph, a table, a stretch of code. Lists and quotes are only
margins around such blocks, so their items come out one by one, and nothing has to wait for the end of a long list.
What is shown depends on the lines alone, never on the pieces in which they arrived. The price of looking at each line
once: some rare forms of CommonMark (reference links, HTML blocks) stay the text that they are.

Every character of a model is shown except for marks, and no mark is taken for one that would hide words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .highlight import Code
from .inline import Table, inline, joined
from .layout import Line, Piece, wrap
from .terminal import Screen
from .text import printable
from .values import dataclass

LIMIT = 4_000  # characters of a line or a paragraph that are kept back at most
ROWS = 100  # of a table, for the widths of its columns
TAIL = 2_000  # characters of the block under way that may be asked for

_QUOTE = re.compile(r" {0,3}> ?")
_ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])(?: +|$)")
_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_HEADING = re.compile(r" {0,3}(#{1,6})(?: +(.*?))?(?: +#+)? *$")
_RULE = re.compile(r" {0,3}([-*_])(?: *\1){2,} *$")
_UNDERLINE = re.compile(r" {0,3}(=+|-+) *$")
_DELIMITER = re.compile(r" {0,3}(?=.*\|)\|? *:?-+:? *(?:\| *:?-+:? *)*\|? *$")
_HEADINGS = ("bold underline", "bold", "bold")


@dataclass
class _Margin:
    """A quote or a list item: what stands before its lines, and how the text says that they belong to it."""

    marker: str  # "│ " for a quote, which has it on every line
    quote: bool = True
    at: int = 0  # of an item: where its marker stands, and how far its lines are indented
    content: int = 0
    fresh: bool = True  # nothing of it was shown yet

    def piece(self) -> Piece:
        """What stands before the next line within."""
        if self.quote:
            self.fresh = False
            return self.marker, "dim"
        text, self.fresh = self.marker if self.fresh else " " * len(self.marker), False
        return text, "cyan"


class MarkdownStream:
    """Shows Markdown on a Screen as it arrives; `finish` ends it, and another text may follow."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._tail: list[str] = []  # of the line that is not whole yet
        self._size = 0
        self._reset()

    def _reset(self) -> None:
        self._margins: list[_Margin] = []
        self._paragraph: list[str] = []
        self._table: Table | None = None
        self._rows: list[str] = []
        self._code: Code | None = None
        self._fence = re.compile("")
        self._indent = 0  # of the fence
        self._shift = 0  # of an item that is not indented far enough, against where its line would begin
        self._blank = False  # an empty line is due before the next block
        self._any = False  # something was shown
        self._kept = 0

    @property
    def pending(self) -> str:
        """The text of the block under way, at least the end of it."""
        marker = "".join(each.marker for each in self._margins if each.fresh and self._paragraph)
        lines = [*(self._code.waiting if self._code else ()), *self._paragraph, *self._rows]
        tail = "".join(self._tail[-TAIL:])
        return printable(marker + "\n".join([*lines[-TAIL // 10 :], tail])[-TAIL:]).strip("\n")

    def feed(self, text: str) -> None:
        """Takes in the next piece of the text, of any length."""
        first, *more = text.split("\n")
        self._extend(first)
        for part in more:
            self._end_line()
            self._extend(part)

    def finish(self) -> None:
        """Shows what is left; the text is at its end."""
        if self._size:
            self._end_line()
        self._close(0)
        self._reset()

    def _extend(self, part: str) -> None:
        """Adds to the line under way; one too long is taken for several, cut at a space if there is one."""
        self._tail.append(part)
        self._size += len(part)
        while self._size > LIMIT:
            line = "".join(self._tail)
            at = line.rfind(" ", LIMIT // 2, LIMIT)
            at = at if at > 0 else LIMIT
            self._take(line[:at])
            self._tail, self._size = [line[at:]], self._size - at

    def _end_line(self) -> None:
        line = "".join(self._tail)
        self._tail, self._size = [], 0
        self._take(line)

    def _take(self, raw: str) -> None:
        for line in printable(f"{raw}\n").split("\n")[:-1]:
            self._line(line.expandtabs(4).rstrip("\n"))

    def _line(self, line: str) -> None:
        """One line: where it belongs, which margins begin in it, and what its text continues or begins."""
        if self._code is not None and self._coded(self._code, line):
            return
        rest, depth = self._within(line)
        blank = not rest.strip()
        if depth < len(self._margins):
            if self._paragraph and not blank and not self._begins(rest, self._margins[depth]):
                self._paragraph.append(rest.lstrip())  # CommonMark: a lazy continuation line
                return
            self._close(depth)
        if blank:
            self._end()
            self._blank = self._any
            return
        self._block(self._opened(rest))

    def _within(self, line: str) -> tuple[str, int]:
        """What is left of `line` behind the margins that it continues, and how many those are."""
        self._shift = 0
        for depth, margin in enumerate(self._margins):
            indent = len(line) - len(line.lstrip())
            if margin.quote:
                mark = _QUOTE.match(line)
                if mark is None:
                    return line, depth
                line = line[mark.end() :]
            elif indent >= margin.content:
                line = line[margin.content :]
            elif indent > margin.at + 1 and _ITEM.match(line):
                # An item not indented far enough for CommonMark, as models write them.
                line, self._shift = line.lstrip(), indent - margin.content
            elif indent < len(line):
                return line, depth
        return line, len(self._margins)

    def _begins(self, rest: str, margin: _Margin) -> bool:
        """Whether a line outside `margin` ends the paragraph within; the next item of a list always does."""
        item = _ITEM.match(rest)
        if item is not None and (not margin.quote or self._begins_item(item, rest)):
            return True
        return any(each.match(rest) for each in (_QUOTE, _FENCE, _HEADING, _RULE))

    def _begins_item(self, item: re.Match[str], rest: str) -> bool:
        """Whether a line that looks like an item is one. CommonMark: into a paragraph only a first one can break."""
        if len(item[1]) > 3 and not self._margins:
            return False
        first = item[2] in ("-", "*", "+", "1.", "1)") and item.end() < len(rest)
        return first or not self._paragraph

    def _opened(self, rest: str) -> str:
        """What is left of a line behind the quotes and list items that begin in it."""
        while True:
            item = None if _RULE.match(rest) else _ITEM.match(rest)
            if quote := _QUOTE.match(rest):
                self._end()
                self._margins.append(_Margin("│ "))
                rest = rest[quote.end() :]
            elif item is None or not self._begins_item(item, rest):
                return rest
            else:
                self._end()
                content = item.end() if item.end() < len(rest) and item.end() - item.end(2) < 5 else item.end(2) + 1
                marker = f"{item[2] if item[2][0].isdigit() else '•'} "
                self._margins.append(_Margin(marker, False, len(item[1]) + self._shift, content + self._shift))
                rest, self._shift = rest[content:], 0
                if not rest:
                    return ""

    def _block(self, rest: str) -> None:
        """Text within its margins, which continues a block or begins one."""
        if self._continued(rest) or not rest:
            return
        indent = len(rest) - len(rest.lstrip())
        heading = _HEADING.match(rest)
        if fence := _FENCE.match(rest):
            self._end()
            self._code, self._indent = Code(fence[3]), len(fence[1])
            self._fence = re.compile(rf" {{0,3}}{fence[2][0]}{{{len(fence[2])},}} *$")
            self._show([[(f"╭─ {fence[3].strip()}", "dim")]])
        elif heading:
            self._end()
            self._headed(len(heading[1]), heading[2] or "")
        elif _RULE.match(rest):
            self._end()
            self._show([[("─" * min(40, self._room), "dim")]])
        elif indent >= 4 and not self._paragraph:
            self._show([[(rest, "")]])
        else:
            self._paragraph.append(rest.lstrip())
            self._kept += len(rest)
            if self._kept > LIMIT:
                self._end()

    def _continued(self, rest: str) -> bool:
        """Whether a line belongs to the table or, as the line under it, to the paragraph under way."""
        if self._table is not None:
            if "|" in rest:
                self._rows.append(rest)
                self._kept += len(rest)
                if len(self._rows) >= ROWS or self._kept > LIMIT:
                    self._tabled(self._table)
                return True
            self._end()
        elif self._paragraph and _DELIMITER.match(rest) and "|" in self._paragraph[-1]:
            header = self._paragraph.pop()
            self._end()
            self._table = Table(header, rest)
            return True
        elif self._paragraph and (underline := _UNDERLINE.match(rest)):
            text, self._paragraph = joined(self._paragraph), []
            self._headed(1 if underline[1][0] == "=" else 2, text)
            return True
        return False

    def _headed(self, level: int, text: str) -> None:
        self._blank = self._any
        self._show(wrap(inline(text, _HEADINGS[min(level, len(_HEADINGS)) - 1]), self._room))

    def _coded(self, code: Code, line: str) -> bool:
        """Whether a line belongs to the code under way. Within list items its indentation does not matter much."""
        for margin in self._margins:
            quote = _QUOTE.match(line)
            if margin.quote and quote is None:
                return False
            least = min(len(line) - len(line.lstrip()), margin.content)
            line = line[quote.end() if margin.quote and quote else least :]
        if self._fence.match(line):
            self._end()
        else:
            self._show(code.add(line[min(len(line) - len(line.lstrip()), self._indent) :]))
        return True

    def _tabled(self, table: Table) -> None:
        rows, self._rows, self._kept = self._rows, [], 0
        self._show(table.part(rows, self._room))

    def _end(self) -> None:
        """Shows the block under way, if there is one: its end has come."""
        if self._code is not None:
            self._show([*self._code.finish(), [("╰─", "dim")]])
            self._code = None
        if self._table is not None:
            self._tabled(self._table)
            self._table = None
        if self._paragraph:
            text, self._paragraph = joined(self._paragraph), []
            self._show(wrap(inline(text), self._room))
        self._kept = 0

    def _close(self, depth: int) -> None:
        """Ends the margins from `depth` on and what stands in them."""
        self._end()
        for margin in self._margins[depth:]:
            if margin.fresh and not margin.quote:
                self._show([[]])
        del self._margins[depth:]

    @property
    def _room(self) -> int:
        return max(20, self._screen.width - 1 - sum(len(each.marker) for each in self._margins))

    def _show(self, lines: Iterable[Line]) -> None:
        """Appends lines within their margins, behind the empty line that is due."""
        out: list[Line] = []
        for line in lines:
            if self._blank:
                out.append([each.piece() for each in self._margins if not each.fresh])
                self._blank = False
            out.append([*(each.piece() for each in self._margins), *line])
            self._any = True
        self._screen.lines(out)
