"""Numbered records in a log file: the part of a session that does not know what a conversation is.

A record is a JSON object with `id` (counting from 0), `type` and `at` (seconds since 1970). The index holds, for the
records that carry a message, sixteen bytes each: number and offset. So whatever is out of view costs no memory and is
still one read away. The price is that reading a log means parsing every line of it once.
"""

from __future__ import annotations

import errno
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from .errors import SessionError
from .logfile import LogFile, Record, decode, encode
from .text import plural

CARRIERS = ("message", "derived")  # the types of record that carry a message
_ID_LIMIT = 1 << 53
_FIRST_LINE = encode({"id": 0, "type": "session"})[:-2]


class Journal:
    """The records of one session. `next` is the id that the next record gets, `begun` whether there is a file.

    Only one thread may write; `record`, `carriers` and the ranges may be read from any.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next = 0
        self._log: LogFile | None = None
        self._ids = array("q")  # of the carriers, as they stand in the file
        self._offsets = array("q")

    @property
    def begun(self) -> bool:
        return self._log is not None

    @property
    def on_disk(self) -> bool:
        """Whether what is written now reaches the file (or will, once there is one)."""
        return self._log is None or self._log.attached

    # -- writing

    def begin(self, fields: Record) -> None:
        """Makes the file and writes the first record into it; SessionError, and no file, if that fails."""
        try:
            self._log = LogFile.create(self.path)
        except OSError as error:
            raise self._unwritten(error) from error
        try:
            self.write("session", fields)
        except SessionError:
            self._log.discard()
            self._log = None
            raise

    def write(self, kind: str, fields: Record) -> int:
        """Appends a record and returns its id. When it fails with SessionError, nothing has changed."""
        number = self.next
        try:
            if self._log is None:
                raise OSError(errno.ENOENT, "it was never begun")
            offset = self._log.append(encode({"id": number, "type": kind, "at": round(time.time(), 3), **fields}))
        except OSError as error:
            raise self._unwritten(error) from error
        self.next = number + 1
        if kind in CARRIERS:
            self._index(number, offset)
        return number

    def keep_in_memory(self) -> None:
        """From here on records stay in memory; the file keeps what it has."""
        if self._log is None:
            self._log = LogFile.in_memory()
        self._log.detach()

    def sync(self) -> None:
        """Brings the file to the disk. Raises SessionError."""
        try:
            if self._log is not None:
                self._log.sync()
        except OSError as error:
            raise self._unwritten(error) from error

    def close(self) -> None:
        """Gives up the file and its lock."""
        if self._log is not None:
            self._log.close()

    def _unwritten(self, error: OSError) -> SessionError:
        kept = "Everything logged before is kept" if self.next else "Nothing was logged yet"
        return SessionError(f"cannot write the session log {self.path}: {words(error)}. {kept}.")

    # -- reading

    def record(self, number: int) -> Record:
        """The `message` or `derived` record with this id. Raises KeyError if there is none, SessionError if the
        file cannot be read."""
        return self._stored(self._position(number))

    def carriers(self) -> Iterator[Record]:
        """Every `message` and `derived` record, in order, read one by one."""
        for position in range(len(self._ids)):
            yield self._stored(position)

    def ranges(self, numbers: Iterable[int]) -> list[list[int]]:
        """Ids as inclusive ranges: two are neighbours if no other carrier stands between them."""
        ranges: list[list[int]] = []
        last = -2
        for number in numbers:
            position = self._position(number)
            if position == last + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
            last = position
        return ranges

    def expand(self, ranges: Iterable[Sequence[int]]) -> list[int]:
        """The inverse of `ranges`; what a damaged log lost is left out."""
        numbers: list[int] = []
        for first, last in ranges:
            numbers += self._ids[bisect_left(self._ids, first) : bisect_right(self._ids, last)]
        return numbers

    def _index(self, number: int, offset: int) -> None:
        self._offsets.append(offset)  # first, because readers on other threads look into the ids
        self._ids.append(number)

    def _position(self, number: int) -> int:
        """The place of a record in the index; KeyError if it has none. Ids ascend, unless the log was damaged."""
        guess = bisect_left(self._ids, number)
        if guess < len(self._ids) and self._ids[guess] == number:
            return guess
        try:
            return self._ids.index(number)
        except (ValueError, OverflowError):
            raise KeyError(number) from None

    def _stored(self, position: int) -> Record:
        try:
            if self._log is None:
                raise OSError(errno.ENOENT, "it was never begun")
            return decode(self._log.read(self._offsets[position]))
        except (OSError, ValueError) as error:
            raise SessionError(f"cannot read record {self._ids[position]} of {self.path}: {words(error)}") from error

    # -- loading

    def load(self, take: Callable[[Record], None], fork_to: Path) -> list[str]:
        """Opens the file, gives every record to `take` and makes the log ready to be written.

        A record that `take` refuses with KeyError, TypeError or ValueError counts as damaged. What is torn off at the
        end is set aside; a log that another process has open is copied to `fork_to`, which becomes `path`; one that
        cannot be written goes on in memory. Returns what there is to say about that. Raises SessionError, and leaves
        the file as it was, if it cannot be read or holds no record at all.
        """
        try:
            self._log = log = LogFile.open(self.path)
        except OSError as error:
            raise SessionError(f"cannot open the session {self.path}: {words(error)}") from error
        try:
            end, torn, damaged = self._replay(log, take)
            notices = self._make_writable(log, end, torn, take, fork_to)
        except OSError as error:
            log.close()
            raise SessionError(f"cannot read the session {self.path}: {words(error)}") from error
        except BaseException:
            log.close()
            raise
        if damaged:
            notices.append(f"the session log has {plural(damaged, 'damaged line')}, left out: {self.path}")
        return notices

    def _replay(self, log: LogFile, take: Callable[[Record], None]) -> tuple[int, bytes, int]:
        """Returns where the last whole line ends, what stands behind it, and the number of damaged lines."""
        end = damaged = 0
        torn = b""
        for line in log.lines():
            if not line.endswith(b"\n"):
                torn = line
                break
            if not line.isspace() and not self._accept(line, end, take):
                damaged += 1
            end += len(line)
        ours = torn.startswith(_FIRST_LINE) or _FIRST_LINE.startswith(torn)
        if not self.next and (damaged or not ours):
            raise SessionError(f"{self.path} holds no record that can be read; it was left as it is.")
        return end, torn, damaged

    def _accept(self, line: bytes, offset: int, take: Callable[[Record], None]) -> bool:
        try:
            record = decode(line)
            number, kind = record["id"], record["type"]
            if type(number) is not int or not 0 <= number < _ID_LIMIT:
                return False
            if number < self.next and (kind not in CARRIERS or number in self._ids):
                return False  # the same record once more, from a write that was tried again
            take(record)
        except (KeyError, TypeError, ValueError):
            return False
        self.next = max(self.next, number + 1)
        if kind in CARRIERS:
            self._index(number, offset)
        return True

    def _make_writable(
        self, log: LogFile, end: int, torn: bytes, take: Callable[[Record], None], fork_to: Path
    ) -> list[str]:
        try:
            if not log.attached:
                raise OSError(errno.EROFS, "it is read-only", str(self.path))
            if not log.locked:
                return self._fork(log, end, fork_to)
            return self._mend(log, end, torn, take) if torn else []
        except OSError as error:
            log.detach(end)
            return [f"{self.path} cannot be written ({words(error)}); what comes now is not kept on disk"]

    def _fork(self, log: LogFile, end: int, path: Path) -> list[str]:
        self._log = log.copy(path, end)
        log.close()
        notice = f"session {self.path.stem} is in use elsewhere; this goes on as a copy of it, {path.stem}"
        self.path = path
        return [notice]

    def _mend(self, log: LogFile, end: int, torn: bytes, take: Callable[[Record], None]) -> list[str]:
        if _is_whole(torn):
            log.append(b"\n")
            self._accept(torn, end, take)
            return ["the last record of the session log had lost its line end; nothing is missing"]
        backup = log.set_aside(end)
        return [
            f"the last record of the session log was cut off; its {plural(len(torn), 'byte')} were set aside in "
            f"{backup}, everything before it is loaded"
        ]


def words(error: Exception) -> str:
    """What the operating system says, without number and path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _is_whole(line: bytes) -> bool:
    try:
        return bool(decode(line))
    except ValueError:
        return False
