"""What a session needs of the person's side, and its plain form: lines read, lines written.

`Ui` has two forms. `editor.Editor` keeps a line alive at the bottom of a terminal; `Plain`, here, is for terminals that
cannot move a cursor (TERM=dumb) and for output that goes elsewhere. Its price: nothing can be typed while the agent
works.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from .terminal import Screen, Signals
from .values import dataclass

if TYPE_CHECKING:
    from .render import Live

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment] # the absence is what is tested below

PROMPT = "› "
AGAIN = "Ctrl+C again or Ctrl+D leaves"
KEYS = """\
Enter sends; Alt+Enter, Ctrl+J or \\ at the end starts a new line. While the
agent works, Enter queues words for it, and Esc or Ctrl+C stops it.
/ completes commands and @ paths; !command runs a command of yours.
Shift+Tab changes the mode, Ctrl+O shows what was folded, Ctrl+R searches what
you typed, Ctrl+X Ctrl+E opens your editor. Ctrl+D, or Ctrl+C twice, leaves."""
WORDS = "words"  # the choice to answer in words


@dataclass(frozen=True)
class Turn:
    """What may be done while something runs: stop it, pass on a line that was entered ("" if it was taken, else why
    not), and say in a few words what is going on."""

    cancel: Callable[[], None]
    take: Callable[[str], str]
    words: Callable[[], str]


class Ui(Protocol):
    """Where lines and answers come from. `live` is the place below what is printed, if there is one."""

    live: Live | None

    def read(self) -> str:
        """The next line. Raises EOFError once the person leaves."""

    def working(self, turn: Turn) -> AbstractContextManager[None]:
        """While the block runs, the person may do what `turn` offers."""

    def choose(self, words: str, keys: Mapping[str, str]) -> str:
        """The value of the key that was pressed, where "" is Enter; where `keys` has WORDS among its values, other
        words may come back. Raises KeyboardInterrupt for a person who does not answer."""

    def line(self, words: str, text: str = "") -> str:
        """A line, `text` to begin with. Raises KeyboardInterrupt likewise."""

    def pick(self, title: str, rows: Sequence[str]) -> int | None:
        """The number of the row that was chosen, from 0; None if none was."""

    def give_back(self, text: str) -> None:
        """Puts words into the line that is entered next."""

    def leave(self) -> None:
        """Ends what runs and what waits; `read` raises EOFError from then on."""


class Plain:
    """Reads plain lines from standard input on the thread that calls."""

    live: Live | None = None

    def __init__(self, screen: Screen, signals: Signals) -> None:
        self._screen = screen
        self._signals = signals
        self._leaving = False
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")

    def read(self) -> str:
        """The next line; Ctrl+C twice leaves."""
        for words in (f"({AGAIN})", ""):
            if self._leaving:
                break
            try:
                return self._input(PROMPT)
            except KeyboardInterrupt:
                self._screen.line(words, "dim")
        raise EOFError

    @contextlib.contextmanager
    def working(self, turn: Turn) -> Iterator[None]:
        """A signal cancels what runs; SIGTERM and SIGHUP leave afterwards."""
        with self._signals.cancelling(turn.cancel):
            yield
        if self._signals.caught == 2:
            self._signals.caught = None
        elif self._signals.caught is not None:
            self._leaving = True

    def choose(self, words: str, keys: Mapping[str, str]) -> str:
        """A line: a key, a choice in full, or words."""
        if termios is not None:  # what was typed before the question is no answer
            with contextlib.suppress(termios.error, OSError, ValueError):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        answer = self.line(words).strip()
        for key, value in keys.items():
            if answer.lower() in (key, value):
                return value
        return answer if WORDS in keys.values() else keys[""]

    def line(self, words: str, text: str = "") -> str:
        """The next line; there is no way to begin with `text`, so it is shown."""
        try:
            with self._signals.raising():
                return self._input(f"{text}\n{words} {PROMPT}" if text else f"{words} {PROMPT}")
        except EOFError:
            return ""
        except SystemExit as stop:
            self._signals.caught = int(str(stop.code)) - 128
            self._leaving = True
            raise KeyboardInterrupt from None

    def pick(self, title: str, rows: Sequence[str]) -> int | None:
        """Shows numbered rows and reads a number."""
        for number, row in enumerate(rows, 1):
            self._screen.line(f"  {number:>3}  {row}")
        with contextlib.suppress(KeyboardInterrupt):
            answer = self.line(f"{title} (a number, or nothing)").strip()
            if answer.isascii() and answer.isdecimal() and 0 < int(answer) <= len(rows):
                return int(answer) - 1
        return None

    def give_back(self, text: str) -> None:
        """Shows the words, which must be typed again."""
        self._screen.prose(f"not sent: {text}", "yellow")

    def leave(self) -> None:
        """The next read is the end."""
        self._leaving = True

    def _input(self, words: str) -> str:
        self._screen.fresh_line()
        self._screen.write(words)
        line = sys.stdin.readline()
        if not line:
            self._screen.line()
            raise EOFError
        return line.rstrip("\n")
