"""One session log as a file: whole lines of JSON, appended one write at a time, never rewritten.

Four things can go wrong with such a file, and each has one answer here. A crash or a full disk leaves half a line at
the end: what fails while we watch is cut off again, what a crash left is set aside in a file of its own, so no record
is ever glued to a fragment. Two processes want one log: an operating-system lock, held while the file is open, tells
the second. The disk refuses: `detach` keeps what comes in memory, behind the same interface. A string holds half a
surrogate pair, as cut streams and odd file names do: it is encoded as three bytes, so that exactly what came is read.

Lines end at the byte `\\n` and nowhere else; JSON escapes it inside strings, but not U+2028, U+0085 or form feeds.
The price is one system call for a record, and a lock around reads because workers read while the driver writes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

Record = dict[str, Any]

_CHUNK = 1 << 16
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


def private_directory(directory: Path) -> None:
    """Creates `directory` and whatever is missing above it, for the owner alone. Raises OSError."""
    if directory.is_dir():
        return
    private_directory(directory.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)


def write_private(path: Path, data: bytes) -> None:
    """Writes a new file for the owner alone, whole or not at all. Raises OSError, also if it exists."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600), "wb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            path.unlink(missing_ok=True)
            raise


class LogFile:
    """An open log. `locked` says whether this process may write it, `attached` whether appends reach the disk.

    Every method may raise OSError. Appending is for one thread, reading for any.
    """

    def __init__(self, path: Path, fd: int | None) -> None:
        self._guard = threading.Lock()
        self._fd = fd
        self.path = path
        self.attached = fd is not None
        self.locked = fd is not None and _try_lock(fd)
        self._end = os.fstat(fd).st_size if fd is not None else 0
        self._memory = bytearray()
        self._memory_from = self._end
        self._torn = False

    @classmethod
    def create(cls, path: Path) -> LogFile:
        """A new empty log, for the owner alone, its directory made if need be."""
        private_directory(path.parent)
        with contextlib.suppress(OSError):
            os.chmod(path.parent, 0o700)  # it may be older than this rule, or restored from a backup
        return cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | _BINARY, 0o600))

    @classmethod
    def open(cls, path: Path) -> LogFile:
        """An existing log; one that may only be read is opened as well, detached."""
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        try:
            return cls(path, os.open(path, os.O_RDWR | os.O_APPEND | _BINARY))
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
        log = cls(path, os.open(path, os.O_RDONLY | _BINARY))
        log.detach()
        return log

    @classmethod
    def in_memory(cls) -> LogFile:
        """A log without a file."""
        return cls(Path(os.devnull), None)

    def lines(self) -> Iterator[bytes]:
        """Every line from the start, with its `\\n`; only the last may lack it. Not while other threads read."""
        if self._fd is None:
            return
        os.lseek(self._fd, 0, os.SEEK_SET)
        with open(self._fd, "rb", buffering=1 << 20, closefd=False) as file:
            yield from file

    def append(self, line: bytes) -> int:
        """Appends one encoded record and returns its offset. When it fails, nothing of it stays in the file."""
        with self._guard:
            start = self._end
            if self.attached:
                self._write(line)
            else:
                self._memory += line
            self._end = start + len(line)
        return start

    def _write(self, line: bytes) -> None:
        if self._fd is None:
            raise OSError(errno.EBADF, "the log is closed")
        if self._torn:
            self._cut(self._fd)
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except BaseException:
            self._torn = True
            with contextlib.suppress(OSError):
                self._cut(self._fd)
            raise

    def _cut(self, fd: int) -> None:
        os.ftruncate(fd, self._end)
        self._torn = False

    def read(self, offset: int) -> bytes:
        """The line that starts at `offset`, without its end."""
        pieces = []
        while piece := self._read_at(offset, _CHUNK):
            head, newline, _ = piece.partition(b"\n")
            pieces.append(head)
            if newline:
                break
            offset += len(piece)
        return b"".join(pieces)

    def _read_at(self, offset: int, size: int) -> bytes:
        with self._guard:
            if offset >= self._memory_from and not self.attached:
                start = offset - self._memory_from
                return bytes(self._memory[start : start + size])
            if self._fd is None:
                raise OSError(errno.EBADF, "the log is closed")
            os.lseek(self._fd, offset, os.SEEK_SET)  # appends do not care: O_APPEND
            return os.read(self._fd, size)

    def set_aside(self, start: int) -> Path:
        """Moves what stands from `start` to the end into a new file beside the log, whose path is returned."""
        backup = self.path.with_name(f"{self.path.stem}.torn-{secrets.token_hex(8)}")
        pieces = []
        at = start
        while piece := self._read_at(at, _CHUNK):
            pieces.append(piece)
            at += len(piece)
        write_private(backup, b"".join(pieces))
        with self._guard:
            self._end = start
            if self._fd is not None:
                self._cut(self._fd)
        return backup

    def copy(self, path: Path, end: int) -> LogFile:
        """A new log at `path` with the first `end` bytes of this one, so offsets hold for both."""
        twin = LogFile.create(path)
        try:
            while twin._end < end:
                piece = self._read_at(twin._end, min(1 << 20, end - twin._end))
                if not piece:
                    raise OSError(errno.EIO, "the log became shorter while it was copied", str(self.path))
                twin.append(piece)
        except BaseException:
            twin.discard()
            raise
        return twin

    def detach(self, end: int | None = None) -> None:
        """From here on appends stay in memory; the file keeps its first `end` bytes' worth of records, or all."""
        with self._guard:
            self._end = self._end if end is None else end
            self.attached = False
            self._memory_from = self._end

    def sync(self) -> None:
        """Asks the operating system to bring everything to the disk, the directory entry included."""
        if self._fd is None or not self.attached:
            return
        os.fsync(self._fd)
        if sys.platform != "win32":
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def close(self) -> None:
        """Gives up the file and its lock. Safe to call twice."""
        with self._guard:
            fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        self.close()  # a forgotten log would hold its lock for as long as the process lives

    def discard(self) -> None:
        """Closes and removes a log in which nothing was kept."""
        self.close()
        self.path.unlink(missing_ok=True)


def _try_lock(fd: int) -> bool:
    """Takes the lock if nobody has it; False also where the file system knows no locks."""
    try:
        if sys.platform == "win32":
            os.lseek(fd, _WINDOWS_LOCK_AT, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
