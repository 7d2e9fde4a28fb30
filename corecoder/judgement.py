"""Judging a shell command: what each part of it is, whether it is certainly read-only, and which secret it may read.

Parsing (`shellparse`), the tables of harmless commands (`readonly`) and the names of secret files (`secretfiles`) come
together here. Where a part runs, after a `cd` that may have failed, is taken for every place where it may. The price:
looking at directories, before a command runs, that may change until it does. A judgement is comfort, no boundary.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .gitdir import lines_of
from .readonly import (
    INERT,
    is_of_the_project,
    is_plain_repository,
    names_option,
    steering,
    subcommand,
    why_not_harmless,
)
from .secretfiles import SecretFiles, TooMany, told
from .shellparse import ANY, GLOB, Simple, Unclear, simple_commands
from .tool import lies_in
from .tracked import EXCLUDED, tracked_secret
from .values import dataclass

_NONE = frozenset[str]()
_HIDDEN: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(
        ("grep", "egrep", "fgrep"),
        frozenset("-r -R -d --recursive --dereference-recursive --directories".split()),
    ),
    "diff": None,
    "rg": frozenset(
        "-. -u -g -L --hidden --unrestricted --glob --iglob --type-add --follow --no-ignore --no-ignore-vcs "
        "--no-ignore-dot --no-ignore-exclude --no-ignore-global --no-ignore-parent --no-ignore-files".split()
    ),
    "git grep": frozenset({"--no-index", "--untracked"}),
    "git diff": frozenset({"--no-index"}),
}
"""Options with which whole directories are read, hidden and ignored files as well, which a `.env` mostly is; None where
no option is needed (`diff -N a b` reads all that lies in a and b)."""
_FOLLOWS: dict[str, frozenset[str] | None] = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), frozenset({"-R", "--dereference-recursive"})),
    "diff": None,
    "rg": frozenset({"-L", "--follow"}),
}
"""Options with which links in those directories are followed."""
_TYPES = frozenset("c cpp css go h html java js md php py rs rust ruby swift ts".split())
"""Types of ripgrep's with no file that may hold a secret."""


@dataclass(frozen=True)
class Place:
    """Where a command would run: the shell's directory, the project, what bash finds in its environment, secrets.
    `started` is the environment before any command changed it."""

    directory: Path
    project: Path
    env: Mapping[str, str]
    secrets: SecretFiles
    started: Mapping[str, str]

    @property
    def changed(self) -> list[str]:
        """The names of the variables that earlier commands set, changed or removed."""
        names = {*self.env, *self.started}
        return sorted(name for name in names if self.env.get(name) != self.started.get(name))


@dataclass(frozen=True)
class Part:
    """One simple command: its words, where it may run, why it is not certainly read-only ("" if it is), the secret that
    it may read."""

    words: tuple[str, ...]
    directories: tuple[Path, ...]
    doubt: str = ""
    secret: str = ""


def judge(command: str, place: Place) -> list[Part]:
    """The simple commands of `command`, each judged. Raises Unclear, with the reason, where it is not understood."""
    known = {name: place.env[name] for name in ("HOME", "USER", "TMPDIR", "PATH") if place.env.get(name)}
    if "cd" not in command:
        known["PWD"] = str(place.directory)
    found = [Simple(_unwrapped(simple.words), simple.reads) for simple in simple_commands(command, known)]
    directories = tuple(_directories(place, found))
    return [_judged(simple, place, directories) for simple in found]


def _judged(simple: Simple, place: Place, directories: tuple[Path, ...]) -> Part:
    words = simple.words
    doubt = why_not_harmless(words)
    doubt = doubt or _doubt_about_the_place(words[0], place, directories)
    try:
        secret = "" if doubt and not simple.reads else _secret(simple, place, directories)
        secret = secret or ("" if doubt else _tracked(words, place, directories))
    except TooMany:
        return Part(
            words, directories, f"`{words[0]}` would read too many files to be sure that none holds secrets; name fewer"
        )
    if secret:
        doubt = f"`{words[0]}` would read {secret}, which may hold secrets"
    return Part(words, directories, doubt, secret)


def _doubt_about_the_place(name: str, place: Place, directories: Sequence[Path]) -> str:
    """Why the program `name`, harmless as it is, may run something else here."""
    now, before = (env.get("PATH") or os.defpath for env in (place.env, place.started))
    if is_of_the_project(name, place.project, now):
        return f"`{name}` may be a program that the project chooses"
    if shutil.which(name, path=now) != shutil.which(name, path=before):
        return f"`{name}` is another program since an earlier command changed PATH"
    if changed := steering(place.changed, name):
        return f"{changed[0]}, changed by an earlier command, may make `{name}` run something else"
    if name == "git" and (
        {"GIT_DIR", "GIT_COMMON_DIR"} & place.env.keys() or not all(map(is_plain_repository, directories))
    ):
        return "settings or hooks here may make git run a program"
    return ""


def _unwrapped(words: tuple[str, ...]) -> tuple[str, ...]:
    """The command that `time` or `timeout` runs."""
    match = re.match(
        r"(?:time\n(?:-p\n)?|timeout\n(?:-k\n\d+[smh]?\n|-s\n\w+\n)*\d+[smh]?\n)(?=[^-\0\1\n])", "\n".join(words)
    )
    return _unwrapped(words[match[0].count("\n") :]) if match else words


