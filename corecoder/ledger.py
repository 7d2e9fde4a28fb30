"""The ledger: what code can know about a session without asking a model.

Summaries in prose keep most decisions and lose nearly every file path, number and command. So these facts are taken
from the messages themselves as they are logged, a few microseconds each: the user's words, files read and changed,
commands with exit code and error line, failing tests, the todo list, the accepted plan, and for each the id under which
the whole message can be recalled. It depends on no summariser and survives any number of compactions.

The price is a convention: the ledger knows the tools of this program by name and reads their results as text, so a
strange tool leaves no trace in it but the user's words.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from .memory import OURS, Memory
from .messages import Message, arguments_of, calls_of, text_of
from .outcome import FAILED, TestRun, as_run, ends_of, error_line, failing_tests, outcome_of
from .plan import ACCEPTED, PLAN_BEGINS, PLAN_ENDS, PROPOSE_PLAN
from .text import clip_middle, one_line, typed
from .tokens import Count
from .values import dataclass

_READS = ("read_file",)
_CHANGES = ("write_file", "edit_file")
_COMMANDS = ("bash",)
_TODO = ("todo_write",)
_PART = re.compile(r"\blines (\d+) to (\d+) of [\d,]+[^\n]*\]\Z")  # the note below a file that was read in part
_FILES_PER_LINE = 8
_MORE = "… and "
# What is known anew replaces these when they are read back.
_FAILING_TESTS, _TODO_LIST, _PLAN_MODE = "Failing tests", "Todo list", "Plan mode"


@dataclass(frozen=True)
class Words:
    """A message of the user's, with its record id if there is a log."""

    record: int | None
    message: Message

    @property
    def text(self) -> str:
        return text_of(self.message)


@dataclass(frozen=True)
class Command:
    """A command or a failed call: its exit code in words, and the line that says why, "" if there is none."""

    record: int | None
    command: str
    outcome: str
    why: str


@dataclass
class Ledger:
    """Fed by `observe` in the order of the log; `render` writes it down within a budget, all but the `plan` that the
    user accepted last, which `plan_record` brings back."""

    words: list[Words] = field(default_factory=list)
    current: list[Words] = field(default_factory=list)  # the prompt of the current turn and what was thrown in since
    read: dict[str, tuple[int | None, tuple[str, ...]]] = field(default_factory=dict)  # record, ranges (none: whole)
    changed: dict[str, int | None] = field(default_factory=dict)
    commands: deque[Command] = field(default_factory=lambda: deque(maxlen=60))
    failing: dict[str, tuple[TestRun, int | None]] = field(default_factory=dict)  # found by, record
    todo: tuple[str, ...] = ()
    plan: str = ""
    plan_record: int | None = None
    planning: bool = False  # plan mode is on
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=6))
    replies: int = 0
    _calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    _called_in: int | None = None
    _before: dict[str, list[str]] = field(default_factory=dict)  # read back: section -> lines

    def observe(self, message: Message, record: int | None, kind: str = "") -> None:
        """Takes note of one message as it was logged. A user message begins a turn unless its `kind` is "steer"
        (thrown in while the turn goes on) or "notice" (this program's words)."""
        role = message.get("role", "")
        if role == "assistant":
            self.replies += 1
            self._called_in = record
            self._calls = {call.get("id") or "": call.get("function") or {} for call in calls_of(message)}
        elif role == "tool":
            call = self._calls.pop(message.get("tool_call_id") or "", None)
            if call:
                self._result(call.get("name") or "", arguments_of(call), text_of(message), record)
        elif role == "user" and kind != "notice":
            self._said(Words(record, message), starts_turn=kind != "steer")
        elif message.get("content") in (PLAN_BEGINS, PLAN_ENDS):
            self.planning = message["content"] == PLAN_BEGINS
        elif role == "user" and isinstance(message.get("content"), str):
            self.notices.append(one_line(text_of(message).removeprefix(OURS).rstrip("]"), 300))

    def read_back(self, memory: Memory) -> None:
        """Goes on from what an earlier ledger wrote into `memory`."""
        title = ""
        for line in memory.facts.split("\n"):
            if line.startswith(f"- {_MORE}"):
                continue
            if line.startswith("- "):
                self._before.setdefault(title, []).append(line[2:])
            elif line.startswith("  ") and title in self._before:
                self._before[title][-1] += "\n" + line
            else:
                title = line.rstrip(":")
        tests = self._before.pop(_FAILING_TESTS, [])
        self.failing.update((test, (TestRun("", frozenset(), ()), None)) for test in reversed(tests))
        self.todo = tuple(self._before.pop(_TODO_LIST, ()))
        self.planning = bool(self._before.pop(_PLAN_MODE, ()))
        self.plan = memory.plan
        if memory.request:
            self._said(Words(None, memory.request), starts_turn=True)

    def _said(self, words: Words, *, starts_turn: bool) -> None:
        self.words.append(words)
        self.current = [words] if starts_turn else [*self.current, words]

    def render(self, budget: int, count: Count, *, without: Iterable[Words] = ()) -> str:
        """The ledger in at most `budget` tokens, the dearest first and the newest first; what is left out is counted.

        `without` are words that the reader is given elsewhere.
        """
        left_out = {id(words) for words in without}
        words = [item for item in reversed(self.words) if id(item) not in left_out]
        longest = max(200, budget)  # characters: a quarter of the budget
        sections = [
            _Section(_PLAN_MODE, [one_line(PLAN_BEGINS.removeprefix(OURS).rstrip("]"))] * self.planning, 0.1),
            _Section("The user, word for word, newest first", [_quote(item, longest) for item in words], 0.35),
            _Section(_FAILING_TESTS, [f"{test}{_id(at)}" for test, (_, at) in reversed(self.failing.items())], 0.1),
            _Section("Files changed", _file_lines({path: _id(at) for path, at in self.changed.items()}), 0.15),
            _Section("Commands and failures, newest first", [_command(it) for it in reversed(self.commands)], 0.2),
            _Section(_TODO_LIST, list(self.todo), 0.1),
            _Section("Notices", list(reversed(self.notices)), 0.02),
            _Section("Files read", _file_lines({path: _ranges(*read) for path, read in self.read.items()}), 0.08),
        ]
        for section in sections:
            section.lines += self._before.get(section.title, [])
        sections = [section for section in sections if section.lines]
        left = budget
        for section in sections:
            left -= section.take(min(left, int(budget * section.share)), count)
        for section in sections:
            left -= section.take(left, count)
        return "\n".join(section.text() for section in sections if section.taken)

    def _result(self, name: str, arguments: dict[str, Any], text: str, record: int | None) -> None:
        failed = text.startswith(FAILED)
        path = arguments.get("file_path")
        if name in _COMMANDS:
            self._command(*as_run(str(arguments.get("command", "")), ends_of(text)), record)
        elif name == PROPOSE_PLAN:
            if text == ACCEPTED:
                self.plan, self.plan_record = str(arguments.get("plan", "")), self._called_in
        elif failed:
            subject = f"{name} {main_argument(arguments)}".strip()
            self.commands.append(Command(record, one_line(subject, 160), "failed", one_line(text, 160)))
        elif isinstance(path, str) and name in _READS + _CHANGES:
            if name in _CHANGES:
                self.changed.pop(path, None)  # so that the newest is last
                self.changed[path] = record
                return
            _, ranges = self.read.pop(path, (None, None))
            part = _PART.search(text[-400:])
            # What was once read whole stays so.
            lines = (*(ranges or ()), f"{part[1]}-{part[2]}") if part and ranges != () else ()
            self.read[path] = (record, tuple(dict.fromkeys(lines))[-6:])
        elif name in _TODO:
            tasks = arguments.get("tasks")
            self.todo = tuple(_task(task) for task in tasks) if isinstance(tasks, list) else ()

    def _command(self, command: str, text: str, record: int | None) -> None:
        outcome = outcome_of(text)
        why = "" if outcome == "exit 0" else error_line(text)
        self.commands.append(Command(record, one_line(command, 240), outcome, why))
        failing = failing_tests(text)
        if failing is None:
            return
        # A run speaks for every test it ran: what it, or a narrower run, once found failing is now known anew.
        run = TestRun.of(command, failed=bool(failing))
        for test, (found_by, _) in list(self.failing.items()):
            if test in failing or run.speaks_for(test, found_by):
                del self.failing[test]
        self.failing.update((test, (run, record)) for test in failing)


