"""What a command printed, readable and bounded, while it is still printing.

A `Cleaner` turns bytes in pieces into readable text, whole lines at a time; `LiveOutput` shows it while it comes. A
`Capture` keeps the head and the tail of
that text in memory and, once it is longer than the two, all of it (up to a cap) in a file. The price is that the bytes
themselves are gone: who wants those redirects the command to a file.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable
from pathlib import Path

from .errors import CoreCoderError
from .text import printable

HEAD = 10_000  # characters; the end of an output usually says more than its start
TAIL = 20_000
BINARY_LIMIT = 1_000
BINARY_CAP = 1_000_000  # bytes; what follows in an output that is binary so far is only counted
FILE_CAP = 10_000_000  # bytes
_LINE_LIMIT = 65_536
_LIVE_EVERY = 0.1  # seconds between two pieces of live output
_LIVE_LIMIT = 4_000  # characters of one piece

_PLAIN = bytes([9, 10, *range(32, 127)])
_ODD = bytes([*range(7), *range(14, 27), *range(28, 32), 127])  # no text has these; BEL to CR and ESC it may have
_UNREADABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OVERSTRIKE = re.compile("[^\n\b]\b")


def readable(text: str) -> str:
    """`text` as a terminal would have left it: carriage returns and backspaces applied, escape sequences gone, NUL
    shown as U+2400."""
    text = text.replace("\r\n", "\n")
    if not _UNREADABLE.search(text):  # ten times faster than cleaning, and the rule
        return text
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    if "\b" in text:
        text = _OVERSTRIKE.sub("", text)
    return printable(text.replace("\0", "\u2400"))


def _last_state(line: str) -> str:
    """What is seen of a line that carriage returns overwrote: the last part that shows anything."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if printable(part).strip()), "")


class Cleaner:
    """Bytes in pieces to readable text in pieces.

    `size` is the number of bytes seen, `odd` how many of them no text has (control characters, invalid UTF-8).
    """

    def __init__(self) -> None:
        self.size = 0
        self.odd = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""  # the line that has not ended yet
        self._plain = True  # nothing in `_line` or in the decoder needs cleaning

    @property
    def binary(self) -> bool:
        """Whether this is hardly text: more than a tenth of it is odd."""
        return self.odd * 10 > self.size

    def feed(self, data: bytes) -> str:
        """The text that is complete with `data`: whole lines, or part of one that is overlong."""
        self.size += len(data)
        if self.size - len(data) > BINARY_CAP and self.binary:
            self.odd += len(data)
            return ""
        plain = self._plain and not data.translate(None, _PLAIN)  # most output; 50 times faster than cleaning it
        if plain:
            text = data.decode("ascii")
        else:
            text = self._decoder.decode(data)
            self.odd += len(data) - len(data.translate(None, _ODD)) + text.count("\ufffd")
        whole, newline, self._line = (self._line + text).rpartition("\n")
        text = whole + newline
        if len(self._line) > _LINE_LIMIT:  # a progress bar loses its past, any other line is given out in parts
            self._line = _last_state(self._line) + "\r" * self._line.endswith("\r")
        if len(self._line) > _LINE_LIMIT:
            escape = self._line.rfind("\x1b", -64)  # an escape sequence must not be torn
            cut = escape if escape > 0 else len(self._line)
            text, self._line = text + self._line[:cut], self._line[cut:]
        self._plain = plain or (not self._line and not self._decoder.getstate()[0])
        return text if plain else readable(text)

    def finish(self) -> str:
        """The rest, when there is no more to come."""
        rest = self._decoder.decode(b"", True)
        self.odd += len(rest)
        line, self._line = self._line + rest, ""
        return readable(line)


def _unseen(_text: str) -> None:
    return None