def _directories(place: Place, found: Sequence[Simple]) -> list[Path]:
    """Every directory in which a part of the command may run. Raises Unclear if that cannot be known."""
    directories = [place.directory]
    for words in (simple.words for simple in found if simple.words[0] == "cd"):
        target = words[1] if len(words) == 2 else place.env.get("HOME", "") if len(words) == 1 else ""
        if not target or target[0] == "-" or ANY in target or GLOB in target or place.env.get("CDPATH"):
            raise Unclear("it is not certain where its cd leads")
        directories += [Path(os.path.normpath(directory / target)) for directory in directories]
        if len(directories) > 32:
            raise Unclear("it changes the directory too often")
    return list(dict.fromkeys(directories))


def _secret(simple: Simple, place: Place, directories: Sequence[Path]) -> str:
    """A file that probably holds a secret and that `simple`, which only reads, may read; "" if there is none."""
    name, *arguments = simple.words
    if name == "git":
        name, arguments = subcommand(arguments)
        arguments = [argument for argument in arguments if not EXCLUDED.fullmatch(argument)]
    named = list(simple.reads)
    if name not in INERT and name != "test":
        named += itertools.chain.from_iterable(map(_pieces, _without_pattern(name, arguments)))
    paths = [path for each in named for directory in directories for path in _paths(directory, each)]
    if secret := next(filter(place.secrets.named, paths), ""):
        return told(secret, place.project)
    if name not in _HIDDEN:
        return ""
    hidden, follow = (_is_given(arguments, options.get(name, _NONE)) for options in (_HIDDEN, _FOLLOWS))
    tops = [path for path in paths if os.path.isdir(path)]
    if name != "diff":  # which reads no directory that is not named
        tops = tops or list(map(str, directories))
    if not hidden and name != "rg":  # which reads directories without being told to
        return ""
    names = _only(arguments) if hidden or name != "rg" else _of_types(arguments)
    for top in tops:
        passed_over = _NONE if hidden or not lies_in(top, place.project) else _ignored(place.project)
        looked = place.secrets.below(top, hidden=hidden, follow=follow, names=names, passed_over=passed_over)
        if secret := next(looked, ""):
            return told(secret, place.project)
    return ""


def _tracked(words: tuple[str, ...], place: Place, directories: Sequence[Path]) -> str:
    """A file with a secret that git, which only reads, may print since it was committed; "" if there is none."""
    if words[0] != "git":
        return ""
    name, arguments = subcommand(words[1:])
    arguments = _without_pattern(name, arguments)
    found = (tracked_secret(name, arguments, directory, place.secrets) for directory in directories)
    return told(secret, place.project) if (secret := next(filter(None, found), "")) else ""


def _ignored(project: Path) -> frozenset[str]:
    """The names of directories that the project's own rules plainly ignore: ripgrep heeds them in a repository."""
    lines = lines_of(project / ".gitignore") if os.path.lexists(project / ".git") else []
    if any(line.startswith("!") for line in lines):
        return _NONE
    return frozenset(line.strip().strip("/") for line in lines if re.fullmatch(r"/?[\w.-]+/?\s*", line))


def _is_given(arguments: Sequence[str], options: frozenset[str] | None) -> bool:
    return options is None or any(names_option(argument, options) for argument in arguments)


def _only(arguments: Sequence[str]) -> list[str]:
    """The names of files that a search is restricted to, as patterns; [] where that is not certain."""
    text = "".join(f"{argument}\n" for argument in arguments).replace(GLOB, "*")
    given = re.findall(r"^(?:--include[=\n]|--i?glob[=\n]|-g\n?)([^\n]*)\n", text, re.MULTILINE)
    globs = [each for each in given if not each.startswith("!")]
    if not all(re.fullmatch(r"[\w./*-]+", each) for each in globs):
        return []
    return [each.rpartition("/")[2] or "*" for each in globs]


def _of_types(arguments: Sequence[str]) -> list[str]:
    """As patterns, the types of files to which alone ripgrep is restricted; [] where one of them may hold a secret."""
    text = "".join(f"{argument}\n" for argument in arguments)
    types = re.findall(r"^(?:-t|--type)[=\n]?(\w+)\n", text, re.MULTILINE)
    certain = sum(names_option(argument, frozenset({"-t", "--type"})) for argument in arguments) == len(types)
    return [f"*.{name}" for name in types] if certain and _TYPES.issuperset(types) else []


def _without_pattern(name: str, arguments: Sequence[str]) -> list[str]:
    """The arguments without the first one that is no option where that is what a search looks for, not where."""
    if name not in ("grep", "egrep", "fgrep", "rg", "git grep", "sed", "awk", "jq"):
        return list(arguments)
    options = [argument for argument in arguments if argument.startswith("-")]
    if any(names_option(option, frozenset({"-e", "-f", "--regexp", "--file", "--files"})) for option in options):
        return list(arguments)
    at = next((at for at, argument in enumerate(arguments) if argument == "--" or argument[:1] != "-"), len(arguments))
    at += arguments[at : at + 1] == ["--"]
    return [*arguments[:at], *arguments[at + 1 :]]


def _pieces(argument: str) -> Iterator[str]:
    """What of an argument may be the name of a file: `x`, `--file=x`, `-fx`, `HEAD:x`."""
    yield argument
    yield from (argument[match.end() :] for match in re.finditer("[=:]", argument))
    if argument.startswith("-") and len(argument) > 2:
        yield argument[2:]


def _paths(directory: Path, word: str) -> Iterator[str]:
    """The paths that `word` stands for in `directory`. Raises TooMany."""
    whole = os.path.join(directory, word)
    yield whole.replace(GLOB, "*")
    if GLOB not in word:
        return
    pattern = "*".join(map(glob.escape, whole.split(GLOB)))
    for count, path in enumerate(glob.iglob(pattern)):
        if count > 2_000:
            raise TooMany
        yield path
