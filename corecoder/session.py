"""The session: an append-only log that holds everything, and the view of it that the model is given.

The view is a pure function of the log: the messages that the newest `view` record names, then every message after it.
So nothing that makes the view smaller can lose anything, taking that back is one more `view` record, and loading is
replaying. The records, beside `id`, `type` and `at`:

    session   version, session, project, created, model, system; the newest counts, `origin` marks a copy
    message   what was said: {"message": {...}, "n": its number among the messages, "meta": what else is known of it,
              "spent": dollars that the session had cost by then, left out where that is unknown}
    derived   a message that a tier made (a stub, a summary); in the view only where a `view` record names it
    view      {"ranges": [[first, last], ...], "how": ...}: inclusive ids over `message` and `derived` records;
              "undoes" is the id of the `view` record that this one takes back, "before" that of the prompt to
              before which it goes back
    model, usage, note

The price: a message in view is held twice, in memory and on disk; one out of view costs its place in the index.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

from . import sessiondir
from .errors import SessionError
from .events import Usage
from .journal import CARRIERS, Journal, Record, private_directory, words, write_private
from .messages import Message

VERSION = 1


class Session:
    """One conversation and its log.

    `system` is the frozen system prompt (to be set before the first append where a damaged log has lost it),
    `total_usage` the sum of all usage records, `undone` whether the view is as an undo left it, `notices` what
    loading had to say. Only one thread may append; `view`, `message`, `messages` and `spill` may be called from any.
    """

    latest = staticmethod(sessiondir.latest)
    find = staticmethod(sessiondir.find)
    listing = staticmethod(sessiondir.listing)

    def __init__(self, path: Path, *, project: str = "", system: str = "", model: str = "") -> None:
        self.project = project
        self.system = system
        self.model_name = model
        self.total_usage = Usage()
        self.undone = False
        self.notices: list[str] = []
        self._journal = Journal(path)
        self._started = False  # this session's own record stands in the log
        self._origin: Record = {}
        self._waiting: list[tuple[str, Record]] = []  # what was said to the log before there is one
        self._count = 0
        self._live: list[int] = []
        self._held: dict[int, Message] = {}
        self._metas: dict[int, dict[str, Any]] = {}
        self._record_of: dict[int, int] = {}  # id(message) -> record id, for members of the view
        self._undoable: list[tuple[int, list[list[int]]]] = []  # view record, ranges of the view before it
        self._turns: dict[int, tuple[str, dict[str, Any]]] = {}  # prompt -> session, and what is kept beside it
        self._all_turns: list[tuple[str, int]] = []
        self._writer = path.stem  # the session whose records are being taken in: its own, or the one it is a copy of
        self._taken_back: list[tuple[int, int]] = []  # prompt, the view record that went back to before it
        self._notes: dict[str, dict[str, Any]] = {}
        self._folder: Path | None = None  # for spilled texts, where there is no log to put them beside

    # -- opening and closing

    @classmethod
    def create(cls, home: Path, project: Path, *, system: str = "", model: str = "") -> Session:
        """A new session of `project`. Nothing is written before the first append, which may raise SessionError."""
        path = sessiondir.project_directory(home, project) / f"{sessiondir.new_id()}.jsonl"
        return cls(path, project=str(project.resolve()), system=system, model=model)

    @classmethod
    def in_memory(cls, *, system: str = "", model: str = "") -> Session:
        """A session that leaves nothing behind; spilled texts stand in a temporary directory until it is closed."""
        session = cls(Path(f"{sessiondir.new_id()}.jsonl"), system=system, model=model)
        session.keep_in_memory()
        return session

    def fresh(self) -> Session:
        """A new session of the same project, with the same system prompt and model."""
        path = self.path.with_name(f"{sessiondir.new_id()}.jsonl")
        session = Session(path, project=self.project, system=self.system, model=self.model_name)
        session._journal.on_disk = self.on_disk
        return session

    @classmethod
    def load(cls, path: Path) -> Session:
        """The session in the log at `path`, its view as it was live.

        Where another process has the log open, the session goes on in a copy of its own; where the log cannot be
        written, in memory. Both are said in `notices`, as is what was damaged. Raises SessionError if there is no
        log that this version can read; the file is then as it was.
        """
        session = cls(path)
        session.notices = session._journal.load(session._take, path.with_name(f"{sessiondir.new_id()}.jsonl"))
        try:
            session._settle()
        except SessionError:
            session.close()
            raise
        if session._journal.next and not session._started:
            session.notices.append("the session log has lost its first record, and with it the system prompt")
        writer = session._writer if session._started else path.stem
        if writer != session.id:  # a copy, made just now or by `fork`
            session._started, session._origin = False, {"origin": writer}
        return session

    def fork(self) -> str:
        """Copies the log and returns the id of the copy, which is a session of its own from its next record on.

        Raises SessionError if there is nothing on disk to copy, or it cannot be written.
        """
        path = self.path.with_name(f"{sessiondir.new_id()}.jsonl")
        self._journal.copy(path)
        return path.stem

    @property
    def path(self) -> Path:
        """The log; it exists from the first append on, and never for a session in memory."""
        return self._journal.path

    @property
    def id(self) -> str:
        return self.path.stem

    @property
    def on_disk(self) -> bool:
        """Whether what is appended now is kept in the log (or will be, before the first append)."""
        return self._journal.on_disk

    def keep_in_memory(self) -> None:
        """Goes on without the disk, after a SessionError; the log keeps what it has, and an append can be retried."""
        self._journal.on_disk = False

    def sync(self) -> None:
        """Brings the log to the disk; at the end of a turn. Raises SessionError."""
        self._journal.sync()

    def close(self) -> None:
        """Gives up the log and its lock, and the long texts of a session in memory. Safe to call twice."""
        self._journal.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # -- the view

    @property
    def view(self) -> list[Message]:
        """A fresh list of the live messages; the same objects each time on the thread that appends."""
        return [self.message(record) for record in list(self._live)]

    def id_of(self, message: Message) -> int | None:
        """The record id of a member of the view, found by identity; None for any other object."""
        return self._record_of.get(id(message))

    def append(self, message: Message, **meta: Any) -> int:
        """Logs `message`, which joins the view, and returns its record id. `meta` is kept beside it.

        Raises SessionError if it cannot be written; nothing is changed then, and the same append can be tried again.
        The message must not be changed afterwards: the log would no longer be what the view is.
        """
        extra: Record = {"meta": meta} if meta else {}
        spent = self.total_usage.cost if self.total_usage != Usage() else 0.0
        if spent is not None:
            extra["spent"] = round(spent, 6)
        record = self._log("message", n=self._count + 1, message=message, **extra)
        self._record_of[id(message)] = record
        return record

    def replace_view(
        self,
        messages: list[Message],
        *,
        how: str,
        meta: Callable[[Message], dict[str, Any]] = lambda _message: {},
        **facts: Any,
    ) -> None:
        """Makes `messages` the view. Members of the view keep their records, others are logged as derived, each with
        its `meta`.

        `how` and `facts` are kept in the view record. Raises SessionError with the view unchanged.
        """
        known = dict(self._record_of)
        for message in messages:
            if id(message) not in known:
                about = meta(message)
                known[id(message)] = self._log("derived", message=message, **({"meta": about} if about else {}))
        extra = {"facts": facts} if facts else {}
        self._log("view", ranges=self._journal.ranges(known[id(message)] for message in messages), how=how, **extra)
        self._settle()

    def undo(self) -> bool:
        """Takes the newest replacement of the view back: what it replaced, plus what came since. False if none."""
        if not self._undoable:
            return False
        undone, before = self._undoable[-1]
        live = self._journal.expand(before) + [record for record in self._live if record > undone]
        self._held.update((record, self.message(record)) for record in live)  # what cannot be read changes nothing
        self._log("view", ranges=self._journal.ranges(live), how="undo", undoes=undone)
        self._settle()
        return True

    @property
    def turns(self) -> list[tuple[str, int]]:
        """The turns that were not taken back, each as the id of the session it was said in (another one in a copy) and
        the record of the prompt that began it, which was appended with `turn` set."""
        return [(session, prompt) for prompt, (session, _) in list(self._turns.items())]

    @property
    def all_turns(self) -> list[tuple[str, int]]:
        """The same with those that were taken back."""
        return list(self._all_turns)

    def rewind(self, prompt: int) -> dict[str, Any]:
        """Goes back to before the turn that the record `prompt` began; returns what was kept beside that.

        Raises KeyError if no turn began there, SessionError with the view unchanged.
        """
        _, kept = self._turns[prompt]
        # The first view after the prompt replaced what there was at the prompt, and what came until then.
        since = next((self._journal.expand(before) for view, before in self._undoable if view > prompt), self._live)
        live = [record for record in since if record < prompt]
        self._held.update((record, self.message(record)) for record in live)  # what cannot be read changes nothing
        self._log("view", ranges=self._journal.ranges(live), how="rewind", before=prompt)
        self._settle()
        return kept

    def _settle(self) -> None:
        """Lets go of what is out of view and reads what came back into it."""
        self._held = {record: self.message(record) for record in self._live}
        self._record_of = {id(message): record for record, message in self._held.items()}

    # -- what else is kept

    def message(self, record: int) -> Message:
        """The message of any `message` or `derived` record ever logged. Raises KeyError if there is none."""
        held = self._held.get(record)
        if held is not None:
            return held
        message: Message = self._journal.record(record)["message"]
        return message

    def meta(self, record: int) -> dict[str, Any]:
        """What is kept beside the message of a record."""
        return self._metas.get(record, {})

    def messages(self) -> Iterator[tuple[int, Message]]:
        """Every `message` record that was not taken back, in order, read from the file one by one."""
        for record in self._journal.carriers():
            if record["type"] == "message" and not self._is_taken_back(record["id"]):
                yield record["id"], record["message"]

    def newest(self, name: str) -> Any:
        """What was last kept under `name` beside a message that was not taken back, None if nothing was."""
        records = (at for at in reversed(self._metas) if name in self._metas[at])
        return next((self._metas[at][name] for at in records if not self._is_taken_back(at)), None)

    def _is_taken_back(self, record: int) -> bool:
        return any(first <= record < last for first, last in self._taken_back)

    def note(self, kind: str, **data: Any) -> None:
        """Logs a fact of the program's own, such as a working directory. Before the first message it waits for it."""
        self._log_aside("note", kind=kind, data=data)

    def noted(self, kind: str) -> dict[str, Any] | None:
        """The data of the newest note of this kind, also after loading."""
        return self._notes.get(kind)

    def usage(self, usage: Usage) -> None:
        """Logs the usage of one request and adds it to `total_usage`."""
        self._log_aside("usage", **dataclasses.asdict(usage), model=self.model_name)

    def model(self, name: str) -> None:
        """Logs that `name` answers from here on."""
        self.model_name = name
        if self._started:  # else the session record will say it
            self._log("model", model=name)

    def spill(self, text: str, kind: str = "txt") -> Path:
        """Keeps `text` whole in a new private file beside the log, its name ending in `kind`, and returns its path.
        Raises SessionError."""
        try:
            folder = self.path.parent
            if not self.on_disk:
                folder = self._folder = self._folder or Path(tempfile.mkdtemp(prefix="corecoder-"))
            private_directory(folder)
            path = folder / f"{self.id}.{token_hex(4)}.{kind}"
            write_private(path, text.encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise SessionError(f"cannot keep a long text beside the session log: {words(error)}") from error
        return path

    # -- the log: what is written is taken in as it will be when it is loaded

    def _log(self, kind: str, /, **fields: Any) -> int:
        """Writes a record, takes it in and returns its id. SessionError, with nothing changed, if that fails."""
        if not self._started:
            about = {"version": VERSION, "session": self.id, "project": self.project, "created": round(time.time(), 3)}
            said = {"model": self.model_name, "system": self.system, **self._origin}
            self._journal.write("session", {**about, **said})
            self._started, self._writer = True, self.id
        while self._waiting:
            waiting, its_fields = self._waiting[0]
            self._journal.write(waiting, its_fields)
            self._waiting.pop(0)
        record = self._journal.write(kind, fields)
        self._take(record)
        return int(record["id"])

    def _log_aside(self, kind: str, /, **fields: Any) -> None:
        """Takes in what holds even if it cannot be written, and must not be what creates the log."""
        self._take({"type": kind, **fields})
        if self._started:
            self._journal.write(kind, fields)
        else:
            self._waiting.append((kind, fields))

    def _take(self, record: Record) -> None:
        """Takes one record in. Raises KeyError, TypeError or ValueError, with nothing changed, if it is malformed."""
        kind = record["type"]
        if kind in CARRIERS:
            self._take_message(record)
        elif kind == "view":
            self._take_view(record)
        elif kind == "session":
            self._take_session(record)
        elif kind == "model":
            self.model_name = str(record["model"])
        elif kind == "usage":
            self.total_usage += Usage(**{each.name: record[each.name] for each in dataclasses.fields(Usage)})
        elif kind == "note":
            self._notes[record["kind"]] = record["data"]

    def _take_session(self, record: Record) -> None:
        if record["version"] > VERSION:
            raise SessionError(
                f"{self.path} was written by a newer CoreCoder (log version {record['version']}, this one reads "
                f"{VERSION}). It was left as it is; update CoreCoder to go on with it."
            )
        self.project, self.model_name, self.system = record["project"], record["model"], record["system"]
        self._writer = str(record.get("session"))
        self._started = True

    def _take_message(self, record: Record) -> None:
        message = record["message"]
        if not isinstance(message, dict):
            raise TypeError("a message is an object")
        self._held[record["id"]] = message
        if isinstance(meta := record.get("meta"), dict):
            self._metas[record["id"]] = meta
        if record["type"] == "message":
            self._live.append(record["id"])
            self._count += 1
            meta = record.get("meta")
            if isinstance(meta, dict) and meta.get("turn"):
                self._turns[record["id"]] = self._writer, meta
                self._all_turns.append((self._writer, record["id"]))

    def _take_view(self, record: Record) -> None:
        live = self._journal.expand(record["ranges"])
        undoes, prompt = record.get("undoes"), record.get("before")
        first = undoes if prompt is None else int(prompt)
        if first is None:
            self._undoable.append((record["id"], self._journal.ranges(self._live)))
        else:
            self._undoable = [entry for entry in self._undoable if entry[0] < first]
        if prompt is not None:
            self._turns = {turn: kept for turn, kept in self._turns.items() if turn < int(prompt)}
            self._taken_back.append((int(prompt), record["id"]))
        self.undone = undoes is not None
        self._live, self._held = live, {number: self._held[number] for number in live if number in self._held}
