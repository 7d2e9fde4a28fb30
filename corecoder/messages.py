"""Chat-completions messages: the reply as a value, and the rules that make any list of messages sendable.

A message is the plain dict of the OpenAI API; nothing here wraps it. `unpaired` states the invariant that tests
assert after every turn, `repair` restores it (and the other rules that providers enforce) on the way out. Neither
changes a message that it is given: what was logged stays as it came.

The price is one scan of the view for every request, which costs about a tenth of serialising the same view.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from .events import Usage
from .values import dataclass

Message = dict[str, Any]

NO_OUTPUT = "(no output)"
NO_RESULT = "[no result: the call was interrupted before it finished; run it again if it is still needed]"
CONTINUED = "(the conversation continues)"

# OpenAI API reference, tools[].function.name: "a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum
# length of 64".
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")


@dataclass(frozen=True)
class ToolCall:
    """One call as the model wrote it; `raw` is the argument text, byte for byte."""

    id: str
    name: str
    raw: str

    @property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments; raises ValueError with words for the model if `raw` is not a JSON object."""
        return parse_arguments(self.raw)


@dataclass(frozen=True)
class Reply:
    """One whole reply of the model.

    `message` is what goes into the log: content, tool_calls with raw arguments, and whatever else this provider
    wants to see again (reasoning_content, signatures). `finish_reason` is the provider's word or None, every word for
    a filter being "content_filter"; `unknown_ending` is the same word if nobody here knows it. `usage` is None where
    the provider reported none. `cut` is true when the reply ended before its time, at the output limit or at a filter
    within calls; no call of it may run then.
    """

    message: Message
    reasoning: str = ""
    finish_reason: str | None = None
    usage: Usage | None = None
    cut: bool = False
    tool_calls: tuple[ToolCall, ...] = field(default=())
    unknown_ending: str = ""

    @property
    def content(self) -> str:
        """The visible text, "" if there is none."""
        return text_of(self.message)


def parse_arguments(raw: str) -> dict[str, Any]:
    """The JSON object in `raw`; empty text is {} because several servers send that for "no arguments".

    Raises ValueError whose text quotes the place where the JSON ends to make sense.
    """
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None
    except json.JSONDecodeError as error:
        start = max(0, error.pos - 40)
        near = raw[start : error.pos + 40]
        raise ValueError(f"{error.msg} at character {error.pos} of {len(raw)}, near {near!r}") from None
    if not isinstance(value, dict):
        raise ValueError(f"the arguments must be a JSON object, not {type(value).__name__}: {raw[:80]!r}")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def text_of(message: Message) -> str:
    """The text of a message, its text parts joined when the content is a list of typed parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return ""


def pictures_of(message: Message) -> list[dict[str, Any]]:
    """The parts of a message that are not text: pictures, or whatever else a provider takes."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("type") != "text"]


