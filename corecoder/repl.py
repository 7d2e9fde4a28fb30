"""The prompt in the terminal, in its plain form: read, run one turn, show its events, read again.

Reading is behind `Reader`, so that a terminal without cursor control (TERM=dumb, an output that goes elsewhere) gets
plain lines and tests can type. The turn runs on this thread, between two reads, and is touched in one place,
`follow`. The price of the plain form: nothing can be typed while the agent works.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from .agent import Agent
from .app import build_agent
from .commands import COMMANDS, Leave
from .config import Config
from .errors import CoreCoderError
from .events import Event, Question
from .print_mode import CLOSING, warm_up
from .render import Renderer
from .terminal import Screen, Signals

try:
    import termios
except ImportError:  # Windows
    termios = None  # type: ignore[assignment] # the absence is what is tested below

PROMPT = "› "
AGAIN = "(Ctrl+C again or Ctrl+D leaves)"


class Reader(Protocol):
    """Where prompts and answers come from. Both raise EOFError at the end and KeyboardInterrupt for Ctrl+C."""

    def read(self) -> str:
        """The next prompt, which may have several lines."""

    def ask(self, words: str) -> str:
        """A line in answer to `words`; nothing that was typed before it was asked."""


class Repl:
    """One run of the REPL; also what slash commands may use."""

    def __init__(
        self,
        agent: Agent,
        config: Config,
        flags: Mapping[str, object],
        screen: Screen,
        signals: Signals,
        reader: Reader,
    ) -> None:
        self.agent = agent
        self.config = config
        self.flags = flags
        self.screen = screen
        self.renderer = Renderer(screen, streaming=True, root=agent.workspace.root)
        self._signals = signals
        self._reader = reader
        self._leaving: int | None = None
        self._next = ""

    def loop(self) -> int:
        """Reads and runs until the person leaves or a signal ends it; gives the exit code."""
        try:
            self._greet()
            while self._leaving is None:
                self._once()
            return self._leaving
        finally:
            with self._signals.holding():
                self.agent.close(CLOSING)

    def follow(self, events: Iterator[Event]) -> Iterator[Event]:
        """Passes events on while Ctrl+C cancels what makes them; SIGTERM and SIGHUP also end the loop afterwards."""
        with self._signals.cancelling(self.agent.cancel):
            yield from events
        caught, self._signals.caught = self._signals.caught, None
        if caught is not None and caught != 2:
            self._leaving = 128 + caught

    def submit(self, prompt: str) -> None:
        """Runs a turn with `prompt` next."""
        self._next = prompt

    def pick(self, title: str, rows: Sequence[str]) -> int | None:
        """Shows numbered rows and reads a number."""
        for number, row in enumerate(rows, 1):
            self.screen.line(f"  {number:>3}  {row}")
        try:
            answer = self._reader.ask(f"{title} (a number, or nothing) ").strip()
        except (EOFError, KeyboardInterrupt):
            return None
        return int(answer) - 1 if answer.isascii() and answer.isdecimal() and 0 < int(answer) <= len(rows) else None

    def reopen(self, resume: str | None) -> None:
        """Closes this session and opens another one."""
        agent = build_agent(
            self.config, directory=self.agent.workspace.root, interactive=True, resume=resume, llm=self.agent.llm
        )
        self.agent.workspace.end_processes(CLOSING)
        self.agent.session.close()
        self.agent = agent

    def _greet(self) -> None:
        agent, screen = self.agent, self.screen
        screen.line(f"CoreCoder, {agent.llm.model}, {agent.workspace.root}", "bold")
        screen.prose(f"{agent.permissions.announcement()}\n/help shows the commands.", "dim")
        for notice in agent.session.notices:
            screen.prose(f"warning: {notice}", "yellow")
        if view := agent.session.view:
            screen.prose(f"Going on with session {agent.session.id}: {len(view)} messages in view.", "dim")

    def _once(self) -> None:
        """One line, and what it asks for."""
        line, self._next = self._next or self._read(), ""
        if line is None:
            self._leaving = 0
        elif line.strip():
            try:
                self._take(line)
            except Leave:
                self._leaving = 0
            except (CoreCoderError, OSError) as error:
                self.screen.prose(f"error: {error}", "red")

    def _read(self) -> str | None:
        """The next line; None when the person leaves, with Ctrl+D or Ctrl+C on two empty lines in a row."""
        for words in (AGAIN, ""):
            try:
                return self._reader.read()
            except EOFError:
                return None
            except KeyboardInterrupt:
                self.screen.line(words, "dim")
        return None

    def _take(self, line: str) -> None:
        if found := COMMANDS.parse(line):
            command, argument = found
            return command.run(self, argument)
        for event in self.follow(self.agent.run(line.strip())):
            if isinstance(event, Question):
                self._question(event)
            else:
                self.renderer.show(event)
        return None

    def _question(self, question: Question) -> None:
        """Shows the whole of what is asked for and passes the answer on; Ctrl+C there stops the turn."""
        screen = self.screen
        screen.prose(question.text, "bold yellow")
        if question.detail:
            screen.line("\n".join(f"  {line}" for line in question.detail.splitlines()))
        try:
            with self._signals.raising():
                answer = self._reader.ask(choices_words(question))
        except EOFError:
            answer = ""
        except KeyboardInterrupt:
            return self.agent.cancel()
        except SystemExit as stop:
            self._leaving = int(str(stop.code))
            return self.agent.cancel()
        return self.agent.answer(question.question_id, meant(answer, question))


def choices_words(question: Question) -> str:
    """`[y]es, [a]lways, [N]o: `; the default, which is the first choice, in capitals and last."""
    if question.kind != "consent":
        return f"({' / '.join(question.choices)}) " if question.choices else "answer: "
    default, *others = question.choices
    options = [f"[{choice[0]}]{choice[1:]}" for choice in others] + [f"[{default[0].upper()}]{default[1:]}"]
    return f"{', '.join(options)}, or no with words for the model: "


def meant(answer: str, question: Question) -> str:
    """What was typed as one of the choices; other words to a question of consent are a no that says why."""
    answer = answer.strip()
    default = question.choices[0] if question.choices else ""
    for choice in question.choices:
        if answer.lower() in (choice.lower(), choice[0].lower()):
            return choice
    if not answer:
        return default
    return f"no, {answer}" if question.kind == "consent" else answer


class History(FileHistory):
    """The prompts of one project, readable for their owner only; kept in memory where they cannot be written."""

    def load_history_strings(self) -> Iterator[str]:
        """The newest first; none where the file cannot be read."""
        with contextlib.suppress(OSError):
            yield from super().load_history_strings()

    def store_string(self, string: str) -> None:
        """Adds one prompt to the file."""
        with contextlib.suppress(OSError):
            Path(os.fsdecode(self.filename)).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.filename, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600))
            super().store_string(string)


class LineReader:
    """Reads with prompt_toolkit: several lines, history, bracketed paste."""

    def __init__(self, history: Path, on_ready: Callable[[], None]) -> None:
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=History(history),
            key_bindings=_bindings(),
            enable_suspend=True,
        )
        self._answers: PromptSession[str] = PromptSession()
        # It logs a signal that comes while it reads the history with a traceback, which nobody may see.
        logging.getLogger("prompt_toolkit").addHandler(logging.NullHandler())

        def ready(app: Application[Any]) -> None:
            """Loads what is slow to load once the prompt can be seen."""
            app.after_render -= ready
            on_ready()

        self._session.app.after_render += ready

    def read(self) -> str:
        """The next prompt."""
        return self._prompt(self._session)

    def ask(self, words: str) -> str:
        """A line in answer to `words`."""
        clear_typeahead(self._session.input)
        if termios is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        return self._prompt(self._answers, words)

    def _prompt(self, session: PromptSession[str], *words: str) -> str:
        """Prompts; a signal that comes while the first line is drawn must not leave bracketed paste switched on."""
        try:
            return session.prompt(*words)
        except SystemExit:
            session.app.renderer.reset()
            raise


def _bindings() -> KeyBindings:
    """Enter sends, Alt+Enter and Ctrl+J start a line, Ctrl+C clears what there is or interrupts."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    @bindings.add("c-j")
    def _new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c")
    @bindings.add("<sigint>")
    def _clear(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt, style="class:aborting")

    return bindings


class PlainReader:
    """Reads plain lines from standard input, for terminals that cannot move a cursor."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")

    def read(self) -> str:
        """The next line."""
        return self.ask(PROMPT)

    def ask(self, words: str) -> str:
        """A line in answer to `words`."""
        self._screen.fresh_line()
        self._screen.write(words)
        line = sys.stdin.readline()
        if not line:
            self._screen.line()
            raise EOFError
        return line.rstrip("\n")


def make_reader(agent: Agent, screen: Screen) -> Reader:
    """The reader that fits the terminal; the model client loads behind the first prompt."""
    if not screen.terminal or os.environ.get("TERM") in (None, "", "dumb"):
        warm_up(agent.llm)
        return PlainReader(screen)
    return LineReader(agent.session.path.parent / "history", lambda: warm_up(agent.llm))
