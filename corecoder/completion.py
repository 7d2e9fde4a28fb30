"""Completion in the prompt: slash commands with their help, what a command takes, and paths behind an @.

Paths come from the file index, by any of their letters. What begins like a path of its own (`/`, `~`, `.`) is looked
up in its directory instead, so that hidden files and those outside the project are found, too. The price: it waits,
for a slow disk and for the first list of all paths, so that it has to be wrapped in a `ThreadedCompleter`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from .text import AT

MOST = 30
FIRST_LIST = 1.0
"""Seconds that the first question about paths waits for there to be any."""

_COMMAND = re.compile(r"/[a-z-]*")
_ARGUMENT = re.compile(r"/([a-z][a-z-]*)[ \t]+(.*)")
_PATH = re.compile(rf'{AT}(?:"(?P<quoted>[^"\n]*)|(?P<bare>[^\s"]*))\Z')
_OWN = ("/", "~", ".")


class CommandLike(Protocol):
    """What is needed of a command."""

    @property
    def name(self) -> str: ...
    @property
    def usage(self) -> str: ...
    @property
    def summary(self) -> str: ...


class Paths(Protocol):
    """What is needed of the file index."""

    def wait(self, seconds: float) -> bool: ...
    def fuzzy(self, query: str, limit: int) -> list[str]: ...


Arguments = Callable[[str, str], Iterable[tuple[str, str]]]
"""Given a command's name and what is typed behind it: what that may become, and a word on each."""


def no_arguments(_name: str, _typed: str) -> Iterable[tuple[str, str]]:
    """Nothing is known of what commands take."""
    return ()


class ReplCompleter(Completer):
    """Completes `commands` at the start of the text and the paths of `paths`, relative to `root`, behind an @."""

    def __init__(
        self,
        commands: Iterable[CommandLike],
        paths: Paths,
        root: str | os.PathLike[str],
        arguments: Arguments = no_arguments,
    ) -> None:
        self._commands = commands
        self._paths = paths
        self._root = os.fspath(root)
        self._arguments = arguments

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterable[Completion]:
        """What may stand at the cursor."""
        text = document.text_before_cursor
        if _COMMAND.fullmatch(text):
            yield from self._command(text)
        elif path := _PATH.search(text):
            yield from self._path(path["bare"] if path["quoted"] is None else path["quoted"], len(path[0]))
        elif argument := _ARGUMENT.fullmatch(text):
            yield from self._argument(*argument.groups())

    def _command(self, typed: str) -> Iterator[Completion]:
        known = [each for each in self._commands if f"/{each.name}".startswith(typed)]
        for each in known or [each for each in self._commands if typed[1:] in each.name]:
            display = f"/{each.name} {each.usage}".rstrip()
            yield Completion(f"/{each.name}{' ' * bool(each.usage)}", -len(typed), display, each.summary)

    def _argument(self, name: str, typed: str) -> Iterator[Completion]:
        known = list(self._arguments(name, typed))
        begins = [each for each in known if each[0].lower().startswith(typed.lower())]
        for value, about in begins or [each for each in known if typed.lower() in each[0].lower()]:
            yield Completion(value, -len(typed), display_meta=about)

    def _path(self, typed: str, length: int) -> Iterator[Completion]:
        if typed.startswith(_OWN):
            found = self._listed(typed)
        else:
            self._paths.wait(FIRST_LIST)
            found = self._paths.fuzzy(typed, MOST)
        for path in found:
            if path != typed and '"' not in path:
                yield Completion(mention(path), -length, path)

    def _listed(self, typed: str) -> list[str]:
        """The entries of a directory that begin like what is typed, hidden ones only if that is."""
        place, _, start = typed.rpartition("/")
        place += "/" * ("/" in typed)
        try:
            with os.scandir(os.path.join(self._root, os.path.expanduser(place) or ".")) as scan:
                fitting = [entry for entry in scan if _fits(entry.name, start)]
                entries = [f"{place}{entry.name}" + "/" * os.path.isdir(entry.path) for entry in fitting]
        except (OSError, ValueError):
            return []
        return sorted(filter(str.isprintable, entries))[:MOST]


def _fits(name: str, start: str) -> bool:
    return name.lower().startswith(start.lower()) and name.startswith(".") == start.startswith(".")


def mention(path: str) -> str:
    """`path` as it is to be written in a prompt. A directory's quotes stay open, so that one can go on."""
    if not re.search(r"\s", path):
        return f"@{path}"
    return f'@"{path}' if path.endswith("/") else f'@"{path}"'
