"""Going back to before a turn: files and conversation together, after a look at what would happen.

What a turn changed goes back to what it was; what somebody else changed since, or in between, stays unless it is
forced. Files go first, then one `view` record takes the conversation back, and only once no file is left that asking
again might bring: the way to what was kept of a file leads through its turn. So whatever ends an undo half-way, a full
disk or a kill, it can be done again. Nothing in git's own directory is touched, but for the index where a step changed
it, nobody else did, and HEAD stands where it stood: what was staged is the user's work too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from secrets import token_hex
from typing import Literal

from .checkpoints import Change, CheckpointError, Checkpoints
from .context import ContextManager
from .errors import SessionError
from .folder import Folder, held
from .journal import words
from .memory import OURS
from .messages import Message, text_of
from .session import Session
from .snapshot import ABSENT, CACHES, GIT, NEVER, Known, State, is_cache, repository, same, shown
from .text import listed, one_line, plural, typed
from .tool import Workspace
from .values import dataclass

Action = Literal["restore", "create", "remove", "leave"]
Part = Literal["both", "files", "words"]

_NOT_ALL = "it holds something that may not be the turn's"


@dataclass(frozen=True)
class Turn:
    """A turn that can be gone back to before: its number from 1, the first words of its prompt, what it changed."""

    number: int
    record: int
    words: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileChange:
    """What happens, or happened, to one path. `reason` says why it is left as it is, `forcible` that force helps,
    `failed` that it was tried in vain, so that trying again may help."""

    path: str
    action: Action
    reason: str = ""
    forcible: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Rewind:
    """Going back to before `turn`: `turns` of them, what becomes of which file, what else there is to know, and whether
    the conversation was taken back."""

    turn: Turn
    turns: int
    files: tuple[FileChange, ...] = ()
    notes: tuple[str, ...] = ()
    taken_back: bool = False


@dataclass(frozen=True)
class _Item:
    """One path on its way back; `now` is how it is. A `cache` is as the turn left it and goes as a whole."""

    key: bytes
    before: State
    now: State
    change: FileChange
    cache: bool = False


class Rewinder:
    """The turns of one session and the way back to before each."""

    def __init__(
        self, session: Session, context: ContextManager, workspace: Workspace, checkpoints: Checkpoints | None
    ) -> None:
        self._session = session
        self._context = context
        self._workspace = workspace
        self._kept = checkpoints if checkpoints and not checkpoints.store.is_empty else None
        self._notes = () if checkpoints else ("files stay as they are: nothing keeps what this agent changes",)

    def turns(self) -> list[Turn]:
        """The turns that are still part of the conversation, the oldest first."""
        with self._store():
            return [self._turn(number, *turn) for number, turn in enumerate(self._session.turns, 1)]

    def preview(self, number: int | None = None) -> Rewind:
        """What going back to before this turn (the last one, if none is given) would do. Raises CoreCoderError."""
        with self._store():
            rewind, items = self._plan(number)
            return replace(rewind, files=_foreseen(items, self._kept)) if self._kept else rewind

    def rewind(
        self, number: int | None = None, *, force: bool = False, keep: bool = False, part: Part = "both"
    ) -> Rewind:
        """Goes back, and says what became of the files. With `force` also where somebody else changed them.

        With `part` "files" the conversation stays, and the model is told; with "words" every file stays as it is.

        While a file is left that failed or could be forced, the conversation stays as well, unless `keep` says that
        such files are to stay as they are. Raises CoreCoderError with the conversation as it was; files that were
        brought back by then stay so.
        """
        with self._store():
            rewind, items = self._plan(number)
            if part == "words":
                rewind = replace(rewind, files=(), notes=())
            elif self._kept:
                done = _Restorer(self._kept).restore(items, force=force)
                # Where case does not count, removing `A` took a restored `a` away: the second round makes it again.
                _, items = self._plan(number)
                done.update(_Restorer(self._kept).restore(items, force=force))
                rewind = replace(rewind, files=tuple(done.values()))
        if part == "files":
            self._tell(rewind)
            return rewind
        if not keep and any(change.failed or change.forcible for change in rewind.files):
            return rewind
        place = self._session.rewind(rewind.turn.record).get("cwd")
        if isinstance(place, str):
            self._workspace.cwd = Path(place) if os.path.isdir(place) else self._workspace.root
            self._session.note("cwd", path=str(self._workspace.cwd))
        self._context.follow(self._session)
        self._session.sync()
        return replace(rewind, taken_back=True)

    def _tell(self, rewind: Rewind) -> None:
        """Lets the model know that files are no longer as it left them."""
        names = [change.path for change in rewind.files if change.action != "leave"]
        if not names:
            return
        text = (
            f"{OURS}the user has put files back to how they were before turn {rewind.turn.number}: {listed(names, 40)}]"
        )
        message: Message = {"role": "user", "content": text}
        self._context.observe(message, self._session.append(message, kind="notice"))
        self._session.sync()

    @contextlib.contextmanager
    def _store(self) -> Iterator[None]:
        """What was kept, for us alone and up to date. Raises CheckpointError."""
        if self._kept is None:
            yield
            return
        try:
            self._kept.settle()
            with self._kept.store.transaction():
                yield
        except (OSError, sqlite3.Error) as error:
            raise CheckpointError(f"what was kept cannot be read: {words(error)}") from error

    def _turn(self, number: int, session: str, record: int) -> Turn:
        changes = self._kept.changes([(session, record)]) if self._kept else []
        names = dict.fromkeys(shown(change.path) for change in changes)
        return Turn(number, record, one_line(typed(text_of(self._session.message(record))), 60), tuple(names))

    def _plan(self, number: int | None) -> tuple[Rewind, list[_Item]]:
        turns = [self._turn(place, *turn) for place, turn in enumerate(self._session.turns, 1)]
        if not turns:
            raise SessionError("there is no turn to undo in this session.")
        if number is None:
            number = len(turns)
        if not 1 <= number <= len(turns):
            raise SessionError(f"there is no turn {number}; the turns of this session are 1 to {len(turns)}.")
        gone = turns[number - 1 :]
        if not self._kept:
            return Rewind(gone[0], len(gone), notes=self._notes), []
        turns_gone = self._session.turns[number - 1 :]
        changes, about = self._kept.changes(turns_gone), self._kept.about(turns_gone)
        notes = []
        if about.dropped:
            notes.append(f"what {plural(about.dropped, 'step')} of these turns changed is no longer kept")
        if about.cut:
            notes.append("a step was cut off: its changes cannot be told from what was changed by hand after it")
        full = self._kept.full
        now = self._kept.look({change.path for change in changes})
        items = _items(changes, now, lambda path: is_cache(full(path)))
        if any(change.anywhere for change in changes) and any(item.change.action != "leave" for item in items):
            notes.append("look for your own: what changed by hand while a command ran is listed too")
        then, git = about.git, repository(self._kept.root)
        if then and then[0] != git[0]:
            index = self._kept.index
            items = [item for item in items if item.key != index]
        if then and then != git and all(item.key != GIT for item in items):
            notes.append(_git_note(then, git))
        return Rewind(gone[0], len(gone), tuple(item.change for item in items), tuple(notes)), items


def _git_note(then: tuple[str, str], now: tuple[str, str]) -> str:
    """How git's HEAD and refs differ from what they were."""
    if not now[0]:
        return "git's repository is gone; its commits and branches are not brought back"
    if not then[0]:
        return "git's repository is new and stays"
    if then[0] != now[0]:
        return "git's HEAD has moved since; commits, branches and the index stay as they are"
    return "git's branches, tags or stashes have changed since and are not brought back"


