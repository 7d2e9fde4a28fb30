"""A conversation: read a line, do what it asks for, read again.

It runs on one thread and is written in a straight line; what the person does meanwhile comes in through `_meanwhile`,
from the thread that draws. Whether there is a live input line or only plain lines is the affair of `Ui`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .agent import Agent
from .app import build_agent
from .commands import COMMANDS, Command, Leave, recap
from .completion import ReplCompleter
from .config import Config
from .errors import CoreCoderError
from .events import Event, ModeChanged, Question, Steered, TurnFinished, UsageUpdated
from .fileindex import FileIndex
from .jobs import CancelToken, Jobs
from .mentions import Expanded, expand
from .print_mode import CLOSING, where_kept
from .render import Renderer
from .status import Activity, Status, branch_of
from .terminal import Screen, Signals
from .ui import WORDS, Turn, Ui

if TYPE_CHECKING:
    from .editor import Editor

MODES = ("ask", "auto", "plan")  # what Shift+Tab goes through
WHY, EDIT = "why", "edit"
NOT_YET = "This takes no words. Esc stops it; the line stays as it is."
NOT_NOW = "Your command would get in the way of what runs. Esc stops the turn; the line stays as it is."


class Repl:
    """One run of the REPL; also the `Console` of the slash commands."""

    def __init__(
        self,
        agent: Agent,
        config: Config,
        flags: Mapping[str, object],
        screen: Screen,
        signals: Signals,
        ui: Ui,
    ) -> None:
        self.agent = agent
        self.config = config
        self.flags = flags
        self.screen = screen
        self.renderer = Renderer(screen, streaming=True, root=agent.workspace.root, live=ui.live)
        self.status = Status(ascii=screen.ascii)
        self._signals = signals
        self._ui = ui
        self._next: list[str] = []  # what is done before a line is read
        self._ended_itself = True
        self._steering: dict[str, str] = {}  # words on their way to the model, and as they were typed
        self._steerable = False  # a turn runs, and may be given words
        self._lock = threading.Lock()
        self._jobs = Jobs()
        self._paths = FileIndex(agent.workspace, config.secret_names)
        self._leaving: int | None = None

    def attach(self, editor: Editor) -> None:
        """Gives a live input line what it shows and what its keys do."""
        editor.status = lambda width: [*self.status.parts(width)]
        editor.on_mode = self._next_mode
        editor.on_unfold = self.renderer.unfold
        editor.open_history(self.agent.session.path.parent / "history")
        editor.completer = ReplCompleter(COMMANDS, self._paths, self.agent.workspace.root, self._arguments)

    def loop(self, *first: str) -> int:
        """Does what `first` asks for, then reads and runs until the person leaves or a signal ends it; gives the exit
        code."""
        self._next += first
        try:
            self._greet()
            while self._leaving is None:
                self._once()
            return self._leaving if self._signals.exit_code is None else self._signals.exit_code
        finally:
            with self._signals.holding():
                self._paths.close()
                if kept := where_kept(self.agent):
                    self.screen.prose(kept, "dim")
                self.agent.close(CLOSING)

    # -- what commands may use

    def follow(self, events: Iterator[Event]) -> Iterator[Event]:
        """Passes events on while the person can stop what makes them, and be heard."""
        activity = Activity(self.agent.workspace.root)
        with self._ui.working(Turn(self.agent.cancel, self._meanwhile, activity.words)):
            for event in events:
                activity.note(event)
                self._keep_status(event)
                yield event
        self._look()

    def submit(self, prompt: str) -> None:
        """Runs a turn with `prompt` next."""
        self._next.append(prompt)

    def pick(self, title: str, rows: Sequence[str]) -> int | None:
        """Lets the person choose one of `rows`."""
        return self._ui.pick(title, rows)

    def reopen(self, resume: str | None) -> None:
        """Goes on with another session, None for a new one."""
        before = self.agent
        self.agent = build_agent(
            self.config, directory=before.workspace.root, interactive=True, resume=resume, llm=before.llm
        )
        self.agent.set_mode(before.mode)
        self.agent.workspace.processes.sole = before.workspace.processes.sole
        before.workspace.end_processes(CLOSING)
        before.session.close()
        self._recap()

    # -- lines

    def _greet(self) -> None:
        agent, screen = self.agent, self.screen
        screen.line(f"CoreCoder, {agent.llm.model}, {agent.workspace.root}", "bold")
        may, _, bounds = agent.permissions.announcement().partition(". ")
        more = f", /mode what the sandbox does ({bounds.split()[0]})" if bounds else ""
        screen.prose(f"{may.removesuffix('.')}.\n/help shows the commands{more}.", "dim")
        for notice in agent.session.notices:
            screen.prose(f"warning: {notice}", "yellow")
        self._recap()

    def _recap(self) -> None:
        """What was said last, for whoever goes on with a session."""
        if view := self.agent.session.view:
            self.screen.prose(f"Going on with session {self.agent.session.id}: {len(view)} messages in view.", "dim")
            recap(self.agent.session, self.screen)
        self._look()

    def _once(self) -> None:
        """One line, and what it asks for."""
        try:
            line = self._next.pop(0) if self._next else self._ui.read()
            if line.strip():
                self._take(line)
        except (EOFError, Leave):
            self._leaving = 0
        except (CoreCoderError, OSError) as error:
            self.screen.prose(f"error: {error}", "red")

    def _take(self, line: str) -> None:
        if found := COMMANDS.parse(line):
            command, argument = found
            command.run(self, argument)
            return self._look()
        line = line.strip()
        if line == "!":
            return self.screen.line("Write the command behind the !, as in !git status.", "yellow")
        if line.startswith("!"):
            return self._turn(self.agent.shell(line[1:].strip()))
        expanded = self._expand(line)
        self._steerable = True
        try:
            return self._turn(self.agent.run(expanded.text, expanded.images))
        finally:
            with self._lock:
                self._steerable = False
            self._hand_back(back=not self._ended_itself)

    def _expand(self, line: str) -> Expanded:
        """The prompt with the files it names; says which."""
        expanded = expand(line, self.agent.workspace, sees_images=self.agent.llm.info.sees_images)
        for note in expanded.notes:
            self.screen.line(f"  + {note}", "dim")
        return expanded

    def _turn(self, events: Iterator[Event]) -> None:
        for event in self.follow(events):
            if isinstance(event, Question):
                self._question(event)
            else:
                self.renderer.show(event)
            if isinstance(event, Steered):
                self._steering.pop(event.text, None)
            elif isinstance(event, TurnFinished):
                self._ended_itself = event.stop_reason == "end_turn"

    def _hand_back(self, *, back: bool) -> None:
        """Words that never reached the model: `back` to the line, or the next prompt where the turn ended by itself."""
        words = "\n".join(self._steering.values())
        self._steering.clear()
        if words and back:
            self._ui.give_back(words)
        elif words:
            self._next.append(words)

    def _meanwhile(self, line: str) -> str:
        """A line that was entered while something runs; why it was not taken, "" if it was. Never waits."""
        try:
            found = COMMANDS.parse(line)
        except CoreCoderError as error:
            return str(error)
        if line.lstrip().startswith("!"):
            return NOT_NOW
        if found is None:
            if not self._steerable:
                return NOT_YET
            line = line.strip()
            self.screen.line(f"  queued: {line}", "dim")
            if "@" in line:  # files are read
                self._jobs.start("steer", lambda _job: self._steer(line, self._expand(line).text), CancelToken())
            else:
                self._steer(line, line)
            return ""
        command, argument = found
        if command.name == "exit":
            self._ui.leave()
        elif command.anytime:
            self._jobs.start(f"/{command.name}", lambda _job: self._look_up(command, argument), CancelToken())
        else:
            self._next.append(line)
            self.screen.line(f"  {line.strip()} runs when the turn has ended", "dim")
        return ""

    def _steer(self, line: str, text: str) -> None:
        """Gives the model `text` while it works, which was typed as `line`; the turn may be over by now."""
        with self._lock:
            if self._steerable:
                self._steering[text] = line
                return self.agent.steer(text)
        return self._ui.give_back(line)

    def _arguments(self, name: str, _typed: str) -> Iterable[tuple[str, str]]:
        command = COMMANDS.get(name)
        return command.choices(self) if command and command.choices else ()

    def _look_up(self, command: Command, argument: str) -> None:
        try:
            command.run(self, argument)
            self.status.mode = self.agent.mode
        except (CoreCoderError, OSError) as error:
            self.screen.prose(f"error: {error}", "red")

    # -- questions

    def _question(self, question: Question) -> None:
        """Shows the whole of what is asked for and passes the answer on; who does not answer stops the turn."""
        self.renderer.question(question)
        try:
            answer, command = self._answer(question)
        except KeyboardInterrupt:
            return self.agent.cancel()
        self.screen.line(f"  ↳ {answer}", "dim")
        return self.agent.answer(question.question_id, answer, command)

    def _answer(self, question: Question) -> tuple[str, str | None]:
        """The answer, and the command as the person changed it."""
        if not question.choices:
            return self._ui.line(question.text), None
        keys = keys_of(question)
        words = choices_words(question, keys)
        while True:
            answer = self._ui.choose(words, keys)
            try:
                if answer == WHY:
                    self.screen.prose(f"{question.why}. {self.agent.permissions.announcement()}", "dim")
                elif answer == EDIT:
                    return answer, self._ui.line("run instead", question.detail)
                elif answer == WORDS:
                    return f"no, {self._ui.line('no, because')}", None
                else:
                    return answer if answer in question.choices else f"no, {answer}", None
            except KeyboardInterrupt:  # back to the question
                continue

    # -- the status line

    def _keep_status(self, event: Event) -> None:
        if isinstance(event, UsageUpdated):
            self.status.used, self.status.usable = event.context, self.agent.context.usable
            self.status.cost = event.total.cost
            self.status.cached = event.total.cached / (event.total.prompt or 1)
        elif isinstance(event, ModeChanged):
            self.status.mode = event.mode

    def _look(self) -> None:
        """Looks at everything the status line shows."""
        agent, config, status = self.agent, self.config, self.status
        status.model, status.mode, status.branch = agent.llm.model, agent.mode, branch_of(agent.workspace.root)
        status.used, status.usable = agent.context.fill(agent.session.view), agent.context.usable
        status.marks = (config.snip_at, config.summarize_at, config.collapse_at)
        status.cost = agent.usage.cost if agent.usage.prompt else None
        status.cached = agent.usage.cached / (agent.usage.prompt or 1)

    def _next_mode(self) -> None:
        """Shift+Tab. Never waits."""
        at = MODES.index(self.agent.mode) + 1 if self.agent.mode in MODES else 0
        self.agent.set_mode(MODES[at % len(MODES)])
        self.status.mode = self.agent.mode


PLAN_KEYS = {"n": "no", "y": "ask", "u": "auto", "o": "yolo"}
PLAN_WORDS = "[y]es and ask, a[u]to, y[o]lo, [N]o"


def keys_of(question: Question) -> dict[str, str]:
    """The key of each choice, its first letter that is free; Enter is the first choice."""
    keys = {"": question.choices[0]}
    if question.kind == "plan":
        keys |= {key: mode for key, mode in PLAN_KEYS.items() if mode in question.choices}
    else:
        for choice in question.choices:
            keys[next(letter for letter in choice if letter not in keys)] = choice
    if question.kind in ("consent", "plan"):
        keys["w"] = WORDS
    if question.why:
        keys["?"] = WHY
    return keys


def choices_words(question: Question, keys: Mapping[str, str]) -> str:
    """`[y]es, [a]lways, [N]o, no with [w]ords, [?] why`; the default in capitals, after the other choices."""
    default, *others = question.choices
    letters = {value: key for key, value in keys.items() if key}
    options = [choice.replace(letters[choice], f"[{letters[choice]}]", 1) for choice in others]
    options.append(default.replace(letters[default], f"[{letters[default].upper()}]", 1))
    if question.kind == "plan":
        options = [PLAN_WORDS]
    options += ["no with [w]ords"] if WORDS in letters else []
    options += ["[?] why"] if WHY in letters else []
    return ", ".join(options)
