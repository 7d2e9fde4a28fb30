"""What a command printed, readable and bounded, while it is still printing.

A `Cleaner` turns bytes in pieces into readable text, whole lines at a time. A `Capture` keeps the head and the tail of
that text in memory and, once it is longer than the two, all of it (up to a cap) in a file. The price is that the bytes
themselves are gone: who wants those redirects the command to a file.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .errors import CoreCoderError
from .text import printable

HEAD = 10_000  # characters; the end of an output usually says more than its start
TAIL = 20_000
BINARY_LIMIT = 1_000
BINARY_CAP = 1_000_000  # bytes; what follows in an output that is binary so far is only counted
FILE_CAP = 10_000_000  # bytes
_LINE_LIMIT = 65_536

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
        if self.size > BINARY_CAP and self.binary:
            self.size += len(data)
            self.odd += len(data)
            return ""
        self.size += len(data)
        plain = self._plain and not data.translate(None, _PLAIN)  # most output; 50 times faster than cleaning it
        if plain:
            text = data.decode("ascii")
        else:
            text = self._decoder.decode(data)
            self.odd += len(data) - len(data.translate(None, _ODD)) + text.count("\ufffd")
        whole, newline, self._line = (self._line + text).rpartition("\n")
        self._plain = plain or (not self._line and not self._decoder.getstate()[0])
        if len(self._line) > _LINE_LIMIT:
            return (whole + newline if plain else readable(whole + newline)) + self._part_of_line()
        return whole + newline if plain else readable(whole + newline)

    def _part_of_line(self) -> str:
        """Takes the overlong line: a progress bar loses its past, any other line is given out as it is."""
        if self._plain:
            part, self._line = self._line, ""
            return part
        before, returned, now = self._line.rstrip("\r").rpartition("\r")
        if returned and len(now) <= _LINE_LIMIT:
            self._line = now + self._line[len(before) + 1 + len(now) :]
            return ""
        cut = self._line.rfind("\x1b", -64)  # an escape sequence must not be torn
        cut = cut if cut > 0 else len(self._line)
        part, self._line = self._line[:cut], self._line[cut:]
        return readable(part)

    def finish(self) -> str:
        """The rest, when there is no more to come."""
        rest = self._decoder.decode(b"", True)
        self.odd += len(rest)
        line, self._line = self._line + rest, ""
        return readable(line)


class Capture:
    """The output of one command. `spill(text)` makes the file: a path that holds `text`, or None for no file."""

    def __init__(self, spill: Callable[[str], Path | None], *, head: int = HEAD, tail: int = TAIL) -> None:
        self.path: Path | None = None
        self.problem = ""  # why the file is not whole
        self.size = 0  # characters
        self._spill = spill
        self._limits = head, tail
        self._cleaner = Cleaner()
        self._head: list[str] = []  # everything, while that is short enough; then exactly the head
        self._tail: deque[str] = deque()
        self._tail_size = 0
        self._file: BinaryIO | None = None
        self._left = FILE_CAP

    @property
    def binary(self) -> bool:
        return self._cleaner.binary

    @property
    def byte_count(self) -> int:
        return self._cleaner.size

    def feed(self, data: bytes) -> str:
        """Takes `data` and returns what of it can be shown now."""
        text = self._cleaner.feed(data)
        self._add(text)
        return text

    def finish(self) -> str:
        """Ends the output and the file; returns what is still to be shown."""
        text = self._cleaner.finish()
        self._add(text)
        if self._left < 0 and self._file:
            note = f"\n[only the first {FILE_CAP:,} bytes were kept, and what follows: the end]\n"
            self._write((note + self._end()).encode())
        self._close()
        return text

    def to_file(self) -> Path | None:
        """Ends the output here and has it in a file, however short it is, for somebody else to go on writing."""
        self.finish()
        if self.path is None:
            self._start_file("".join(self._head))
            self._close()
        return self.path

    def text(self) -> str:
        """Head and tail, with what is missing between them stated; to be asked for after `finish`."""
        if self.binary and self.size > BINARY_LIMIT:
            head = "".join(self._head)[:BINARY_LIMIT]
            return f"{head}\n[{self.size - len(head):,} more characters of binary output left out]"
        if self.size <= sum(self._limits):
            return "".join(self._head)
        head, tail = self._head[0], self._end()
        head = head[: head.rfind("\n", len(head) * 3 // 4) + 1] or head
        start = tail.find("\n", 0, len(tail) // 4) + 1
        tail = tail[start:]
        gap = f"[{self.size - len(head) - len(tail):,} characters left out here; {self._kept()}]"
        return f"{head}{'' if head.endswith(chr(10)) else chr(10)}{gap}\n{tail}"

    def _kept(self) -> str:
        if self.path is None or self.problem:
            return "they were not kept" + (f": {self.problem}" if self.problem else "")
        if self._left < 0:
            return f"the first {FILE_CAP:,} bytes are in {self.path}"
        return f"all of it is in {self.path}"

    def _add(self, text: str) -> None:
        if not text:
            return
        before = self.size
        self.size += len(text)
        if self.size <= sum(self._limits):
            self._head.append(text)
            return
        if before <= sum(self._limits):
            text = "".join([*self._head, text])
            self._head = [text[: self._limits[0]]]
            self._keep_tail(text[self._limits[0] :])
            self._start_file(text)
        else:
            self._keep_tail(text)
            self._write_capped(text)

    def _keep_tail(self, text: str) -> None:
        self._tail.append(text[-self._limits[1] :])
        self._tail_size += len(self._tail[-1])
        while self._tail_size - len(self._tail[0]) >= self._limits[1]:
            self._tail_size -= len(self._tail.popleft())

    def _end(self) -> str:
        return "".join(self._tail)[-self._limits[1] :]

    def _start_file(self, text: str) -> None:
        try:
            self.path = self._spill("")
            if self.path is not None:
                self._file = self.path.open("ab")
        except (OSError, CoreCoderError) as error:
            self._failed(error)
        self._write_capped(text)

    def _write_capped(self, text: str) -> None:
        if self._left < 0:
            return
        data = text.encode()
        self._write(data[: self._left])
        self._left -= len(data)

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(data)
        except OSError as error:  # a full disk must not cost the command its result
            self._failed(error)
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        try:
            file.close()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        words = error.strerror if isinstance(error, OSError) else None
        self.problem = words or str(error)