class LiveOutput:
    """Passes text on in pieces that a front end can take, however fast it comes."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._text = ""
        self._sent_at = 0.0

    def add(self, text: str) -> None:
        self._text += text
        if len(self._text) > 4 * _LIVE_LIMIT:
            self._text = self._text[-_LIVE_LIMIT - 1 :]  # one too many, so that it is seen that some are missing
        self.pass_on()

    def pass_on(self, last: bool = False) -> None:
        """Sends what there is, if it is time (or the `last` time)."""
        now = time.monotonic()
        if not self._text or (now - self._sent_at < _LIVE_EVERY and not last):
            return
        text, self._text, self._sent_at = self._text, "", now
        self._send(text if len(text) <= _LIVE_LIMIT else "[…]\n" + text[-_LIVE_LIMIT:])


class Capture:
    """The output of one command. `spill(text)` makes the file: a path that holds `text`, or None for no file; `show`
    gets the output while it comes."""

    def __init__(
        self,
        spill: Callable[[str], Path | None],
        show: Callable[[str], None] = _unseen,
        *,
        head: int = HEAD,
        tail: int = TAIL,
    ) -> None:
        self.path: Path | None = None
        self.problem = ""  # why the file is not whole
        self.size = 0  # characters
        self.live = LiveOutput(show)
        self._spill = spill
        self._limits = head, tail
        self._cleaner = Cleaner()
        self._head = ""  # together with the tail everything, while that is short enough
        self._tail = ""
        self._left = FILE_CAP

    @property
    def binary(self) -> bool:
        return self._cleaner.binary

    @property
    def byte_count(self) -> int:
        return self._cleaner.size

    def feed(self, data: bytes) -> None:
        self._add(self._cleaner.feed(data))

    def finish(self) -> None:
        """Ends the output and its file."""
        self._add(self._cleaner.finish())
        self.live.pass_on(last=True)
        if self._left < 0:
            note = f"\n[only the first {FILE_CAP:,} bytes were kept, and what follows: the end]\n"
            self._write((note + self._tail).encode())

    def to_file(self) -> Path | None:
        """Has everything in a file, however short it is, for somebody else to go on writing; after `finish`."""
        if self.size <= sum(self._limits):
            self._save(self._head + self._tail)
        return self.path

    def text(self) -> str:
        """Head and tail, with what is missing between them stated; to be asked for after `finish`."""
        head, tail = self._head, self._tail
        if self.binary and self.size > BINARY_LIMIT:
            head = (head + tail)[:BINARY_LIMIT]
            return f"{head}\n[{self.size - len(head):,} more characters of binary output left out]"
        if self.size <= sum(self._limits):
            return head + tail
        head = head[: head.rfind("\n", len(head) * 3 // 4) + 1] or head
        tail = tail[tail.find("\n", 0, len(tail) // 4) + 1 :]
        gap = f"[{self.size - len(head) - len(tail):,} characters left out here; {self._kept()}]"
        return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{gap}\n{tail}"

    def _kept(self) -> str:
        if self.path is None or self.problem:
            return "they were not kept" + (f": {self.problem}" if self.problem else "")
        if self._left < 0:
            return f"the first {FILE_CAP:,} bytes are in {self.path}"
        return f"all of it is in {self.path}"

    def _add(self, text: str) -> None:
        head, tail = self._limits
        saved, self.size = self.size > head + tail, self.size + len(text)
        if self.size > head + tail:
            self._save(text if saved else self._head + self._tail + text)
        room = head - len(self._head)
        self._head, self._tail = self._head + text[:room], (self._tail + text[room:])[-tail:]
        self.live.add(text)

    def _save(self, text: str) -> None:
        if self._left >= 0:
            data = text.encode()
            self._write(data[: self._left])
            self._left -= len(data)

    def _write(self, data: bytes) -> None:
        """Adds to the file, which is open only meanwhile. A full disk must not cost the command its result."""
        if self.problem:
            return
        try:
            self.path = self.path or self._spill("")
            if self.path:
                with self.path.open("ab") as file:
                    file.write(data)
        except (OSError, CoreCoderError) as error:
            self.problem = (isinstance(error, OSError) and error.strerror) or str(error)
