"""What lies in a project: one bounded walk that opens no file, and which of it is not worth keeping.

Names are bytes, relative to the project, because a name is whatever the file system says. A directory that is not
looked into is reported with the reason: what lies below it is unknown, which is not the same as absent. git is asked
once which directories it ignores, in a way that cannot run a program of the repository's choosing; where it cannot
say, a few names and marks stand in for it.

The price is one `lstat` for each file, about a second for 100,000.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from .gitdir import common_directory, git_directory, regular_file
from .jobs import CancelToken
from .text import listed, printable
from .values import dataclass

GIT = b".git"
CACHE, IGNORED = "a cache", "ignored by git"  # reasons that hold for every directory of their kind
NEVER = (0, 0, 0)
_FULL = "too many files"
CACHES = frozenset((b"node_modules", b"__pycache__"))
# CACHEDIR.TAG: bford.info/cachedir; pyvenv.cfg: PEP 405. What holds one of them can be made again.
_CACHE_MARKS = frozenset((b"CACHEDIR.TAG", b"pyvenv.cfg"))
_CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55"  # bford.info/cachedir
_CACHE_MOST = 5_000  # entries looked at of one
_MOST_REF_BYTES = 100_000_000  # of a file of refs
_GIT_TIMEOUT = 10.0  # seconds
# core.fsmonitor names a program. The rest is what git should not read or write for us.
_GIT_COMMAND = (
    "-c core.fsmonitor=false -c core.hooksPath=/dev/null -c core.untrackedCache=false "
    "ls-files -z --others --ignored --exclude-standard --directory"
).split()
_GIT_ENV = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "LC_ALL": "C"}


class State(NamedTuple):
    """What can be brought back of one path.

    `kind` is "file", "link", "dir", "closed" (a directory that was not looked into), "other" or "absent"; `mode` its
    permission bits; `blob` the number of its content or target, 0 where that is not kept.
    """

    kind: str
    mode: int = 0
    blob: int = 0

    def __str__(self) -> str:
        return f"{self.kind} {self.mode} {self.blob}"

    @classmethod
    def parse(cls, text: str) -> State:
        kind, mode, blob = text.split()
        return cls(kind, int(mode), int(blob))

    @property
    def facts(self) -> State:
        """The same for every way of looking at it."""
        return self._replace(kind="dir") if self.kind == "closed" else self


ABSENT = State("absent")


class Known(NamedTuple):
    """A state and the stamp that it was seen with: mtime and ctime in ns, size; zeros where it proves nothing. That of
    a cache which a step made is what `contents` says."""

    state: State
    stamp: tuple[int, int, int] = NEVER

    def __str__(self) -> str:
        return f"{self.state} {' '.join(map(str, self.stamp))}"

    @classmethod
    def parse(cls, text: str) -> Known:
        kind, mode, blob, *stamp = text.split()
        mtime, ctime, size = map(int, stamp or NEVER)
        return cls(State(kind, int(mode), int(blob)), (mtime, ctime, size))


@dataclass
class Walk:
    """What was found: `found` maps each path to its lstat, `closed` each directory that was not looked into to the
    reason. The project itself is b"", and is in neither unless it could not be looked into."""

    found: dict[bytes, os.stat_result] = field(default_factory=dict)
    closed: dict[bytes, str] = field(default_factory=dict)


def walk(root: Path, most: int, token: CancelToken, leave_out: Collection[Path] = ()) -> Walk:
    """Everything below `root`, breadth first, until `most` files and directories are found. Raises Cancelled."""
    top = os.fsencode(root)
    ignored = ignored_directories(root)
    ours = {os.fsencode(path.relative_to(root)) for path in leave_out if path.is_relative_to(root)}
    seen = Walk()
    if not os.path.isdir(top):
        return seen  # it is gone, and so is everything in it
    device = os.lstat(top).st_dev
    queue = deque([b""])
    while queue:
        token.check()
        folder = queue.popleft()
        room = most - len(seen.found)
        # With next to no room left it is not worth opening thousands.
        entries = _entries(os.path.join(top, folder), room) if room >= most // 100 else _FULL
        if isinstance(entries, str):
            seen.closed[folder] = entries
            continue
        if folder and ignored is None and not _CACHE_MARKS.isdisjoint(entry.name for entry in entries):
            seen.closed[folder] = CACHE
            continue
        prefix = os.path.join(folder, b"")
        for entry in entries:
            path = prefix + entry.name
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed just now
            if not stat.S_ISDIR(info.st_mode):
                seen.found[path] = info
            elif path not in ours and path != GIT:
                seen.found[path] = info
                if reason := _closed(path, info, device, ignored):
                    seen.closed[path] = reason
                else:
                    queue.append(path)
    return seen


def _entries(folder: bytes, room: int) -> list[os.DirEntry[bytes]] | str:
    """What is in `folder`, or the reason why it is not looked into."""
    try:
        with os.scandir(folder) as scan:
            entries = list(islice(scan, room + 1))
    except FileNotFoundError:
        return []  # removed since its parent was read
    except OSError as error:
        return error.strerror or "unreadable"
    return entries if len(entries) <= room else _FULL


def _closed(path: bytes, info: os.stat_result, device: int, ignored: Collection[bytes] | None) -> str:
    name = os.path.basename(path)
    if name == GIT:
        return "a repository of its own"
    if info.st_dev not in (device, 0):  # Windows says 0 of an entry
        return "another file system"
    if ignored is None:
        return CACHE if name in CACHES else ""
    return IGNORED if path in ignored else ""


def ignored_directories(root: Path) -> frozenset[bytes] | None:
    """The directories below `root` that git ignores as a whole; None where git is missing or cannot say."""
    git = shutil.which("git")
    if git is None or not os.path.isabs(git):
        return None
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        ran = subprocess.run(
            [git, *_GIT_COMMAND],
            cwd=root,
            env={**env, **_GIT_ENV},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if ran.returncode:
        return None
    names = sorted(ran.stdout.split(b"\0"))
    following = [*names[1:], b""]
    # A directory that merely holds nothing but ignored files is listed together with them, and so is one that ignores
    # itself, as the caches of many tools do: those are looked into as a whole or not at all.
    listed = frozenset(names)
    return frozenset(
        name.rstrip(b"/").replace(b"/", os.fsencode(os.sep))
        for name, after in zip(names, following, strict=True)
        if name.endswith(b"/") and name != b"./" and (not after.startswith(name) or name + b".gitignore" in listed)
    )


def git_at(root: Path) -> Path | None:
    """git's directory of the repository at `root`; None if `root` is not the top of one that git would take."""
    git = git_directory(root)
    return git if git and os.path.isfile(git / "HEAD") else None


