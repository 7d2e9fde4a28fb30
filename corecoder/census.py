"""What is in the context window, item by item: the figures behind /context.

The sizes are those that the tiers work with, scaled so that they add up to the fill that counts against the window.
The price: a provider that counts pictures or calls in its own way makes every item look a little off, never the sum.
"""

from __future__ import annotations

from .context import ContextManager
from .ledger import main_argument
from .messages import Message, arguments_of, calls_of, text_of
from .session import Session
from .text import one_line
from .tiers import is_stub, results_in
from .values import dataclass


@dataclass(frozen=True)
class Item:
    """One message in view: the record under which `recall` has it whole, what it is, its tokens."""

    record: int | None
    what: str
    tokens: int


@dataclass(frozen=True)
class Census:
    """`kinds` maps what there is (`system`, `tools`, `compacted`, `user`, `assistant`, `results`) to tokens, `results`
    each tool to how many of its results are in view and their tokens, `biggest` are the largest items; `total` counts
    against `usable`."""

    kinds: dict[str, int]
    results: dict[str, tuple[int, int]]
    biggest: tuple[Item, ...]
    total: int
    usable: int


def take_census(session: Session, context: ContextManager, most: int = 10) -> Census:
    """Counts the view of `session`; `most` is how many of the biggest items are named."""
    view = session.view
    kinds = context.breakdown(view)
    total = kinds.pop("total")
    counted = context.meter.prefix + sum(map(context.meter.measure, view))
    scale = total / max(1, counted)
    sizes = [round(context.meter.measure(message) * scale) for message in view]
    calls = {at: call for at, _, call in results_in(view)}
    results: dict[str, tuple[int, int]] = {}
    for at, call in calls.items():
        name = one_line(call.get("name") or "unknown", 40)
        count, tokens = results.get(name, (0, 0))
        results[name] = count + 1, tokens + sizes[at]
    largest = sorted(range(len(view)), key=lambda at: -sizes[at])[:most]
    whole = [context.meta(view[at]).get("of", session.id_of(view[at])) for at in largest]
    biggest = tuple(
        Item(record, _what(view[at], calls.get(at)), sizes[at]) for at, record in zip(largest, whole, strict=True)
    )
    by_size = dict(sorted(results.items(), key=lambda item: -item[1][1]))
    return Census(kinds, by_size, biggest, total, context.usable)


def _what(message: Message, call: dict[str, object] | None) -> str:
    """The essentials of a message in one line."""
    if call is not None:
        snipped = " (snipped)" if is_stub(message) else ""
        return f"{call.get('name') or 'result'} {main_argument(arguments_of(call), 100)}{snipped}"
    who = {"user": "you", "assistant": "model"}.get(str(message.get("role")), str(message.get("role")))
    made = [call.get("function") or {} for call in calls_of(message)]
    words = text_of(message) or ", ".join(f"{each.get('name')} {main_argument(arguments_of(each))}" for each in made)
    return f"{who}: {one_line(words, 100)}"
