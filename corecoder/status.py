"""What the live part of the terminal says: what is going on right now, and the line with the state of the session.

Both are pure: events and figures in, words out, so they can be tested without a terminal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from .events import (
    Compacted,
    Compacting,
    Event,
    Question,
    ReasoningDelta,
    Retrying,
    StepStarted,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from .gitdir import git_directory, regular_file
from .text import one_line
from .values import dataclass
from .words import headline, money, tokens

CELLS = 20  # of the bar
_BRANCH = "ref: refs/heads/"
Parts = list[tuple[str, str]]  # (style, text)


class Activity:
    """What is going on, in a few words, from the events of a turn."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._running: dict[str, str] = {}
        self._until = 0.0
        self._say("starting")

    def note(self, event: Event) -> None:
        """Takes one event in."""
        if isinstance(event, ToolStarted):
            name, what = headline(event.name, event.arguments, self._root)
            self._running[event.call_id] = f"running {name} {one_line(what, 60)}".rstrip()
            self._say(next(reversed(self._running.values())))
        elif isinstance(event, ToolFinished):
            self._running.pop(event.call_id, None)
            self._say(next(reversed(self._running.values()), "waiting for the model"))
        elif isinstance(event, Retrying):
            self._say("waiting for the model")
            self._until = self._clock() + event.delay
        elif isinstance(event, (StepStarted, Compacted, Question)):
            self._say("waiting for the model")
        elif isinstance(event, ReasoningDelta):
            self._say("thinking")
        elif isinstance(event, TextDelta):
            self._say("writing")
        elif isinstance(event, Compacting):
            self._say("compacting")

    def words(self) -> str:
        """`running bash pytest -q · 12 s`; `retrying in 9 s`."""
        now = self._clock()
        if self._until > now:
            return f"retrying in {self._until - now + 0.5:.0f} s"
        seconds = int(now - self._since)
        return (
            f"{self._what} · {seconds // 60} min {seconds % 60} s" if seconds >= 60 else f"{self._what} · {seconds} s"
        )

    def _say(self, what: str) -> None:
        if what != getattr(self, "_what", ""):
            self._what, self._since = what, self._clock()
        self._until = 0.0


@dataclass
class Status:
    """The state of a session. `used` and `usable` are tokens of the window, `marks` the watermarks as fractions."""

    model: str = ""
    mode: str = ""
    used: int = 0
    usable: int = 0
    marks: tuple[float, ...] = ()
    cached: float = 0.0
    cost: float | None = None
    branch: str = ""
    ascii: bool = False

    def parts(self, width: int) -> Parts:
        """The status line in at most `width` columns; what matters least goes first where there is no room."""
        if not self.model:
            return [("", " starting …"[: max(0, width)])]
        facts: list[Parts] = [[("", one_line(self.model, 30))], [("class:status.mode", self.mode)]]
        if self.usable:
            facts.append(self._bar() if width >= 60 else [self._percent()])
        if self.cost is not None:
            facts.append([("", money(self.cost))])
        if self.cached:
            facts.append([("", f"{self.cached:.0%} cached")])
        if self.branch:
            facts.append([("", one_line(self.branch, 30))])
        line: Parts = []
        for fact in facts:
            piece: Parts = [("", f" {'-' if self.ascii else '·'} " if line else " "), *fact]
            if sum(len(text) for _, text in line + piece) < width:
                line += piece
        return line

    def _percent(self) -> tuple[str, str]:
        share = self.used / self.usable
        passed = sum(share >= mark for mark in self.marks)
        return ("class:status.hot" if passed > 1 else "class:status.warm" if passed else "", f"{share:.0%}")

    def _bar(self) -> Parts:
        """`[####----|---|---|--] 21% of 110k`: a watermark is a stroke."""
        full, free, mark = "#-|" if self.ascii else "▬─┼"
        cells = round(CELLS * min(1.0, self.used / self.usable))
        strokes = {min(CELLS - 1, int(CELLS * fraction)) for fraction in self.marks}
        bar = "".join(full if at < cells else mark if at in strokes else free for at in range(CELLS))
        style, percent = self._percent()
        return [
            (style, f"{bar[:cells]}"),
            ("", bar[cells:]),
            (style, f" {percent}"),
            ("", f" of {tokens(self.usable)}"),
        ]


def branch_of(root: Path) -> str:
    """The branch that is checked out at `root` or above it, the start of the commit's name without one, "" for none."""
    for top in (root, *root.parents):
        if (git := git_directory(top)) is not None:
            head = (regular_file(git / "HEAD", 300) or b"").decode("utf-8", "replace").strip()
            return head.removeprefix(_BRANCH) if head.startswith(_BRANCH) else head[:8]
    return ""
