"""The log of a session as a file: numbered records, whole lines of JSON, appended and never rewritten.

A record is a JSON object with `id` (counting from 0), `type` and `at` (seconds since 1970). The index holds, for the
records that carry a message, sixteen bytes each: number and offset. So whatever is out of view costs no memory and is
still one read away; the price is that loading parses every line once.

Four things can go wrong with such a file, and each has one answer. A crash or a full disk leaves half a line at the
end: what fails while we watch is cut off again, what a crash left is set aside in a file of its own, so no record is
ever glued to a fragment. Two processes want one log: an operating-system lock, held while the file is open, tells the
second, which goes on in a copy. The disk refuses: what comes then is held in memory, behind the same index. A string
holds half a surrogate pair, as cut streams and odd file names do: it is encoded as three bytes, so that exactly what
came is read. Lines end at the byte `\\n` and nowhere else; JSON escapes it inside strings, but not U+2028 or U+0085.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
import sys
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .errors import SessionError
from .text import plural

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

Record = dict[str, Any]

CARRIERS = ("message", "derived")  # the types of record that carry a message
_ID_LIMIT = 1 << 53
_BINARY = getattr(os, "O_BINARY", 0)
_WINDOWS_LOCK_AT = 1 << 40  # locks bar reading there, so the locked byte lies far behind any log


def encode(record: Record) -> bytes:
    """`record` as one line."""
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def decode(line: bytes) -> Record:
    """The record in `line`; raises ValueError for anything but a JSON object."""
    try:
        record = json.loads(line.decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


_FIRST_LINE = encode({"id": 0, "type": "session"})[:-2]  # how every log begins


class Journal:
    """The records of one session. `next` is the id that the next record gets, `on_disk` whether it goes to the file
    (which the first one makes) or stays in memory.

    Only one thread may write; `record`, `carriers` and the ranges may be read from any.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next = 0
        self.on_disk = True
        self._guard = threading.Lock()  # workers read while the driver writes, and a file has one position
        self._fd: int | None = None
        self._end = 0  # of the last whole line in the file
        self._memory: list[bytes] = []  # the lines that came after the disk was given up
        self._ids = array("q")  # of the carriers, in the order in which they were written
        self._offsets = array("q")  # where each begins in the file, or -1, -2, ... for the lines in memory

    # -- writing

    def write(self, kind: str, fields: Record) -> Record:
        """Appends a record and returns it. When it fails with SessionError, nothing has changed."""
        record = {"id": self.next, "type": kind, "at": round(time.time(), 3), **fields}
        try:
            offset = self._append(encode(record))
        except OSError as error:
            raise self._unwritten(error) from error
        self._note(record, offset)
        return record

    def sync(self) -> None:
        """Asks the operating system to bring everything to the disk, the directory entry included."""
        if self._fd is None or not self.on_disk:
            return
        try:
            os.fsync(self._fd)
            if sys.platform != "win32":
                folder = os.open(self.path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except OSError as error:
            raise self._unwritten(error) from error

    def copy(self, path: Path) -> None:
        """Writes a new log with what this one holds. Raises SessionError if that is not all on disk."""
        with self._guard:
            if self._fd is None or not self.on_disk:
                raise SessionError("there is nothing on disk to copy: the session is new, or kept in memory only.")
            try:
                os.close(_copy(self._fd, path, self._end))
            except OSError as error:
                raise SessionError(f"cannot copy the session log to {path}: {words(error)}") from error

    def close(self) -> None:
        """Gives up the file and its lock. Safe to call twice."""
        with self._guard:
            self._release()

    def __del__(self) -> None:
        self._release()  # a forgotten log would hold its lock for as long as the process lives

    def _append(self, line: bytes) -> int:
        """Appends a line and returns its offset. When it fails, nothing of it stays in the file."""
        if not self.on_disk:
            self._memory.append(line)
            return -len(self._memory)
        with self._guard:
            if self._fd is None:
                if self.next:
                    raise OSError(errno.EBADF, "the log is closed")
                self._fd = _create(self.path)
            start, rest = self._end, memoryview(line)
            try:
                os.lseek(self._fd, start, os.SEEK_SET)
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except BaseException:
                with contextlib.suppress(OSError):  # the next append would write over it
                    os.ftruncate(self._fd, start)
                if not start:  # a file in which nothing was kept
                    self._release()
                    self.path.unlink(missing_ok=True)
                raise
            self._end = start + len(line)
        return start

    def _note(self, record: Record, offset: int) -> None:
        self.next = max(self.next, record["id"] + 1)
        if record["type"] in CARRIERS:
            self._offsets.append(offset)  # first, because readers on other threads look into the ids
            self._ids.append(record["id"])

    def _unwritten(self, error: OSError) -> SessionError:
        kept = "Everything logged before is kept, what came after is not" if self.next else "Nothing was logged yet"
        return SessionError(f"cannot write the session log {self.path}: {words(error)}. {kept}.")

    def _release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    # -- reading

    def record(self, number: int) -> Record:
        """The `message` or `derived` record with this id. Raises KeyError if there is none, SessionError if the
        file cannot be read."""
        place = self._place(number)
        if not self._stands_at(place, number):
            raise KeyError(number)
        return self._stored(place)

    def carriers(self) -> Iterator[Record]:
        """Every `message` and `derived` record, in order, read one by one."""
        for place in range(len(self._ids)):
            yield self._stored(place)

    def ranges(self, numbers: Iterable[int]) -> list[list[int]]:
        """Ids as inclusive ranges: two are neighbours if no other carrier stands between them."""
        ranges: list[list[int]] = []
        last = -2
        for number in numbers:
            place = self._place(number)
            if place == last + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
            last = place
        return ranges

    def expand(self, ranges: Iterable[Sequence[int]]) -> list[int]:
        """The inverse of `ranges`; what a damaged log lost is left out."""
        numbers: list[int] = []
        for first, last in ranges:
            end = self._place(last)
            numbers += self._ids[self._place(first) : end + self._stands_at(end, last)]
        return numbers

    def _place(self, number: int) -> int:
        """Where a record stands in the index, or where it would. Ids ascend, unless the log was damaged."""
        place = bisect_left(self._ids, number)
        if not self._stands_at(place, number) and number in self._ids:
            return self._ids.index(number)
        return place

    def _stands_at(self, place: int, number: int) -> bool:
        return place < len(self._ids) and self._ids[place] == number

    def _stored(self, place: int) -> Record:
        try:
            return decode(self._line(self._offsets[place]))
        except (OSError, ValueError) as error:
            raise SessionError(f"cannot read record {self._ids[place]} of {self.path}: {words(error)}") from error

    def _line(self, offset: int) -> bytes:
        if offset < 0:
            return self._memory[-1 - offset]
        with self._guard:
            if self._fd is None:
                raise OSError(errno.EBADF, "the log is closed")
            with open(self._fd, "rb", closefd=False) as file:
                file.seek(offset)
                return file.readline()

    # -- loading

    def load(self, take: Callable[[Record], None], fork_to: Path) -> list[str]:
        """Opens the file, gives every record to `take` and makes the log ready to be written.

        A record that `take` refuses with KeyError, TypeError or ValueError counts as damaged. What is torn off at the
        end is set aside; a log that another process has open is copied to `fork_to`, which becomes `path`; one that
        cannot be written goes on in memory. Returns what there is to say about that. Raises SessionError, and leaves
        the file as it was, if it cannot be read or holds no record at all.
        """
        try:
            self._fd, self.on_disk = _open(self.path)
        except OSError as error:
            raise SessionError(f"cannot open the session {self.path}: {words(error)}") from error
        origin = self.path
        try:
            locked = try_lock(self._fd)
            torn, damaged, unended = self._replay(self._fd, take)
            notices = self._make_writable(self._fd, None if locked else fork_to, torn, unended)
        except OSError as error:
            self.close()
            raise SessionError(f"cannot read the session {self.path}: {words(error)}") from error
        except BaseException:
            self.close()
            raise
        if damaged:
            notices.append(f"the session log has {plural(damaged, 'damaged line')}, left out: {origin}")
        return notices

    def _replay(self, fd: int, take: Callable[[Record], None]) -> tuple[bytes, int, bool]:
        """Returns what is torn off at the end, the number of damaged lines, whether the last record has no line end."""
        damaged = 0
        torn = b""
        unended = False
        with open(fd, "rb", buffering=1 << 20, closefd=False) as file:
            for line in file:
                whole = line.endswith(b"\n")
                accepted = self._accept(line, take)
                if not whole and not accepted:
                    torn = line
                    break
                damaged += not accepted and not line.isspace()
                unended = not whole
                self._end += len(line)
        ours = torn.startswith(_FIRST_LINE) or _FIRST_LINE.startswith(torn)
        if not self.next and (damaged or not ours):
            raise SessionError(f"{self.path} holds no record that can be read; it was left as it is.")
        return torn, damaged, unended

    def _accept(self, line: bytes, take: Callable[[Record], None]) -> bool:
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
        self._note(record, self._end)
        return True

    def _make_writable(self, fd: int, fork_to: Path | None, torn: bytes, unended: bool) -> list[str]:
        notices = []
        try:
            if not self.on_disk:
                raise OSError(errno.EROFS, "it is read-only", str(self.path))
            if fork_to:
                self._fd = _copy(fd, fork_to, self._end)
                os.close(fd)
                notices = [
                    f"session {self.path.stem} is in use elsewhere; this goes on as a copy of it, {fork_to.stem}"
                ]
                self.path = fork_to
            elif torn:
                backup = self.path.with_name(f"{self.path.stem}.torn-{secrets.token_hex(8)}")
                write_private(backup, torn)
                os.ftruncate(fd, self._end)
                notices = [
                    f"the last record of the session log was cut off; its {plural(len(torn), 'byte')} were set aside "
                    f"in {backup}, everything before it is loaded"
                ]
            if unended:
                self._append(b"\n")
                notices.append("the last record of the session log had lost its line end; nothing is missing")
        except OSError as error:
            self.on_disk = False
            notices.append(f"{self.path} cannot be written ({words(error)}); what comes now is not kept on disk")
        return notices


def _create(path: Path) -> int:
    """A new empty log, for the owner alone and locked, its directory made if need be."""
    private_directory(path.parent)
    with contextlib.suppress(OSError):
        os.chmod(path.parent, 0o700)  # it may be older than this rule, or restored from a backup
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try_lock(fd)
    return fd


def _open(path: Path) -> tuple[int, bool]:
    """An existing log, and whether it may be written."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    try:
        return os.open(path, os.O_RDWR | _BINARY), True
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    return os.open(path, os.O_RDONLY | _BINARY), False


def _copy(fd: int, path: Path, end: int) -> int:
    """A new log with the first `end` bytes of another, so that offsets hold for both."""
    copy = _create(path)
    try:
        with open(fd, "rb", closefd=False) as source, open(copy, "wb", closefd=False) as target:
            source.seek(0)
            shutil.copyfileobj(source, target, 1 << 20)
        os.ftruncate(copy, end)  # what was just being written is not for us
    except BaseException:
        os.close(copy)
        path.unlink(missing_ok=True)
        raise
    return copy


def try_lock(fd: int) -> bool:
    """Takes the lock if nobody has it; False also where the file system knows no locks."""
    try:
        if sys.platform == "win32":
            os.lseek(fd, _WINDOWS_LOCK_AT, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            os.lseek(fd, 0, os.SEEK_SET)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def private_directory(directory: Path) -> None:
    """Creates `directory` and whatever is missing above it, for the owner alone. Raises OSError."""
    if directory.is_dir():
        return
    private_directory(directory.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)


def write_private(path: Path, data: bytes) -> None:
    """Writes a new file for the owner alone, whole or not at all. Raises OSError, also if it exists."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def words(error: Exception) -> str:
    """What the operating system says, without number and path."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
