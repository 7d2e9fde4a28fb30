"""The file that holds a project's checkpoints: SQLite, one transaction at a time, bounded in size.

    blobs     contents and link targets by their SHA-256, compressed
    files     how each path was when it was last seen: the state to compare with
    steps     which turn of which session; `owner` while it is open, `scope` the paths it is about (NULL: the project),
              `head` what git's HEAD stood for and in a second line a digest of the refs, `cut` that it died open,
              `dropped` that its changes are gone
    changes   what a step made of a path; `shared` if another session may have done it

Sessions of one project share the file. Each holds a lock file while it lives, so that the others know whose steps have
died. The price of the bound: the oldest steps can no longer be undone, which is said where somebody asks for one. There
is another over all projects together, which costs the one that rested longest what was kept of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

from .journal import private_directory, try_lock, write_private
from .snapshot import Known, State

_PATIENCE = 30.0  # seconds that another session may be at it
_PRUNED_TO = 0.8  # of the bound
_OF_PROJECT = "project"  # the file that holds its path
_SPARED = 3 * 24 * 3600  # seconds
_SCHEMA = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 16000000;
CREATE TABLE IF NOT EXISTS blobs (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, state TEXT, mtime INT, ctime INT, size INT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS steps (
    id INTEGER PRIMARY KEY, session TEXT, turn INT, owner TEXT, scope BLOB, head TEXT,
    cut INT DEFAULT 0, dropped INT DEFAULT 0);
CREATE INDEX IF NOT EXISTS steps_of_turns ON steps (session, turn);
CREATE TABLE IF NOT EXISTS changes (
    step INT, path BLOB, before TEXT, after TEXT, shared INT, PRIMARY KEY (step, path)) WITHOUT ROWID;
"""


