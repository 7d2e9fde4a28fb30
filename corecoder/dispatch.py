"""Running the tool calls of one reply: every call gets exactly one result, in the order of the calls.

First each call is decided on (is there such a tool, do the arguments make sense, is there consent), then what is
allowed runs: neighbours that are safe side by side together, everything else alone. A call that fails, is refused or
is interrupted has a result like any other, in words that help the model go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from .driver import Driver
from .errors import Cancelled, ToolError
from .events import Event, ToolFinished, ToolOutput, ToolStarted
from .jobs import Job, JobDone
from .memory import OURS
from .messages import NO_OUTPUT, Message, Reply, ToolCall
from .outcome import CHANGED
from .permissions import EDIT, Allow, Answered, Ask, Permissions, Refuse, Verdict
from .text import one_line
from .tool import Tool, ToolContext, ToolResult, checked_arguments
from .values import dataclass

MAX_TOGETHER = 8
KEPT_OUTPUT = 4000  # characters of live output kept for a call that is interrupted

CUT = (
    "Not run: your reply was cut off before its end (usually at the output limit), so this call may be incomplete. "
    "Send it again, smaller: write long files in several calls."
)
NOT_STARTED = "Not run: the user interrupted before it started."
INTERRUPTED = "[interrupted by the user after {seconds:.1f} s]"

MakeContext = Callable[[Job, Callable[[str], None], bool], ToolContext]  # whether the call is confined
Keep = Callable[[Job, Tool, dict[str, Any]], AbstractContextManager[None]]


@dataclass
class PreparedCall:
    """One call on its way to its result."""

    call: ToolCall
    tool: Tool | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    result: ToolResult | None = None
    refused: bool = False
    final: str = ""  # ends the turn and is its answer
    changed: str = ""  # what the model is told first, where somebody changed the command
    confined: bool = True
    place: Path | None = None
    seconds: float = 0.0
    output: list[str] = field(default_factory=list)

    def fail(self, words: str) -> None:
        self.result = ToolResult(words, ok=False)


class Dispatcher:
    """Knows the tools, asks for consent, runs calls, each within what `keep` gives. Keeps nothing between replies."""

    def __init__(self, tools: Sequence[Tool], permissions: Permissions, make_context: MakeContext, keep: Keep) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._permissions = permissions
        self._make_context = make_context
        self._keep = keep

    def prepare(self, reply: Reply) -> list[PreparedCall]:
        """The calls of `reply`, those that cannot run already with their error result."""
        calls = [PreparedCall(call) for call in reply.tool_calls]
        for prepared in calls:
            self._check(prepared, cut=reply.cut)
        return calls

    def run(self, driver: Driver, calls: list[PreparedCall]) -> Generator[Event, None, None]:
        """Asks for consent, then runs what may run. After a cancel the rest stays without a result.

        A call is judged right before it runs: one that ran before it may have changed what its words mean, by a link.
        """
        for group in _groups(calls):
            driver.poll()
            for prepared in group:
                if prepared.result is None:
                    yield from self._consent(driver, prepared)
            yield from self._run_group(driver, group)
        driver.poll()

    def messages(self, calls: list[PreparedCall]) -> list[Message]:
        """One tool message for each call; then a user message with the pictures, if there are any."""
        images: list[str] = []
        messages: list[Message] = []
        for prepared in calls:
            result = prepared.result or ToolResult(NOT_STARTED, ok=False)
            content = result.content if result.content.strip() else NO_OUTPUT
            messages.append({"role": "tool", "tool_call_id": prepared.call.id, "content": content})
            images += result.images
        if images:  # the API takes only text in a tool message
            parts: list[dict[str, Any]] = [{"type": "text", "text": f"{OURS}pictures from the tool results above]"}]
            parts += [{"type": "image_url", "image_url": {"url": url}} for url in images]
            messages.append({"role": "user", "content": parts})
        return messages

    def _check(self, prepared: PreparedCall, *, cut: bool) -> None:
        name = prepared.call.name
        prepared.tool = self._tools.get(name)
        try:
            arguments = prepared.call.arguments
        except ValueError as error:
            return prepared.fail(CUT if cut else f"Not run: {error}. Send the call again with valid JSON arguments.")
        prepared.arguments = arguments
        if cut:
            return prepared.fail(CUT)
        if prepared.tool is None:
            return prepared.fail(f"Not run: there is no tool {name!r}. The tools are: {', '.join(self._tools)}.")
        try:
            prepared.arguments = checked_arguments(prepared.tool.parameters, arguments)
        except ValueError as error:
            prepared.fail(f"Not run: wrong arguments for {name}: {error}.")
        return None

    def _consent(self, driver: Driver, prepared: PreparedCall) -> Generator[Event, None, None]:
        tool, arguments = prepared.tool, prepared.arguments
        assert tool is not None
        # A job, because it looks at files: secrets that a search would come to, what an edit would change.
        verdict = yield from driver.do("consent", lambda _job: self._judged(tool, arguments))
        if not isinstance(verdict, Refuse):
            prepared.place = verdict.place
        if isinstance(verdict, Ask):
            verdict = yield from self._ask(driver, prepared, tool, verdict)
        if isinstance(verdict, Refuse):
            prepared.refused = True
            prepared.fail(verdict.words)
        elif isinstance(verdict, Answered):
            prepared.result, prepared.final = ToolResult(verdict.words), verdict.final
        elif isinstance(verdict, Allow):
            prepared.confined = verdict.confined

    def _ask(self, driver: Driver, prepared: PreparedCall, tool: Tool, ask: Ask) -> Generator[Event, None, Verdict]:
        """Asks a person. A command of their own runs instead of the model's, as what they said yes to would."""
        given = yield from driver.ask(ask.kind, ask.text, ask.detail, ask.choices, ask.why)
        answer, command = given.answer, given.command or ""
        if EDIT in ask.choices and answer.strip().lower() in (EDIT, EDIT[0]) and command.strip():
            if command != prepared.arguments.get("command"):
                prepared.changed = CHANGED.format(command=command)
                prepared.arguments = {**prepared.arguments, "command": command}
            answer = "yes"
        return self._permissions.settle(tool, prepared.arguments, answer)

    def _judged(self, tool: Tool, arguments: dict[str, Any]) -> Verdict:
        try:
            return self._permissions.judge(tool, arguments)
        except OSError as error:  # a link that was there is none, a directory is gone: something changes them right now
            return Refuse(f"Not run: it could not be judged ({error.strerror or error}). Try again.")

    def _run_group(self, driver: Driver, group: list[PreparedCall]) -> Generator[Event, None, None]:
        jobs: dict[Job, PreparedCall] = {}
        for prepared in group:
            yield ToolStarted(prepared.call.id, prepared.call.name, prepared.arguments)
        for prepared in group:
            if prepared.result is None:
                jobs[driver.start(f"tool {prepared.call.name}", self._work(prepared))] = prepared
        started = time.monotonic()
        done: dict[Job, JobDone] = {}
        try:
            done = yield from driver.wait(jobs)
        finally:  # a closed generator included: what ran is not to be called "not run"
            for job, prepared in jobs.items():
                prepared.seconds = (done[job].ended if job in done else time.monotonic()) - started
                result = _result(prepared, done.get(job))
                prepared.result = replace(result, content=prepared.changed + result.content)
        for prepared in group:
            assert prepared.result is not None
            result = prepared.result
            yield ToolFinished(
                prepared.call.id,
                prepared.call.name,
                result.content,
                result.ok,
                seconds=prepared.seconds,
                display=result.display,
                refused=prepared.refused,
            )

    def _work(self, prepared: PreparedCall) -> Callable[[Job], ToolResult]:
        tool, call_id = prepared.tool, prepared.call.id
        assert tool is not None

        def output(job: Job, text: str) -> None:
            prepared.output.append(text)
            del prepared.output[:-20]
            job.emit(ToolOutput(call_id, text))

        def work(job: Job) -> ToolResult:
            about = {"file_path": str(prepared.place)} if prepared.place else {}
            with self._keep(job, tool, {**prepared.arguments, **about}):
                ctx = self._make_context(job, lambda text: output(job, text), prepared.confined)
                return tool.run(prepared.arguments, replace(ctx, judged=prepared.place))

        return work


