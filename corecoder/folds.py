"""Long results: their ends are shown with how much is hidden, and the whole is kept to be shown on demand."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Literal

from .diffview import diff_rows, diff_view
from .layout import Line, clip, wrap
from .terminal import Screen
from .text import plural, printable
from .values import dataclass

HEAD_LINES, TAIL_LINES = 3, 7  # of a folded output
DIFF_LINES = 40
KEPT = 20  # texts
UNFOLD = ", Ctrl+O shows them"
# A result that says itself how the call ended, and after how long.
ENDING = re.compile(
    r"^(?:Not run: |\[(?:exit code|killed by|cancelled after|timed out after|interrupted by) )", re.MULTILINE
)


@dataclass(frozen=True)
class Folded:
    """A text under the line that it belongs to."""

    head: Line
    text: str
    kind: Literal["output", "diff", "prose"]


class Folds:
    """Shows texts in part on a Screen. The whole of the last ones is kept if they `unfold`, the newest on top."""

    def __init__(self, screen: Screen, *, unfold: bool) -> None:
        self._screen = screen
        self._unfold = unfold
        self._kept: deque[Folded] = deque(maxlen=KEPT)
        self._next = -1

    @property
    def room(self) -> int:
        """The columns for text within the margin of two."""
        return max(20, self._screen.width - 3)

    def indent(self, lines: Iterable[Line]) -> None:
        """Prints lines behind that margin."""
        self._screen.lines([("  ", ""), *line] for line in lines)

    def output(self, head: Line, text: str, style: str) -> None:
        """The result of a call: all of it if it is short, else its ends."""
        lines = printable(text).strip("\n").splitlines()
        hidden = len(lines) - HEAD_LINES - TAIL_LINES
        shown = lines if hidden <= 1 else [*lines[:HEAD_LINES], self._hidden(hidden, ""), *lines[-TAIL_LINES:]]
        clipped = [clip(line, self.room) for line in shown]
        bad = [bool(ENDING.match(line)) and not line.startswith("[exit code 0") for line in clipped]
        self.indent([(line, "yellow" if odd else style)] for line, odd in zip(clipped, bad, strict=True))
        if clipped != lines:
            self.keep(Folded(head, text, "output"))

    def diff(self, head: Line, text: str) -> None:
        """The diff in the result of an edit, as far as it is not too long."""
        lines = diff_view(diff_rows(text), self.room)
        self.indent(lines[:DIFF_LINES])
        if len(lines) > DIFF_LINES:
            self._screen.line(f"  {self._hidden(len(lines) - DIFF_LINES, ' of the diff')}", "dim")
            self.keep(Folded(head, text, "diff"))

    def _hidden(self, count: int, what: str) -> str:
        return f"… {plural(count, 'line')}{what} hidden{UNFOLD if self._unfold else ''} …"

    def keep(self, folded: Folded) -> None:
        """Puts a text on top, which is the next to be shown then."""
        if self._unfold:
            self._kept.append(folded)
            self._next = -1

    def show(self) -> None:
        """Prints the next one whole; the one before it comes next, and after the oldest the newest again."""
        if not self._kept:
            return self._screen.line("nothing is hidden", "dim")
        folded = self._kept[self._next]
        self._next = self._next - 1 if len(self._kept) + self._next > 0 else -1
        if folded.kind == "diff":
            lines = diff_view(diff_rows(folded.text), self.room, whole=True)
        elif folded.kind == "prose":
            lines = wrap([(printable(folded.text).strip("\n"), "dim")], self.room)
        else:
            lines = [[(line.expandtabs(4), "")] for line in printable(folded.text).strip("\n").splitlines()]
        self._screen.lines([folded.head])
        return self.indent(lines)
