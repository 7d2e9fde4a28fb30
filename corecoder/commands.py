"""Slash commands: each a decorated function, its docstring the help.

`@command` turns a function into a `Command`, and `COMMANDS` at the end of this file lists them: /help, the parsing of
a line and whatever documents or completes commands read that table. A line is a command only if it begins with the
name of one; "/etc/hosts looks wrong" is a prompt like any other.
"""

from __future__ import annotations

import difflib
import inspect
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .agent import Agent
from .app import make_llm
from .config import Config, load_config
from .errors import CoreCoderError
from .events import Compacted, Event
from .render import Renderer, money, tokens
from .session import Session
from .terminal import Screen
from .text import one_line, plural
from .ui import KEYS

_NAME = re.compile(r"/([a-z][a-z-]*)(?:\s+|$)")


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


@dataclass(frozen=True)
class Command:
    """One slash command. `usage` names its arguments, "" for none; `help` is the docstring of its function."""

    name: str
    usage: str
    help: str
    run: Run
    anytime: bool = False

    @property
    def summary(self) -> str:
        """The first sentence of the help."""
        return self.help.partition("\n\n")[0].replace("\n", " ")


def command(name: str, usage: str = "", *, anytime: bool = False) -> Callable[[Run], Command]:
    """Makes a Command of a function; its docstring becomes the help. `anytime`: also while a turn is under way."""

    def decorate(run: Run) -> Command:
        return Command(name, usage, inspect.getdoc(run) or "", run, anytime)

    return decorate


class Commands:
    """A table of commands."""

    def __init__(self, commands: Sequence[Command]) -> None:
        self._by_name = {item.name: item for item in commands}

    def __iter__(self) -> Iterator[Command]:
        return iter(self._by_name.values())

    def parse(self, line: str) -> tuple[Command, str] | None:
        """The command of `line` and its argument; None if the line is a prompt. Raises UnknownCommand for a typo."""
        match = _NAME.match(line.strip())
        if match is None:
            return None
        name, rest = match[1], line.strip()[match.end() :]
        if name in self._by_name:
            return self._by_name[name], rest
        close = difflib.get_close_matches(name, self._by_name, 1, 0.7)
        if os.path.exists(f"/{name}") or (rest and not close):
            return None
        hint = f"Did you mean /{close[0]}?" if close else "/help lists the commands."
        raise UnknownCommand(f"There is no command /{name}. {hint}")


@command("help", "[command]", anytime=True)
def help_(console: Console, argument: str) -> None:
    """Lists the commands, or explains one."""
    if argument:
        for item in COMMANDS:
            if item.name == argument.lstrip("/"):
                console.screen.line(f"/{item.name} {item.usage}".rstrip(), "bold")
                return console.screen.prose(item.help)
        return console.screen.line(f"There is no command {argument}.", "yellow")
    rows = [(f"/{item.name} {item.usage}".rstrip(), item.summary) for item in COMMANDS]
    width = max(len(left) for left, _ in rows)
    for left, right in rows:
        console.screen.line(f"  {left:<{width}}  {right}")
    console.screen.line()
    console.screen.line(KEYS, "dim")
    return None


@command("compact", "[focus] | --undo")
def compact(console: Console, argument: str) -> None:
    """Makes room in the context window.

    Old output is snipped, old conversation summarised. What you write after the command tells the summary
    what to keep. `--undo` brings back what the last compaction replaced; nothing is lost from the session log.
    """
    agent, screen = console.agent, console.screen
    if argument == "--undo":
        done = agent.undo_compaction()
        return screen.line("The last compaction is undone." if done else "There is no compaction to undo.")
    if argument.startswith("--"):
        return screen.line("The only option is --undo.", "yellow")
    for event in console.follow(agent.compact(argument)):
        if isinstance(event, Compacted):
            count = plural(event.messages, "message")
            screen.line(f"Compressed: {event.before} -> {event.after} tokens ({count})")
        else:
            console.renderer.show(event)
    return None


@command("undo", "[--now | --force | --keep]")
def undo(console: Console, argument: str) -> None:
    """Takes the last turn back, files and talk.

    Alone it shows what would happen to which file; `--now` does it. A file that you changed as well is left as it is,
    unless you say `--force`. While such a file or one that failed is left, the turn stays, so that you can ask again;
    `--keep` takes the turn back and leaves those files as they are.
    """
    _rewind(console, None, argument)


@command("rewind", "[turn] [--now | --force | --keep]")
def rewind(console: Console, argument: str) -> None:
    """Goes back to before a turn, files and talk.

    Alone it lists the turns; with the number of one it works like /undo, for that turn and all after it.
    """
    number, _, option = argument.partition(" ")
    if number.isascii() and number.isdecimal():
        return _rewind(console, int(number), option)
    if argument:
        return console.screen.line("Give the number of a turn; /rewind lists them.", "yellow")
    turns = console.agent.turns()
    if not turns:
        console.screen.line("There is no turn to go back to yet.")
    for turn in turns:
        changed = f": {one_line(', '.join(turn.files), 60)}" if turn.files else ""
        console.screen.line(f"  {turn.number:>3}  {turn.words}")
        console.screen.line(f"       changed {plural(len(turn.files), 'path')}{changed}", "dim")
    return None


