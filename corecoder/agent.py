"""The loop: ask the model, run what it asks for, give it the results, until it answers without asking.

`run` is one generator of events and the only interface; every front end reads it, and `chat` is a few lines over it.
It drives jobs (`jobs.py`) and blocks on nothing but their queue, which is why a cancel is seen in every phase. Only
the code that runs inside this generator writes the session log.

The price of the generator is that the turn goes on only while somebody asks for the next event.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from .context import ContextManager
from .dispatch import Dispatcher, any_refused, final_answer
from .driver import Answer, CancelRequest, Driver, Steer, TurnCancelled
from .errors import ContextOverflow, CoreCoderError, ProviderError, SessionError
from .events import (
    Compacted,
    Compacting,
    Event,
    MessageCompleted,
    ModeChanged,
    Notice,
    ReasoningDelta,
    Retrying,
    Steered,
    StepStarted,
    TextDelta,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    Usage,
    UsageUpdated,
)
from .jobs import CancelToken, Job, Jobs
from .memory import OURS
from .messages import Message, Repairer, Reply, ToolCall
from .meter import LEAST_USABLE
from .models import ModelInfo
from .permissions import Permissions
from .plan import PLAN_BEGINS, PLAN_ENDS
from .prompt import system_prompt
from .sandbox import Sandbox
from .session import Session
from .text import plural
from .tool import Tool, ToolContext, Workspace
from .tools import ALL_TOOLS
from .tools.bash import LONGEST, BashTool
from .turn import TurnState, user_message

if TYPE_CHECKING:
    from .checkpoints import Checkpoints
    from .rewind import Part, Rewind, Rewinder, Turn

INTERRUPTED = "[interrupted by the user]"
BROKEN = "[interrupted: the reply did not arrive whole]"
CUT_NOTE = (
    f"{OURS}your reply was cut at the output limit. Go on from where it stopped; "
    "write long files in several smaller calls]"
)
MAX_CUTS = 3  # replies in a row that were cut at the output limit
MAX_OVERFLOWS = 3  # times that one request is made smaller and sent again
OVERFLOWS = (
    "The conversation was made smaller three times and is kept. Use a model with a larger window, give a local server "
    "a larger one, or set CORECODER_MAX_CONTEXT to the one it has; /clear starts with an empty conversation."
)


class ChatModel(Protocol):
    """What the loop needs of a model; `LLM` and `ScriptedLLM` are two."""

    model: str

    @property
    def info(self) -> ModelInfo: ...
    @property
    def total(self) -> Usage: ...
    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        on_token: Callable[[str], None] | None = None,
        on_reasoning: Callable[[str], None] | None = None,
        *,
        on_retry: Callable[[str, float, int], None] | None = None,
        token: CancelToken | None = None,
        max_tokens: int | None = None,
        tool_choice: str | None = None,
    ) -> Reply: ...
    def warm_up(self) -> None: ...
    def look_up(self, token: CancelToken | None = None, *, forget_window: bool = False) -> ModelInfo: ...
    def close(self) -> None: ...


class Agent:
    """One conversation in one project.

    `llm` is an `LLM` or anything that is a `ChatModel`; `tools` default to all of them. Without a `session` the log
    is kept in memory; without `permissions` the agent may edit inside the project and run what cannot change anything;
    without `checkpoints` going back to before a turn brings no file back. `interactive` says that somebody will call
    `answer`; otherwise every question is answered "no" at once. `sandbox` confines commands that nobody looked at.
    """

    def __init__(
        self,
        llm: ChatModel,
        tools: Sequence[Tool] | None = None,
        *,
        session: Session | None = None,
        workspace: Workspace | None = None,
        context: ContextManager | None = None,
        permissions: Permissions | None = None,
        checkpoints: Callable[[], Checkpoints] | None = None,
        max_steps: int = 500,
        interactive: bool = False,
        secrets: frozenset[str] = frozenset(),
        sandbox: Sandbox | None = None,
    ) -> None:
        self.llm = llm
        self.tools = list(ALL_TOOLS if tools is None else tools)
        self.workspace = workspace or Workspace.at(Path.cwd())
        self.session = session or Session.in_memory()
        self.session.system = self.session.system or system_prompt(self.workspace, self.tools)
        self.permissions = permissions or Permissions("auto", self.workspace)
        self._make_checkpoints = checkpoints
        self._turn_record = ("", 0)  # session and record that the turn began with
        self.max_steps = max_steps
        self.interactive = self.permissions.attended = interactive
        self._secrets, self._sandbox = secrets, sandbox
        self._schemas = [tool.schema() for tool in self.tools]
        self._return_to((self.session.noted("cwd") or {}).get("path"))
        self._system: Message = {"role": "system", "content": self.session.system}
        self._window = llm.info.window
        self.context = context or ContextManager(self._window, system=self._system, tools=self._schemas)
        self.context.follow(self.session)
        self._jobs = Jobs()
        self._repair = Repairer()
        self._turn = 0
        self._running = False

    @property
    def usage(self) -> Usage:
        """Everything that this session has used, summaries and earlier runs included."""
        return self.session.total_usage

    @property
    def mode(self) -> str:
        """What may happen without a question: ask, auto, plan (nothing is changed) or yolo."""
        return self.permissions.mode

    # -- what others may call, from any thread

    def set_mode(self, mode: str) -> None:
        """Goes on in another mode, from the next call that is judged on; the model is told of plan mode before its next
        request. A resumed session has the mode it is started with: consent is given by a person, not by a file.
        Raises ValueError."""
        self.permissions.mode = mode

    def answer(self, question_id: str, answer: str, command: str | None = None) -> None:
        """Answers a Question event; with the answer "edit" `command` runs instead of the one that was asked for."""
        self._jobs.inbox.put(Answer(question_id, answer, command))

    def steer(self, text: str) -> None:
        """Words for the model, given to it after the current tool round. Those of a turn that has ended by then are in
        neither a Steered event nor `unsent` of its TurnFinished: they are dropped."""
        self._jobs.inbox.put(Steer(text, self._turn))

    def cancel(self) -> None:
        """Ends the running turn; nothing happens if there is none. May be called from a signal handler."""
        self._jobs.inbox.put(CancelRequest(self._turn))

    # -- what the front end calls, on the thread that reads the events

    def run(self, prompt: str, images: Sequence[str] = ()) -> Iterator[Event]:
        """Runs one turn. `images` are data URLs. The events and their order are in `events.py`.

        The turn starts with the first `next`. Closing the generator cancels it without a last event; what was said
        and done is in the log either way.
        """
        driver = self._driver()
        return self._exclusive(driver, self._run(driver, user_message(prompt, images), prompt))

    def chat(
        self,
        prompt: str,
        on_token: Callable[[str], None] | None = None,
        on_tool: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> str:
        """Runs one turn and returns the answer. Raises CoreCoderError if the turn ended in an error."""
        for event in self.run(prompt):
            if on_token and isinstance(event, TextDelta):
                on_token(event.text)
            elif on_tool and isinstance(event, ToolStarted):
                on_tool(event.name, event.arguments)
            elif isinstance(event, TurnFinished):
                if event.stop_reason == "error":
                    raise CoreCoderError(event.error)
                return event.text
        return ""

    def compact(self, focus: str = "") -> Iterator[Event]:
        """Makes the view smaller whatever its size; yields Compacted, or a Notice that nothing could be gained."""
        driver = self._driver()
        return self._exclusive(driver, self._compact(driver, focus))

    def shell(self, command: str) -> Iterator[Event]:
        """Runs a command that the person typed: as it is, unasked and unconfined, in the shell's directory.

        Yields what a call of bash does. The model reads command and output with the next prompt; an undo of the turn
        before takes both back, and what the command changed.
        """
        driver = self._driver()
        return self._exclusive(driver, self._shell(driver, command))

    def undo_compaction(self) -> bool:
        """Brings back the view from before the last compaction, plus what came since; False if there was none.

        Raises SessionError, with the view as it was, if the log cannot be written.
        """
        undone = self.session.undo()
        if undone:
            self.context.undone()
        return undone

    @functools.cached_property
    def checkpoints(self) -> Checkpoints | None:
        """What keeps the files that steps change, made when the first one does."""
        return self._make_checkpoints() if self._make_checkpoints else None

    def turns(self) -> list[Turn]:
        """The turns that `rewind` can go back to before. Raises CoreCoderError."""
        return self._rewinder().turns()

    def preview(self, turn: int | None = None) -> Rewind:
        """What `rewind` would do; changes nothing. Raises CoreCoderError."""
        return self._rewinder().preview(turn)

    def rewind(
        self, turn: int | None = None, *, force: bool = False, keep: bool = False, part: Part = "both"
    ) -> Rewind:
        """Files and conversation (or `part` of it: "files", "words") as they were before the turn of this number, the
        last one if none is given.

        Files that somebody else changed as well stay as they are, unless `force` is set. As long as such a file or one
        that failed is left, the conversation stays as well, so that it can be asked for again; `keep` takes it back
        without. Raises CoreCoderError.
        """
        return self._rewinder().rewind(turn, force=force, keep=keep, part=part)

    def _rewinder(self) -> Rewinder:
        if self._running:
            raise RuntimeError("a turn is running; cancel it or read it to its end first")
        from .rewind import Rewinder  # 6 ms, and few sessions go back

        return Rewinder(self.session, self.context, self.workspace, self.checkpoints)

    def reset(self) -> None:
        """Starts a new session; the old one stays on disk."""
        self.session.close()
        self.session = self.session.fresh()
        self.context.follow(self.session)

    def use(self, llm: ChatModel) -> None:
        """Goes on with another model; the next request is made to fit it."""
        self.llm = llm
        self._follow_window(same_model=False)
        self.session.model(llm.model)

    def close(self, timeout: float = 2.0) -> bool:
        """Ends the processes that are left, then closes log and client; False if one did not go within `timeout`."""
        deadline = time.monotonic() + timeout
        left = self.workspace.end_processes(timeout)
        if self._sandbox:
            self._sandbox.git.check()
        gone = self._jobs.close(max(0.1, deadline - time.monotonic()))
        if kept := vars(self).get("checkpoints"):  # if they were ever needed
            kept.close()
        self.session.close()
        self.llm.close()
        return gone and not left

    # -- one turn

    def _driver(self) -> Driver:
        if self._running:
            raise RuntimeError("a turn is already running; cancel it or read it to its end first")
        self._turn += 1
        return Driver(self._jobs, self._turn, interactive=self.interactive)

    def _exclusive(self, driver: Driver, events: Generator[Event, None, None]) -> Iterator[Event]:
        """Passes `events` on while the agent counts as running; a closed generator cancels the jobs under way."""
        self._running = True
        try:
            yield from events
        finally:
            driver.token.cancel()
            self._running = False

    def _run(self, driver: Driver, message: Message, prompt: str) -> Generator[Event, None, None]:
        turn = TurnState()
        try:
            yield from self._begin(driver, turn, message, prompt)
            yield from self._steps(driver, turn)
        except TurnCancelled:
            pass
        except ProviderError as error:
            turn.fail(str(error), retryable=error.retryable)
        except CoreCoderError as error:
            turn.fail(str(error))
        finally:
            self._settle(driver, turn)  # on every way out, a closed generator included
        yield turn.last_event(driver, self.usage)

    def _begin(self, driver: Driver, turn: TurnState, message: Message, prompt: str) -> Generator[Event, None, None]:
        """Logs the prompt, unless nothing can be sent. A log that cannot be started must not keep the work from being
        done."""
        if self.context.too_small():  # by what is remembered: the server may have been given a larger window since
            yield from driver.do("look-up", lambda job: self.llm.look_up(job.token, forget_window=True))
            self._follow_window(same_model=False)  # what else it taught is forgotten, too
        if too_small := self.context.too_small():
            yield TurnStarted(prompt)
            raise CoreCoderError(too_small)
        [bounded] = self.context.intake([message])
        about: dict[str, Any] = {"turn": True, "cwd": str(self.workspace.cwd)}
        notice = ""
        try:
            record = self._append(bounded, **about)
        except SessionError as error:
            if self.session.view:
                raise
            notice = f"{error} This session is kept in memory only and cannot be resumed."
            self.session.keep_in_memory()
            record = self._append(bounded, **about)
        turn.begun = True
        self._tell_mode()
        self._turn_record = (self.session.id, record)
        yield TurnStarted(prompt)
        if notice:
            yield Notice(notice, "warning")
        if bounded is not message:
            yield Notice(
                "the prompt is too long for the window: the model gets its beginning and end and can look up the rest"
            )

    def _steps(self, driver: Driver, turn: TurnState) -> Generator[Event, None, None]:
        dispatcher = Dispatcher(self.tools, self.permissions, self._tool_context, self._kept)
        cuts = 0
        while turn.steps < self.max_steps:
            driver.poll()
            turn.steps += 1
            yield StepStarted(turn.steps)
            reply = yield from self._ask(driver)
            self._append(reply.message)
            driver.settle_text()
            yield MessageCompleted(reply.content, len(reply.tool_calls))
            if reply.unknown_ending:
                yield Notice(f"the provider ended this reply with {reply.unknown_ending!r}: it may be incomplete")
            if reply.tool_calls:
                yield from self._tool_round(driver, dispatcher, reply, turn)
            else:
                turn.text = turn.text + reply.content if cuts else reply.content
            cuts = cuts + 1 if reply.cut else 0
            steering = driver.take_steering()
            go_on = reply.cut and cuts < MAX_CUTS and not reply.tool_calls
            if go_on:
                self._append(user_message(CUT_NOTE), kind="notice")
            for text in steering:
                self._append(user_message(text), kind="steer")
            yield from map(Steered, steering)
            if cuts >= MAX_CUTS:
                return turn.finish("max_tokens", "the model's reply was cut at its output limit three times in a row")
            if not ((reply.tool_calls and not turn.text) or steering or go_on):
                return turn.finish("refused" if reply.finish_reason == "content_filter" else "end_turn")
            self._tell_mode()
        return turn.finish("max_steps", f"stopped after {plural(turn.steps, 'step')}, the limit set by --max-steps")

    def _tool_round(
        self, driver: Driver, dispatcher: Dispatcher, reply: Reply, turn: TurnState
    ) -> Generator[Event, None, None]:
        """Runs the calls of `reply` and logs one result for each, whatever happens. Afterwards `turn` has a text only
        if a call gave the answer: words beside calls are none."""
        done = dispatcher.prepare(reply)
        turn.text = ""
        try:
            yield from dispatcher.run(driver, done)
        finally:
            mode = self.permissions.end_round()
            for message in self.context.intake(dispatcher.messages(done)):
                self._append(message, kind="notice" if message["role"] == "user" else "")
        turn.refused, turn.text = any_refused(done), final_answer(done)
        if mode:
            yield ModeChanged(mode)
        yield from self._compress(driver)

    def _ask(self, driver: Driver) -> Generator[Event, None, Reply]:
        """One reply of the model; makes the view smaller and asks again when the provider says it is too long."""
        refusals = 0
        while True:
            yield from self._compress(driver)
            try:
                return (yield from self._request(driver))
            except ContextOverflow as overflow:
                self.context.learn_window(overflow.window)
                if overflow.window and overflow.window < LEAST_USABLE and (too_small := self.context.too_small()):
                    raise CoreCoderError(f"{overflow.said.removesuffix('.')}: {too_small}") from None
                refusals += 1
                if refusals > MAX_OVERFLOWS:
                    overflow.hint = OVERFLOWS
                    raise
                yield from self._compress(driver, force=True)

    def _request(self, driver: Driver) -> Generator[Event, None, Reply]:
        view = self.session.view
        sent = [self._system, *self._repair(view)]

        def work(job: Job) -> Reply:
            return self.llm.chat(
                sent,
                self._schemas,
                on_token=lambda text: job.emit(TextDelta(text)),
                on_reasoning=lambda text: job.emit(ReasoningDelta(text)),
                on_retry=lambda reason, delay, attempt: job.emit(Retrying(reason, delay, attempt)),
                token=job.token,
            )

        reply = cast(Reply, (yield from driver.do("model", work)))
        self._follow_window()
        if reply.usage:
            self.session.usage(reply.usage)
            notice = self.context.note_usage(reply.usage, view)
            if notice:
                yield Notice(notice, "warning")
            yield UsageUpdated(reply.usage, self.usage, self.context.fill(view), self.context.window)
        return reply

    def _compress(self, driver: Driver, *, force: bool = False, focus: str = "") -> Generator[Event, None, bool]:
        """Runs the tiers on a copy of the view, as a job; the log gets what comes back."""
        view = self.session.view
        if not (self.context.due(view) or force):
            return False
        if self.context.ranks_wanted(view):
            driver.start("token ranks", lambda _job: self.context.load_ranks(view))
        spent = self.llm.total
        yield Compacting()

        def work(job: Job) -> bool:
            return self.context.maybe_compress(view, self.llm, force=force, token=job.token, focus=focus)

        try:
            changed = yield from driver.do("compaction", work)
        finally:
            if self.llm.total != spent:
                self.session.usage(self.llm.total - spent)
        last = self.context.last
        if not changed or last is None:
            return False
        self.session.replace_view(view, how=last.how, meta=self.context.meta, before=last.before, after=last.after)
        if last.failed:
            yield Notice(f"the model's summary was not usable ({last.failed}); facts from the log stand in", "warning")
        yield Compacted(last.before, last.after, last.messages, last.how, last.cost, last.seconds)
        return True

    def _compact(self, driver: Driver, focus: str) -> Generator[Event, None, None]:
        try:
            if not (yield from self._compress(driver, force=True, focus=focus)):
                yield Notice("nothing to compact")
            self.session.sync()
        except TurnCancelled:
            yield Notice("compaction cancelled; the conversation is as it was")
        except CoreCoderError as error:
            yield Notice(f"compaction failed: {error}; the conversation is as it was", "warning")

    def _shell(self, driver: Driver, command: str) -> Generator[Event, None, None]:
        self._turn_record = (self.session.turns or [("", 0)])[-1]
        dispatcher = Dispatcher([BashTool()], Permissions("yolo", self.workspace), self._tool_context, self._kept)
        call = ToolCall(f"typed_{self._turn}", BashTool.name, json.dumps({"command": command, "timeout": LONGEST}))
        done = dispatcher.prepare(Reply({}, tool_calls=(call,)))
        failed = ""
        try:
            yield from dispatcher.run(driver, done)
        except TurnCancelled:
            pass
        finally:  # a closed generator included
            [result] = dispatcher.messages(done)
            said = f"{OURS}the user ran a command]\n$ {command}\n{result['content']}"
            try:
                [bounded] = self.context.intake([user_message(said)])
                self._append(bounded, kind="notice")
                self._keep_place()
            except SessionError as error:
                failed = f"{error} The model will not see this command."
        if failed:
            yield Notice(failed, "warning")

    def _follow_window(self, *, same_model: bool = True) -> None:
        """The client may have learnt the model's window from a reply, a refusal or the provider's list of models."""
        if self.llm.info.window != self._window:
            self._window = self.llm.info.window
            self.context.set_window(self._window, same_model=same_model)

    # -- the log

    def _return_to(self, directory: object) -> None:
        """A resumed session goes on in the directory where its last command left it, if that still exists."""
        if isinstance(directory, str) and Path(directory).is_dir():
            self.workspace.cwd = Path(directory)

    def _append(self, message: Message, kind: str = "", **about: Any) -> int:
        """Logs a message; `kind` is "steer" or "notice" for a user message that begins no turn. Returns its id."""
        meta = {"kind": kind} if kind else {}
        record = self.session.append(message, **meta, **about, **self.context.meta(message))
        self.context.observe(message, record)
        return record

    def _tell_mode(self) -> None:
        """Logs once that plan mode has begun or ended, as the system prompt is frozen; also what ended between two runs
        of the program, or is no longer so because a turn was taken back."""
        planning = self.mode == "plan"
        if planning != bool(self.session.newest("plan_mode")):
            told = PLAN_BEGINS if planning else PLAN_ENDS
            self._append(user_message(told), kind="notice", plan_mode=planning)

    def _settle(self, driver: Driver, turn: TurnState) -> None:
        """Keeps what was said. A turn without an answer ends in an assistant message all the same, because some
        templates refuse a user message after a tool result."""
        try:
            if turn.begun and (turn.stop_reason == "cancelled" or driver.partial.strip()):
                ending = INTERRUPTED if turn.stop_reason == "cancelled" else BROKEN
                self._append({"role": "assistant", "content": f"{driver.partial}\n\n{ending}".strip()})
            self._keep_place()
        except SessionError as error:
            turn.fail(str(error))

    def _keep_place(self) -> None:
        """At the end of whatever ran: where the shell is, and all of the log on the disk."""
        if self.session.noted("cwd") != (place := {"path": str(self.workspace.cwd)}):
            self.session.note("cwd", **place)
        self.session.sync()

    def _kept(self, job: Job, tool: Tool, arguments: dict[str, Any]) -> AbstractContextManager[None]:
        if self.permissions.harmless(tool, arguments) or self.checkpoints is None:
            return nullcontext()
        self.checkpoints.begin(*self._turn_record)
        return self.checkpoints.step(arguments, job.token, lambda text: job.emit(Notice(text)))

    def _tool_context(self, job: Job, output: Callable[[str], None], confined: bool) -> ToolContext:
        return ToolContext(
            workspace=self.workspace,
            token=job.token,
            output=output,
            sees_images=self.llm.info.sees_images,
            recall=self.context.recall,
            pictures=self.context.pictures,
            spill=self.session.spill,
            secrets=self._secrets,
            sandbox=self._sandbox if confined else None,
        )
