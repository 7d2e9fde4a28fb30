"""What a slash command is, what it may use, and how a line becomes one.

`@command` turns a function into a `Command` whose help is the docstring; `Commands` is a table of them, and everything
that lists, completes, documents or parses commands reads that table.
"""

from __future__ import annotations

import contextlib
import difflib
import inspect
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from ..agent import Agent
from ..config import Config
from ..errors import CoreCoderError
from ..events import Event
from ..layout import clip, wrap
from ..render import Renderer
from ..terminal import Screen
from ..text import one_line
from ..values import dataclass

_NAME = re.compile(r"/([a-zA-Z][a-zA-Z-]*)(?:\s+|$)")


class Console(Protocol):
    """What a command may use: the agent, the screen, and the settings as they were given on the command line."""

    agent: Agent
    config: Config
    flags: Mapping[str, object]
    screen: Screen
    renderer: Renderer

    def follow(self, events: Iterator[Event]) -> Iterator[Event]:
        """Passes events on while Ctrl+C cancels what makes them."""

    def submit(self, prompt: str) -> None:
        """Runs a turn, as if `prompt` had been typed, once the command has returned."""

    def pick(self, title: str, rows: Sequence[str]) -> int | None:
        """Lets the person choose one of `rows`, each one line; None if nothing was chosen."""

    def reopen(self, resume: str | None) -> None:
        """Goes on with another session, None for a new one; the agent is another one afterwards. Raises SessionError
        or ConfigError with the old one still there."""


class Leave(Exception):
    """Ends the REPL."""


class UnknownCommand(CoreCoderError):
    """A line that was surely meant as a command and is none."""


Run = Callable[[Console, str], None]
Choices = Callable[[Console], Iterable[tuple[str, str]]]


@dataclass(frozen=True)
class Command:
    """One slash command. `usage` names its arguments, "" for none; `help` is the docstring of its function.

    `anytime` says that it may run while a turn is under way, as it only looks or waits for nothing; `choices` gives
    what may be completed as its argument, each with a word on what it is, and does not wait for anything; `also` are
    other names for it.
    """

    name: str
    usage: str
    help: str
    run: Run
    anytime: bool = False
    choices: Choices | None = None
    also: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """The first sentence of the help."""
        return self.help.partition("\n\n")[0].replace("\n", " ")

    @property
    def call(self) -> str:
        """Name and arguments, as they are typed."""
        return f"/{self.name} {self.usage}".rstrip()


def command(
    name: str, usage: str = "", *, anytime: bool = False, choices: Choices | None = None, also: tuple[str, ...] = ()
) -> Callable[[Run], Command]:
    """Makes a Command of a function; its docstring becomes the help."""

    def decorate(run: Run) -> Command:
        return Command(name, usage, inspect.getdoc(run) or "", run, anytime, choices and _known(choices), also)

    return decorate


def _known(choices: Choices) -> Choices:
    """Choices that are none where they cannot be found out: nobody has asked for them yet."""

    def known(console: Console) -> list[tuple[str, str]]:
        with contextlib.suppress(CoreCoderError, OSError):
            return list(choices(console))
        return []

    return known


class Commands:
    """A table of commands."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = tuple(commands)
        self._by_name = {name: item for item in commands for name in (item.name, *item.also)}

    def __iter__(self) -> Iterator[Command]:
        return iter(self._commands)

    def get(self, name: str) -> Command | None:
        """The command of this name or other name, with or without its slash."""
        return self._by_name.get(name.removeprefix("/"))

    def parse(self, line: str) -> tuple[Command, str] | None:
        """The command of `line` and its argument; None if the line is a prompt. Raises UnknownCommand for a typo."""
        match = _NAME.match(line.strip())
        if match is None:
            return None
        name, rest = match[1].lower(), line.strip()[match.end() :]
        if name in self._by_name:
            return self._by_name[name], rest
        close = difflib.get_close_matches(name, self._by_name, 1, 0.7)
        if os.path.exists(f"/{name}") or (rest and not close):
            return None
        hint = f"Did you mean /{close[0]}?" if close else "/help lists the commands."
        raise UnknownCommand(f"There is no command /{name}. {hint}")


def fitted(text: str, room: int) -> str:
    """`text` as one line of at most `room` columns of the terminal."""
    return clip(one_line(text, room), room)


def indented(screen: Screen, text: str, style: str = "") -> None:
    """Words of ours, all their lines set in a little."""
    for line in wrap([(text, "")], max(20, screen.width - 3)):
        screen.line(f"  {''.join(piece for piece, _ in line)}", style)


def two_columns(screen: Screen, rows: Sequence[tuple[str, str]]) -> None:
    """Names with words beside them, the words broken where the terminal ends and set below each other."""
    left = min(max((len(name) for name, _ in rows), default=0), max(12, screen.width // 2))
    room = max(16, screen.width - left - 5)
    for name, words in rows:
        first, *rest = textwrap.wrap(words, room, break_on_hyphens=False) or [""]
        if len(name) > left:
            screen.line(f"  {name}")
            name = ""
        screen.line(f"  {name:<{left}}  {first}".rstrip())
        for more in rest:
            screen.line(f"  {'':<{left}}  {more}")
