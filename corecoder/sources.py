"""The places that settings come from, each as a table of raw values with the words to name them.

Files are optional and may be anything: missing, unreadable, a directory, a pipe, not UTF-8. What cannot be used is
left out with a sentence for the person, and never stops a run; only TOML that does not parse does. Of a `.env` and the
environment nothing is kept but the names we know.
"""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .forms import KEY, Form
from .text import one_line
from .values import dataclass

# How far a place is trusted with an address for a key: what came with the project, the user's own words (files at home,
# environment, command line), what is built in. The order in which places win is that of the list of places.
PROJECT, OWN, BUILT_IN = range(1, 4)
PREFIX = "CORECODER_"
_FILE_LIMIT = 256 * 1024  # bytes


@dataclass(frozen=True)
class Place:
    """One place that sets things: `values` maps a setting or a provider's own variable to (its spelling, its value)."""

    label: str
    trust: int
    values: Mapping[str, tuple[str, object]]


@dataclass(frozen=True)
class Found:
    """A value that was found. `depth` is its place in the list of places: 0 wins over 1."""

    name: str
    spelled: str
    raw: object
    place: Place
    depth: int

    @property
    def words(self) -> str:
        return f"{self.spelled} {self.place.label}"

    def read(self, form: Form) -> Any:
        """The value as `form` reads it; ConfigError names place and form, and never shows a key."""
        try:
            return form.read(self.raw)
        except ValueError:
            raw = self.raw if isinstance(self.raw, str) else str(self.raw)
            shown = "not usable" if form is KEY else f"'{one_line(raw, 60)}'"
            raise ConfigError(f"{self.words} is {shown}. Accepted: {form.accepts}.") from None


def find_all(places: Sequence[Place], *names: str) -> Iterator[Found]:
    """Every value under any of `names`: by place, the winning one first, and within a place in the order of `names`."""
    for depth, place in enumerate(places):
        for name in names:
            if name in place.values:
                yield Found(name, *place.values[name], place, depth)


def find(places: Sequence[Place], *names: str) -> Found | None:
    """The value that wins."""
    return next(find_all(places, *names), None)


@dataclass(frozen=True)
class Reader:
    """Reads places. `settings` are all names of settings, `of_project` those that a project's `.env` may set,
    `foreign` the variables of providers; `warnings` collects what a person should know."""

    settings: frozenset[str]
    of_project: frozenset[str]
    foreign: frozenset[str]
    warnings: list[str]

    def command_line(self, flags: Mapping[str, object]) -> Place:
        """The flags that set something: not None, and named like a setting."""
        given = {name: value for name, value in flags.items() if name in self.settings and value is not None}
        values = {name: (f"--{name.replace('_', '-')}", value) for name, value in given.items()}
        return Place("on the command line", OWN, values)

    def environment(self, environ: Mapping[str, str]) -> Place:
        return Place("in the environment", OWN, self._known(environ, "in the environment"))

    def dotenv(self, path: Path, trust: int) -> Place:
        """A `.env` file. Values are taken as they stand: `${OTHER}` is not replaced."""
        text = self._text(path)
        where = f"in {path}"
        if not any(name in text for name in (PREFIX, *self.foreign)):
            return Place(where, trust, {})
        # Imported here because it costs 40 ms and most runs have no such file; `dotenv_values` would log to stderr.
        from dotenv.parser import parse_stream

        bindings = list(parse_stream(io.StringIO(text)))
        for wrong in (item.original for item in bindings if item.error and PREFIX in item.original.string):
            self.warnings.append(f"Line {wrong.line} of {path} is not of the form NAME=value and is ignored.")
        variables = {item.key: item.value or "" for item in bindings if item.key}
        return Place(where, trust, self._known(variables, where, project=trust == PROJECT))

    def toml(self, path: Path, trust: int = OWN) -> Place:
        """Settings by their own names. Raises ConfigError if the file is not TOML."""
        text = self._text(path)
        if not text.strip():
            return Place(f"in {path}", trust, {})
        if sys.version_info >= (3, 11):  # imported here because most runs have no such file
            import tomllib
        else:
            import tomli as tomllib
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}. A line looks like: max_steps = 200") from None
        for name in table.keys() - self.settings:
            self.warnings.append(f"{name} in {path} is not a setting and is ignored{_meant(name, self.settings)}.")
        values = {name: (name, value) for name, value in table.items() if name in self.settings}
        return Place(f"in {path}", trust, values)

    def _known(
        self, variables: Mapping[str, str], where: str, *, project: bool = False
    ) -> dict[str, tuple[str, object]]:
        """What we know of `variables`, blank ones left out."""
        known: dict[str, tuple[str, object]] = {}
        for variable, value in variables.items():
            if variable in self.foreign:
                name = variable
            elif variable.startswith(PREFIX):
                name = variable.removeprefix(PREFIX).lower()
            else:
                continue
            if name not in self.foreign | self.settings:
                self._unknown(variable, where)
            elif project and name not in self.foreign | self.of_project:
                self.warnings.append(f"{variable} {where} is ignored: a project's .env cannot set it.")
            elif value.strip():
                known[name] = (variable, value)
        return known

    def _unknown(self, variable: str, where: str) -> None:
        if variable == "CORECODER_HOME":
            if where != "in the environment":
                self.warnings.append(f"CORECODER_HOME {where} is ignored: set it in the environment.")
            return
        meant = _meant(variable, [PREFIX + name.upper() for name in self.settings])
        if meant:  # without a likely meaning it may be anybody's
            self.warnings.append(f"{variable} {where} is not a setting and is ignored{meant}.")

    def _text(self, path: Path) -> str:
        """The text of a regular file; "" if there is none, and also, with a warning, if it cannot be used."""
        try:
            facts = os.stat(path)
            if not stat.S_ISREG(facts.st_mode):
                why = "it is not a regular file"
            elif facts.st_size > _FILE_LIMIT:
                why = f"it is larger than {_FILE_LIMIT // 1024} KB"
            else:
                return path.read_bytes().decode("utf-8-sig")
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except UnicodeDecodeError as error:
            why = f"it is not UTF-8 (at byte {error.start + 1})"
        except OSError as error:
            why = (error.strerror or str(error)).lower()
        self.warnings.append(f"{path} is ignored: {why}.")
        return ""


def _meant(name: str, names: Iterable[str]) -> str:
    import difflib  # needed after a misspelling only

    close = difflib.get_close_matches(name, sorted(names), 1, 0.85)
    return f"; did you mean {close[0]}?" if close else ""
