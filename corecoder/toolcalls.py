"""Tool calls, put together from deltas that every provider cuts and labels in its own way.

Six rules explain all of them; their numbers stand beside the code:

 1. A delta points at a call by index, else by id, else at the last one. What has neither name nor known label goes on
    with the last call while that is unfinished.
 2. It starts a new call instead if it brings another id with a name, or if the arguments so far are one whole JSON
    object and it brings a name or another object. Inside an unfinished object nothing starts a call.
 3. A name grows only while the whole is still the start of a known tool; an equal one is a repetition.
 4. Arguments are text. An object stands for its JSON, an empty object before another is a placeholder, an exact
    repetition of the same call is dropped, JSON within a JSON string is taken out of it.
 5. Everything else that a call carries is kept, for its provider wants it back.
 6. Ids are made unique at the end.

The price: two calls of one tool without arguments, ids and indexes are one call, since nothing in the bytes tells.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection
from typing import Any


class Pieces:
    """A text that grows piece by piece. Small pieces are folded as they come, for a string of forty characters takes
    as much memory again for itself."""

    FOLD = 1024

    def __init__(self) -> None:
        self._folded: list[str] = []
        self._loose: list[str] = []

    def append(self, piece: str) -> None:
        self._loose.append(piece)
        if len(self._loose) >= self.FOLD:
            self._folded.append("".join(self._loose))
            self._loose = []

    def __str__(self) -> str:
        return "".join([*self._folded, *self._loose])


class CallParts:
    """One tool call while it is being collected; knows whether its arguments are one whole JSON object."""

    _OUTSIDE = re.compile(r'["{}\[\]]')
    _INSIDE = re.compile(r'["\\]')

    def __init__(self, index: int | None, identity: str, name: str) -> None:
        self.index, self.id, self.name = index, identity, name
        self.extra: dict[str, Any] = {}
        self.function_extra: dict[str, Any] = {}
        self._parts = Pieces()
        self._depth = 0
        self._quoted = False
        self._escaped = False
        self.state = "empty"  # then "open" (inside the object), "whole", or "odd" (not an object)

    @property
    def text(self) -> str:
        return str(self._parts)

    @property
    def blank(self) -> bool:
        """Whether the arguments may be a placeholder."""
        return self.state == "whole" and self.text.strip() == "{}"

    def goes_by(self, identity: str) -> bool:
        """Whether a delta with this id is surely of this call."""
        return bool(self.id) and identity in ("", self.id)

    def take(self, text: str) -> str:
        """Collects `text` up to the end of the object; returns what may be the start of another one."""
        if self.state == "empty":
            begin = text.lstrip()
            if begin:
                self.state = "open" if begin.startswith("{") else "odd"
        end = self._end_of_object(text) if self.state == "open" else len(text)
        if end < 0:
            end = len(text)
        elif self.state == "open":
            self.state = "whole"
        rest = text[end:]
        if not rest.lstrip().startswith("{"):
            end, rest = len(text), ""
        self._parts.append(text[:end])
        return rest

    def restart(self) -> None:
        """Forgets a placeholder."""
        self._parts, self.state = Pieces(), "empty"

    def _end_of_object(self, text: str) -> int:
        """Where the object ends in `text`, -1 if it goes on."""
        at = 1 if self._escaped and text else 0
        self._escaped = self._escaped and not text
        while True:
            found = (self._INSIDE if self._quoted else self._OUTSIDE).search(text, at)
            if not found:
                return -1
            at = found.end()
            mark = found[0]
            if mark == '"':
                self._quoted = not self._quoted
            elif mark == "\\":
                self._escaped = at == len(text)
                at += 1
            else:
                self._depth += 1 if mark in "{[" else -1
                if self._depth == 0:
                    return at


class CallCollector:
    """All calls of one reply. `names` are the tools that the model may call."""

    def __init__(self, names: Collection[str] = ()) -> None:
        self._names = names
        self.calls: list[CallParts] = []

    @property
    def open(self) -> bool:
        """Whether the arguments of a call broke off inside their object."""
        return any(call.state == "open" for call in self.calls)

    def add(self, delta: dict[str, Any]) -> bool:
        """Takes one delta; whether it brought anything new."""
        function = delta.get("function")
        function = function if isinstance(function, dict) else delta
        named = function.get("name")
        name = named if isinstance(named, str) else ""
        arguments = _argument_text(function.get("arguments"))
        identity = str(delta["id"]) if isinstance(delta.get("id"), (str, int)) else ""
        index = _index(delta.get("index"))
        call = self._pointed_at(index, identity, name, arguments)
        if call and call.state == "whole" and call.goes_by(identity) and arguments == call.text:
            arguments = ""
        starts = call is None or self._begins(call, identity, name, arguments)
        if starts and not (identity or name or arguments):
            return False
        brought = starts or bool(arguments)
        if call is None or starts:
            call = CallParts(index, identity, name or (call.name if call else ""))
            self.calls.append(call)
        else:
            call.id = call.id or identity
            call.name = self._grown(call.name, name) or call.name
            if call.blank and arguments.strip():
                call.restart()
        _merge(call.extra, delta, without=("index", "id", "type", "function", "name", "arguments"))
        if function is not delta:
            _merge(call.function_extra, function, without=("name", "arguments"))
        while arguments := call.take(arguments):
            call = CallParts(index, "", call.name)
            self.calls.append(call)
        return brought

    def _pointed_at(self, index: int | None, identity: str, name: str, arguments: str) -> CallParts | None:
        """The call that a delta speaks of. (Rule 1)"""
        last = self.calls[-1] if self.calls else None
        if index is not None:
            found = next((call for call in reversed(self.calls) if call.index == index), None)
        elif identity:
            found = next((call for call in reversed(self.calls) if call.id == identity), None)
        else:
            return last
        if found is None and last is not None and last.state in ("open", "empty"):
            inside = index is None and last.state == "open" and arguments and not arguments.lstrip().startswith("{")
            if not name or inside:
                return last  # what neither names a call nor can be one goes on with the last
        return found

    def _begins(self, call: CallParts, identity: str, name: str, arguments: str) -> bool:
        """Whether a delta that points at `call` starts another one all the same. (Rule 2)"""
        if call.state == "open":
            return False
        if identity and call.id and identity != call.id and name:
            return True
        if call.state == "empty":
            return bool(name and call.name) and self._grown(call.name, name) is None
        if name and name != call.name:
            return call.name in self._names or not any(known.startswith(call.name + name) for known in self._names)
        if call.blank and (not name or call.goes_by(identity)):
            return False
        return call.state == "whole" and (bool(name and arguments.strip()) or arguments.lstrip().startswith("{"))

    def _grown(self, old: str, new: str) -> str | None:
        """The name that `old` becomes with `new`, None if they are two names. (Rule 3)"""
        if not new or not old or new == old:
            return new or old
        if any(known.startswith(old + new) for known in self._names) or not self._names:
            return old + new
        if new.startswith(old) and any(known.startswith(new) for known in self._names):
            return new
        return None if new in self._names else old + new

    def finished(self) -> list[dict[str, Any]]:
        finished = []
        taken: set[str] = set()
        for call in self.calls:
            identity = call.id
            if not identity or identity in taken:
                identity = f"call_{uuid.uuid4().hex[:24]}"
            taken.add(identity)
            function = {"name": mended(call.name), "arguments": _unwrapped(mended(call.text))}
            finished.append(
                {"id": identity, "type": "function", **call.extra, "function": {**function, **call.function_extra}}
            )
        return finished


def _argument_text(value: Any) -> str:
    """Arguments as text (rule 4): an object becomes the JSON it stands for."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _unwrapped(text: str) -> str:
    """JSON inside a JSON string is taken out of it; every other text stays byte for byte."""
    if not text.lstrip().startswith('"'):
        return text
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return inner if isinstance(inner, str) and inner.lstrip().startswith("{") else text


def _index(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 6:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _merge(kept: dict[str, Any], new: dict[str, Any], *, without: tuple[str, ...]) -> None:
    for key, value in new.items():
        if key in without or value is None:
            continue
        old = kept.get(key)
        kept[key] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value


def mended(text: str) -> str:
    """Joins surrogate pairs that came as two escapes; a half without its other half becomes a replacement mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
