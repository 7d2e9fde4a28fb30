"""What a turn did, in the words that a person reads: calls, endings, figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from .events import Compacted, TurnFinished, Usage
from .text import plural, revealed

_SHORT_NAMES = {"read_file": "read", "write_file": "write", "edit_file": "edit"}


def ending_words(event: TurnFinished) -> tuple[str, str]:
    """Why a turn ended, and the style for it; ("", "") when it simply came to its end."""
    if event.stop_reason == "error":
        return f"error: {event.error}", "red"
    if event.stop_reason == "cancelled":
        return "stopped", "yellow"
    if event.stop_reason == "refused":
        return event.error or "the provider's content filter withheld the answer", "yellow"
    if event.stop_reason != "end_turn":
        return event.error or f"a limit was reached ({event.stop_reason})", "yellow"
    return "", ""


def headline(name: str, arguments: Mapping[str, Any], root: PurePath | None = None) -> tuple[str, str]:
    """The short name of a call and its essentials: `bash`, `pytest -q`; `edit`, `src/a.py`; `grep`, `TODO in src`."""
    path = str(arguments.get("file_path") or arguments.get("path") or "").removeprefix(f"{root}{os.sep}")
    short = _SHORT_NAMES.get(name, name)
    if name == "bash":
        return short, revealed(str(arguments.get("command", "")))
    if name == "read_file":
        return short, path + _range(arguments)
    if name in ("write_file", "edit_file"):
        return short, path
    if name in ("glob", "grep"):
        pattern, include = arguments.get("pattern", ""), arguments.get("include")
        return short, f"{pattern}{f' in {path}' if path else ''}{f' ({include})' if include else ''}"
    return short, " ".join(value if isinstance(value, str) else repr(value) for value in arguments.values())


def _range(arguments: Mapping[str, Any]) -> str:
    offset, limit = arguments.get("offset"), arguments.get("limit")
    if not isinstance(offset, int) and not isinstance(limit, int):
        return ""
    first = offset if isinstance(offset, int) else 1
    return f":{first}-{first + limit - 1}" if isinstance(limit, int) else f":{first}-"


def compacted_words(events: Sequence[Compacted]) -> str:
    """`compacted 96k -> 31k (summary, $0.03, 4.1 s)`; several, which come after a first one, with their sums."""
    last, cost, seconds = events[-1], sum(each.cost or 0 for each in events), sum(each.seconds for each in events)
    facts = [*dict.fromkeys(each.how for each in events), *([money(cost)] if cost else [])]
    facts += [f"{seconds:.1f} s"] if seconds >= 0.1 else []
    times = f"{plural(len(events), 'more time')}, at last " if len(events) > 1 else ""
    return f"compacted {times}{tokens(last.before)} -> {tokens(last.after)} ({', '.join(facts)})"


def tokens(count: int) -> str:
    """`812`, `9.6k`, `31k`, `1.2M`."""
    if count < 1000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.1f}k" if count < 9_950 else f"{count / 1000:.0f}k"
    return f"{count / 1_000_000:.1f}M"


def money(dollars: float) -> str:
    """Dollars with enough digits to be worth reading."""
    return f"${dollars:.2f}" if dollars >= 0.1 else f"${dollars:.4f}" if dollars < 0.01 else f"${dollars:.3f}"


def usage_words(usage: Usage) -> str:
    """`12k tokens in (80% cached), 456 out, $0.02`."""
    cached = f" ({100 * usage.cached // usage.prompt}% cached)" if usage.cached and usage.prompt else ""
    cost = f", {money(usage.cost)}" if usage.cost is not None else ""
    return f"{tokens(usage.prompt)} tokens in{cached}, {tokens(usage.completion)} out{cost}"