def _holders(changes: Iterable[Change]) -> set[bytes]:
    """The paths that a step made while it did away with something that was not kept, as a move or `gzip` does: what is
    gone may be in them, and nowhere else. What a step of these turns had made itself is no loss."""
    made: set[bytes] = set()
    holders: set[bytes] = set()
    for _, group in groupby(changes, lambda change: change.step):
        step = list(group)
        loses = any(_loses(change) and change.path not in made for change in step)
        (holders if loses else made).update(change.path for change in step if change.before.state == ABSENT)
    return holders


def _loses(change: Change) -> bool:
    before, after = change.before, change.after
    if before.state.kind == "closed":
        return after.state.facts.kind != "dir" and os.path.basename(change.path) not in CACHES
    is_moved = before.state.kind != after.state.kind or before.stamp[::2] != after.stamp[::2]
    return before.state.kind == "file" and not before.state.blob and is_moved


def _items(changes: Sequence[Change], now: Mapping[bytes, Known], is_cache: Callable[[bytes], bool]) -> list[_Item]:
    """For each path the state to go back to, and what that takes."""
    first: dict[bytes, Known] = {}
    last: dict[bytes, Known] = {}
    doubtful: set[bytes] = set()
    broken: set[bytes] = set()
    for change in changes:
        first.setdefault(change.path, change.before)
        if change.shared:
            doubtful.add(change.path)
        if not same(last.setdefault(change.path, change.before), change.before):
            broken.add(change.path)
        last[change.path] = change.after
    items, holders = [], _holders(changes)
    for key in sorted(first):
        if same(first[key], last[key]) or same(first[key], now[key]):
            continue
        before, current = first[key].state, now[key].state
        other = ""
        if last[key].state.facts != current.facts or key in broken:
            other = "somebody else changed it as well"
        elif key in doubtful or not same(last[key], now[key]):
            other = "somebody else may have changed it"
        elif key in holders and current.facts.kind != "dir":
            other = "it may hold what could not be kept"
        cache = before == ABSENT and current.kind == "closed" and is_cache(key)
        if cache and not last[key].stamp == now[key].stamp != NEVER:
            decided = FileChange(shown(key), "leave", _NOT_ALL)
        else:
            decided = _decided(shown(key), before, current.facts if cache else current, other)
        items.append(_Item(key, before.facts, current.facts, decided, cache))
    # What was renamed is removed under its new name only if it comes back under the old one.
    wanted = {item.before.blob for item in items if item.change.action == "leave"} - {0}
    return [_held_back(item) if item.before == ABSENT and item.now.blob in wanted else item for item in items]