class Store:
    """`files` are those of the table, good within a transaction. `guard` is held in every transaction of this process.

    Nothing is written before the first transaction. May be used from any thread.
    """

    def __init__(self, folder: Path, most_bytes: int, project: Path, all_bytes: int) -> None:
        self.files: dict[bytes, Known] = {}
        self.guard = threading.Condition(threading.RLock())
        self.owner = token_hex(8)
        self._folder = folder
        self._most_bytes, self._all_bytes = most_bytes, all_bytes
        self._project = project
        self._path = folder / "files-1.sqlite"  # with the version of the tables
        self._alive: int | None = None  # the lock file
        self._db: sqlite3.Connection | None = None
        self._version = -1

    @property
    def is_empty(self) -> bool:
        """Whether no step of this project was ever kept."""
        return not self._path.exists()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of the block or nothing of it, alone among all sessions. Nests. Raises OSError or sqlite3.Error."""
        with self.guard:
            db = self._connect()
            if db.in_transaction:
                yield db
                return
            db.execute("BEGIN IMMEDIATE")
            try:
                [version] = db.execute("PRAGMA data_version").fetchone()
                if version != self._version:  # somebody else has written
                    rows = db.execute("SELECT path, state, mtime, ctime, size FROM files")
                    self.files = {path: Known(State.parse(state), tuple(stamp)) for path, state, *stamp in rows}
                    self._version = version
                yield db
                db.execute("COMMIT")
            except BaseException:
                self._version = -1
                with contextlib.suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    def keep(self, data: bytes) -> int:
        """The number of a blob with this content; within a transaction."""
        with self.transaction() as db:
            digest = hashlib.sha256(data).digest()
            row = (digest, zlib.compress(data, 1))
            made = db.execute("INSERT OR IGNORE INTO blobs (digest, data) VALUES (?, ?)", row)
            if made.rowcount:
                return int(made.lastrowid or 0)
            [number] = db.execute("SELECT id FROM blobs WHERE digest = ?", (digest,)).fetchone()
            return int(number)

    def content(self, blob: int) -> bytes:
        """The bytes of a file, or the target of a link."""
        with self.transaction() as db:
            [data] = db.execute("SELECT data FROM blobs WHERE id = ?", (blob,)).fetchone()
            return zlib.decompress(data)

    def lives(self, owner: str) -> bool:
        """Whether the session that goes by this name still runs."""
        return _is_held(self._lock_of(owner))

    def prune(self) -> None:
        """Drops the oldest steps, a part at a time, until the file is well below its bound again."""
        with self.transaction() as db:
            if _size(db) <= self._most_bytes:
                return
            while _size(db) > _PRUNED_TO * self._most_bytes:
                steps = db.execute("SELECT id FROM steps WHERE NOT dropped AND owner IS NULL ORDER BY id").fetchall()
                if not steps:
                    return
                oldest = steps[: max(1, len(steps) // 8)]
                db.executemany("DELETE FROM changes WHERE step = ?", oldest)
                db.executemany("UPDATE steps SET dropped = 1 WHERE id = ?", oldest)
                kept = "SELECT state FROM files UNION SELECT before FROM changes UNION SELECT after FROM changes"
                used = {Known.parse(state).state.blob for (state,) in db.execute(kept)}
                blobs = db.execute("SELECT id FROM blobs").fetchall()
                db.executemany("DELETE FROM blobs WHERE id = ?", [row for row in blobs if row[0] not in used])

    def vacuum(self) -> None:
        """Gives freed pages back to the disk; outside of a transaction."""
        with self.guard:
            db = self._connect()
            if db.execute("PRAGMA freelist_count").fetchone()[0]:
                db.execute("PRAGMA incremental_vacuum").fetchall()

    def close(self) -> None:
        """Gives up the file and the lock. Safe to call twice, and what is used again is opened again."""
        with self.guard:
            if self._db is not None:
                self._db.close()
            if self._alive is not None:
                os.close(self._alive)
                self._lock_of(self.owner).unlink(missing_ok=True)
            self._db = self._alive = None

    def __del__(self) -> None:
        self.close()  # a forgotten one would hold its lock for as long as the process lives

    def _lock_of(self, owner: str) -> Path:
        return self._folder / f"{owner}.alive"

    def _connect(self) -> sqlite3.Connection:
        if self._db is not None:
            return self._db
        private_directory(self._folder)
        for path in self._folder.glob("*.alive"):
            if not _is_held(path):
                path.unlink(missing_ok=True)
        tidy(self._folder, self._all_bytes)
        if not (named := self._folder / _OF_PROJECT).exists():
            with contextlib.suppress(FileExistsError):
                write_private(named, os.fsencode(self._project))
        self._alive = os.open(self._lock_of(self.owner), os.O_RDWR | os.O_CREAT, 0o600)
        try_lock(self._alive)
        try:
            self._db = self._opened()
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # busy, or a full disk: nothing is wrong with the file
                raise
            os.replace(self._path, self._path.with_suffix(f".damaged-{token_hex(4)}"))
            self._db = self._opened()
        return self._db

    def _opened(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))  # for the owner alone
        db = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        try:
            db.executescript(_SCHEMA)
        except BaseException:
            db.close()
            raise
        self._version = -1
        return db


def tidy(folder: Path, most_bytes: int) -> None:
    """Removes what was kept of other projects than that of `folder`: of those that are gone, and, while all together
    take more than `most_bytes`, of those that were not worked on for longest. Never what a session uses, nor what was
    used in the last days: a project that is gone may be on a disk that comes back."""
    long_ago = time.time() - _SPARED
    total, others = 0, []
    for other in folder.parent.iterdir():
        with contextlib.suppress(OSError):
            sizes = [file.stat() for file in other.iterdir() if file.is_file()]
            size, used = sum(each.st_size for each in sizes), max(each.st_mtime for each in sizes or [other.stat()])
            total += size
            if other != folder and used < long_ago:
                others.append((not _is_gone(other), used, size, other))
    for there, _, size, other in sorted(others):
        if there and total <= most_bytes:
            break
        if not any(map(_is_held, other.glob("*.alive"))):
            shutil.rmtree(other, ignore_errors=True)
            total -= size


def _is_gone(folder: Path) -> bool:
    """Whether the project that this is of is no longer there."""
    try:
        return not os.path.isdir((folder / _OF_PROJECT).read_bytes())
    except OSError:
        return False  # an older one, which does not say


def _is_held(lock: Path) -> bool:
    """Whether a session that lives holds this lock file."""
    try:
        fd = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def _size(db: sqlite3.Connection) -> int:
    """Bytes in use."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)
    return (pages - free) * size
