"""What the process has to do with its terminal: safe output, the three standard descriptors, signals.

Everything that is written passes `printable`, so no byte of a model, a tool or a file can move the cursor or touch the
clipboard; colour goes to terminals only; a reader that went away silences a stream instead of ending the turn. A
signal does nothing but put a request into the agent's queue while a turn runs, and ends the program when none does.

Styles are a handful of SGR codes written by hand: a one-shot run then starts without loading a terminal library.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Protocol

from .text import printable

_SGR = {"dim": "2", "bold": "1", "italic": "3", "underline": "4", "reverse": "7", "strike": "9"}
_SGR |= {"red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36"}
_ASCII = str.maketrans(
    {"●": "*", "↳": ">", "…": "...", "✓": "x", "→": "->", "·": "-", "›": ">", "•": "-"}
    | {"│": "|", "─": "-", "┼": "+", "╭": "+", "╰": "+", "⋮": ":"}
)
STUCK = 1.0  # seconds after a first signal from which a second one no longer waits for the turn to end


class Stream(Protocol):
    """What a Screen writes to: a text file, or the place above a live input line."""

    @property
    def closed(self) -> bool: ...
    def isatty(self) -> bool: ...
    def write(self, text: str, /) -> int: ...
    def flush(self) -> None: ...
    def fileno(self) -> int: ...


class Screen:
    """One output stream. `failed` is the OSError that ended it, None while it can be written to.

    `None` for the stream (a closed descriptor at start) makes a Screen that has failed already.
    """

    def __init__(self, stream: Stream | None, environ: Mapping[str, str] | None = None) -> None:
        environ = os.environ if environ is None else environ
        self._stream = stream
        self.failed: OSError | None = None if stream is not None else OSError("it is closed")
        self.terminal = stream is not None and not stream.closed and stream.isatty()
        self._fresh = True
        plain = environ.get("NO_COLOR") or environ.get("TERM") == "dumb"
        # The old Windows console shows escape sequences as text; Windows Terminal announces itself.
        capable = os.name != "nt" or "WT_SESSION" in environ
        self.colour = self.terminal and capable and not plain
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
        self.ascii = not encoding.startswith("utf")
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    @property
    def width(self) -> int:
        """Columns of the terminal; a generous figure where there is none."""
        return shutil.get_terminal_size((80, 24)).columns if self.terminal else 200

    def write(self, text: str, style: str = "") -> None:
        """Writes `text` without its control characters, in `style` (names from the table, separated by spaces)."""
        text = printable(text)
        if not text:
            return
        self._fresh = text.endswith("\n")
        self._put(self._painted(text, style))

    def line(self, text: str = "", style: str = "") -> None:
        """Writes `text` as lines of their own."""
        self.fresh_line()
        self.write(text, style)
        self._put("\n")
        self._fresh = True

    def lines(self, lines: Iterable[Sequence[tuple[str, str]]]) -> None:
        """Writes lines, each made of (text, style) pieces, all in one go; spaces at the end of a line fall away."""
        out = []
        for line in lines:
            pieces = [(printable(text).replace("\n", " "), style) for text, style in line]
            while pieces and not pieces[-1][0].rstrip(" "):
                pieces.pop()
            if pieces:
                pieces[-1] = (pieces[-1][0].rstrip(" "), pieces[-1][1])
            out += [self._painted(text, style) for text, style in pieces if text]
            out.append("\n")
        if out:
            self.fresh_line()
            self._put("".join(out))

    def prose(self, text: str, style: str = "") -> None:
        """Writes words of ours as lines of their own, broken between words where they go to a terminal."""
        if self.terminal:
            room = max(20, self.width - 1)
            wrap = textwrap.TextWrapper(room, break_long_words=False, break_on_hyphens=False).fill
            text = "\n".join(map(wrap, text.splitlines()))
        self.line(text, style)

    def drawable(self, text: str) -> str:
        """Printable `text` in characters that the terminal has."""
        text = printable(text)
        return text.translate(_ASCII) if self.ascii else text

    def fresh_line(self) -> None:
        """Ends the line that is being written, if there is one."""
        if not self._fresh:
            self._put("\n")
            self._fresh = True

    def _painted(self, text: str, style: str) -> str:
        """Printable `text` with the codes of `style` around it."""
        if self.ascii:
            text = text.translate(_ASCII)
        if not style or not self.colour:
            return text
        return f"\x1b[{';'.join(_SGR[name] for name in style.split())}m{text}\x1b[0m"

    def _put(self, text: str) -> None:
        if self.failed is not None or self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            self.failed = error
            _abandon(self._stream)
        except ValueError:
            self.failed = OSError("it is closed")


def _abandon(stream: Stream) -> None:
    """Points a dead stream at the null device, or Python complains once more about what is left in its buffer."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return


def fill_descriptors() -> None:
    """Opens the null device on whichever of the descriptors 0 to 2 is closed.

    Otherwise the next file that anybody opens, the session log for one, takes that number and receives what some
    library prints.
    """
    if os.name != "posix":
        return
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class Signals:
    """SIGINT, SIGTERM and SIGHUP, as a context manager around the program's life.

    While something runs in `cancelling`, a signal cancels it. Otherwise SIGINT raises KeyboardInterrupt and the
    others SystemExit(128 + number), the exit code of a process that died of it. `caught` is the first one that came
    while something ran, to be reset by whoever goes on after it. A signal that was ignored at start (nohup, a shell's
    background job) stays ignored. On leaving, the handlers from before come back; with `last`, which is for a program
    about to end, signals are ignored instead, so that one more Ctrl+C cannot end Python's own shutdown in a traceback.
    """

    def __init__(self, *, last: bool = False) -> None:
        self._last = last
        self.caught: int | None = None
        self._cancel: Callable[[], None] | None = None
        self._since = 0.0
        self._before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._cancel = _nothing  # one more signal must not break this off half-way
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._last else handler)  # type: ignore[arg-type] # what signal.signal gave back
        self._before.clear()

    @property
    def exit_code(self) -> int | None:
        """128 plus the signal that was caught, None if there was none."""
        return None if self.caught is None else 128 + self.caught

    @contextmanager
    def cancelling(self, cancel: Callable[[], None] | None) -> Iterator[None]:
        """While the block runs, a signal calls `cancel`, which must be safe in a signal handler.

        A second signal, should the block still run a second after the first, raises: then something is stuck, such
        as a write to a pipe that nobody reads.
        """
        before, self._cancel = self._cancel, cancel
        try:
            yield
        finally:
            self._cancel = before

    def holding(self) -> AbstractContextManager[None]:
        """While the block runs, signals are only noted; for the bounded work of closing."""
        return self.cancelling(_nothing)

    def raising(self) -> AbstractContextManager[None]:
        """While the block runs, signals raise although something runs; for a question that waits for a person."""
        return self.cancelling(None)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        cancel = self._cancel
        now = time.monotonic()
        stuck = self.caught is not None and cancel is not _nothing and now - self._since > STUCK
        if cancel is None or stuck:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        if self.caught is None:
            self.caught, self._since = number, now
        cancel()


def _nothing() -> None:
    return None