def _held_back(item: _Item) -> _Item:
    if item.change.action == "leave":
        return item
    reason = "it holds what another file was that is left"
    return replace(item, change=FileChange(item.change.path, "leave", reason, forcible=True))


def _foreseen(items: Iterable[_Item], kept: Checkpoints) -> tuple[FileChange, ...]:
    """What would become of the paths: a new directory that holds anything else stays."""
    changes = {item.key: item.change for item in items}
    for item in sorted(items, key=lambda item: item.key, reverse=True):
        if item.change.action == "leave" or item.now.kind != "dir" or item.before.kind == "dir" or item.cache:
            continue
        with contextlib.suppress(OSError):  # then it is seen when it is done
            below = [changes.get(os.path.join(item.key, name)) for name in os.listdir(kept.full(item.key))]
            if any(each is None or each.action != "remove" for each in below):
                changes[item.key] = FileChange(item.change.path, "leave", _NOT_ALL)
    return tuple(changes.values())


def _decided(name: str, before: State, now: State, other: str) -> FileChange:
    lost = before.kind == "closed" and now.facts.kind != "dir"
    if lost or before.kind == "other" or (before.kind in ("file", "link") and not before.blob):
        return FileChange(name, "leave", "its content was not kept")
    if now.kind == "closed" and before == ABSENT:
        return FileChange(name, "leave", "nobody looked into it")
    if other:
        return FileChange(name, "leave", other, forcible=True)
    return FileChange(name, _action(before, now))


def _action(before: State, now: State) -> Action:
    if before == ABSENT:
        return "remove"
    return "create" if now == ABSENT else "restore"


