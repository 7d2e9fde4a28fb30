"""The ledger: what code can know about a session without asking a model.

Summaries in prose keep most decisions and lose nearly every file path, number and command. So these facts are taken
from the messages themselves as they are logged, a few microseconds each: the user's words, files read and changed,
commands with exit code and error line, failing tests, the todo list, and for each the id under which the whole
message can be recalled. It depends on no summariser and survives any number of compactions.

The price is a convention: the ledger knows the tools of this program by name and reads their results as text, so a
strange tool leaves no trace in it but the user's words.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .memory import OURS, Memory
from .messages import Message, arguments_of, calls_of, text_of
from .text import clip_middle, one_line
from .tokens import Count

_READS = ("read_file",)
_CHANGES = ("write_file", "edit_file")
_COMMANDS = ("bash",)
_TODO = ("todo_write",)
_FAILED = ("Error: ", "Not run: ", "[no result: ", "[interrupted by ")  # how this program begins a result of its own

_SCANNED = 30_000  # characters at each end of a command's output that are looked at
_ENDED = re.compile(
    r"^\[(exit code -?\d+|killed by [\w ]+|timed out after [\d.]+ s|cancelled|interrupted|job \d+ runs)", re.M
)
_EXIT = re.compile(r"\bexit(?:ed)?(?: with)?(?: code| status)?[: ]{1,2}(-?\d{1,5})\b", re.IGNORECASE)
_TELLING = re.compile(r"error|exception|fail|fatal|panic|assert|denied|not found|no such|undefined|missing", re.I)
_BEST_TELLING = re.compile(r"E  |FAILED |\w*(?:Error|Exception|error)\b(?:\[\w+\])?:")
_TEST_RUN = re.compile(r"\b\d+ (?:passed|failed|passing|failing)\b|^Ran \d+ tests?|^test result: |^(?:ok|FAIL)\s", re.M)
_FAILING = (
    re.compile(r"^(?:FAILED|ERROR) (\S+?::[^\s\[]+(?:\[.*?\](?= - |$))?|\S+\.py)", re.M),  # pytest
    re.compile(r"^(?:FAIL|ERROR): (\S+ \([\w.]+\))", re.M),  # unittest
    re.compile(r"^ {0,12}--- FAIL: (\S+)", re.M),  # go
    re.compile(r"^test (\S+) \.\.\. FAILED", re.M),  # cargo
    re.compile(r"^ {0,8}(?:●|✕|×) (.{1,120})", re.M),  # jest, vitest
    re.compile(r"^not ok \d+ (?:- )?(.{1,120})", re.M),  # TAP
)
_PART = re.compile(r"\blines (\d+) to (\d+) of [\d,]+[^\n]*\]\Z")  # the note below a file that was read in part
_WORDS = re.compile(r"""'[^']*'|"[^"]*"|[;&|()]+|[^\s;&|()'"]+""")
_REDIRECTION = re.compile(r"\d?>>?\s*&?\S+")
_RUNNERS = ("pytest", "py.test", "unittest", "tox", "nox", "jest", "vitest", "mocha", "rspec", "phpunit", "ctest")
_SUBCOMMANDS = ("test", "check")  # make test, cargo test, npm run test
_NARROWING = ("-k", "-m", "-t", "-run", "--lf", "--last-failed", "--deselect", "--ignore", "--filter")
_STOPPING = ("-x", "--exitfirst", "--maxfail")
_WITH_VALUE = (*_NARROWING, "-n", "-p", "-c", "-o", "-W", "--tb", "--timeout", "--maxfail", "--rootdir", "--durations")
_MAX_FAILING = 60
_FILES_PER_LINE = 8
_MORE = "… and "
_FAILING_TESTS, _TODO_LIST = "Failing tests", "Todo list"  # what is known anew replaces these when they are read back


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


@dataclass(frozen=True)
class _TestRun:
    """What a command that runs tests runs: the runner, what was selected, and whether options chose among that."""

    runner: str
    selected: frozenset[str]
    narrowed: tuple[str, ...]

    @classmethod
    def of(cls, command: str, *, failed: bool) -> _TestRun:
        """Read from `command` however its runner was started; one that stops at a failure ran only a part."""
        words = [word.strip("'\"") for word in _WORDS.findall(_REDIRECTION.sub(" ", command[:4000]))] or [""]
        names = [os.path.basename(word) for word in words]
        found = [at for at, name in enumerate(names) if name in _RUNNERS]
        found += [at for at, name in enumerate(names) if name in _SUBCOMMANDS and at]
        at = (found or [0])[0]
        runner = " ".join(names[at - (names[at] in _SUBCOMMANDS and at > 0) : at + 1])
        selected, narrowed = set(), []
        rest = itertools.takewhile(lambda word: word[:1] not in (*";&|()",), words[at + 1 :])
        for word in rest:
            option = word.split("=")[0]
            value = next(rest, "") if word in _WITH_VALUE else ""
            if option in _NARROWING or (failed and option in _STOPPING):
                narrowed.append(f"{word} {value}")
            elif not word.startswith("-"):
                selected.add(word.removeprefix("./").rstrip("/"))
        return cls(runner, frozenset(selected - {"", ".", "..."}), tuple(narrowed))

    def speaks_for(self, test: str, found_by: _TestRun) -> bool:
        """Whether this run ran `test`, which `found_by` once found failing."""
        if self == found_by:
            return True
        if self.narrowed or found_by.runner not in ("", self.runner):
            return False
        if not self.selected or (found_by.selected and found_by.selected <= self.selected):
            return True
        # pytest's ids are paths with :: and [ behind; unittest gives the class in brackets
        ends = ("::", "/", "[")
        return any(f"({each}" in test or any(f"/{each}{end}" in f"/{test}::" for end in ends) for each in self.selected)