def calls_of(message: Message) -> list[dict[str, Any]]:
    """The tool calls of an assistant message, [] for every other message."""
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def arguments_of(call: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, or of its function part; {} where they are no JSON object."""
    raw = (call.get("function") or call).get("arguments")
    try:
        return parse_arguments(raw) if isinstance(raw, str) else {}
    except ValueError:
        return {}


def unpaired(view: Sequence[Message]) -> list[str]:
    """What is wrong with the pairing of calls and results in `view`, in words; [] for a sendable one.

    The rule (OpenAI API): an assistant message with tool_calls is followed by exactly one tool message for each id,
    and a tool message stands nowhere else. We ask for the order of the calls as well, which some templates need.
    """
    faults: list[str] = []
    expected: list[str] = []
    for at, message in enumerate(view):
        if message.get("role") == "tool":
            wanted = expected.pop(0) if expected else None
            if message.get("tool_call_id") != wanted:
                faults.append(f"message {at}: result of {message.get('tool_call_id')!r} where {wanted!r} is due")
            continue
        faults += [f"message {at}: no result for call {missing!r}" for missing in expected]
        expected = [call.get("id") or "" for call in calls_of(message)]
        if len(set(expected)) != len(expected) or "" in expected:
            faults.append(f"message {at}: empty or repeated call ids {expected}")
    return faults + [f"end: no result for call {missing!r}" for missing in expected]


def repair(view: Iterable[Message]) -> list[Message]:
    """A copy of `view` that every strict provider accepts; equal to `view` where that is already so.

    Missing results are added, orphaned and repeated ones dropped, results put into the order of their calls, ids
    made unique within a message, names made legal, arguments that are not a JSON object replaced by `{}`, empty
    assistant and user messages and blank text parts dropped, blank text beside calls removed, empty results filled,
    lone surrogates replaced, and a view that starts with an assistant gets a user message in front.
    """
    return Repairer()(view)


class Repairer:
    """`repair` for a view that mostly grows: what the last call has already mended is not looked at again.

    Messages are compared by identity, which is enough because none is ever changed in place.
    """

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self._sent: list[Message] = []
        self._starts: list[tuple[int, int]] = []  # where each group starts, in the view and in what is sent

    def __call__(self, view: Iterable[Message]) -> list[Message]:
        items = list(view)
        at = self._go_back(items)
        while at < len(items):
            end = at + 1
            while end < len(items) and items[end].get("role") == "tool":
                end += 1
            self._starts.append((at, len(self._sent)))
            self._sent += _repaired(items[at], items[at + 1 : end])
            at = end
        self._seen = items
        first = next((at for at, message in enumerate(self._sent) if message.get("role") != "system"), None)
        if first is None or self._sent[first].get("role") != "assistant":
            return list(self._sent)
        return [*self._sent[:first], {"role": "user", "content": CONTINUED}, *self._sent[first:]]

    def _go_back(self, items: list[Message]) -> int:
        """Forgets what differs from `items`, and the group before it, which may go on; where to go on from."""
        pairs = enumerate(zip(self._seen, items, strict=False))
        same = next((at for at, (old, new) in pairs if old is not new), min(len(self._seen), len(items)))
        start, end = 0, 0
        while self._starts:
            start, end = self._starts.pop()
            if start < same:
                break
        del self._sent[end:]
        return start


def _repaired(message: Message, results: list[Message]) -> list[Message]:
    """A message and the results that follow it, mended together; [] if nothing of it can be sent."""
    message = _without_blank_parts(message)
    role = message.get("role")
    if role == "assistant":
        return _repaired_group(message, [_without_blank_parts(result) for result in results])
    if role == "tool" or not (role == "system" or _has_content(message)):
        return []  # its call is gone or already answered; or there is nothing in it
    return [_clean(message)]


def _repaired_group(message: Message, results: list[Message]) -> list[Message]:
    """An assistant message and its results, mended together; [] if nothing of it can be sent."""
    calls = calls_of(message)
    if not calls:
        bare = (
            {key: value for key, value in message.items() if key != "tool_calls"}
            if "tool_calls" in message
            else message
        )
        return [_clean(bare)] if _has_content(bare) else []
    mended = [_mended_call(call) for call in calls]
    taken: set[str] = set()
    for number, call in enumerate(mended):
        wanted = _clean(call.get("id"))
        if not isinstance(wanted, str) or not wanted or wanted in taken:
            wanted = _fresh_id(str(wanted or "call"), taken)
        if wanted != call.get("id"):
            call = mended[number] = {**call, "id": wanted}
        taken.add(call["id"])
    blank = message.get("content") is not None and not _has_content(message)
    if blank or mended != message["tool_calls"]:
        message = {**message, "tool_calls": mended, **({"content": None} if blank else {})}
    group = [_clean(message)]
    pool = list(results)
    for call, original in zip(mended, calls, strict=True):
        wanted = original.get("id") or ""
        match = next((result for result in pool if (result.get("tool_call_id") or "") == wanted), None)
        if match is None:
            group.append({"role": "tool", "tool_call_id": call["id"], "content": NO_RESULT})
            continue
        pool.remove(match)
        if match.get("tool_call_id") != call["id"]:
            match = {**match, "tool_call_id": call["id"]}
        group.append(_clean(match if _has_content(match) else {**match, "content": NO_OUTPUT}))
    return group


def _mended_call(call: dict[str, Any]) -> dict[str, Any]:
    """One call with a legal name and argument text that is a JSON object; the same object if nothing was wrong."""
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, raw = function.get("name"), function.get("arguments")
    legal = name if isinstance(name, str) and _LEGAL_NAME.match(name) else legal_name(name)
    try:
        sound = isinstance(raw, str) and bool(raw.strip()) and parse_arguments(raw) is not None
    except ValueError:
        sound = False
    if sound and legal == name and call.get("type") == "function":
        return call
    return {**call, "type": "function", "function": {**function, "name": legal, "arguments": raw if sound else "{}"}}


def legal_name(name: object) -> str:
    """`name` with what the API does not allow in a function name replaced; "invalid_name" if nothing is left."""
    kept = re.sub(r"[^a-zA-Z0-9_-]+", "_", name if isinstance(name, str) else "").strip("_")
    return kept[:64] or "invalid_name"


def _fresh_id(wanted: str, taken: set[str]) -> str:
    number = 2
    while f"{wanted}_{number}" in taken:
        number += 1
    return f"{wanted}_{number}"


def _has_content(message: Message) -> bool:
    content = message.get("content")
    return not all(map(_is_blank, content)) if isinstance(content, list) else _solid(content)


def _without_blank_parts(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or not any(map(_is_blank, content)):
        return message
    return {**message, "content": [part for part in content if not _is_blank(part)]}


def _is_blank(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and not _solid(part.get("text"))


def _solid(text: object) -> bool:
    return isinstance(text, str) and bool(text) and not text.isspace()


def _clean(value: Any) -> Any:
    """`value` without lone surrogates anywhere in it; the same object where there are none."""
    if isinstance(value, str):
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, dict):
        cleaned = {_clean(key): _clean(item) for key, item in value.items()}
        return value if all(key in cleaned and cleaned[key] is item for key, item in value.items()) else cleaned
    if isinstance(value, list):
        items = [_clean(item) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value
