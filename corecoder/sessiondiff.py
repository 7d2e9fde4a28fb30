"""What a session has made of the project: a unified diff over all files, against how they were when it began.

Checkpoints keep what a file was before a step first changed it; that is compared with the file as it is now, so files
that git ignores count, and without git it works as well. A file that is as it was in the end is not listed, whatever
happened to it in between. The price: what a person changed meanwhile in the same files is in the diff too, and what
checkpoints do not keep (`checkpoints.py` says what) can only be named.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence

from .checkpoints import CheckpointError, Checkpoints
from .journal import words
from .session import Session
from .snapshot import ABSENT, Known, State, same, shown
from .text import plural
from .tools.diff import Span, unified
from .values import dataclass

_BINARY_LOOK = 8_000  # bytes in which a zero marks a file as binary, as git does it


@dataclass(frozen=True)
class FileDiff:
    """One path. `what` is "new", "removed", "changed", or says why there is no diff; `text` is the unified diff."""

    name: str
    what: str
    text: str = ""
    added: int = 0
    removed: int = 0

    @property
    def summary(self) -> str:
        """`changed, +3 -1`."""
        return f"{self.what}, +{self.added:,} -{self.removed:,}" if self.text else self.what


@dataclass(frozen=True)
class SessionDiff:
    """The files that differ, by name, and what else there is to know."""

    files: tuple[FileDiff, ...] = ()
    notes: tuple[str, ...] = ()


def changed_paths(session: Session, checkpoints: Checkpoints | None) -> list[str]:
    """The names of all files that steps of `session` have touched, without a look at them. Raises CheckpointError."""
    if checkpoints is None or checkpoints.store.is_empty:
        return []
    with _readable():
        return sorted({shown(change.path) for change in checkpoints.changes(session.all_turns)})


def session_diff(session: Session, checkpoints: Checkpoints | None) -> SessionDiff:
    """The changes of `session` since its start, those of the session that it is a copy of included.

    Turns whose words alone were taken back count; raises CheckpointError if what was kept cannot be read.
    """
    if checkpoints is None:
        return SessionDiff(notes=("Nothing keeps what this agent changes, so there is no diff.",))
    if checkpoints.store.is_empty:
        return SessionDiff()
    with _readable(), checkpoints.store.transaction():
        return _compared(checkpoints, session.all_turns)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise CheckpointError(f"what was kept cannot be read: {words(error)}") from error


def _compared(checkpoints: Checkpoints, turns: Sequence[tuple[str, int]]) -> SessionDiff:
    before: dict[bytes, Known] = {}
    for change in checkpoints.changes(turns):
        before.setdefault(change.path, change.before)
    before.pop(checkpoints.index, None)  # what is staged is not a file of the project's
    now = checkpoints.look(before)
    files = [
        _file(checkpoints, shown(path), before[path].state.facts, now[path].state.facts)
        for path in sorted(before)
        if not same(before[path], now[path])
        and "dir" not in (before[path].state.facts.kind, now[path].state.facts.kind)
    ]
    dropped = checkpoints.about(turns).dropped
    notes = (f"What {plural(dropped, 'step')} of this session changed is no longer kept.",) if dropped else ()
    return SessionDiff(tuple(files), notes)


def _file(checkpoints: Checkpoints, name: str, before: State, now: State) -> FileDiff:
    what = "new" if before == ABSENT else "removed" if now == ABSENT else "changed"
    if any(state.kind == "other" or (state != ABSENT and not state.blob) for state in (before, now)):
        return FileDiff(name, f"{what}, its content was not kept")
    if before.blob == now.blob and before.kind == now.kind:
        return FileDiff(name, f"changed, mode {before.mode:o} -> {now.mode:o}")
    one, other = (b"" if state == ABSENT else checkpoints.store.content(state.blob) for state in (before, now))
    if "link" in (before.kind, now.kind):
        what = f"{what}, a link"
    if b"\0" in one[:_BINARY_LOOK] + other[:_BINARY_LOOK]:
        return FileDiff(name, f"{what}, binary, {_size(one)} -> {_size(other)}")
    old, new = one.decode("utf-8", "replace"), other.decode("utf-8", "replace")
    diff = unified(name, old, [Span(0, len(old), new)], created=before == ABSENT, whole=True)
    text = diff.text if now != ABSENT else diff.text.replace(f"+++ b/{name}", "+++ /dev/null", 1)
    return FileDiff(name, what if text else f"{what}, empty", text, diff.added, diff.removed)


def _size(data: bytes) -> str:
    return plural(len(data), "byte")