def _rewind(console: Console, turn: int | None, option: str) -> None:
    agent, screen = console.agent, console.screen
    option = option.strip()
    done = option in ("--now", "--force", "--keep")
    if option and not done:
        return screen.line("The options are --now, --force and --keep.", "yellow")
    result = agent.rewind(turn, force=option == "--force", keep=option == "--keep") if done else agent.preview(turn)
    verbs = ("restored", "created", "removed", "left") if done else ("restore", "create", "remove", "leave")
    for change in result.files:
        verb = dict(zip(("restore", "create", "remove", "leave"), verbs, strict=True))[change.action]
        reason = f" ({change.reason})" if change.reason else ""
        screen.line(f"  {verb:<8}  {change.path}{reason}")
    for note in result.notes:
        screen.line(f"  {note}", "yellow")
    what = f"{plural(result.turns, 'turn')} from {result.turn.number} on: {result.turn.words}"
    name = "/undo" if turn is None else f"/rewind {turn}"
    options = "--force also changes what somebody else changed, --keep takes the turn back and leaves those files"
    if result.taken_back:
        return screen.line(f"Taken back: {what}")
    if done:
        screen.line(f"Not taken back, as files were left: {what}", "yellow")
        return screen.line(f"{name} --now tries again; {options}.", "dim")
    screen.line(f"This would take back {what}")
    more = f" and keeps the turn as long as files are left; {options}" if any(x.forcible for x in result.files) else ""
    return screen.line(f"{name} --now does it{more}.", "dim")


@command("context", anytime=True)
def context(console: Console, _argument: str) -> None:
    """Shows what fills the context window."""
    agent, screen = console.agent, console.screen
    view, manager = agent.session.view, agent.context
    frozen = manager.fill([])
    rows = [("system prompt and tools", frozen)]
    for role, words in (
        ("user", "your prompts"),
        ("assistant", "the model's words and calls"),
        ("tool", "tool results"),
    ):
        part = [message for message in view if message.get("role") == role]
        rows.append((f"{words} ({len(part)})", manager.fill(part) - frozen if part else 0))
    total, usable = manager.fill(view), manager.usable
    for words, count in rows:
        screen.line(f"  {words:<34} {tokens(count):>7}  {_bar(count, usable)}")
    screen.line(f"  {'in all':<34} {tokens(total):>7}  {_bar(total, usable)} {100 * total // max(1, usable)}%")
    marks = ", ".join(
        f"{verb} at {fraction:.0%}"
        for verb, fraction in (
            ("snips", console.config.snip_at),
            ("summarises", console.config.summarize_at),
            ("collapses", console.config.collapse_at),
        )
    )
    screen.line(f"  of {tokens(usable)} usable in a window of {tokens(manager.window)}", "dim")
    screen.line(f"  {marks}", "dim")


def _bar(count: int, of: int, width: int = 20) -> str:
    return "#" * min(width, round(width * count / max(1, of)))


@command("tokens", anytime=True)
def tokens_(console: Console, _argument: str) -> None:
    """Shows the tokens used and their cost."""
    usage, screen = console.agent.usage, console.screen
    share = f" ({100 * usage.cached // usage.prompt}% from the provider's cache)" if usage.prompt else ""
    screen.line(f"  sent      {usage.prompt:>12,}{share}")
    thought = f" ({usage.reasoning:,} of it reasoning)" if usage.reasoning else ""
    screen.line(f"  received  {usage.completion:>12,}{thought}")
    cost = money(usage.cost) if usage.cost is not None else "unknown, no price is known for this model"
    screen.line(f"  cost      {cost:>12}")


@command("model", "[name]")
def model(console: Console, argument: str) -> None:
    """Shows the model, or goes on with another one.

    The argument is a name, or `provider/name` for another provider whose key is set.
    """
    agent, screen = console.agent, console.screen
    if argument:
        config = load_config({**console.flags, "model": argument}, cwd=agent.workspace.root)
        if config.missing:
            return screen.line(config.missing, "yellow")
        before = agent.llm
        agent.use(make_llm(config))
        before.close()
        console.config = config
    config = console.config
    where = f" at {config.base_url}" if config.base_url else ""
    window = f", window {tokens(agent.context.window)}" if agent.context.window else ""
    return screen.line(f"  {agent.llm.model} ({config.provider}{where}{window})")


@command("sessions")
def sessions(console: Console, _argument: str) -> None:
    """Lists the sessions of this project.

    `corecoder -r ID` goes on with one.
    """
    list_sessions(console.screen, console.config.home, console.agent.workspace.root)


def list_sessions(screen: Screen, home: Path, project: Path) -> None:
    """One line for each session of the project, the newest first."""
    found = Session.listing(home, project)
    if not found:
        screen.line("  There are no sessions of this project yet.")
    for info in found[:30]:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.modified))
        facts = f"{info.id}  {when}  {plural(info.messages, 'message')}"
        screen.line(f"  {facts:<58} {one_line(info.title, max(20, screen.width - 62))}")
    if len(found) > 30:
        screen.line(f"  … and {len(found) - 30} older ones", "dim")


@command("reset")
def reset(console: Console, _argument: str) -> None:
    """Starts a new session; the old one is kept."""
    before = console.agent.session.id
    console.agent.reset()
    console.screen.line(
        f"A new session. The old one is kept: /sessions lists it, corecoder -r {before} goes on with it."
    )


@command("exit")
def exit_(_console: Console, _argument: str) -> None:
    """Leaves, as do Ctrl+D and Ctrl+C twice."""
    raise Leave


COMMANDS = Commands((help_, undo, rewind, compact, context, tokens_, model, sessions, reset, exit_))
