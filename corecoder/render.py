"""Events to terminal text, by appending only, so that scrollback, selection and pipes keep working.

`Renderer` turns the events of a turn into lines on a `Screen`, the same for the REPL, a one-shot run and the demo.
It knows events and nothing of the agent. The price of appending: a line cannot change any more once it is written, so
quick calls get their line only when their outcome is known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Protocol

from .events import (
    Compacted,
    Event,
    MessageCompleted,
    Notice,
    Question,
    ReasoningDelta,
    Retrying,
    TextDelta,
    TodoChanged,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    Usage,
    UsageUpdated,
)
from .terminal import Screen
from .text import one_line, plural

HEAD_LINES, TAIL_LINES = 3, 7  # of a folded output
DIFF_LINES = 40
_SHORT_NAMES = {"read_file": "read", "write_file": "write", "edit_file": "edit"}
# These are quick, so their one line can wait for the outcome; every other call is announced when it starts.
_QUIET = frozenset({"read_file", "write_file", "edit_file", "glob", "grep", "recall"})
_WRITES = frozenset({"write_file", "edit_file"})
# A result that says itself how the call ended, and after how long.
_ENDING = re.compile(
    r"^(?:Not run: |\[(?:exit code|killed by|cancelled after|timed out after|interrupted by) )", re.MULTILINE
)


class Live(Protocol):
    """The place below everything printed, which a terminal that can redraw a few lines offers."""

    def show(self, text: str) -> None:
        """What stands there until it is replaced, "" for nothing; the end of it is shown if it is long."""


class Renderer:
    """Shows one turn after the other on a Screen.

    `streaming` shows text and reasoning as they arrive, which is the REPL; without it the text beside tool calls is
    shown when its message is whole, and the final answer is left to the caller. `root` shortens paths inside it.
    """

    def __init__(
        self, screen: Screen, *, streaming: bool, root: PurePath | None = None, live: Live | None = None
    ) -> None:
        self._screen = screen
        self._live = live
        self._streaming = streaming
        self._root = root
        self._turn_started()
        self._show: dict[type[Event], Callable[[Any], None]] = {
            TurnStarted: self._turn_started,
            TextDelta: self._words,
            ReasoningDelta: self._words,
            MessageCompleted: self._message,
            ToolStarted: self._tool_started,
            ToolFinished: self._tool_finished,
            Retrying: self._retrying,
            Compacted: self._compacted,
            TodoChanged: self._todo,
            Notice: self._notice,
            UsageUpdated: self._count,
            TurnFinished: self._turn_finished,
        }

    def show(self, event: Event) -> None:
        """Shows one event; those that need no line (steps, live output) show nothing."""
        show = self._show.get(type(event))
        if show is not None:
            show(event)

    def question(self, question: Question) -> None:
        """Shows the whole of what is asked for: the words, why it is asked, and the command, diff or plan."""
        self._screen.prose(question.text, "bold yellow")
        if question.why:
            self._screen.prose(question.why, "dim")
        if question.detail:
            self._screen.line("\n".join(f"  {line}" for line in question.detail.splitlines()))

    def unfold(self) -> None:
        """Prints whole what was folded last; called again, what was folded before that."""

    def _turn_started(self, _event: TurnStarted | None = None) -> None:
        self._reasoning = False
        self._pending: dict[str, ToolStarted] = {}
        self._announced = ""
        self._apart = False  # a blank line is due before the next words of the model
        self._compactions: list[Compacted] = []
        self._usage = Usage()

    def _words(self, event: TextDelta | ReasoningDelta) -> None:
        if not self._streaming or event.agent:
            return
        reasoning = isinstance(event, ReasoningDelta)
        if reasoning != self._reasoning:
            self._screen.fresh_line()
            self._reasoning = reasoning
        self._gap()
        self._screen.write(event.text, "dim" if reasoning else "")

    def _message(self, event: MessageCompleted) -> None:
        self._reasoning = False
        if self._streaming:
            self._screen.fresh_line()
        elif event.calls and event.text.strip() and not event.agent:
            self._gap()
            self._screen.line(event.text.strip())

    def _gap(self) -> None:
        """Sets the words of the model apart from the calls before them."""
        if self._apart:
            self._screen.line()
            self._apart = False

    def _tool_started(self, event: ToolStarted) -> None:
        self._pending[event.call_id] = event
        if event.name not in _QUIET:
            self._announce(event)

    def _announce(self, event: ToolStarted, outcome: str = "", style: str = "") -> None:
        """The line of a call: mark, sub-agent, name and essentials, and the outcome where it is known."""
        screen = self._screen
        who = f"{event.agent}: " if event.agent else ""
        name, what = headline(event.name, event.arguments, self._root)
        room = max(20, screen.width - len(who) - len(name) - len(outcome) - 5)
        screen.fresh_line()
        screen.write("● ", style or "cyan")
        screen.write(who + name, "bold")
        screen.write(f" {one_line(what, room)}" if what else "")
        screen.write(f" {outcome}" if outcome else "", style)
        screen.fresh_line()
        self._announced = event.call_id
        self._apart = True

    def _tool_finished(self, event: ToolFinished) -> None:
        started = self._pending.pop(event.call_id, None) or ToolStarted(event.call_id, event.name, {})
        shown = event.display or event.content
        if event.refused:  # what follows the reason is advice for the model
            shown = shown.partition(". ")[0].removesuffix(".")
        word, style = ("refused", "yellow") if event.refused else ("", "") if event.ok else ("failed", "red")
        if event.name not in _QUIET:
            self._output(started, event, shown, word, style or "dim")
        elif word:
            self._announce(started, word, style)
            self._fold(shown, style)
        elif event.name in _WRITES:
            added, removed = diff_counts(shown)
            self._announce(started, f"+{added} -{removed}")
            self._diff(shown)
        else:
            count = len(shown.strip("\n").splitlines())
            self._announce(started, f"({plural(count, 'line')})", "dim")

    def _output(self, started: ToolStarted, event: ToolFinished, shown: str, word: str, style: str) -> None:
        """The result of a call that was announced when it started; said again if other lines came between."""
        if self._announced != event.call_id:
            self._announce(started)
        self._fold(shown, style)
        took = f"{event.seconds:.1f} s" if event.seconds >= 1 else ""
        if (word or took) and not _ENDING.search(shown):
            self._screen.line(f"  ↳ {' after '.join(filter(None, (word, took)))}", style)

    def _fold(self, text: str, style: str) -> None:
        lines = text.strip("\n").splitlines()
        hidden = len(lines) - HEAD_LINES - TAIL_LINES
        if hidden > 1:
            fold = f"… {plural(hidden, 'line')} hidden …"
            lines = [*lines[:HEAD_LINES], fold, *lines[-TAIL_LINES:]]
        for line in lines:
            bad = _ENDING.match(line) and not line.startswith("[exit code 0")
            self._indented(line, "yellow" if bad else style)

    def _diff(self, text: str) -> None:
        lines = diff_lines(text)
        for line in lines[:DIFF_LINES]:
            self._indented(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim"))
        if len(lines) > DIFF_LINES:
            self._screen.line(f"  … {plural(len(lines) - DIFF_LINES, 'line')} of the diff hidden …", "dim")

    def _indented(self, line: str, style: str) -> None:
        self._screen.line(f"  {clip(line, self._screen.width - 3)}".rstrip(), style)

    def _retrying(self, event: Retrying) -> None:
        self._reasoning = False
        wait = f"in {event.delay:.0f} s" if event.delay >= 1 else "now"
        count = f" (attempt {event.attempt})" if event.attempt else ""  # a request that was mended is no attempt
        self._screen.prose(f"{one_line(event.reason, 300)}; trying again {wait}{count}", "yellow")

    def _compacted(self, event: Compacted) -> None:
        """The first of a turn is said at once; with a small window the others are many, and a line at its end."""
        self._compactions.append(event)
        if len(self._compactions) == 1:
            undo = "; /compact --undo takes it back" if self._streaming else ""
            self._screen.prose(compacted_words([event]) + undo, "cyan")

    def _todo(self, event: TodoChanged) -> None:
        marks = {"completed": "[✓]", "done": "[✓]", "in_progress": "[→]"}
        for status, text in event.tasks:
            self._screen.line(f"  {marks.get(status, '[ ]')} {one_line(text, self._screen.width - 8)}")

    def _notice(self, event: Notice) -> None:
        if event.level == "warning":
            self._screen.prose(f"warning: {event.text}", "yellow")
        else:
            self._screen.prose(event.text, "dim")

    def _count(self, event: UsageUpdated) -> None:
        self._usage += event.usage

    def _turn_finished(self, event: TurnFinished) -> None:
        """How the turn ended, in a line; the answer itself is not repeated."""
        self._screen.fresh_line()
        for started in self._pending.values():
            self._announce(started, "interrupted", "yellow")
        self._pending.clear()
        if more := self._compactions[1:]:
            self._screen.prose(compacted_words(more), "cyan")
        self._compactions.clear()
        words, style = ending_words(event)
        if words:
            self._screen.prose(words, style)
        facts = [plural(event.steps, "step")] if event.steps else []
        if self._usage != Usage():
            facts.append(usage_words(self._usage))
        if facts:
            self._screen.line(", ".join(facts), "dim")


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


def clip(line: str, room: int) -> str:
    """`line` with its indentation, cut to `room` characters, tabs as four spaces."""
    line = line[: room * 2].expandtabs(4)
    return line if len(line) <= room else line[: room - 1] + "…"


def headline(name: str, arguments: Mapping[str, Any], root: PurePath | None = None) -> tuple[str, str]:
    """The short name of a call and its essentials: `bash`, `pytest -q`; `edit`, `src/a.py`; `grep`, `TODO in src`."""
    path = str(arguments.get("file_path") or arguments.get("path") or "").removeprefix(f"{root}{os.sep}")
    short = _SHORT_NAMES.get(name, name)
    if name == "bash":
        return short, str(arguments.get("command", ""))
    if name == "read_file":
        return short, path + _range(arguments)
    if name in _WRITES:
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


def diff_lines(text: str) -> list[str]:
    """The lines of the unified diff in `text`, from its first hunk on; [] if there is none."""
    lines = text.splitlines()
    return lines[next((at for at, line in enumerate(lines) if line.startswith("@@ ")), len(lines)) :]


def diff_counts(text: str) -> tuple[int, int]:
    """Lines added and removed by the unified diff in `text`."""
    signs = [line[:1] for line in diff_lines(text)]
    return signs.count("+"), signs.count("-")


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
