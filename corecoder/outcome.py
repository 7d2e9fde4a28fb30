"""What the output of a command says: how it ended, the line that tells why, and which tests fail.

All of it is read from text, in linear time, by the conventions of the usual runners. The price is that a runner with
words of its own is taken for a command like any other.
"""

from __future__ import annotations

import itertools
import os
import re

from .text import one_line
from .values import dataclass

FAILED = ("Error: ", "Not run: ", "[no result: ", "[interrupted by ")  # how this program begins a result of its own
CHANGED = "[the user changed the command to: {command}]\n"  # before the result of what ran instead

_CHANGED = re.compile(r"\[the user changed the command to: (.*?)\]\n", re.DOTALL)
_SCANNED = 30_000  # characters at each end of a command's output that are looked at
_ENDED = r"(?m)^\[(exit code -?\d+|killed by [\w ]+|timed out after [\d.]+ s|cancelled|interrupted|job \d+ runs)"
_EXIT = r"(?i)\bexit(?:ed)?(?: with)?(?: code| status)?[: ]{1,2}(-?\d{1,5})\b"
_TELLING = r"(?i)error|exception|fail|fatal|panic|assert|denied|not found|no such|undefined|missing"
_BEST_TELLING = r"E  |FAILED |\w*(?:Error|Exception|error)\b(?:\[\w+\])?:"
_TEST_RUN = r"(?m)\b\d+ (?:passed|failed|passing|failing)\b|^Ran \d+ tests?|^test result: |^(?:ok|FAIL)\s"
_FAILING = (
    r"(?m)^(?:FAILED|ERROR) (\S+?::[^\s\[]+(?:\[.*?\](?= - |$))?|\S+\.py)",  # pytest
    r"(?m)^(?:FAIL|ERROR): (\S+ \([\w.]+\))",  # unittest
    r"(?m)^ {0,12}--- FAIL: (\S+)",  # go
    r"(?m)^test (\S+) \.\.\. FAILED",  # cargo
    r"(?m)^ {0,8}(?:●|✕|×) (.{1,120})",  # jest, vitest
    r"(?m)^not ok \d+ (?:- )?(.{1,120})",  # TAP
)
_WORDS = r"""'[^']*'|"[^"]*"|[;&|()]+|[^\s;&|()'"]+"""
_REDIRECTION = r"\d?>>?\s*&?\S+"
_RUNNERS = ("pytest", "py.test", "unittest", "tox", "nox", "jest", "vitest", "mocha", "rspec", "phpunit", "ctest")
_SUBCOMMANDS = ("test", "check")  # make test, cargo test, npm run test
_NARROWING = ("-k", "-m", "-t", "-run", "--lf", "--last-failed", "--deselect", "--ignore", "--filter")
_STOPPING = ("-x", "--exitfirst", "--maxfail")
_WITH_VALUE = (*_NARROWING, "-n", "-p", "-c", "-o", "-W", "--tb", "--timeout", "--maxfail", "--rootdir", "--durations")
_MAX_FAILING = 60


def ends_of(text: str) -> str:
    """As much of both ends of an output as is looked at."""
    return text if len(text) <= 2 * _SCANNED else text[:_SCANNED] + "\n" + text[-_SCANNED:]


def as_run(command: str, text: str) -> tuple[str, str]:
    """The command that ran and its own result, where the user may have changed the one that was asked for."""
    changed = _CHANGED.match(text)
    return (changed[1], text[changed.end() :]) if changed else (command, text)


def outcome_of(text: str) -> str:
    """How a command ended, in words: `exit 0`, `killed by SIGKILL`, `not run`."""
    ended = re.findall(_ENDED, text[-1500:])
    if ended:
        return str(ended[-1]).replace("exit code", "exit")
    if text.startswith(FAILED):
        return "not run" if text.startswith("Not run: ") else "failed"
    found = re.findall(_EXIT, text[-300:]) or re.findall(_EXIT, text[:300])
    return f"exit {found[-1]}" if found else "exit 0"


def error_line(text: str) -> str:
    """The last line that tells what went wrong, else the last line of the output."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and len(line) < 2000]
    while lines and lines[-1].startswith("["):  # how it ended is known already
        lines.pop()
    best = next((line for line in reversed(lines) if re.match(_BEST_TELLING, line)), "")
    telling = best or next((line for line in reversed(lines) if re.search(_TELLING, line)), "")
    return one_line(telling or (lines[-1] if lines else ""), 160)


def failing_tests(text: str) -> list[str] | None:
    """The ids of the tests that an output reports as failing; None if it is not that of a test run."""
    failing = list(dict.fromkeys(match for pattern in _FAILING for match in re.findall(pattern, text)))
    return failing[:_MAX_FAILING] if failing or re.search(_TEST_RUN, text) else None


@dataclass(frozen=True)
class TestRun:
    """What a command that runs tests runs: the runner, what was selected, and whether options chose among that."""

    runner: str
    selected: frozenset[str]
    narrowed: tuple[str, ...]

    @classmethod
    def of(cls, command: str, *, failed: bool) -> TestRun:
        """Read from `command` however its runner was started; one that stops at a failure ran only a part."""
        words = [word.strip("'\"") for word in re.findall(_WORDS, re.sub(_REDIRECTION, " ", command[:4000]))] or [""]
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

    def speaks_for(self, test: str, found_by: TestRun) -> bool:
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
