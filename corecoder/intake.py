"""Bounds on what comes in, and the way back to what they cut.

No single result or prompt may fill the window before a tier has had its turn. What is too big is cut to head and tail,
the biggest first, and kept whole in a file of its own beside the log. The place of the cut says what is missing and how
to read on; recall finds the file by it. The price is that a text can look as if it had been cut here, which is why
only files beside the log, with a name that only spilled texts have, are ever read for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from .errors import SessionError
from .messages import Message, calls_of, text_of
from .text import clip_middle, plural
from .tiers import Measure, fit_text, water_level
from .tokens import Count

ONE_RESULT = 0.30  # of the room for conversation
ALL_RESULTS = 0.40  # of one step
PROMPT = 0.30
LEAST = 200  # tokens of a text that are never cut, however many texts or pictures share the room

_SPILL_NAME = re.compile(r"[\w-]+\.[0-9a-f]{8}\.txt")
_SPILLED = re.compile(r'\[\.\.\. [\d,]+ of [\d,]+ characters \([\d,]+ lines?\) left out; recall\("([\w.-]+)"')


class Log(Protocol):
    """What is needed of a session. `Session` fits; so does anything that can number messages and give them back."""

    @property
    def path(self) -> Path: ...
    @property
    def undone(self) -> bool: ...
    def id_of(self, message: Message) -> int | None: ...
    def message(self, record: int) -> Message: ...
    def messages(self) -> Iterator[tuple[int, Message]]: ...
    def spill(self, text: str) -> Path: ...


class Shelf:
    """Where long texts of one session are kept whole. Without a log they are cut all the same, and lost."""

    def __init__(self, log: Log | None) -> None:
        self._log = log
        self._spilled: dict[str, Path] = {}

    def bounded(self, messages: Sequence[Message], measure: Measure, count: Count, room: int) -> list[Message]:
        """`messages` of one step, none larger than its share of `room`; those that need no cut are the same objects."""
        results = [measure(message) for message in messages if message.get("role") == "tool"]
        level = min(int(room * ONE_RESULT), water_level(results, int(room * ALL_RESULTS)))
        limits = {"tool": max(level, LEAST), "user": int(room * PROMPT)}
        return [
            self._cut(message, limit, measure, count)
            if (limit := limits.get(message.get("role", ""))) and measure(message) > limit
            else message
            for message in messages
        ]

    def recall(self, record: int | str) -> str:
        """The whole text of a message with its calls, by record id, or of a spilled text, by name. Raises KeyError."""
        if isinstance(record, str) and not record.isdecimal():
            return self._whole(record)
        if self._log is None:
            raise KeyError(record)
        message = self._log.message(int(record))
        text = text_of(message)
        cut = _SPILLED.search(text)
        if cut:
            try:
                return self._whole(cut[1])
            except KeyError:
                pass  # it only looks as if it had been cut, or its file is gone
        for call in calls_of(message):
            function = call.get("function") or {}
            text += f"\n-> {function.get('name')}({function.get('arguments')})"
        return text

    def _cut(self, message: Message, limit: int, measure: Measure, count: Count) -> Message:
        text = text_of(message)
        pictures = message["content"] if isinstance(message.get("content"), list) else []
        pictures = [part for part in pictures if part.get("type") != "text"]
        limit = max(limit - measure({**message, "content": pictures}), LEAST)
        if count(text) <= limit:
            return message
        note = f"[... {{dropped:,}} of {len(text):,} characters ({plural(text.count(chr(10)) + 1, 'line')}) left out"
        if self._log is not None:
            try:
                name = self._spill(text, self._log)
            except SessionError:
                return message  # nowhere to keep the whole: then the log keeps it, and the tiers cut the view
            note += (
                f'; recall("{name}", lines="1-200") reads any part of it, recall("{name}", pattern="...") searches it'
            )
        cut = fit_text(text, limit, count, note + "]")
        if cut == "…":  # no room for anything but the note
            cut = clip_middle(text, 0, note + "]").strip()
        return {**message, "content": [{"type": "text", "text": cut}, *pictures] if pictures else cut}

    def _spill(self, text: str, log: Log) -> str:
        path = log.spill(text)
        self._spilled[path.name] = path
        return path.name

    def _whole(self, name: str) -> str:
        beside = self._log.path.with_name(name) if self._log and _SPILL_NAME.fullmatch(name) else None
        path = self._spilled.get(name, beside)
        if path is None:
            raise KeyError(name)
        try:
            return path.read_bytes().decode("utf-8", "surrogatepass")
        except (OSError, UnicodeDecodeError):
            raise KeyError(name) from None
