"""The words of the model, shown while they come: raw, or in whole blocks with the one under way in a place below.

Raw is for terminals that cannot redraw: what was written stays as it is. In blocks, text is Markdown, and of reasoning
one line stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from .folds import UNFOLD, Folded
from .markdown import TAIL, MarkdownStream
from .terminal import Screen
from .text import plural, printable


class Speech(Protocol):
    """Where the deltas of a message go."""

    def text(self, text: str) -> None:
        """A piece of the answer."""

    def reasoning(self, text: str) -> None:
        """A piece of the reasoning."""

    def end(self) -> None:
        """The message is whole, or starts again."""

    @property
    def pending(self) -> str:
        """The end of what was said and is not shown yet."""


class RawSpeech:
    """Writes everything as it comes, reasoning dimmed and on lines of its own. `apart` is called before words."""

    pending = ""

    def __init__(self, screen: Screen, apart: Callable[[], None]) -> None:
        self._screen = screen
        self._apart = apart
        self._reasoning = False

    def text(self, text: str) -> None:
        """Writes a piece of the answer."""
        self._write(text, reasoning=False)

    def reasoning(self, text: str) -> None:
        """Writes a piece of the reasoning."""
        self._write(text, reasoning=True)

    def _write(self, text: str, *, reasoning: bool) -> None:
        if reasoning != self._reasoning:
            self._screen.fresh_line()
            self._reasoning = reasoning
        self._apart()
        self._screen.write(text, "dim" if reasoning else "")

    def end(self) -> None:
        """Ends the line."""
        self._screen.fresh_line()
        self._reasoning = False


class BlockSpeech:
    """Prints blocks of Markdown as they become whole; `keep` is given the reasoning when it is folded."""

    def __init__(self, screen: Screen, apart: Callable[[], None], keep: Callable[[Folded], None]) -> None:
        self._screen = screen
        self._apart = apart
        self._keep = keep
        self._markdown = MarkdownStream(screen)
        self._thoughts: list[str] = []
        self._since = 0.0
        self._begun = False

    def text(self, text: str) -> None:
        """Takes in a piece of the answer, which ends the reasoning before it."""
        if not self._begun and not text.strip():
            return
        if not self._begun:
            self._begun = True
            if self._fold():
                self._screen.line()
            self._apart()
        self._markdown.feed(text)

    def reasoning(self, text: str) -> None:
        """Takes in a piece of the reasoning, which ends the answer before it."""
        self._finish()
        if not self._thoughts:
            self._since = time.monotonic()
        self._thoughts.append(text)

    def end(self) -> None:
        """Shows what is left."""
        self._fold()
        self._finish()

    @property
    def pending(self) -> str:
        """The block under way, or the end of the reasoning."""
        if self._begun:
            return self._markdown.pending
        return printable("".join(self._thoughts[-TAIL:])[-TAIL:]).strip()

    def _finish(self) -> None:
        if self._begun:
            self._markdown.finish()
            self._begun = False

    def _fold(self) -> bool:
        """Leaves one line of the reasoning; False if there was none."""
        text = "".join(self._thoughts).strip()
        self._thoughts.clear()
        if not text:
            return False
        seconds = time.monotonic() - self._since
        took = f"thought for {seconds:.0f} s" if seconds >= 1 else "thought briefly"
        count = text.count("\n") + 1
        self._apart()
        self._screen.line(
            f"{took} ({plural(count, 'line')}{UNFOLD if count > 1 else UNFOLD.replace('them', 'it')})", "dim"
        )
        self._keep(Folded([("● ", "dim"), (took, "bold")], text, "prose"))
        return True
