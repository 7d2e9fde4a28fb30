"""Whether a command names git's own directory in order to remove or move it, which no undo brings back.

The sandbox cannot forbid it: git writes there all the time. So the words of the command are looked at, in a sandbox
and where nobody was asked before. The price: it is a guess by names, so a script that does it is told only afterwards
(by the bash tool), and a question now and then is for nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

WHY = "it would remove or move git's own files, which undo does not bring back"

# What cannot be had again; locks, a half-done merge and the index can.
_VITAL = ("objects", "refs", "packed-refs", "HEAD", "logs", "worktrees", "modules")
_WILD = re.compile(r"[*?\[]")  # at the start of a name
_REMOVES = re.compile(r"(?:^|[\s;&|(`\"'/\\])(?:rm|rmdir|unlink|shred|mv|trash|trash-put)\s([^\n;&|]*)")
_WORD = re.compile(r"[^\s'\"`()<>]+")
_CALLS = re.compile(r"(?:rmtree|rmdir|remove|removedirs|rename|unlink|move|rmSync)\([^)\n]*\.git[/'\"]")
# Names of files that others print and `xargs` gives to a program.
_PIPED = re.compile(
    r"(?:\.git(?![\w.-])|\bls\s+-\w*[aA])[^\n;&]*\|\s*xargs\s(?:[^\n;&|]*[\s/])?(?:rm|rmdir|unlink|shred|mv)(?:\s|$)"
)
_MIRRORS = re.compile(r"(?:^|[\s;&|(`\"'/\\])rsync\s([^\n;&|]*--(?:del|remove-source)[^\n;&|]*)")
_KEEPS_GIT = re.compile(r"--exclude[= ]['\"]?/?\.git\b")
_PACKS = re.compile(r"(?:^|[\s;&|(`\"'/\\])tar\s([^\n;&|]*--remove-files[^\n;&|]*)")
# What stands for the directory, the top of the project and git's own directory.
_HERE = re.compile(r"\$\{?PWD\}?(?!\w)|(?:\$\(|`)\s*(?:pwd(?:\s+-[LP])?|realpath\s+\.|readlink\s+-f\s+\.)\s*(?:\)|`)")
_REV_PARSE = r"(?:\$\(|`)\s*git\s[^\n)`]*?rev-parse\s[^\n)`]*?--{}[^\n)`]*(?:\)|`)"
_TOP = re.compile(_REV_PARSE.format("show-(?:toplevel|cdup)"))
_GIT = re.compile(_REV_PARSE.format("(?:absolute-)?git-(?:common-)?dir"))
_BRACES = re.compile(r"(?<![^\s'\"{},])([^\s'\"{},]*)\{([^\s'\"{}]*,[^\s'\"{}]*)\}([^\s'\"{},]*)")
_MOST_WORDS = 1_000
_FINDS = re.compile(r"(?:^|[\s;&|(`\"'/\\])find\s([^\n;&|]*(?:-delete\b|-exec(?:dir)?\s+rm\b))")
_TESTS = re.compile(r"-(?:i?name|i?path|i?wholename|i?regex)\s+['\"]?([^\s'\"]+)")
_ELSEWHERE = re.compile(r"(?:^|[\s;&|(])(?:cd|pushd)\s")
_INTO_GIT = re.compile(r"(?:^|[\s;&|(])(?:cd|pushd)\s+['\"]?(?:\S*/)?\.git(?![\w.-])|=['\"]?(?:\S*/)?\.git(?![\w.-])")


def loses_git(command: str, directory: Path, root: Path) -> bool:
    """Whether `command`, run in `directory`, seems to take away what git keeps of the project at `root`."""
    text = _HERE.sub(".", command.replace("\\\n", " "))
    text = _GIT.sub(".git", _TOP.sub(os.path.relpath(root, directory), text))
    removed = [words for match in _REMOVES.finditer(text) if (words := _words(match[1]))]
    if _CALLS.search(text) or _PIPED.search(text) or (removed and (_INTO_GIT.search(text) or "dotglob" in text)):
        return True
    removed += [_words(match[1]) for match in _PACKS.finditer(text)]
    removed += [_words(match[1]) for match in _MIRRORS.finditer(text) if not _KEEPS_GIT.search(match[1])]
    places = [directory, *directory.parents] if _ELSEWHERE.search(text) else [directory]
    if any(_is_git(word, places, root) for words in removed for word in words if word[0] != "-"):
        return True
    return any(_finds_git(match[1], places, root) for match in _FINDS.finditer(text))


def _words(arguments: str) -> list[str]:
    """The words of `arguments`, those in braces (bash(1), "Brace Expansion") each by itself."""
    for _ in range(_MOST_WORDS):
        match = _BRACES.search(arguments)
        if match is None or len(arguments) > 100 * _MOST_WORDS:
            break
        before = arguments[: match.start()]
        between = "," if before.count("{") > before.count("}") else " "
        each = between.join(f"{match[1]}{word}{match[3]}" for word in match[2].split(","))
        arguments = f"{before}{each}{arguments[match.end() :]}"
    return _WORD.findall(arguments)


def _is_git(word: str, places: list[Path], root: Path) -> bool:
    parts = [part for part in word.split("/") if part not in ("", ".")]
    for at, part in enumerate(parts):
        # A pattern comes to hidden names only where it begins with a dot.
        if part == ".git" or (part[0] == "." and fnmatchcase(".git", part)):
            return not parts[at + 1 :] or parts[at + 1] in _VITAL or bool(_WILD.match(parts[at + 1]))
    return any(root.is_relative_to(path) for path in _paths(word, places))


def _finds_git(arguments: str, places: list[Path], root: Path) -> bool:
    """`find` with no test for names that keeps it away from git's files."""
    tops = [word for word in _WORD.findall(arguments.partition(" -")[0]) if word[0] != "-"] or ["."]
    tests = _TESTS.findall(arguments)
    narrow = any(not fnmatchcase("HEAD", each) for each in tests)
    return not narrow and any(
        root.is_relative_to(path) or ".git" in path.parts for top in tops for path in _paths(top, places)
    )


def _paths(word: str, places: list[Path]) -> Iterator[Path]:
    for place in places:
        yield Path(os.path.normpath(place / os.path.expanduser(word)))
