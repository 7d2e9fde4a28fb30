"""Checkpoints: what the steps of a turn change is kept before they change it, so that a turn can be undone.

One mechanism does it all: a look at the project compares it with how it was last seen, and puts every difference down
to the steps that are open. So a look is taken before a step opens (what differs then is the user's own doing) and
before it closes. A step that died open is closed by the next one's look, its own session's or another's; what differs
by then may be anybody's doing.

Why not a git repository in the shadow: a step would cost four processes instead of two, and modes, empty directories,
nested repositories, ignored files and attributes would each need care beside it. In a database a kill between two lines
is harmless, and two sessions can work in one project. The price: an edit made by hand while a command runs counts as
the command's, which a preview says, and every file is held once more, compressed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .checkpointstore import Store
from .errors import CoreCoderError
from .jobs import CancelToken
from .journal import words
from .sessiondir import project_directory
from .snapshot import (
    ABSENT,
    CACHE,
    GIT,
    IGNORED,
    NEVER,
    Known,
    State,
    above,
    contents,
    differs,
    git_at,
    is_cache,
    is_walked,
    repository,
    same,
    told,
    walk,
)
from .tool import Workspace
from .values import dataclass

_ENDING = 5.0  # seconds for the command of a cancelled turn to end
# Nanoseconds. A file changed again so soon may look the same: file systems count time in steps of up to 2 s (FAT).
_RACY = 2_000_000_000
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {stat.S_IFREG: "file", stat.S_IFLNK: "link", stat.S_IFDIR: "dir"}


class CheckpointError(CoreCoderError):
    """What was kept cannot be used now. The text says why."""


@dataclass(frozen=True)
class Bounds:
    """How much is kept: `files` and directories looked at, `in_all` bytes of them, `one` file's bytes (the file tools
    write no larger ones), `stored` bytes on disk, and those of all projects together."""

    files: int = 50_000
    in_all: int = 256_000_000
    one: int = 20_000_000
    stored: int = 1_000_000_000
    stored_in_all: int = 2_000_000_000


class Change(NamedTuple):
    """What the step `step` made of `path`; `shared` if somebody else may have done it, a step of another session or
    anybody after this one had died; `anywhere` if the step was not about certain files."""

    step: int
    path: bytes
    before: Known
    after: Known
    shared: bool
    anywhere: bool


class About(NamedTuple):
    """git's HEAD and refs when the first of some steps began (None: there is no step), how many of the steps are no
    longer kept, and how many died open."""

    git: tuple[str, str] | None = None
    dropped: int = 0
    cut: int = 0


class Checkpoints:
    """The checkpoints of one project, as one agent keeps them in `home`. Nothing is written before the first step that
    may change something. May be used from any thread."""

    def __init__(self, home: Path, workspace: Workspace, bounds: Bounds | None = None) -> None:
        self.root = Path(os.path.realpath(workspace.root))
        self.bounds = bounds or Bounds()
        folder = project_directory(home, workspace.root, "checkpoints")
        self.store = Store(folder, self.bounds.stored, self.root, self.bounds.stored_in_all)
        self._workspace = workspace
        self._home = Path(os.path.realpath(home))
        self._turn = ("", 0)
        self._running: set[int] = set()
        self._walked = time.time_ns()  # when the project was last looked at
        self._said: set[bytes | str] = set()  # paths and reasons

    def begin(self, session: str, turn: int) -> None:
        """From here on, steps belong to the turn of `session` that this record began."""
        self._turn = (session, turn)

    @contextlib.contextmanager
    def step(self, arguments: Mapping[str, Any], token: CancelToken, say: Callable[[str], None]) -> Iterator[None]:
        """Around a call that may change something: the file that its arguments name, else anything in the project.

        `say` is given, before the block, what could not be kept. Raises Cancelled; whatever else goes wrong is said,
        and the block runs without a checkpoint.
        """
        scope = self._scope(arguments)
        number = None
        try:
            number, unkept = self._open(scope, token)
            if "git" in str(arguments.get("command")) and repository(self.root)[0] and GIT not in self._said:
                unkept.insert(0, "git's commits and branches")
                self._said.add(GIT)
            if arguments.get("background"):
                unkept.append("what the command changes once it runs in the background")
            if unkept:
                say(f"undo will not bring back: {'; '.join(unkept)}")
        except (OSError, sqlite3.Error) as error:
            if words(error) not in self._said:
                say(f"what is changed from here on cannot be undone: {words(error)}")
            self._said.add(words(error))
        try:
            yield
        finally:
            if number is not None:
                self._close(number, scope)

    # -- for whoever undoes

    def settle(self) -> None:
        """Closes what died open. Raises CheckpointError while a step of ours still runs."""
        with self.store.guard:
            if not self.store.guard.wait_for(lambda: not self._running, _ENDING):
                raise CheckpointError("a command is still running; nothing was undone. Try again once it has ended.")
            with self.store.transaction() as db:
                self._settle(db, CancelToken())

    def changes(self, turns: Iterable[tuple[str, int]]) -> list[Change]:
        """What the steps of these turns (session, record of the prompt) changed, in the order of the steps."""
        with self.store.transaction() as db:
            query = (
                "SELECT step, path, before, after, shared OR cut, scope IS NULL FROM steps JOIN changes ON step = id "
                "WHERE session = ? AND turn = ? AND before <> after"
            )
            rows = sorted(row for turn in turns for row in db.execute(query, turn))
            changes = [
                Change(step, path, Known.parse(before), Known.parse(after), bool(shared), bool(anywhere))
                for step, path, before, after, shared, anywhere in rows
            ]
            return [change for change in changes if not same(change.before, change.after)]

    def about(self, turns: Iterable[tuple[str, int]]) -> About:
        """What else is known of their steps."""
        with self.store.transaction() as db:
            query = "SELECT id, head, dropped, cut FROM steps WHERE session = ? AND turn = ?"
            rows = sorted(row for turn in turns for row in db.execute(query, turn))
            if not rows:
                return About()
            name, _, refs = rows[0][1].partition("\n")
            return About((name, refs), sum(row[2] for row in rows), sum(row[3] for row in rows))

    def look(self, paths: Iterable[bytes]) -> dict[bytes, Known]:
        """How these paths are now."""
        with self.store.transaction() as db:
            wanted = list(paths)
            # What was not kept and has not changed need not be kept now: it would only be harder to compare.
            self._look(db, [path for path in wanted if not self._is_as_seen(path)], CancelToken())
            return {path: self.store.files.get(path, Known(ABSENT)) for path in wanted}

    def full(self, path: bytes) -> bytes:
        """Where a path of ours is in the file system."""
        return os.path.join(os.fsencode(self.root), path)

    @property
    def index(self) -> bytes:
        """Where git's index is, as a path of ours; b"" without a repository."""
        git = git_at(self.root)
        return self._key(os.path.realpath(git / "index")) if git else b""

    def close(self) -> None:
        """Gives up the store. Safe to call twice, and while a step is running."""
        self.store.close()

    # -- steps

    def _open(self, scope: list[bytes] | None, token: CancelToken) -> tuple[int, list[str]]:
        git = repository(self.root)
        joined = None if scope is None else b"\0".join(scope)
        row = (*self._turn, self.store.owner, joined, "\n".join(git))
        with self.store.guard:
            with self.store.transaction() as db:
                self._settle(db, token)
                unkept = self._look(db, scope, token)
                query = "INSERT INTO steps (session, turn, owner, scope, head) VALUES (?, ?, ?, ?, ?)"
                number = int(db.execute(query, row).lastrowid or 0)
            self._running.add(number)
        topics = {path: reason if reason in (CACHE, IGNORED) else path for path, reason in unkept.items()}
        new = {path: reason for path, reason in unkept.items() if topics[path] not in self._said}
        self._said.update(topics.values())
        return number, told(new)

    def _close(self, number: int, scope: list[bytes] | None) -> None:
        with self.store.guard:
            try:
                with self.store.transaction() as db:
                    self._look(db, scope, CancelToken(), mine=number)
                    db.execute("UPDATE steps SET owner = NULL WHERE id = ?", (number,))
                    self.store.prune()
                self.store.vacuum()
            except (OSError, sqlite3.Error):
                pass  # it stays open, and the next step settles it
            finally:
                self._running.discard(number)
                self.store.guard.notify_all()

    def _settle(self, db: sqlite3.Connection, token: CancelToken) -> None:
        for number, owner, scope in db.execute("SELECT id, owner, scope FROM steps WHERE owner IS NOT NULL").fetchall():
            if number in self._running or (owner != self.store.owner and self.store.lives(owner)):
                continue
            self._look(db, _split(scope), token)
            db.execute("UPDATE steps SET owner = NULL, cut = 1 WHERE id = ?", (number,))

    def _scope(self, arguments: Mapping[str, Any]) -> list[bytes] | None:
        """The file that a call names, and the directories that would be made for it; None for the whole project."""
        path = arguments.get("file_path")
        if "command" in arguments or not isinstance(path, str) or not path.strip() or "\0" in path:
            return None
        real = os.path.realpath(self._workspace.resolve(path))
        keys = [self._key(real)]
        while not os.path.lexists(real := os.path.dirname(real)):
            keys.append(self._key(real))
        return keys

    def _key(self, real: str) -> bytes:
        inside = Path(real).is_relative_to(self.root)
        return os.fsencode(os.path.relpath(real, self.root) if inside else real)

    # -- looking

    def _look(
        self, db: sqlite3.Connection, scope: Iterable[bytes] | None, token: CancelToken, mine: int = 0
    ) -> dict[bytes, str]:
        """Brings `files` up to date, within `scope` or as far as a walk comes, and puts the differences down to the
        open steps, of which `mine` is one. Returns what is not kept, with the reason."""
        began = time.time_ns()
        now, closed = self._seen(scope, token)
        unkept: dict[bytes, str] = {**closed}
        differences: dict[bytes, tuple[Known, Known]] = {}
        changed: list[bytes] = []
        for path, known in now.items():
            old = self.store.files.get(path)
            if known.state.blob == 0 and known.state.kind in ("file", "link", "other"):
                unkept[path] = self._reason(known)
            if old is known or old == known:
                continue
            changed.append(path)
            if old is None and not self._is_unknown(path):
                old = Known(ABSENT)
            if old is not None and differs(old, known):
                differences[path] = (old, known)
        gone = [path for path in self.store.files if path not in now and is_walked(path)] if scope is None else []
        for path in gone:  # or it lies where nobody looks any more, which a step may have brought about
            known = self._one(path) if any(each in closed for each in above(path)) else Known(ABSENT)
            if differs(self.store.files[path], known):
                differences[path] = (self.store.files[path], known)
        if scope is None:
            self._walked = began
        self._attribute(db, differences, mine)
        rows = [(path, str(now[path].state), *now[path].stamp) for path in changed]
        db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", rows)
        db.executemany("DELETE FROM files WHERE path = ?", [(path,) for path in gone])
        self.store.files.update((path, now[path]) for path in changed)
        for path in gone:
            del self.store.files[path]
        return unkept

    def _seen(self, scope: Iterable[bytes] | None, token: CancelToken) -> tuple[dict[bytes, Known], dict[bytes, str]]:
        """What is there now, contents kept, and the directories that were not looked into."""
        if scope is not None:
            return {path: self._one(path) for path in scope}, {}
        seen = walk(self.root, self.bounds.files, token, [self._home])
        now = {b"": Known(State("closed" if b"" in seen.closed else "dir"))}
        total = 0
        for path, info in seen.found.items():
            token.check()
            if path in seen.closed:
                now[path] = self._closed(path, info)
                continue
            now[path] = known = self._known(path, info, keep=total + info.st_size <= self.bounds.in_all)
            total += info.st_size if known.state.blob else 0
        if index := self.index:
            now[index] = self._one(index)
        return now, seen.closed

    def _one(self, path: bytes) -> Known:
        old = self.store.files.get(path)
        try:
            info = os.lstat(self.full(path))
        except PermissionError:
            return old or Known(State("other"))
        except OSError:
            return Known(ABSENT)
        if old and old.state.kind == "closed" and stat.S_ISDIR(info.st_mode):
            return self._closed(path, info)
        return self._known(path, info)

    def _closed(self, path: bytes, info: os.stat_result) -> Known:
        """With a stamp only if it is a cache that came about while we looked, as nothing else of it is known."""
        old, full, stamp = self.store.files.get(path), self.full(path), NEVER
        is_new = old is None and not self._is_unknown(path)
        if (is_new or (old and old.state.kind == "closed" and old.stamp != NEVER)) and is_cache(full):
            stamp = contents(full, self._walked - _RACY if is_new else 0)
        return Known(State("closed", stat.S_IMODE(info.st_mode)), stamp)

    def _is_as_seen(self, path: bytes) -> bool:
        old = self.store.files.get(path)
        with contextlib.suppress(OSError):
            return old is not None and old.stamp != NEVER and old.stamp == _stamp(os.lstat(self.full(path)))
        return False

    def _known(self, path: bytes, info: os.stat_result, *, keep: bool = True) -> Known:
        old = self.store.files.get(path)
        stamp = _stamp(info)
        if old and old.stamp == stamp and (old.state.blob or not keep):
            return old  # the ctime says that it is of the same kind and mode, too
        kind, mode = _KINDS.get(stat.S_IFMT(info.st_mode), "other"), stat.S_IMODE(info.st_mode)
        if kind not in ("file", "link"):
            return old if old and old.state == (kind, mode, 0) else Known(State(kind, mode))
        mode = mode if kind == "file" else 0
        began = time.time_ns()
        try:
            data = _content(self.full(path), kind) if keep and info.st_size <= self.bounds.one else None
        except OSError:
            data = None
        if data is None:
            return Known(State(kind, mode), stamp)
        settled = began - max(stamp[:2]) > _RACY
        return Known(State(kind, mode, self.store.keep(data)), stamp if settled else NEVER)

    def _is_unknown(self, path: bytes) -> bool:
        """Whether nobody has looked where `path` is, so that it need not be new."""
        if path == GIT or not is_walked(path) or b"" not in self.store.files:
            return True
        return any(each in self.store.files and self.store.files[each].state.kind == "closed" for each in above(path))

    def _attribute(self, db: sqlite3.Connection, differences: dict[bytes, tuple[Known, Known]], mine: int) -> None:
        """Puts differences down to the open steps that are about these very paths, the others to those that are about
        the whole project."""
        if not differences:
            return
        query = "SELECT id, session, scope FROM steps WHERE owner IS NOT NULL OR id = ?"
        steps = [(number, session, _split(scope)) for number, session, scope in db.execute(query, (mine,))]
        index = self.index
        for path, (before, after) in differences.items():
            if before.state == after.state and after.state.kind == "closed":
                if steps:  # a step went on with the cache that one had made
                    query = "UPDATE changes SET after = ? WHERE path = ? AND after = ?"
                    db.execute(query, (str(after), path, str(before)))
                continue
            claims = [step for step in steps if step[2] is not None and path in step[2]]
            if not claims and (is_walked(path) or path == index):
                claims = [step for step in steps if step[2] is None]
            shared = len({session for _, session, _ in claims}) > 1
            db.executemany(
                "INSERT INTO changes VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (step, path) DO UPDATE SET after = excluded.after, shared = shared OR excluded.shared",
                [(number, path, str(before), str(after), shared) for number, _, _ in claims],
            )

    def _reason(self, known: Known) -> str:
        if known.state.kind == "other":
            return "not a regular file"
        if known.stamp[2] > self.bounds.one:
            return f"more than {self.bounds.one // 1_000_000} MB"
        return f"unreadable, or beyond {self.bounds.in_all // 1_000_000} MB in all"


def _stamp(info: os.stat_result) -> tuple[int, int, int]:
    return info.st_mtime_ns, info.st_ctime_ns, info.st_size


def _split(scope: bytes | None) -> list[bytes] | None:
    return None if scope is None else scope.split(b"\0")


def _content(path: bytes, kind: str) -> bytes:
    if kind == "link":
        return os.readlink(path)
    with open(os.open(path, _OPEN_FLAGS), "rb") as file:
        return file.read()
