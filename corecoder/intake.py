"""Bounds on what comes in, and the way back to what they cut.

No single result or prompt may fill the window before a tier has had its turn. What is too big is cut to head and tail,
the biggest first, and kept whole in a file of its own beside the log. The place of the cut says what is missing and how
to read on. Which file belongs to a record is kept beside the message in the log and never read from its text, which may
quote the place of another cut. By name, too, only files beside the log are read, and only such as spilled texts have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from .errors import SessionError
from .messages import Message, pictures_of, text_of
from .text import clip_middle, plural
from .tiers import Measure, fit_text, newest, parts_tokens, water_level
from .tokens import Count

ONE_RESULT = 0.30  # of the room for conversation
ALL_RESULTS = 0.40  # of one step
PROMPT = 0.30
LEAST = 200  # tokens of a text that are never cut, however many texts or pictures share the room

_SPILL_NAME = re.compile(r"[\w-]+\.[0-9a-f]{8}\.(?:txt|json)")


class Log(Protocol):
    """What is needed of a session. `Session` fits; so does anything that can number messages and give them back."""

    @property
    def path(self) -> Path: ...
    @property
    def undone(self) -> bool: ...
    def id_of(self, message: Message) -> int | None: ...
    def message(self, record: int) -> Message: ...
    def meta(self, record: int) -> dict[str, Any]: ...
    def messages(self) -> Iterator[tuple[int, Message]]: ...
    def spill(self, text: str, kind: str = "txt") -> Path: ...


class Records:
    """What is known of the messages of one session beside their words, and the files with the whole of long ones.

    Without a log long texts are cut all the same, and lost.
    """

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self._noted: dict[int, tuple[Message, dict[str, Any]]] = {}  # by id(message), until the log has it
        self._spilled: dict[str, Path] = {}

    def note(self, message: Message, **meta: Any) -> Message:
        """Takes down what is to be kept beside a new `message`, and gives it back."""
        self._noted[id(message)] = (message, meta)
        return message

    def stands_for(self, new: Message, old: Message) -> Message:
        """Takes down that `new` is a shorter `old`, and gives it back."""
        record = self.record_of(old)
        return new if record is None else self.note(new, of=record)

    def forget(self, view: Sequence[Message]) -> None:
        """Lets go of the notes on messages that are not in `view`."""
        self._noted = {id(message): noted for message in view if (noted := self._noted.get(id(message)))}

    def meta(self, message: Message) -> dict[str, Any]:
        """What is kept beside `message`: `kind` is "memory", "steer" or "notice", `spill` the file with the whole of
        what was cut, `of` the record that a shorter one stands for."""
        noted = self._noted.get(id(message))
        record = self.id_of(message)
        return noted[1] if noted else self._log.meta(record) if self._log and record is not None else {}

    def id_of(self, message: Message) -> int | None:
        """The record of `message` itself, if it has one."""
        return self._log.id_of(message) if self._log else None

    def record_of(self, message: Message) -> int | None:
        """The record under which the whole of `message` is to be had."""
        of = self.meta(message).get("of")
        return of if of is not None else self.id_of(message)

    def kind(self, record: int | None) -> str:
        """The `kind` of a logged message."""
        return self._log.meta(record).get("kind", "") if self._log and record is not None else ""

    def bounded(self, messages: Sequence[Message], measure: Measure, count: Count, room: int) -> list[Message]:
        """`messages` of one step, none larger than its share of `room`; those that need no cut are the same objects."""
        results = [measure(message) for message in messages if message.get("role") == "tool"]
        level = min(int(room * ONE_RESULT), water_level(results, int(room * ALL_RESULTS)))
        limits = {"tool": max(level, LEAST), "user": int(room * PROMPT)}
        return [
            self._cut(message, limit, count)
            if (limit := limits.get(message.get("role", ""))) and measure(message) > limit
            else message
            for message in messages
        ]

    def whole(self, key: int | str) -> Message:
        """A message by record id, as it was before it was cut, or what was spilled under a name. Raises KeyError."""
        if isinstance(key, str) and not key.isdecimal():
            return {"role": "user", "content": self._content(key)}
        if self._log is None:
            raise KeyError(key)
        meta = self._log.meta(int(key))
        if "of" in meta:
            return self.whole(meta["of"])
        message = self._log.message(int(key))
        try:
            return {**message, "content": self._content(meta["spill"])}
        except KeyError:
            return message  # it was never cut, or its file is gone

    def _cut(self, message: Message, limit: int, count: Count) -> Message:
        text, pictures = text_of(message), pictures_of(message)
        kept = newest(pictures, limit - min(count(text), limit // 2))  # words are dearer than pictures
        dropped = len(pictures) - len(kept)
        limit = max(limit - parts_tokens(kept), LEAST)
        if not dropped and count(text) <= limit:
            return message
        name = ""
        if self._log is not None:
            try:
                content = message["content"]  # a text, or a list of parts
                path = self._log.spill(text) if content == text else self._log.spill(json.dumps(content), "json")
            except SessionError:
                return message  # nowhere to keep the whole: then the log keeps it, and the tiers cut the view
            name = path.name
            self._spilled[name] = path
        note = f"[... {{dropped:,}} of {len(text):,} characters ({plural(text.count(chr(10)) + 1, 'line')}) left out"
        if name:
            note += (
                f'; recall("{name}", lines="1-200") reads any part of it, recall("{name}", pattern="...") searches it'
            )
        cut = fit_text(text, limit, count, note + "]")
        if cut == "…":  # no room for anything but the note
            cut = clip_middle(text, 0, note + "]").strip()
        if dropped:
            again = f'; recall("{name}") has them' if name else ""
            cut += f"\n[... {plural(dropped, 'picture')} left out to fit the context window{again}]"
        short = {**message, "content": [{"type": "text", "text": cut}, *kept] if kept else cut}
        return self.note(short, spill=name) if name else short

    def _content(self, name: str) -> Any:
        """What stands in a spill file: a text, or the parts of a message. Raises KeyError."""
        beside = self._log.path.with_name(name) if self._log and _SPILL_NAME.fullmatch(name) else None
        path = self._spilled.get(name, beside)
        if path is None:
            raise KeyError(name)
        try:
            text = path.read_bytes().decode("utf-8", "surrogatepass")
            return json.loads(text) if path.suffix == ".json" else text
        except (OSError, ValueError):
            raise KeyError(name) from None
