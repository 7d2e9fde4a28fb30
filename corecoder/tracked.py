"""Which files with secrets a git command that only reads would print: a secret that was committed shows in `git grep`
and in every diff, whoever named it or not.

The index says what is tracked (gitformat-index(5)), read without running git; what the pathspecs of the command leave
out is not printed. The price: a secret that only history knows is not noticed, and one whose diff would be empty is
asked for.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from .gitdir import regular_file
from .readonly import certain_repository, names_option
from .secretfiles import SecretFiles
from .shellparse import GLOB

_MOST_INDEX_BYTES = 100_000_000
_PATCH = frozenset(
    "-p -u -U -L -c -m -W --patch --unified --cc --dd --binary --check --word-diff --color-words --patch-with-stat "
    "--patch-with-raw --function-context --remerge-diff --diff-merges".split()
)
_VERBOSE = frozenset({"-v", "--verbose"})  # with which `status` shows a diff
_SUMMARY = frozenset(
    "-s --dirstat --name-only --name-status --no-patch --numstat --quiet --raw --shortstat --stat --summary".split()
)
# Options without a value behind them, so that what follows is a file if there is one of this name.
_FLAGS = frozenset("-b -p -u -w --cached --oneline --patch --staged --stat --word-diff".split())
_FILE_OF_COMMIT = re.compile(r"[\w./~^@{}-]*:(?![/!^(]).+")  # `HEAD:x`, which is judged by its name
_SURELY_COMMIT = re.compile(r"(?:HEAD|@)[~^\d]*|commit|tree|tag|blob")
EXCLUDED = re.compile(r":(?:[!^]|\(exclude\))([^:(!^].*)")  # a pathspec for what is left out


def tracked_secret(name: str, arguments: Sequence[str], directory: Path, secrets: SecretFiles) -> str:
    """The path of a tracked file that probably holds a secret and that `name` (such as `git diff`) with `arguments` may
    print in `directory`; "" if there is none."""
    git = certain_repository(directory) if _prints(name, arguments) else None
    index = regular_file(git / "index", _MOST_INDEX_BYTES) if git else None
    if git is None or index is None:
        return ""
    real, top = os.path.realpath(directory), git.parent.as_posix()
    found = secrets.among(top, map(os.fsdecode, _names(index)))
    return next((path for path in found if _is_meant(path, arguments, real)), "")


def _prints(name: str, arguments: Sequence[str]) -> bool:
    """Whether the command prints what stands in files that it does not name by `HEAD:name`."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    if name != "git grep" and words and all(map(_FILE_OF_COMMIT.fullmatch, words)):
        return False
    if name == "git cat-file":
        asks = not {"-t", "-s", "-e"}.isdisjoint(arguments)
        return not asks and not all(_SURELY_COMMIT.fullmatch(word) or _FILE_OF_COMMIT.fullmatch(word) for word in words)
    if name == "git status":
        return any(names_option(argument, _VERBOSE) for argument in arguments)
    if any(names_option(argument, _PATCH) for argument in arguments) and name != "git grep":
        return name in ("git diff", "git show", "git log", "git diff-tree")
    if name in ("git diff", "git show"):
        summary = any(argument.partition("=")[0] in _SUMMARY for argument in arguments)
        # What a number stands for may be a file, which `show` prints whatever else it is told.
        return not summary or (name == "git show" and any(re.fullmatch(r"[0-9a-fA-F]{4,}", word) for word in words))
    return name == "git grep"


def _names(index: bytes) -> Iterator[bytes]:
    """The names in an index of git's, up to where it makes no sense."""
    version, count = (int.from_bytes(index[at : at + 4], "big") for at in (4, 8))
    at, name = 12, b""
    for _ in range(count if index[:4] == b"DIRC" and 2 <= version <= 4 else 0):
        extended = bool(index[at + 60 : at + 61]) and bool(index[at + 60] & 0x40)
        start, kept = at + (64 if extended else 62), 0
        if version == 4:  # only what differs from the name before
            drop, start = _number(index, start)
            kept = len(name) - drop
        end = index.find(b"\0", start)
        if end < 0 or kept < 0:
            return
        name = name[:kept] + index[start:end]
        yield name
        at = end + 1 if version == 4 else at + ((end - at + 8) & ~7)


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at `at`, seven bits a byte, and where it ends."""
    value = -1
    for end, byte in enumerate(data[at : at + 9], at + 1):
        value = ((value + 1) << 7) + (byte & 127)
        if byte < 128:
            return value, end
    return 0, len(data)


def _is_meant(path: str, arguments: Sequence[str], directory: str) -> bool:
    """Whether the pathspecs among `arguments` let git come to `path` (gitglossary(7)); unclear ones do."""
    if "--" in arguments:
        given = [*arguments[arguments.index("--") + 1 :]]
    else:
        behind = zip(["", *arguments], arguments, strict=False)
        given = [
            word
            for before, word in behind
            if word[:1] not in ("-", "")
            and (not before.startswith("-") or before in _FLAGS)
            and (EXCLUDED.fullmatch(word) or GLOB in word or os.path.lexists(os.path.join(directory, word)))
        ]
    excluded = [match[1] for word in given if (match := EXCLUDED.fullmatch(word))]
    if any(_matches(path, word, directory) for word in excluded):
        return False
    wanted = [word for word in given if not EXCLUDED.fullmatch(word)]
    unclear = any(word[0] == ":" or "\\" in word for word in wanted if word)
    return not wanted or unclear or any(_matches(path, word, directory) for word in wanted)


def _matches(path: str, pathspec: str, directory: str) -> bool:
    whole = os.path.normpath(os.path.join(directory, pathspec))
    pattern = os.path.normpath(os.path.join(glob.escape(directory), pathspec.replace(GLOB, "*")))
    return Path(path).is_relative_to(whole) or fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")