@dataclass
class _Section:
    title: str
    lines: list[str]
    share: float
    taken: int = 0

    def take(self, budget: int, count: Count) -> int:
        """Takes as many more lines as `budget` tokens allow and returns what they cost."""
        spent = 0
        while self.taken < len(self.lines):
            cost = count(self.lines[self.taken]) + 4 + (0 if self.taken else count(self.title) + 12)
            if spent + cost > budget:
                break
            spent += cost
            self.taken += 1
        return spent

    def text(self) -> str:
        more = len(self.lines) - self.taken
        rest = [f"- {_MORE}{more} more"] if more else []
        return "\n".join([f"{self.title}:", *(f"- {line}" for line in self.lines[: self.taken]), *rest])


def main_argument(arguments: dict[str, Any], limit: int = 80) -> str:
    """What a call is about, in one line: its path, command or pattern, else the first text among its arguments."""
    names = ("file_path", "command", "pattern", "path", "id", *arguments)
    value = next((arguments[name] for name in names if isinstance(arguments.get(name), (str, int))), "")
    return one_line(str(value), limit)


def _task(task: Any) -> str:
    if not isinstance(task, dict):
        return one_line(str(task), 200)
    status = task.get("status", "")
    text = task.get("content") or task.get("text") or task.get("title") or ""
    return one_line(f"[{status}] {text}" if status else str(text), 200)


def _id(record: int | None) -> str:
    return "" if record is None else f" #{record}"


def _quote(words: Words, longest: int) -> str:
    text = clip_middle(typed(words.text).strip(), longest)
    if not text:
        text = "(a picture)"
    return f"{_id(words.record).strip()} {text}".strip().replace("\n", "\n  ")


def _command(command: Command) -> str:
    why = f" | {command.why}" if command.why else ""
    return f"{_id(command.record).strip()} {command.outcome}: {command.command}{why}".strip()


def _ranges(record: int | None, ranges: tuple[str, ...]) -> str:
    lines = f":{','.join(ranges)}" if ranges else ""
    return f"{lines}{_id(record)}"


def _file_lines(files: dict[str, str]) -> list[str]:
    """Paths by directory, the newest first, a handful to a line: the directory is written once. `files` has what
    stands behind each."""
    groups: dict[str, list[str]] = {}
    for path, more in reversed(files.items()):
        directory, name = os.path.split(one_line(path, 400))
        groups.setdefault(directory, []).append(f"{name}{more}")
    lines = []
    for directory, names in groups.items():
        prefix = f"{directory.rstrip('/')}/: " if directory else ""
        for start in range(0, len(names), _FILES_PER_LINE):
            lines.append(prefix + ", ".join(names[start : start + _FILES_PER_LINE]))
    return lines
