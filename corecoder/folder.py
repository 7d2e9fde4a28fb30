"""A directory held open, so that what was judged to lie in it is what is read and written there.

A path is only a text: between two looks at it, a command that still runs can put a link in the place of a directory.
So the directory is opened name by name from the top, through no link, and what follows happens within it whatever
becomes of the names above. The price is one system call for each of them. Where files cannot be opened relative to a
directory (Windows), the path is taken as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from .values import dataclass

OPEN_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_CAN_HOLD = {os.open, os.mkdir, os.stat, os.unlink, os.rename} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
# O_PATH (Linux) does without the right to list the directory.
_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True)
class Folder:
    """A directory: `fd` is for the `dir_fd` of system calls, None where `at` gives whole paths instead of names."""

    path: Path
    fd: int | None

    def at(self, name: str) -> str:
        """How a system call is told of `name` in here."""
        return str(self.path / name) if self.fd is None else name

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """A descriptor of the file that goes by this name; never that of a link."""
        return os.open(self.at(name), flags | OPEN_FLAGS, mode, dir_fd=self.fd)

    def stat(self, name: str) -> os.stat_result | None:
        """Of what goes by this name, a link itself; None if nothing does."""
        with contextlib.suppress(FileNotFoundError):
            return os.stat(self.at(name), dir_fd=self.fd, follow_symlinks=False)
        return None

    def chmod(self, name: str, mode: int) -> None:
        os.chmod(self.at(name), mode, dir_fd=self.fd)

    def replace(self, new: str, name: str) -> None:
        """What goes by `new` takes the place of `name`."""
        os.replace(self.at(new), self.at(name), src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Removes whatever goes by this name, a directory with all that is in it; nothing there, nothing to do."""
        try:
            os.unlink(self.at(name), dir_fd=self.fd)
        except FileNotFoundError:
            return
        except OSError:
            info = os.stat(self.at(name), dir_fd=self.fd, follow_symlinks=False)
            if not stat.S_ISDIR(info.st_mode):
                raise
            if self.fd is None:
                shutil.rmtree(self.path / name)
                return
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.fd)
            try:
                for each in os.listdir(below):
                    Folder(self.path / name, below).remove(each)
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=self.fd)


@contextlib.contextmanager
def held(path: Path, *, make: bool = False) -> Iterator[Folder]:
    """The directory at `path`, which must be real (free of links), made with those above it if `make` says so.

    Raises OSError, also where there is a link on the way by now.
    """
    if not _CAN_HOLD:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        yield Folder(path, None)
        return
    fd = os.open(path.anchor, _FLAGS)
    try:
        for name in path.parts[1:]:
            below = _below(fd, name, make)
            os.close(fd)
            fd = below
        yield Folder(path, fd)
    finally:
        os.close(fd)


def _below(fd: int, name: str, make: bool) -> int:
    try:
        return _entered(fd, name)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=fd)
    return _entered(fd, name)


def _entered(fd: int, name: str) -> int:
    try:
        return os.open(name, _FLAGS, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # which of them a link gives differs between systems
            raise OSError(error.errno, f"{name} became a link or a file just now, so it was left alone") from None
        raise
