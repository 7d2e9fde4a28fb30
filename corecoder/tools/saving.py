"""Writing a file so that a crash leaves the old one or the new one, and all that belongs to it besides its bytes.

A new file with the same mode, owner and attributes takes the old one's place. Where that would break something (hard
links, an owner that cannot be kept, a mount point) the file is written in place, beside a copy of the old bytes that
stays until the new ones are on the disk.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

from ..errors import ToolError
from ..jobs import CancelToken
from ..tool import ToolContext, ToolResult, Workspace
from .diff import Diff
from .files import OPEN_FLAGS, Opened, Stamp, explained, look, shown, stamp
from .syntax import syntax_note


def save(workspace: Workspace, path: Path, data: bytes, before: Stamp | None, token: CancelToken) -> Path:
    """Writes `data` to `path`, through symbolic links; returns the real path.

    `before` is the stamp of the file that is replaced, None if there must be none. Raises ToolError, with the file as
    it was, if something else is there now or it cannot be written, and Cancelled if `token` was set before that.
    """
    token.check()
    real = Path(os.path.realpath(path))
    with explained(workspace, path):
        if before is None:
            real.parent.mkdir(parents=True, exist_ok=True)
        info = look(workspace, real)
        if (stamp(info) if info else None) != before:
            raise ToolError(f"{shown(workspace, path)} was changed by someone else just now. Nothing was written.")
        if info is not None and not os.access(real, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            mode = stat.filemode(info.st_mode)
            raise ToolError(f"{shown(workspace, path)} is read-only ({mode}). Nothing was written.")
        linked = info is not None and info.st_nlink > 1
        if linked or not _replace(real, data, info, token):
            _overwrite(real, data, token)
    return real


def written(
    ctx: ToolContext, path: Path, data: bytes, old: Opened | None, action: str, said: list[str], diff: Diff
) -> ToolResult:
    """Saves `data` in the place of `old`, and says so with `said`, warnings about it, and the diff for a person."""
    real = save(ctx.workspace, path, data, old.stamp if old else None, ctx.token)
    if note := syntax_note(path, data, old.data if old else b"", ctx.token):
        said = [*said, note]
    facts = {"path": str(real), "action": action, "added": diff.added, "removed": diff.removed}
    return ToolResult("\n".join(said), display="\n".join([*said, diff.text]), data=facts)


def _replace(real: Path, data: bytes, old: os.stat_result | None, token: CancelToken) -> bool:
    """Puts a new file with the old one's mode, owner and attributes in its place; False if that cannot be."""
    new = real.with_name(f".corecoder-{secrets.token_hex(6)}.tmp")
    try:
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600 if old else 0o666)
    except OSError:
        if old is None:
            raise
        return False
    try:
        _fill(fd, data)
        token.check()
        if old is None:
            os.replace(new, real)
            return True
        with contextlib.suppress(OSError):  # not ours to keep; or a mount point, which can only be written to
            _keep(real, new, old)
            os.replace(new, real)
            return True
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)


def _fill(fd: int, data: bytes) -> None:
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)


def _keep(real: Path, new: Path, old: os.stat_result) -> None:
    """Gives `new` what belongs to `real` besides its bytes. Raises OSError if that is not allowed."""
    now = os.stat(new)
    if hasattr(os, "chown") and (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        os.chown(new, old.st_uid, old.st_gid)
    os.chmod(new, stat.S_IMODE(old.st_mode))  # after chown, which clears the set-user-id bit
    for name in _attributes(real):
        os.setxattr(new, name, os.getxattr(real, name))


def _attributes(path: Path) -> list[str]:
    if not hasattr(os, "listxattr"):
        return []
    try:
        # The security module labels new files itself.
        return [name for name in os.listxattr(path) if name != "security.selinux"]
    except OSError:
        return []


def _overwrite(real: Path, data: bytes, token: CancelToken) -> None:
    """Writes into the file that is there. Its old bytes lie beside it until the new ones are on the disk."""
    copy = real.with_name(f".corecoder-{secrets.token_hex(6)}.old")
    kept = ""
    with open(real, "r+b") as file:
        old = file.read()
        try:
            with contextlib.suppress(
                PermissionError
            ):  # nothing can be created here: the copy in memory is all there is
                _fill(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o600), old)
            token.check()
            try:
                _write_all(file.fileno(), data)
            except OSError as error:
                try:
                    _write_all(file.fileno(), old)
                except OSError:
                    kept = f" Its old content is in {copy}." if copy.exists() else ""
                    raise ToolError(f"Writing failed half-way: {error.strerror}.{kept}") from error
                raise
        finally:
            if not kept:
                copy.unlink(missing_ok=True)


def _write_all(fd: int, data: bytes) -> None:
    os.lseek(fd, 0, os.SEEK_SET)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.ftruncate(fd, len(data))
    os.fsync(fd)