class _Restorer:
    """Makes files what they were. Never follows a link, as each directory is held open while something is done in it,
    and removes no directory that holds anything, but for a cache."""

    def __init__(self, kept: Checkpoints) -> None:
        self._kept = kept

    def restore(self, items: Iterable[_Item], *, force: bool) -> dict[bytes, FileChange]:
        """First goes what is in the way, then directories come back and what is in them. Returns what was done."""
        results = {item.key: item.change for item in items}
        chosen = [item for item in items if item.change.action != "leave" or (force and item.change.forcible)]
        for item in chosen:
            results[item.key] = FileChange(item.change.path, _action(item.before, item.now))
        deep = sorted(chosen, key=lambda item: item.key, reverse=True)
        for work, part in ((self._open, chosen), (self._clear, deep), (self._make, chosen), (self._close, deep)):
            for item in part:
                if results[item.key].action != "leave":
                    try:
                        work(item)
                    except OSError as error:
                        results[item.key] = _not_done(item, error)
        self._kept.look(results)
        return results

    @contextlib.contextmanager
    def _place(self, item: _Item, *, make: bool = False) -> Iterator[tuple[Folder, str]]:
        """The directory of the path, free of links, and its name in it."""
        full = Path(os.fsdecode(self._kept.full(item.key)))
        with held(full.parent, make=make) as folder:
            yield folder, full.name

    def _open(self, item: _Item) -> None:
        """A directory that stays may have been closed to its owner."""
        if item.now.kind == "dir" and item.now.mode & 0o700 != 0o700:
            with self._place(item) as (folder, name):
                folder.chmod(name, item.now.mode | 0o700)

    def _clear(self, item: _Item) -> None:
        if item.now == ABSENT or (item.before.kind == item.now.kind):
            return
        with self._place(item) as (folder, name):
            if item.cache:
                folder.remove(name)
            elif item.now.kind == "dir":
                os.rmdir(folder.at(name), dir_fd=folder.fd)
            elif item.before == ABSENT or item.before.kind == "dir":
                os.unlink(folder.at(name), dir_fd=folder.fd)

    def _make(self, item: _Item) -> None:
        if item.before == ABSENT:
            return
        with self._place(item, make=True) as (folder, name):
            if item.key == self._kept.index:  # git's own protocol
                _put(folder, name, lambda new: self._fill(folder, new, item.before), f"{name}.lock")
            elif item.before.kind == "dir":
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder.at(name), dir_fd=folder.fd)
            elif item.before.kind == "link":
                target = self._kept.store.content(item.before.blob)
                _put(folder, name, lambda new: os.symlink(target, os.fsencode(folder.at(new)), dir_fd=folder.fd))
            elif item.now._replace(mode=item.before.mode) != item.before:
                self._write(folder, name, item.before)
            else:
                folder.chmod(name, item.before.mode)

    def _write(self, folder: Folder, name: str, state: State) -> None:
        info = folder.stat(name)
        can_replace = os.access(folder.path, os.W_OK)
        if info is None or not stat.S_ISREG(info.st_mode) or (info.st_nlink == 1 and can_replace):
            _put(folder, name, lambda new: self._fill(folder, new, state))
            return
        folder.chmod(name, state.mode | 0o600)
        with open(folder.open(name, os.O_RDWR), "r+b") as file:  # its other names see it as well
            content = self._kept.store.content(state.blob)
            _reserve(file.fileno(), len(content))
            file.write(content)
            file.truncate()
        folder.chmod(name, state.mode)

    def _fill(self, folder: Folder, new: str, state: State) -> None:
        with open(folder.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(self._kept.store.content(state.blob))
        folder.chmod(new, state.mode)

    def _close(self, item: _Item) -> None:
        if item.before.kind == "dir":
            with self._place(item) as (folder, name):
                folder.chmod(name, item.before.mode)


def _not_done(item: _Item, error: OSError) -> FileChange:
    if item.before == ABSENT and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
        # A new directory that somebody else put something into is no longer the turn's own.
        return FileChange(item.change.path, "leave", _NOT_ALL)
    return FileChange(item.change.path, "leave", words(error), failed=True)


def _reserve(fd: int, size: int) -> None:
    """Makes a file that is too large for the disk fail before anything of it is overwritten, where that can be had."""
    if not hasattr(os, "posix_fallocate") or size <= os.fstat(fd).st_size:
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def _put(folder: Folder, name: str, make: Callable[[str], None], new: str = "") -> None:
    """Lets `make` create a file beside `name`, called `new` if that is given, and puts it there in one go."""
    new = new or f".corecoder-{token_hex(6)}.tmp"
    try:
        make(new)
        folder.replace(new, name)
    except FileExistsError:
        raise OSError("another git is at work") from None
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(folder.at(new), dir_fd=folder.fd)
        raise
