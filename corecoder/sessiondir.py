"""Where session logs lie, and what can be said about them without reading them whole.

A project's logs are in `<home>/sessions/<slug>/<id>.jsonl`. An id starts with the time in UTC, so names sort by age.
Listing reads the head of a log (system prompt, model, first prompt) and its tail, where each message record carries
its own number and what was spent by then: the price of a list does not grow with the length of the sessions.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .errors import SessionError
from .journal import Record, decode
from .messages import text_of
from .text import one_line, typed
from .values import dataclass

_HEAD_LINES = 50
_TAIL = 1 << 16


@dataclass(frozen=True)
class SessionInfo:
    """One line of a list of sessions. `modified` is in seconds since 1970, `size` in bytes, `messages` a count,
    `title` the first words of the first prompt, `cost` in dollars, None where it is not known."""

    id: str
    path: Path
    title: str
    modified: float
    size: int
    messages: int
    model: str
    cost: float | None = None


def project_directory(home: Path, project: Path, kind: str = "sessions") -> Path:
    """Where the logs of `project` lie, or what else there is of one `kind`: its last names to read, and a hash of its
    real path to tell it apart."""
    real = Path(os.path.realpath(project))
    words = re.sub(r"[^A-Za-z0-9._]+", "-", "-".join(real.parts[-2:])).strip("-.")[-40:]
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:10]
    return home / kind / f"{words or 'root'}-{digest}"


def new_id() -> str:
    """A session id such as `20250131-142501-9f3a1c`."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def latest(home: Path, project: Path) -> Path | None:
    """The log of this project that was written last, None if there is none."""
    logs = _logs(project_directory(home, project))
    return logs[0] if logs else None


def find(home: Path, project: Path, id_prefix: str) -> Path:
    """The log of this project whose id starts with `id_prefix`; SessionError if there is not exactly one."""
    directory = project_directory(home, project)
    if not id_prefix and not _logs(directory):
        raise SessionError(f"this project has no session yet; they would be in {directory}.")
    fits = sorted(path for path in _logs(directory) if path.stem.startswith(id_prefix))
    if len(fits) == 1:
        return fits[0]
    if fits:
        names = ", ".join(path.stem for path in fits[:5]) + (", …" if len(fits) > 5 else "")
        raise SessionError(
            f"{len(fits)} sessions of this project start with {id_prefix!r}: {names}. Give more of the id."
        )
    for other in sorted(directory.parent.glob("*/*.jsonl")):
        if id_prefix and other.stem.startswith(id_prefix):
            where = next((record.get("project") for record in _head(other) if record.get("type") == "session"), None)
            raise SessionError(f"session {other.stem} belongs to {where or other.parent.name}; start corecoder there.")
    raise SessionError(f"no session of this project starts with {id_prefix!r}; its sessions are in {directory}.")


def listing(home: Path, project: Path) -> list[SessionInfo]:
    """The sessions of this project, the last written first."""
    infos = []
    for path in _logs(project_directory(home, project)):
        try:
            infos.append(_describe(path))
        except OSError:
            continue  # removed or locked away since the directory was read
    return infos


def _logs(directory: Path) -> list[Path]:
    """The logs in `directory` that hold anything, the last written first."""
    found = []
    for path in directory.glob("*.jsonl"):
        try:
            state = path.stat()
        except OSError:
            continue
        if state.st_size:
            found.append((state.st_mtime_ns, path.name, path))
    return [path for _, _, path in sorted(found, reverse=True)]


def _describe(path: Path) -> SessionInfo:
    state = path.stat()
    title = model = ""
    for record in _head(path):
        if record.get("type") == "session" and not model:
            model = str(record.get("model") or "")
        message = record.get("message")
        if record.get("type") == "message" and isinstance(message, dict) and message.get("role") == "user":
            title = one_line(typed(text_of(message)), 60)
            meta = record.get("meta")
            if not (isinstance(meta, dict) and meta.get("kind")):  # a notice only stands in until there is a prompt
                break
    messages = 0
    newest_model = ""
    costs: dict[Any, Any] = {}  # by record, as the end may come more than once
    for record in _backwards(path):
        newest_model = newest_model or str(record.get("model") or "")
        if record.get("type") == "usage":  # since the last message, whose record holds the sum until then
            costs[record.get("id")] = record.get("cost")
        if record.get("type") == "message":
            number = record.get("n")
            messages = number if isinstance(number, int) else 0
            costs[record.get("id")] = record.get("spent")
            break
    known = costs and all(isinstance(each, (int, float)) for each in costs.values())
    cost = sum(costs.values()) if known else None
    return SessionInfo(path.stem, path, title, state.st_mtime, state.st_size, messages, newest_model or model, cost)


def _head(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        yield from _decoded(itertools.islice(file, _HEAD_LINES))


def _backwards(path: Path) -> Iterator[Record]:
    """The records of a log from the last to the first, reading only as much of its end as is asked for. Where more
    has to be read, the end comes once more."""
    with path.open("rb") as file:
        size, span = file.seek(0, os.SEEK_END), _TAIL
        while True:
            start = max(0, size - span)
            file.seek(start)
            lines = file.read(size - start).split(b"\n")
            yield from _decoded(reversed(lines[1:] if start else lines))  # the first began earlier
            if not start:
                return
            span *= 4


def _decoded(lines: Iterable[bytes]) -> Iterator[Record]:
    for line in lines:
        if line.startswith(b"{"):
            with contextlib.suppress(ValueError):
                yield decode(line)
