"""What may be touched in a view, and the two tiers that need no model: snipping stale results, and the hard collapse.

Everything here is a pure function from a list of messages to another. Members are replaced, never changed, because
the log, the caches and the undo all know a message by its identity. A cut is only ever made in front of a message
that is not a tool result, which is why a result can never lose its call.

Sizes are in the units of `measure`; the caller turns its budgets into them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .ledger import main_argument
from .memory import acknowledgement
from .messages import Message, arguments_of, calls_of, pictures_of, text_of
from .text import clip_middle, one_line, plural
from .tokens import Count, message_tokens

Measure = Callable[[Message], int]
RecordOf = Callable[[Message], "int | None"]
Replace = Callable[[Message, Message], Message]  # takes note of which message the first stands for, and gives it back

_WORTH_SNIPPING = 120  # tokens; a stub takes 40 to 80
_STUB_END = 80  # characters kept of each end of a snipped result
_STUB = re.compile(r"\[(?:#\d+ )?.{0,200}, snipped; ")
_SAME_TEXT = 200  # characters from which on two equal results count as one said twice


def results_in(view: Sequence[Message]) -> Iterator[tuple[int, Message, dict[str, Any]]]:
    """Every tool result of `view`, in order: where it stands, and the function part of the call that it answers."""
    calls: dict[str, dict[str, Any]] = {}
    for at, message in enumerate(view):
        if message.get("role") == "assistant":
            calls = {call.get("id") or "": call.get("function") or {} for call in calls_of(message)}
        elif message.get("role") == "tool":
            yield at, message, calls.get(message.get("tool_call_id") or "", {})


def is_stub(message: Message) -> bool:
    """Whether `message` looks like a result that was snipped: one that does is not relied on, nothing more."""
    return message.get("role") == "tool" and bool(_STUB.match(text_of(message)))


def safe_split(messages: Sequence[Message], keep_recent: int) -> int:
    """Index where a tail of about `keep_recent` messages starts, moved back to keep results with their call."""
    split = max(0, len(messages) - max(0, keep_recent))
    while 0 < split < len(messages) and messages[split].get("role") == "tool":
        split -= 1
    return split


def unseen_start(view: Sequence[Message]) -> int:
    """Index from which on the model has seen nothing, the call of unseen results included; len(view) if it has
    answered everything."""
    at = len(view)
    while at > 0 and view[at - 1].get("role") != "assistant":
        at -= 1
    return at - 1 if at and calls_of(view[at - 1]) and at < len(view) else at


def tail_start(view: Sequence[Message], measure: Measure, budget: int) -> int:
    """Index where the newest messages of at most `budget` start. What the model has not seen is always in it."""
    start = unseen_start(view)
    spent = sum(measure(message) for message in view[start:])
    at = start
    while at > 0:
        at -= 1
        spent += measure(view[at])
        if spent > budget:
            break
        if view[at].get("role") != "tool":
            start = at
    return start


# -- tier 1


def snip(view: Sequence[Message], measure: Measure, keep: int, record_of: RecordOf) -> dict[int, Message]:
    """Stubs for every stale tool result of `view`, by index.

    Stale is what the model has seen and what lies before the newest results of `keep` tokens in all; what was read
    again or said again later is stale wherever it stands. Only what a stub makes at least half as large is snipped.
    """
    unseen = unseen_start(view)
    repeated = _repeated(view)
    stubs: dict[int, Message] = {}
    for at, message, call in reversed(list(results_in(view))):
        size = measure(message)
        if at not in repeated or at >= unseen:
            keep -= size
            if at >= unseen or keep >= 0:
                continue
        if size < _WORTH_SNIPPING:
            continue
        stub = make_stub(message, call, record_of(message))
        if 2 * measure(stub) <= size:
            stubs[at] = stub
    return stubs


def make_stub(message: Message, call: dict[str, Any], record: int | None) -> Message:
    """A tool result reduced to what it was, how to have it back, and its first and last lines."""
    text = text_of(message)
    name = one_line(call.get("name") or "result", 64)
    subject = " ".join(part for part in (name, main_argument(arguments_of(call), 60)) if part)
    size = len(text.encode("utf-8", "replace"))
    amount = f"{plural(text.count(chr(10)) + 1, 'line')}, {_bytes(size)}"
    number = "" if record is None else f"#{record} "
    again = "run it again to see it" if record is None else f"recall({record}) brings it back"
    head, tail = _ends(text)
    return {**message, "content": f"[{number}{subject}: {amount}, snipped; {again}]\n{head}\n…\n{tail}"}


def _ends(text: str) -> tuple[str, str]:
    """The first and the last two lines of `text`, each pair cut to so many characters."""
    head = "\n".join(text[: 4 * _STUB_END].lstrip("\n").split("\n")[:2])[:_STUB_END]
    tail = "\n".join(text[-4 * _STUB_END :].rstrip("\n").split("\n")[-2:])[-_STUB_END:]
    return head.rstrip(), tail.strip("\n")


def _repeated(view: Sequence[Message]) -> set[int]:
    """Indices of results that a later one makes superfluous: a newer read of the same lines, or the same text."""
    repeated: set[int] = set()
    later: set[object] = set()
    for at, message, call in reversed(list(results_in(view))):
        text = text_of(message)
        keys: set[object] = {text} if len(text) >= _SAME_TEXT else set()
        if call.get("name") == "read_file":
            arguments = arguments_of(call)
            keys.add((arguments.get("file_path"), arguments.get("offset"), arguments.get("limit")))
        if keys & later:
            repeated.add(at)
        if not (is_stub(message) or text.startswith("Error: ")):
            later |= keys
    return repeated


# -- tier 3

Compose = Callable[[float], Message]  # the memory message, its parts cut to this share of their limits

_LEFT_OUT = "[… {dropped} characters left out to fit the context window{again} …]"
_PICTURES_LEFT_OUT = "\n[{pictures} left out to fit the context window{again}]"
_LEAST = 40  # tokens that a cut text is worth keeping for


def collapse(
    view: Sequence[Message],
    measure: Measure,
    count: Count,
    compose: Compose,
    room: int,
    *,
    since: int = 0,
    record_of: RecordOf = lambda _message: None,
    replace: Replace = lambda new, _old: new,
) -> list[Message]:
    """A view of at most `room` made of any history: the memory, what the model has not seen, the newest before that.

    The memory is dearest and is only cut where it takes more than three quarters of the room; what is unseen is cut
    to what the memory leaves; then as many of the messages before it as fit, none from before index `since`. Where
    not even the frame of the unseen calls fits, the memory alone is left, which can be cut down to one sentence.
    """
    head = _fitting(compose, measure, room * 3 // 4)
    unseen = unseen_start(view)
    left = room - sum(map(measure, joined(head, [])))
    kept = shrink(view[unseen:], measure, count, left, record_of, replace)
    if kept is None:
        return [_fitting(compose, measure, room)]
    left -= sum(map(measure, kept))
    start = at = unseen
    while at > since:
        at -= 1
        left -= measure(view[at])
        if left < 0:
            break
        if view[at].get("role") != "tool":
            start = at
    return joined(head, [*view[start:unseen], *kept])


def joined(head: Message, tail: Sequence[Message]) -> list[Message]:
    """The memory and the kept tail as one view. The model's acknowledgement stands between two user messages, and at
    the end, where the next prompt will come."""
    between = [] if tail and tail[0].get("role") == "assistant" else [acknowledgement()]
    return [head, *between, *tail]


def shrink(
    group: Sequence[Message],
    measure: Measure,
    count: Count,
    room: int,
    record_of: RecordOf = lambda _message: None,
    replace: Replace = lambda new, _old: new,
) -> list[Message] | None:
    """`group`, a call with its results or any other messages, in at most `room`; None if its frame is too large.

    The longest texts are cut first and to one level. Arguments are cut only where their results cannot make room.
    """
    if sum(map(measure, group)) <= room:
        return list(group)
    calls = sum(len(calls_of(message)) for message in group)
    for arguments in (None, room // (3 * calls + 3), 0):
        lean = [_lean(message, arguments, count) for message in group]
        bare = [{**message, "content": ""} for message in lean]
        sizes = [measure(full) - measure(empty) for full, empty in zip(lean, bare, strict=True)]
        level = water_level(sizes, room - sum(map(measure, bare)))
        if level < (_LEAST if arguments else 1):
            continue
        cut = [
            message if size <= level else _with_content(message, level, count, record_of(original))
            for original, message, size in zip(group, lean, sizes, strict=True)
        ]
        return [new if new is old else replace(new, old) for new, old in zip(cut, group, strict=True)]
    return None


def water_level(sizes: Sequence[int], room: int) -> int:
    """The level at which cutting every size that exceeds it brings their sum down to `room`; the largest ones are
    cut first, the small ones not at all. Zero or less if there is no room."""
    left, level = room, max(sizes, default=0)
    for rank, size in enumerate(ordered := sorted(sizes)):
        share = left // (len(ordered) - rank)
        if size > share:
            return share
        left -= size
    return level


def fit_text(text: str, limit: int, count: Count, note: str = "…") -> str:
    """`text` in at most `limit` tokens: whole, or its head and tail around `note`, or a bare ellipsis."""
    size = count(text)
    if size <= limit:
        return text
    for share in (0.97, 0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1, 0.05):
        cut = clip_middle(text, int(len(text) * max(limit, 0) / size * share), note)
        if count(cut) <= limit:
            return cut
    return "…"


def _fitting(compose: Compose, measure: Measure, room: int) -> Message:
    """The memory with its parts cut in proportion until it takes at most `room`, or as small as it gets."""
    for share in (1.0, 0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.02):
        head = compose(share)
        if measure(head) <= room:
            return head
    return compose(0.0)


def _lean(message: Message, arguments: int | None, count: Count) -> Message:
    """`message` with each call's arguments in `arguments` tokens (None: as they are), and nothing but what the API
    needs where that is 0."""
    calls = calls_of(message)
    if arguments is None:
        return message
    if not arguments:
        message = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if key in message}
    if not calls:
        return message
    return {**message, "tool_calls": [_lean_call(call, arguments, count) for call in calls]}


def _lean_call(call: dict[str, Any], limit: int, count: Count) -> dict[str, Any]:
    function = call.get("function") or {}
    raw = function.get("arguments")
    if isinstance(raw, str) and count(raw) <= limit:
        return call
    values = arguments_of(function)
    per_value = limit // (2 * len(values) + 1)
    cut = {key: fit_text(item, per_value, count) if isinstance(item, str) else item for key, item in values.items()}
    lean = json.dumps(cut, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": lean if count(lean) <= limit else "{}"}}


def _with_content(message: Message, limit: int, count: Count, record: int | None) -> Message:
    """`message` with its content in `limit` tokens: the text's head and tail, and the newest pictures beside it."""
    again = "" if record is None else f"; recall({record}) has the whole"
    note = _LEFT_OUT.format(dropped="{dropped:,}", again=again)
    text, pictures = text_of(message), pictures_of(message)
    kept = newest(pictures, limit - min(count(text), limit // 2))  # words are dearer
    if len(kept) < len(pictures):
        text += _PICTURES_LEFT_OUT.format(pictures=plural(len(pictures) - len(kept), "picture"), again=again)
    text = fit_text(text, limit - parts_tokens(kept), count, note)
    return {**message, "content": [{"type": "text", "text": text}, *kept] if kept else text}


def newest(parts: Sequence[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The last of `parts` that fit into `room`."""
    start = len(parts)
    while start and parts_tokens(parts[start - 1 :]) <= room:
        start -= 1
    return list(parts[start:])


def parts_tokens(parts: Sequence[dict[str, Any]]) -> int:
    """Tokens of content parts by themselves."""
    return message_tokens({"content": parts}) - message_tokens({})


def _bytes(size: int) -> str:
    return f"{size} B" if size < 1000 else f"{size / 1000:.1f} KB" if size < 10_000 else f"{size // 1000:,} KB"
