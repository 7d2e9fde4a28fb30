"""The stream that ends above a live input line: what is written waits there until it is drawn."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

BATCH = 16_384  # characters printed in one update, so that keys are seen between two
FULL = 8 * BATCH  # characters that may wait to be printed before whoever prints has to wait


class Above:
    """The stream that prints above the input line; for a `Screen`. May be written to from any thread."""

    def __init__(self, wake: Callable[[], None], encoding: str) -> None:
        self.encoding = encoding
        self.closed = False
        self._wake = wake
        self._text = ""
        self._room = threading.Condition()
        self._drawing = threading.current_thread()

    def isatty(self) -> bool:
        """It is a terminal: nothing else has an editor."""
        return True

    def write(self, text: str) -> int:
        """Takes `text`; waits while too much has not been printed yet, unless it is the drawing thread that writes."""
        with self._room:
            while len(self._text) > FULL and not self.closed and threading.current_thread() is not self._drawing:
                self._room.wait()
            self._text += text
        self._wake()
        return len(text)

    def flush(self) -> None:
        """Does nothing: what is whole is printed soon anyway."""

    def fileno(self) -> int:
        """That of standard output."""
        return sys.stdout.fileno()

    def take(self, *, all_of_it: bool = False) -> str:
        """Whole lines that wait to be printed, not too many; at the end everything."""
        with self._room:
            end = self._text.rfind("\n", 0, BATCH) + 1 or self._text.find("\n") + 1
            end = len(self._text) if all_of_it else end
            taken, self._text = self._text[:end], self._text[end:]
            self._room.notify_all()
        return taken
