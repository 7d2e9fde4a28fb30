"""The calls that have begun and not ended, and the end of what each has printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from .events import ToolOutput, ToolStarted
from .text import one_line, printable
from .words import headline

_KEPT = 4_000  # characters of output
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")  # a progress bar draws its line again and again


class Running:
    """Calls by their id, in the order in which they began."""

    def __init__(self) -> None:
        self._calls: dict[str, ToolStarted] = {}
        self._outputs: dict[str, str] = {}

    def __iter__(self) -> Iterator[ToolStarted]:
        return iter(self._calls.values())

    def start(self, call: ToolStarted) -> None:
        """A call has begun."""
        self._calls[call.call_id] = call

    def output(self, event: ToolOutput) -> None:
        """A call has printed something."""
        if event.call_id in self._calls:
            self._outputs[event.call_id] = (self._outputs.get(event.call_id, "") + event.text)[-_KEPT:]

    def finish(self, call_id: str) -> ToolStarted | None:
        """A call has ended; gives what it was, None if it is not known."""
        self._outputs.pop(call_id, None)
        return self._calls.pop(call_id, None)

    def clear(self) -> None:
        """All calls have ended."""
        self._calls.clear()
        self._outputs.clear()

    def tail(self, lines: int, said: str, root: PurePath | None) -> str:
        """What is going on in at most about `lines` lines: each call, except one whose line was `said` just now, with
        the end of its output."""
        if not self._calls:
            return ""
        shown = list(self._calls.values())[-lines:]
        each = max(1, lines // len(shown))
        out: list[str] = []
        for call in shown:
            if call.call_id != said or len(shown) > 1:
                name, what = headline(call.name, call.arguments, root)
                out.append(one_line(f"● {f'{call.agent}: ' if call.agent else ''}{name} {what}", 200))
            output = printable(_OVERWRITTEN.sub("", self._outputs.get(call.call_id, "")))
            out += [f"  {line}" for line in output.expandtabs(4).splitlines()[-each:]]
        return "\n".join(out)
