"""What makes git run a program stays as it was: looked at before a confined command, put back after it.

That is the hooks and settings of the project's repository, of those in it as far as a bounded look comes, and of those
that the command made: there only what `git init` and `git clone` write themselves may stay. What a command leaves
running may do its work later, so while something runs, the next look compares with how things were before it was
started. The price: whatever a person changes of it in the meantime counts as the command's, but for new settings that
cannot run anything; and a repository beyond the look's bound is not watched.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from .folder import held
from .gitdir import PLAIN_CONFIG, RUNS, WRITTEN_BY_GIT, led_to, lines_of, repositories
from .values import dataclass

_MOST_ENTRIES = 4_000
_CLOCK = 1.0  # seconds that a file system's time may lag behind

_COMMON = ["../..", ""]  # what `git worktree add` writes

_Content = tuple[bytes, int]  # bytes (of a link: where it points) and st_mode


@dataclass
class Guarded:
    """One command: `put_back` is what had to be, filled by the end of it; `leaves` is set where something that it
    started goes on."""

    put_back: list[str] = field(default_factory=list)
    leaves: bool = False


class GitWatch:
    """Watches the `places` that a policy names and, below `root`, what a look finds; only what lies in one of
    `writable` can have been changed."""

    def __init__(self, places: Iterable[Path], root: Path | None, writable: Iterable[Path]) -> None:
        self._places, self._root, self._writable = tuple(places), root, tuple(writable)
        self._kept: dict[Path, dict[Path, _Content]] = {}
        self._known: set[Path] = set()  # git directories
        self._since = time.time() - _CLOCK
        self._late = False

    @contextmanager
    def guard(self, running: Callable[[], bool] = bool) -> Iterator[Guarded]:
        """Puts back what a command within the block changes, and before it what an earlier one did since that had left
        something `running`."""
        guarded = Guarded()
        guarded.put_back += self.check(running)
        if not self._late:
            self._remember()
        try:
            yield guarded
        finally:
            guarded.put_back += self._compared()
            self._late = self._late or guarded.leaves

    def check(self, running: Callable[[], bool] = bool) -> list[str]:
        """Puts back what was changed since the last command by what it had left `running`."""
        if not self._late:
            return []
        self._late = running()  # first: what ends in between has been compared as well
        self._accept_plain()
        return self._compared()

    def _remember(self) -> None:
        for place in (*self._places, *self._found()):
            if place.parent.is_dir():  # one that was moved away is compared once it is back
                self._kept[place] = _contents(place)
            else:
                self._kept.setdefault(place, {})

    def _found(self) -> Iterator[Path]:
        """What there is to watch in the repositories that a look finds, each of which is known from then on."""
        for top, git in self._look():
            self._known.add(git)
            if self._is_writable(git):
                yield from [git] if git.is_symlink() else (git / name for name in RUNS)
            if (top / ".git").is_file():
                yield top / ".git"
            yield from filter(self._is_writable, led_to(git, top))

    def _look(self) -> list[tuple[Path, Path]]:
        return list(repositories(self._root, _MOST_ENTRIES)) if self._root else []

    def _is_writable(self, place: Path) -> bool:
        return any(place.is_relative_to(each) for each in self._writable)

    def _accept_plain(self) -> None:
        """Settings that cannot run anything are not worth taking back from a person who changed them meanwhile."""
        for before in self._kept.values():
            for path, (data, mode) in before.items():
                now = _contents(path).get(path) if path.name in ("config", "config.worktree") else None
                if now and now[1] == mode and _plainly(data, now[0]):
                    before[path] = now

    def _compared(self) -> list[str]:
        notes: list[str] = []
        for place, before in self._kept.items():
            notes += self._as_it_was(place, before)
        for _, git in self._look():
            if git not in self._known and self._is_writable(git):
                self._known.add(git)
                notes += self._made_harmless(git)
        return notes

    def _as_it_was(self, place: Path, before: dict[Path, _Content]) -> Iterable[str]:
        link = next((each for each in reversed(place.parents) if each.is_symlink()), None)
        if place.parent in self._known:  # what lies in a git directory
            if link and link != place.parent:
                return ()  # the repository is another place now, and the look comes to it
            if link or place.parent.is_file():  # and the directory is elsewhere
                return _restored({}, _contents(place.parent))
        elif link:
            led_astray = self._is_writable(link) and _contents(place) not in ({}, before)
            return _restored({}, _contents(link)) if led_astray else ()
        return _restored(before, _contents(place)) if place.parent.is_dir() else ()

    def _made_harmless(self, git: Path) -> Iterator[str]:
        """Takes out of a new git directory what a plain `git init` or `git clone` does not put there. What is older
        than this session is a person's: that of a repository that was moved, or is found only now."""
        if git.is_symlink():
            yield from _restored({}, _contents(git) if self._is_ours(git) else {})
            return
        shared = git / "commondir"
        if self._is_ours(shared) and lines_of(shared) != _COMMON:
            yield from _restored({}, _contents(shared))
        hooks = _contents(git / "hooks")
        for path in hooks:
            if path.suffix != ".sample" and self._is_ours(path):
                yield from _restored({}, {path: hooks[path]})
        for path in (git / "config", git / "config.worktree"):
            if not self._is_ours(path) or (now := _contents(path).get(path)) is None:
                continue
            lines = now[0].decode("utf-8", "replace").split("\n")
            plain = [line for line in lines if WRITTEN_BY_GIT(line)]
            if stat.S_ISLNK(now[1]):
                yield from _restored({}, {path: now})
            elif lines != plain:
                yield from _restored({path: ("\n".join(plain).encode(), now[1])}, {path: now})

    def _is_ours(self, path: Path) -> bool:
        try:
            return path.lstat().st_ctime >= self._since
        except OSError:
            return False


def _contents(place: Path) -> dict[Path, _Content]:
    """Every file at or beneath `place`."""
    contents = {}
    for path in [place, *place.rglob("*")] if place.is_dir() and not place.is_symlink() else [place]:
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                contents[path] = os.fsencode(os.readlink(path)), mode
            elif stat.S_ISREG(mode):
                contents[path] = path.read_bytes(), mode
        except OSError:
            continue
    return contents


def _restored(before: dict[Path, _Content], after: dict[Path, _Content]) -> Iterator[str]:
    """Puts back what changed, what is new first: it may lie where something else belongs. Gives the paths."""
    new = [path for path in after if path not in before]
    for path in [*new, *(path for path in before if after.get(path) != before[path])]:
        try:
            _put_back(path, before.get(path))
            yield str(path)
        except OSError as error:
            yield f"{path} (which failed: {error.strerror})"


def _put_back(path: Path, content: _Content | None) -> None:
    with held(path.parent, make=content is not None) as folder:
        folder.remove(path.name)
        if content is None:
            return
        data, mode = content
        if stat.S_ISLNK(mode):
            os.symlink(os.fsdecode(data), folder.at(path.name), dir_fd=folder.fd)
            return
        with open(folder.open(path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
        folder.chmod(path.name, stat.S_IMODE(mode))


def _plainly(old: bytes, new: bytes) -> bool:
    """Whether every line of the settings in `new` is an old one or cannot make git run a program."""
    known = old.decode("utf-8", "replace").split("\n")
    return all(line in known or PLAIN_CONFIG.fullmatch(line) for line in new.decode("utf-8", "replace").split("\n"))