def repository(root: Path) -> tuple[str, str]:
    """What HEAD stands for in the repository at `root`, a branch and a commit, and a digest of all its refs: branches,
    tags, stashes. ("", "") without one."""
    git = git_at(root)
    if git is None:
        return "", ""
    name = ""
    refs: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError):  # changed in this moment: then it is said to differ
        name = _text(git / "HEAD").strip()
        common = common_directory(git)
        lines = _text(common / "packed-refs").splitlines()
        refs = {ref: commit for commit, _, ref in (line.partition(" ") for line in lines if line[:1] not in "#^")}
        for path in (common / "refs").rglob("*"):
            if path.is_file():
                refs[path.relative_to(common).as_posix()] = _text(path).strip()
    ref = name.removeprefix("ref: ")
    digest = hashlib.sha256(repr(sorted(refs.items())).encode()).hexdigest()
    return f"{ref} {refs.get(ref, '')}", digest


def _text(path: Path) -> str:
    return (regular_file(path, _MOST_REF_BYTES) or b"").decode("utf-8", "replace")


def differs(old: Known, new: Known) -> bool:
    """Whether something was done to the path between these two looks."""
    one, other = old.state.facts, new.state.facts
    if old.state.kind == new.state.kind == "closed":
        return one != other or old.stamp != new.stamp
    if one.kind == other.kind == "file" and not (one.blob and other.blob):
        return one.mode != other.mode or old.stamp[::2] != new.stamp[::2]  # by mtime and size: no content to compare
    return one != other


def same(old: Known, new: Known) -> bool:
    """Whether nothing was certainly done to the path between these two looks: without a content, its size and times
    must all be known and equal."""
    one, other = old.state.facts, new.state.facts
    if one.kind == other.kind == "file" and not (one.blob and other.blob):
        return one.mode == other.mode and old.stamp == new.stamp != NEVER
    return one == other


def is_walked(path: bytes) -> bool:
    """Whether `path` is one that a walk would come to."""
    return not os.path.isabs(path) and not path.startswith(GIT + os.fsencode(os.sep))


def above(path: bytes) -> Iterator[bytes]:
    """The directories above `path`, the project last."""
    while path:
        path, before = os.path.dirname(path), path
        if path == before:
            return
        yield path


def shown(path: bytes) -> str:
    """`path` for a person."""
    return printable(os.fsdecode(path)) or "."


def is_cache(full: bytes) -> bool:
    """Whether the directory at this place in the file system holds nothing that cannot be made again."""
    try:
        names = os.listdir(full)
        if os.path.basename(full) == b"__pycache__":
            return all(name.endswith(b".pyc") for name in names)
        tag = os.path.join(full, b"CACHEDIR.TAG")
        if not stat.S_ISREG(os.lstat(tag).st_mode):
            return False
        with open(tag, "rb") as file:
            return file.read(len(_CACHE_TAG)) == _CACHE_TAG
    except OSError:
        return False


def contents(full: bytes, since: int = 0) -> tuple[int, int, int]:
    """A stamp for all that lies in a directory; NEVER if that is too much, unreadable or in part older than `since`
    (ns), as what was only moved there is."""
    digest, folders, seen = hashlib.sha256(), [full], 0
    try:
        for folder in folders:
            with os.scandir(folder) as scan:
                entries = sorted(islice(scan, _CACHE_MOST), key=lambda entry: entry.name)
            for entry in entries:
                info = entry.stat(follow_symlinks=False)
                digest.update(repr((entry.path, info.st_mtime_ns, info.st_ctime_ns, info.st_size)).encode())
                seen += 1
                if info.st_ctime_ns < since or seen > _CACHE_MOST:
                    return NEVER
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
    except OSError:
        return NEVER
    return 0, 0, int.from_bytes(digest.digest()[:7], "big")


def told(unkept: Mapping[bytes, str]) -> list[str]:
    """What is not kept, in a few words for each reason."""
    reasons: dict[str, list[str]] = {}
    for path, reason in sorted(unkept.items()):
        reasons.setdefault(reason, []).append(shown(path))
    parts = []
    for reason, names in reasons.items():
        parts.append(reason if names == [shown(GIT)] else f"{listed(names, 3)} ({reason})")
    return parts
