"""Writing a file so that a crash leaves the old one or the new one, and all that belongs to it besides its bytes.

A new file with the same mode, owner and attributes takes the old one's place. Where that would break something (hard
links, an owner that cannot be kept, a mount point) the file is written in place, beside a copy of the old bytes that
stays until the new ones are on the disk. All of it happens in a directory that is held open (`folder.py`), so that
nothing can lead it astray meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from ..errors import ToolError
from ..folder import Folder, held
from ..jobs import CancelToken
from ..tool import ToolContext, ToolResult, Workspace
from ..values import dataclass
from .diff import Diff
from .files import Opened, Stamp, explained, look, require_judged, shown, stamp
from .syntax import syntax_note


def save(
    workspace: Workspace, path: Path, data: bytes, before: Stamp | None, token: CancelToken, judged: Path | None = None
) -> Path:
    """Writes `data` to `path`, through symbolic links; returns the real path, which must be `judged` if that is given.

    `before` is the stamp of the file that is replaced, None if there must be none. Raises ToolError, with the file as
    it was, if something else is there now or it cannot be written, and Cancelled if `token` was set before that.
    """
    token.check()
    with explained(workspace, path):
        real = Path(os.path.realpath(path))
    require_judged(workspace, path, real, judged)
    with explained(workspace, path), held(real.parent, make=before is None) as folder:
        place = _Place(folder, real.name)
        info = look(workspace, real) and place.stat()
        if (stamp(info) if info else None) != before:
            raise ToolError(f"{shown(workspace, path)} was changed by someone else just now. Nothing was written.")
        if info is not None and not place.is_writable():
            mode = stat.filemode(info.st_mode)
            raise ToolError(f"{shown(workspace, path)} is read-only ({mode}). Nothing was written.")
        linked = info is not None and info.st_nlink > 1
        if linked or not _replace(place, data, info, token):
            _overwrite(place, data, token)
    return real


@dataclass(frozen=True)
class _Place:
    """One name in a directory that is held open."""

    folder: Folder
    name: str

    def beside(self, ending: str) -> _Place:
        """Another place in the same directory, that nobody uses."""
        return _Place(self.folder, f".corecoder-{secrets.token_hex(6)}.{ending}")

    def open(self, flags: int, mode: int = 0o600) -> int:
        return self.folder.open(self.name, flags, mode)

    def stat(self) -> os.stat_result | None:
        return self.folder.stat(self.name)

    def is_writable(self) -> bool:
        as_who = os.access in os.supports_effective_ids
        return os.access(self.folder.at(self.name), os.W_OK, dir_fd=self.folder.fd, effective_ids=as_who)

    def becomes(self, new: _Place) -> None:
        """What is at `new` takes this place."""
        self.folder.replace(new.name, self.name)

    def unlink(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.folder.at(self.name), dir_fd=self.folder.fd)


def written(
    ctx: ToolContext, path: Path, data: bytes, old: Opened | None, action: str, said: list[str], diff: Diff
) -> ToolResult:
    """Saves `data` in the place of `old`, and says so with `said`, warnings about it, and the diff for a person."""
    real = save(ctx.workspace, path, data, old.stamp if old else None, ctx.token, ctx.judged)
    if note := syntax_note(path, data, old.data if old else b"", ctx.token):
        said = [*said, note]
    facts = {"path": str(real), "action": action, "added": diff.added, "removed": diff.removed}
    return ToolResult("\n".join(said), display="\n".join([*said, diff.text]), data=facts)


def _replace(place: _Place, data: bytes, old: os.stat_result | None, token: CancelToken) -> bool:
    """Puts a new file with the old one's mode, owner and attributes in its place; False if that cannot be."""
    new = place.beside("tmp")
    try:
        fd = new.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if old else 0o666)
    except OSError:
        if old is None:
            raise
        return False
    try:
        with open(fd, "wb") as file:
            _fill(file, data)
            token.check()
            kept = False
            with contextlib.suppress(OSError):  # not ours to keep
                kept = old is None or _keep(place, fd, old)
        if old is None:
            place.becomes(new)
            return True
        with contextlib.suppress(OSError):  # a mount point, which can only be written to
            if kept:
                place.becomes(new)
                return True
        return False
    finally:
        new.unlink()


def _fill(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


def _keep(place: _Place, new: int, old: os.stat_result) -> bool:
    """Gives the open file `new` what belongs to `place` besides its bytes. Raises OSError if that is not allowed."""
    now = os.fstat(new)
    if hasattr(os, "fchown") and (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(new, old.st_uid, old.st_gid)
    if hasattr(os, "fchmod"):  # Windows has no modes to speak of, and before Python 3.13 no such call
        os.fchmod(new, stat.S_IMODE(old.st_mode))  # after chown, which clears the set-user-id bit
    if hasattr(os, "listxattr"):
        fd = place.open(os.O_RDONLY)
        try:
            for name in _attributes(fd):
                os.setxattr(new, name, os.getxattr(fd, name))
        finally:
            os.close(fd)
    return True


def _attributes(fd: int) -> list[str]:
    try:
        # The security module labels new files itself.
        return [name for name in os.listxattr(fd) if name != "security.selinux"]
    except OSError:
        return []


def _overwrite(place: _Place, data: bytes, token: CancelToken) -> None:
    """Writes into the file that is there. Its old bytes lie beside it until the new ones are on the disk."""
    copy = place.beside("old")
    kept = ""
    with open(place.open(os.O_RDWR), "r+b") as file:
        old = file.read()
        try:
            # Where nothing can be created, the copy in memory is all there is.
            with (
                contextlib.suppress(PermissionError),
                open(copy.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as it,
            ):
                _fill(it, old)
            token.check()
            try:
                _write_all(file.fileno(), data)
            except OSError as error:
                try:
                    _write_all(file.fileno(), old)
                except OSError:
                    kept = f" Its old content is in {place.folder.path / copy.name}." if copy.stat() else ""
                    raise ToolError(f"Writing failed half-way: {error.strerror}.{kept}") from error
                raise
        finally:
            if not kept:
                copy.unlink()


def _write_all(fd: int, data: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.ftruncate(fd, len(data))
    os.fsync(fd)
