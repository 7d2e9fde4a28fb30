"""The driver's side of the job queue: start a job, pass its events on, notice a cancel, wait for an answer.

One Driver serves one turn. `do` and `wait` are generators because events must reach the front end while they wait;
their value is what the job came back with.
"""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Collection, Generator
from typing import Any

from .errors import Cancelled
from .events import NOBODY, Event, Question, Retrying, TextDelta
from .jobs import CancelToken, Job, JobDone, JobEvent, Jobs
from .values import dataclass

GRACE = 0.1  # seconds that a cancelled job gets to come back with what it has
# A wait without a time-out cannot be interrupted by Ctrl+C on Windows.
POLL = 0.2 if sys.platform == "win32" else None


class TurnCancelled(Exception):
    """Unwinds the turn after a cancel."""


@dataclass(frozen=True)
class Answer:
    """Somebody answered a Question; `command` is what is to run instead, where the answer is "edit"."""

    question_id: str
    answer: str
    command: str | None = None


@dataclass(frozen=True)
class Steer:
    """Words for the model while it works, in the turn of that number."""

    text: str
    turn: int


@dataclass(frozen=True)
class CancelRequest:
    """Ends the turn of that number; a request that comes too late must not end the next one."""

    turn: int


class Driver:
    """Jobs, questions and steering of one turn."""

    def __init__(self, jobs: Jobs, turn: int, *, interactive: bool) -> None:
        self.token = CancelToken()
        self._said: list[str] = []
        self._jobs = jobs
        self._turn = turn
        self._interactive = interactive
        self._answers: dict[str, Answer] = {}
        self._steering: list[str] = []
        self._questions = 0
        self._deadline: float | None = None

    @property
    def partial(self) -> str:
        """The text of the reply under way, as far as it has arrived."""
        return "".join(self._said)

    def settle_text(self) -> None:
        """The reply under way is whole and logged; the next one starts from nothing."""
        self._said.clear()

    def do(self, name: str, work: Callable[[Job], Any]) -> Generator[Event, None, Any]:
        """Runs one job to its end; gives its value, raises what it raised, or TurnCancelled."""
        job = self.start(name, work)
        done = (yield from self.wait([job])).get(job)
        if done is None or self.token.cancelled or isinstance(done.error, Cancelled):
            raise TurnCancelled
        if done.error is not None:
            raise done.error
        return done.value

    def start(self, name: str, work: Callable[[Job], Any]) -> Job:
        return self._jobs.start(name, work, self.token)

    def wait(self, jobs: Collection[Job]) -> Generator[Event, None, dict[Job, JobDone]]:
        """Passes on what `jobs` report until all are done, or until a cancel and its grace are over."""
        done: dict[Job, JobDone] = {}
        while len(done) < len(jobs):
            item = self._next()
            if item is None:
                return done
            if isinstance(item, JobDone) and item.job in jobs:
                done[item.job] = item
            elif isinstance(item, JobEvent) and item.job in jobs:
                self._note(item.value)
                yield item.value
        return done

    def poll(self) -> None:
        """Takes in what has arrived without waiting; raises TurnCancelled after a cancel."""
        while not self._jobs.inbox.empty():
            self._take(self._jobs.inbox.get())
        if self.token.cancelled:
            raise TurnCancelled

    def ask(
        self, kind: str, text: str, detail: str, choices: tuple[str, ...], why: str = ""
    ) -> Generator[Event, None, Answer]:
        """Puts a question and waits for its answer; with nobody to answer the answer is NOBODY at once."""
        self._questions += 1
        question_id = f"{self._turn}.{self._questions}"
        yield Question(question_id, kind, text, detail, choices, why)
        if not self._interactive:
            return Answer(question_id, NOBODY)
        while question_id not in self._answers:
            if self._next() is None:
                raise TurnCancelled
        return self._answers.pop(question_id)

    def take_steering(self) -> list[str]:
        """The words that arrived since the last call."""
        taken, self._steering = self._steering, []
        return taken

    def _next(self) -> Any:
        """The next item of the queue, taken in; None once a cancel's grace is over."""
        while True:
            timeout = POLL if self._deadline is None else max(0.0, self._deadline - time.monotonic())
            try:
                item = self._jobs.inbox.get(timeout=timeout)
            except queue.Empty:
                if self._deadline is not None:
                    return None
                continue
            self._take(item)
            return item

    def _take(self, item: Any) -> None:
        if isinstance(item, Answer):
            self._answers[item.question_id] = item
        elif isinstance(item, Steer) and item.turn == self._turn:
            self._steering.append(item.text)
        elif isinstance(item, CancelRequest) and item.turn == self._turn and self._deadline is None:
            self._deadline = time.monotonic() + GRACE
            self.token.cancel()

    def _note(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._said.append(event.text)
        elif isinstance(event, Retrying):
            self._said.clear()
