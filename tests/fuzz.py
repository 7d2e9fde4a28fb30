"""Random streams: replies of random dialects that were torn, shuffled, mistyped, blown up or replaced by garbage."""

from __future__ import annotations

import json
import random
from typing import Any

from server import DONE, EOF, D, Events, F, Plain, T, fn, sse, usage

NAMES = ("bash", "read_file", "write_file")
VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1e300,
    "",
    "x",
    "\ud800",
    "{",
    [],
    [[]],
    {},
    {"a": None},
    "9" * 5000,
    ["x"],
)

JUNK = (
    "data: {",
    "data: nonsense",
    "data: []",
    "data: [1, 2",
    "data: null",
    ": ping",
    "event: error",
    "\x00\xff",
    "<p>",
)


def random_stream(chance: random.Random) -> Events | Plain:
    """One answer with status 200, in any state of disrepair."""
    events = _reply(chance)
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        chance.choice((_drop, _swap, _repeat, _mistype, _mistype, _garbage, _error, _huge))(chance, events)
    if chance.random() < 0.02:
        return Plain(json.dumps(events), chance.choice(("application/json", "text/html", "")))
    if chance.random() < 0.4:
        return _torn(chance, events)
    return sse(*events, *([EOF] if chance.random() < 0.2 else []))


def _reply(chance: random.Random) -> list[Any]:
    events: list[Any] = [D(role="assistant", content="")]
    events += [
        D(chance.choice(("Hello", " world", "<think>", "</think>", "é日本", ""))) for _ in range(chance.randrange(4))
    ]
    events += [D(reasoning_content="hm") for _ in range(chance.randrange(2))]
    for number in range(chance.randrange(4)):
        raw = chance.choice(('{"command": "ls"}', "{}", "", '{"a": "', "[1]", "nonsense", '{"a":1}{"b":2}', '"{}"'))
        index = chance.choice((number, number, 0, None))
        identity = chance.choice((f"c{number}", f"c{number}", "same", None, ""))
        cut = chance.randrange(len(raw) + 1)
        events.append(T(fn(chance.choice(NAMES), raw[:cut], index=index, id=identity)))
        events.append(T(fn(None, raw[cut:], index=index)))
    events.append(F(chance.choice(("stop", "tool_calls", "length", "content_filter", "error", ""))))
    return [*events, usage(chance.randrange(100), chance.randrange(100)), DONE]


def _drop(chance: random.Random, events: list[Any]) -> None:
    if events:
        del events[chance.randrange(len(events))]


def _swap(chance: random.Random, events: list[Any]) -> None:
    chance.shuffle(events)


def _repeat(chance: random.Random, events: list[Any]) -> None:
    if events:
        events.insert(chance.randrange(len(events)), chance.choice(events))


def _garbage(chance: random.Random, events: list[Any]) -> None:
    events.insert(chance.randrange(len(events) + 1), chance.choice(JUNK))


def _error(chance: random.Random, events: list[Any]) -> None:
    body: Any = chance.choice(
        ({"message": "busy", "code": 502}, "boom", ["x"], {"code": 400}, 7, {"message": {"a": []}})
    )
    events.insert(chance.randrange(len(events) + 1), {"error": body})


def _huge(chance: random.Random, events: list[Any]) -> None:
    text = chance.choice(("x", "{", "\\", '"', "é")) * 60_000
    events.insert(chance.randrange(len(events) + 1), chance.choice((D(text), T(fn("bash", text)), D(reasoning=text))))


def _mistype(chance: random.Random, events: list[Any]) -> None:
    """Puts a value of another type somewhere into one event."""
    places = [event for event in events if isinstance(event, dict)]
    if not places:
        return
    original = chance.choice(places)
    event = json.loads(json.dumps(original))
    node: Any = event
    while True:
        key = chance.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if isinstance(node[key], (dict, list)) and node[key] and chance.random() < 0.8:
            node = node[key]
            continue
        node[key] = chance.choice(VALUES)
        break
    events[next(at for at, item in enumerate(events) if item is original)] = event


def _torn(chance: random.Random, events: list[Any]) -> Events:
    lines = [event if isinstance(event, str) else f"data: {json.dumps(event)}" for event in events]
    data = "\n\n".join(lines).encode("utf-8", "surrogatepass") + b"\n\n"
    start = chance.choice((0, 0, 0, chance.randrange(len(data))))
    end = chance.randrange(start, len(data) + 1)
    return Events([data[start:end], *([EOF] if chance.random() < 0.5 else [])])
