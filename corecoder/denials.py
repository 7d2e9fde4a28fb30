"""Whether the output of a confined command says that it was denied something, and whether the sandbox did that.

How a command ends says little: `touch x 2>&1 | tail` ends well. What counts is a line with the words of a denial that
names a file which this process itself could write, or read where it is hidden: only the sandbox stood between. The
price: in a line that names no file, or one by a path from a directory that is not known, anything may have been
denied, so it counts only if the command failed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .values import dataclass

# strerror(3) of EACCES, EPERM and EROFS; and of EBUSY, what is said of a file on which something is mounted.
_DENIED = re.compile(r"permission denied|operation not permitted|read-only file system", re.IGNORECASE)
_BUSY = re.compile(r"device or resource busy", re.IGNORECASE)
# curl(1), getaddrinfo(3), Python's and Node's clients.
_NO_NETWORK = re.compile(
    r"could(?:n't| not) (?:resolve|connect)|unable to resolve|name resolution|name or service not known|getaddrinfo"
    r"|network is unreachable|failed to (?:connect|establish a new connection)",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"[\w./+-]+: (?:(?:line )?\d+: )?")  # who says it, at the start of a line
_PATH = re.compile(r"['\"`‘“]([^'\"`’”]+)['\"’”]|(?<![\w:/.~-])((?:~|[\w.-]+)?/[^\s:,;'\"()]*)")


@dataclass(frozen=True)
class Denials:
    """What a sandbox denies, in real paths (as in its policy)."""

    writable: tuple[Path, ...]
    guarded: tuple[Path, ...]
    hidden: tuple[Path, ...]
    offline: bool

    def are_told(self, output: str, cwd: Path, *, failed: bool) -> bool:
        """Whether `output` of a command that began in `cwd` tells of one."""
        return any(self._tells(line, cwd, failed) for line in output.splitlines())

    def _tells(self, line: str, cwd: Path, failed: bool) -> bool:
        speaker = _SPEAKER.match(line)
        if not (speaker or failed):  # it shows what stands in a file
            return False
        if self.offline and _NO_NETWORK.search(line):
            return True
        denied = bool(_DENIED.search(line))
        if not denied and not _BUSY.search(line):
            return False
        said = line[speaker.end() :] if speaker else line
        known = [self._denies(path) for path in list(_paths(said, cwd)) or _paths(line, cwd)]
        return any(known) or (failed and denied and False not in known)

    def _denies(self, path: Path) -> bool | None:
        """None where it cannot be known which file is meant."""
        real = Path(os.path.realpath(path))
        if _lies_in(real, self.hidden):
            return os.access(real, os.R_OK)
        if any(real.is_relative_to(each) or each.is_relative_to(real) for each in self.guarded):
            return True
        if _lies_in(real, self.writable):
            return False if os.path.lexists(path) else None
        return os.access(real if real.exists() else real.parent, os.W_OK)


def _lies_in(path: Path, places: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(each) for each in places)


def _paths(line: str, cwd: Path) -> Iterator[Path]:
    for match in _PATH.finditer(line):
        yield cwd / os.path.expanduser(match[1] or match[2])