def final_answer(calls: list[PreparedCall]) -> str:
    """What one of `calls` made the answer of the turn, "" if none did."""
    return next((prepared.final for prepared in calls if prepared.final), "")


def any_refused(calls: list[PreparedCall]) -> bool:
    """Whether consent kept one of `calls` from running."""
    return any(prepared.refused for prepared in calls)


def _groups(calls: list[PreparedCall]) -> Iterator[list[PreparedCall]]:
    """Runs of neighbours that may run together; every other call alone."""
    group: list[PreparedCall] = []
    for prepared in calls:
        together = prepared.result is None and prepared.tool is not None and prepared.tool.parallel
        if group and not (together and len(group) < MAX_TOGETHER):
            yield group
            group = []
        group.append(prepared)
        if not together:
            yield group
            group = []
    if group:
        yield group


def _result(prepared: PreparedCall, done: JobDone | None) -> ToolResult:
    """What a finished, failed or interrupted job means for the model."""
    if done is None or isinstance(done.error, Cancelled):
        said = "".join(prepared.output)[-KEPT_OUTPUT:].rstrip()
        state = INTERRUPTED.format(seconds=prepared.seconds)
        return ToolResult(f"{said}\n{state}" if said else state, ok=False)
    if isinstance(done.error, ToolError):
        return ToolResult(f"Error: {done.error}", ok=False)
    if done.error is not None:
        return ToolResult(f"Error: {type(done.error).__name__}: {one_line(str(done.error), 500)}", ok=False)
    assert isinstance(done.value, ToolResult)
    return done.value
