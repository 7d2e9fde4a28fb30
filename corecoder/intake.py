"""Bounds on what comes in: no single result or prompt may fill the window before a tier has had its turn.

What is too big is cut to head and tail, the biggest first, and kept whole in a file of its own beside the log. The
place of the cut says what is missing and how to read on; `spilled_name` finds that again, so that recall can give
the whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from .errors import SessionError
from .messages import Message, text_of
from .text import clip_middle, plural
from .tiers import Measure, fit_text, water_level
from .tokens import Count

Spill = Callable[[str], Path]

ONE_RESULT = 0.30  # of the room for conversation
ALL_RESULTS = 0.40  # of one step
PROMPT = 0.30
LEAST = 200  # tokens of a text that are never cut, however many texts or pictures share the room

_SPILL_NAME = re.compile(r"[\w-]+\.[0-9a-f]{8}\.txt")
_SPILLED = re.compile(r'\[\.\.\. [\d,]+ of [\d,]+ characters \([\d,]+ lines?\) left out; recall\("([\w.-]+)"')


def bounded(
    messages: Sequence[Message], measure: Measure, count: Count, room: int, spill: Spill | None
) -> list[Message]:
    """`messages` of one step, none larger than its share of `room`; those that need no cut are the same objects."""
    results = [message for message in messages if message.get("role") == "tool"]
    level = min(int(room * ONE_RESULT), water_level([measure(message) for message in results], int(room * ALL_RESULTS)))
    bounds = {"tool": level, "user": int(room * PROMPT)}
    return [_bounded(message, bounds.get(message.get("role", ""), 0), measure, count, spill) for message in messages]


def spilled_name(text: str) -> str | None:
    """The name of the file that holds the whole of a text that was cut here; None for every other text."""
    found = _SPILLED.search(text)
    return found.group(1) if found else None


def is_spill_name(name: str) -> bool:
    """Whether a spilled text may have this name: nothing else beside a log is ever read for a recall."""
    return bool(_SPILL_NAME.fullmatch(name))


def _bounded(message: Message, limit: int, measure: Measure, count: Count, spill: Spill | None) -> Message:
    if not limit or measure(message) <= limit:
        return message
    text = text_of(message)
    pictures = message["content"] if isinstance(message.get("content"), list) else []
    pictures = [part for part in pictures if part.get("type") != "text"]
    limit = max(limit - measure({**message, "content": pictures}), LEAST)
    if count(text) <= limit:
        return message
    note = f"[... {{dropped:,}} of {len(text):,} characters ({plural(text.count(chr(10)) + 1, 'line')}) left out"
    if spill:
        try:
            name = spill(text).name
        except SessionError:
            return message  # nowhere to keep the whole: then it stays in the log as it is, and the tiers cut the view
        note += f'; recall("{name}", lines="1-200") reads any part of it, recall("{name}", pattern="...") searches it'
    cut = fit_text(text, limit, count, note + "]")
    if cut == "…":  # no room for anything but the note
        cut = clip_middle(text, 0, note + "]").strip()
    return {**message, "content": [{"type": "text", "text": cut}, *pictures] if pictures else cut}
