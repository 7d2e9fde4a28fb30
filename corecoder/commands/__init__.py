"""Slash commands: each a decorated function, its docstring the help.

`COMMANDS` lists them, the most used first: /help, the parsing of a line, completion and the table in README.md read
it. A line is a command only if it begins with the name of one; "/etc/hosts looks wrong" is a prompt like any other.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..ui import KEYS
from .registry import Command, Commands, Console, Leave, UnknownCommand, command, two_columns
from .sessions import clear, export, fork, list_sessions, recap, resume, sessions
from .settings import init, mode, model, plan, trust
from .turns import compact, diff, rewind, undo
from .view import config, context, jobs, tokens, tools

__all__ = ["COMMANDS", "Command", "Commands", "Console", "Leave", "UnknownCommand", "list_sessions", "recap"]


def _names(_console: Console) -> Iterable[tuple[str, str]]:
    return [(item.name, item.summary) for item in COMMANDS]


@command("help", "[command]", anytime=True, choices=_names)
def help_(console: Console, argument: str) -> None:
    """Lists the commands, or explains one."""
    screen = console.screen
    if argument:
        found = COMMANDS.get(argument)
        if found is None:
            return screen.line(f"There is no command {argument}.", "yellow")
        screen.line(found.call, "bold")
        screen.prose(found.help)
        return screen.line(f"Also: {', '.join(f'/{name}' for name in found.also)}", "dim") if found.also else None
    two_columns(screen, [(item.call, item.summary) for item in COMMANDS])
    screen.line()
    return screen.prose(KEYS, "dim")


@command("exit", also=("quit",))
def exit_(_console: Console, _argument: str) -> None:
    """Leaves, as do Ctrl+D and Ctrl+C twice."""
    raise Leave


COMMANDS = Commands(
    (
        help_,
        model,
        mode,
        plan,
        compact,
        context,
        tokens,
        diff,
        undo,
        rewind,
        sessions,
        resume,
        fork,
        clear,
        export,
        init,
        trust,
        jobs,
        tools,
        config,
        exit_,
    )
)
