"""Events to terminal text, by appending only, so that scrollback, selection and pipes keep working.

`Renderer` turns the events of a turn into lines on a `Screen`, the same for the REPL, a one-shot run and the demo.
It knows events and nothing of the agent. The price of appending: a line cannot change any more once it is written, so
quick calls get their line only when their outcome is known, and what is still under way stands in `Live`, where there
is one: below everything printed, redrawn, and gone when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import Any, Protocol

from .diffview import diff_counts, diff_rows, diff_view
from .events import (
    Compacted,
    Event,
    MessageCompleted,
    ModeChanged,
    Notice,
    Question,
    ReasoningDelta,
    Retrying,
    Steered,
    TextDelta,
    TodoChanged,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    Usage,
    UsageUpdated,
)
from .folds import ENDING, Folds
from .layout import Line, clip, wrap
from .markdown import MarkdownStream
from .running import Running
from .speech import BlockSpeech, RawSpeech, Speech
from .terminal import Screen
from .text import one_line, plural, printable, revealed
from .words import compacted_words, ending_words, headline, usage_words

LIVE_LINES = 6  # of what is under way
# These are quick, so their one line can wait for the outcome; every other call is announced when it starts.
_QUIET = frozenset({"read_file", "write_file", "edit_file", "glob", "grep", "recall"})
_WRITES = frozenset({"write_file", "edit_file"})


class Live(Protocol):
    """The place below everything printed, which a terminal that can redraw a few lines offers."""

    def show(self, text: str) -> None:
        """What stands there until it is replaced, "" for nothing; the end of it is shown if it is long."""


class Renderer:
    """Shows one turn after the other on a Screen.

    `streaming` shows text and reasoning as they arrive, which is the REPL; without it the text beside tool calls is
    shown when its message is whole, and the final answer is left to the caller. `root` shortens paths inside it.
    With `live` text is Markdown, shown in whole blocks, and what is folded can be unfolded.
    """

    def __init__(
        self, screen: Screen, *, streaming: bool, root: PurePath | None = None, live: Live | None = None
    ) -> None:
        self._screen = screen
        self._streaming = streaming
        self._root = root
        self._live = live
        self._below = ""
        self._folds = Folds(screen, unfold=live is not None)
        self._speech: Speech = (
            BlockSpeech(screen, self._words_apart, self._folds.keep) if live else RawSpeech(screen, self._words_apart)
        )
        self._running = Running()
        self._turn_started()
        self._show: dict[type[Event], Callable[[Any], None]] = {
            TurnStarted: self._turn_started,
            TextDelta: self._text,
            ReasoningDelta: self._reasoning,
            MessageCompleted: self._message,
            ToolStarted: self._tool_started,
            ToolOutput: self._running.output,
            ToolFinished: self._tool_finished,
            Retrying: self._retrying,
            Compacted: self._compacted,
            TodoChanged: self._todo,
            Notice: self._notice,
            Steered: self._steered,
            ModeChanged: self._mode,
            UsageUpdated: self._count,
            TurnFinished: self._turn_finished,
        }

    def show(self, event: Event) -> None:
        """Shows one event; those that need no line (steps, live output without a place for it) show nothing."""
        show = self._show.get(type(event))
        if show is None:
            return
        show(event)
        self._refresh()

    def _refresh(self) -> None:
        """Puts what is under way below."""
        if self._live is None:
            return
        below = self._speech.pending or self._running.tail(LIVE_LINES, self._announced, self._root)
        below = "\n".join(below.splitlines()[-LIVE_LINES:])
        if below != self._below:
            self._below = below
            self._live.show(below)

    def question(self, question: Question) -> None:
        """Shows the whole of what is asked for: the words, why it is asked, and the command, diff or plan."""
        screen = self._screen
        self._speech.end()
        self._refresh()
        self._words_apart()
        screen.prose(question.text, "bold yellow")
        if question.why and question.kind == "consent" and not question.detail.startswith("--- "):
            screen.prose(question.why, "dim")
        if question.kind == "plan":
            markdown = MarkdownStream(screen)
            markdown.feed(question.detail)
            markdown.finish()
        elif question.detail.startswith("--- ") and (rows := diff_rows(question.detail)):
            self._folds.indent(diff_view(rows, self._folds.room, whole=True))
            self._agreed = True
        else:
            self._folds.indent(
                [[(line.expandtabs(4), "")] for line in revealed(question.detail).split("\n") if question.detail]
            )

    def unfold(self) -> None:
        """Prints whole what was folded last; called again, what was folded before that."""
        self._folds.show()

    def _turn_started(self, _event: TurnStarted | None = None) -> None:
        self._speech.end()
        self._running.clear()
        self._announced = ""
        self._agreed = False  # the diff of the next call was shown with a question
        self._apart = self._said = False  # a blank line is due before the next words of the model, before a call
        self._compactions: list[Compacted] = []
        self._usage = Usage()

    def _text(self, event: TextDelta) -> None:
        if self._streaming and not event.agent:
            self._speech.text(event.text)

    def _reasoning(self, event: ReasoningDelta) -> None:
        if self._streaming and not event.agent:
            self._speech.reasoning(event.text)

    def _message(self, event: MessageCompleted) -> None:
        if event.agent:
            return
        self._speech.end()
        if not self._streaming and event.calls and event.text.strip():
            self._words_apart()
            self._screen.line(event.text.strip())

    def _words_apart(self) -> None:
        """Sets the words of the model apart from the calls before them."""
        if self._apart:
            self._screen.line()
            self._apart = False
        self._said = self._live is not None

    def _tool_started(self, event: ToolStarted) -> None:
        self._running.start(event)
        if event.name not in _QUIET:
            self._announce(event)

    def _announce(self, event: ToolStarted, outcome: str = "", style: str = "") -> None:
        """The line of a call: mark, sub-agent, name and essentials, and the outcome where it is known."""
        if self._said:
            self._screen.line()
        self._said = False
        self._screen.lines([[*self._head(event, outcome, style), (f" {outcome}" if outcome else "", style)]])
        self._announced = event.call_id
        self._apart = True

    def _head(self, event: ToolStarted, outcome: str = "", style: str = "") -> Line:
        who = f"{event.agent}: " if event.agent else ""
        name, what = headline(event.name, event.arguments, self._root)
        room = max(20, self._screen.width - len(who) - len(name) - len(outcome) - 5)
        words = clip(one_line(what, room), room)
        return [("● ", style or "cyan"), (who + name, "bold"), (f" {words}" if what else "", "")]

    def _tool_finished(self, event: ToolFinished) -> None:
        started = self._running.finish(event.call_id) or ToolStarted(event.call_id, event.name, {})
        shown = event.display or event.content
        self._agreed, agreed = False, self._agreed
        if event.refused:  # what follows the reason is advice for the model
            shown = shown.partition(". ")[0].removesuffix(".")
        word, style = ("refused", "yellow") if event.refused else ("", "") if event.ok else ("failed", "red")
        if event.name not in _QUIET:
            self._output(started, event, shown, word, style or "dim")
        elif word:
            self._announce(started, word, style)
            self._folds.output(self._head(started), shown, style)
        elif event.name in _WRITES:
            added, removed = diff_counts(shown)
            self._announce(started, f"+{added} -{removed}")
            if not agreed:
                self._folds.diff(self._head(started), shown)
        else:
            count = len(shown.strip("\n").splitlines())
            self._announce(started, f"({plural(count, 'line')})", "dim")

    def _output(self, started: ToolStarted, event: ToolFinished, shown: str, word: str, style: str) -> None:
        """The result of a call that was announced when it started; said again if other lines came between."""
        if self._announced != event.call_id:
            self._announce(started)
        self._folds.output(self._head(started), shown, style)
        took = f"{event.seconds:.1f} s" if event.seconds >= 1 else ""
        if (word or took) and not ENDING.search(shown):
            self._screen.line(f"  ↳ {' after '.join(filter(None, (word, took)))}", style)

    def _retrying(self, event: Retrying) -> None:
        self._speech.end()
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
        marks = {"completed": ("✓", "dim"), "done": ("✓", "dim"), "in_progress": ("→", "bold")}
        for status, text in event.tasks:
            mark, style = marks.get(status, (" ", ""))
            self._folds.indent([[(f"[{mark}] {clip(one_line(text, self._folds.room), self._folds.room - 5)}", style)]])

    def _notice(self, event: Notice) -> None:
        if event.level == "warning":
            self._screen.prose(f"warning: {event.text}", "yellow")
        else:
            self._screen.prose(event.text, "dim")

    def _steered(self, event: Steered) -> None:
        """The words of the person, where they reached the model."""
        self._words_apart()
        first, *more = wrap([(printable(event.text).strip(), "bold")], self._folds.room)
        self._screen.lines([[("› ", "cyan"), *first], *([("  ", ""), *line] for line in more)])
        self._apart = True

    def _mode(self, event: ModeChanged) -> None:
        self._screen.prose(f"the mode is {event.mode} now", "cyan")

    def _count(self, event: UsageUpdated) -> None:
        self._usage += event.usage

    def _turn_finished(self, event: TurnFinished) -> None:
        """How the turn ended, in a line; the answer itself is not repeated."""
        self._speech.end()
        for started in self._running:
            self._announce(started, "interrupted", "yellow")
        self._running.clear()
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
