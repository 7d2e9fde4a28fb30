"""From the bytes of a body to the payloads in it.

One rule: an event is a `data:` line, or several joined, that is complete as JSON. So whatever separates events, a
body that is no stream at all, and one that lacks its last newline read alike, and nothing waits for a blank line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MAX_PIECES = 1000  # data lines that one event may be cut into
MAX_LINE = 64 * 1024 * 1024  # bytes; longer lines are not a reply

DONE = "[DONE]"
KEEP_ALIVE = ""  # a comment, a blank event: the server lives, nothing more

Payload = dict[str, Any] | str  # a chunk, DONE, KEEP_ALIVE, or text that should have been JSON


class EventReader:
    """Cuts the bytes of a body into payloads, in the order they came."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # of a line whose end has not come
        self._held = 0  # bytes of it
        self._begun = False
        self._pending: list[str] = []  # data lines that are not yet JSON
        self._stray: list[str] = []
        self._error_event = False

    def feed(self, data: bytes) -> Iterator[Payload]:
        """The payloads that `data` completes."""
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest, self._held = [], 0
        self._rest.append(rest)
        self._held += len(rest)
        for line in lines:
            payload = self._line(line.decode("utf-8", "replace"))
            if payload is not None:
                yield payload
        if self._held > MAX_LINE:
            self._rest, self._held = [], 0
            yield f"a line of more than {MAX_LINE:,} bytes"

    def close(self) -> Iterator[Payload]:
        """What is left when the body ends; text that is not JSON is a reply that broke off."""
        last = self._line(b"".join(self._rest).decode("utf-8", "replace"))
        self._rest = []
        if last is not None:
            yield last
        stray = "\n".join(self._stray).strip()
        if stray:
            body = _json(stray)
            yield body if isinstance(body, dict) else stray
        elif self._pending:
            yield "\n".join(self._pending)

    def _line(self, line: str) -> Payload | None:
        if not self._begun:
            line, self._begun = line.removeprefix("\ufeff"), True
        if line.startswith("data:"):
            return self._data(line[5:].strip())
        if not line or line.isspace():
            pending, self._pending, self._error_event = "\n".join(self._pending), [], False
            return pending or None
        if line.startswith(":"):
            return KEEP_ALIVE
        if line.startswith(("event:", "id:", "retry:")):
            self._error_event = line[6:].strip() == "error"
            return None
        self._stray.append(line)
        return None

    def _data(self, text: str) -> Payload | None:
        if text.startswith(DONE):
            return DONE
        if not self._pending and not text.startswith(("{", "[")):
            return KEEP_ALIVE
        self._pending.append(text)
        value = _json("\n".join(self._pending)) if text.endswith(("}", "]")) else None
        if value is None:
            if len(self._pending) < MAX_PIECES:
                return None
            pending, self._pending = self._pending, []
            return "\n".join(pending)
        self._pending = []
        return {"error": value} if self._error_event and "error" not in value else value


def _json(text: str) -> dict[str, Any] | None:
    """The object in `text`; a list is an error body of one known provider, so its first object is taken."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list):
        value = next((item for item in value if isinstance(item, dict)), {})
    return value if isinstance(value, dict) else None