@dataclass
class Ledger:
    """Fed by `observe` in the order of the log; `render` writes it down within a budget."""

    words: list[Words] = field(default_factory=list)
    current: list[Words] = field(default_factory=list)  # the prompt of the current turn and what was thrown in since
    read: dict[str, tuple[int | None, tuple[str, ...]]] = field(default_factory=dict)  # record, ranges (none: whole)
    changed: dict[str, int | None] = field(default_factory=dict)
    commands: deque[Command] = field(default_factory=lambda: deque(maxlen=60))
    failing: dict[str, tuple[_TestRun, int | None]] = field(default_factory=dict)  # found by, record
    todo: tuple[str, ...] = ()
    notices: deque[str] = field(default_factory=lambda: deque(maxlen=6))
    replies: int = 0
    _calls: dict[str, dict[str, Any]] = field(default_factory=dict)
    _before: dict[str, list[str]] = field(default_factory=dict)  # read back: section -> lines

    def observe(self, message: Message, record: int | None, kind: str = "") -> None:
        """Takes note of one message as it was logged. A user message begins a turn unless its `kind` is "steer"
        (thrown in while the turn goes on) or "notice" (this program's words)."""
        role = message.get("role", "")
        if role == "assistant":
            self.replies += 1
            self._calls = {call.get("id") or "": call.get("function") or {} for call in calls_of(message)}
        elif role == "tool":
            call = self._calls.pop(message.get("tool_call_id") or "", None)
            if call:
                self._result(call.get("name") or "", arguments_of(call), text_of(message), record)
        elif role == "user" and kind != "notice":
            self._said(Words(record, message), starts_turn=kind != "steer")
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
        self.failing.update((test, (_TestRun("", frozenset(), ()), None)) for test in reversed(tests))
        self.todo = tuple(self._before.pop(_TODO_LIST, ()))
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
        failed = text.startswith(_FAILED)
        path = arguments.get("file_path")
        if name in _COMMANDS:
            self._command(str(arguments.get("command", "")), text, record)
        elif failed:
            subject = f"{name} {main_argument(arguments)}".strip()
            self.commands.append(Command(record, one_line(subject, 160), "failed", one_line(text, 160)))
        elif isinstance(path, str) and name in _READS + _CHANGES:
            if name in _CHANGES:
                self.changed.pop(path, None)  # so that the newest is last
                self.changed[path] = record
                return
            ranges = self.read.pop(path, (None, ()))[1]
            part = _PART.search(text[-400:])
            self.read[path] = (record, tuple(dict.fromkeys((*ranges, f"{part[1]}-{part[2]}")))[-6:] if part else ())
        elif name in _TODO:
            tasks = arguments.get("tasks")
            self.todo = tuple(_task(task) for task in tasks) if isinstance(tasks, list) else ()

    def _command(self, command: str, text: str, record: int | None) -> None:
        if len(text) > 2 * _SCANNED:
            text = text[:_SCANNED] + "\n" + text[-_SCANNED:]
        outcome = _outcome(text)
        why = "" if outcome == "exit 0" else _error_line(text)
        self.commands.append(Command(record, one_line(command, 240), outcome, why))
        failing = dict.fromkeys(match for pattern in _FAILING for match in pattern.findall(text))
        if not failing and not _TEST_RUN.search(text):
            return
        run = _TestRun.of(command, failed=bool(failing))
        self.failing = {
            test: found
            for test, found in self.failing.items()
            if not (test in failing or run.speaks_for(test, found[0]))
        }
        self.failing.update((test, (run, record)) for test in list(failing)[:_MAX_FAILING])


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


def _outcome(text: str) -> str:
    ended = _ENDED.findall(text[-1500:])
    if ended:
        return str(ended[-1]).replace("exit code", "exit")
    if text.startswith(_FAILED):
        return "not run" if text.startswith("Not run: ") else "failed"
    found = _EXIT.findall(text[-300:]) or _EXIT.findall(text[:300])
    return f"exit {found[-1]}" if found else "exit 0"


def _error_line(text: str) -> str:
    """The last line that tells what went wrong, else the last line of the output."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and len(line) < 2000]
    while lines and lines[-1].startswith("["):  # how it ended is known already
        lines.pop()
    best = next((line for line in reversed(lines) if _BEST_TELLING.match(line)), "")
    telling = best or next((line for line in reversed(lines) if _TELLING.search(line)), "")
    return one_line(telling or (lines[-1] if lines else ""), 160)


def _task(task: Any) -> str:
    if not isinstance(task, dict):
        return one_line(str(task), 200)
    status = task.get("status", "")
    text = task.get("content") or task.get("text") or task.get("title") or ""
    return one_line(f"[{status}] {text}" if status else str(text), 200)


def _id(record: int | None) -> str:
    return "" if record is None else f" #{record}"


def _quote(words: Words, longest: int) -> str:
    text = clip_middle(words.text.strip(), longest)
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
