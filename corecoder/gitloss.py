"""Whether a command names git's own directory in order to remove or move it, which no undo brings back.

The sandbox cannot forbid it: git writes there all the time. So the words of the command are looked at, in a sandbox
and where nobody was asked before. The price: it is a guess by names, so a script that does it goes unnoticed, and a
question now and then is for nothing.
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
_WILD = re.compile(r"[*?\[{]")  # at the start of a name
_REMOVES = re.compile(r"(?:^|[\s;&|(`\"'/\\])(?:rm|rmdir|unlink|shred|mv|trash|trash-put)\s([^\n;&|]*)")
_WORD = re.compile(r"[^\s'\"`()<>]+")
_CALLS = re.compile(r"(?:rmtree|rmdir|remove|removedirs|rename|unlink|move|rmSync)\([^)\n]*\.git[/'\"]")
_FINDS = re.compile(r"(?:^|[\s;&|(`\"'/\\])find\s([^\n;&|]*(?:-delete\b|-exec(?:dir)?\s+rm\b))")
_TESTS = re.compile(r"-(?:i?name|i?path|i?wholename|i?regex)\s+['\"]?([^\s'\"]+)")
_ELSEWHERE = re.compile(r"(?:^|[\s;&|(])(?:cd|pushd)\s")
_INTO_GIT = re.compile(r"(?:^|[\s;&|(])(?:cd|pushd)\s+['\"]?(?:\S*/)?\.git(?![\w.-])|=['\"]?(?:\S*/)?\.git(?![\w.-])")


def loses_git(command: str, directory: Path, root: Path) -> bool:
    """Whether `command`, run in `directory`, seems to take away what git keeps of the project at `root`."""
    text = command.replace("\\\n", " ").replace("${PWD}", "$PWD").replace("$PWD", str(directory))
    removed = [words for match in _REMOVES.finditer(text) if (words := _WORD.findall(match[1]))]
    if _CALLS.search(text) or (removed and (_INTO_GIT.search(text) or "dotglob" in text)):
        return True
    places = [directory, *directory.parents] if _ELSEWHERE.search(text) else [directory]
    if any(_is_git(word, places, root) for words in removed for word in words if word[0] != "-"):
        return True
    return any(_finds_git(match[1], places, root) for match in _FINDS.finditer(text))


def _is_git(word: str, places: list[Path], root: Path) -> bool:
    parts = [part for part in word.split("/") if part not in ("", ".")]
    for at, part in enumerate(parts):
        # A pattern comes to hidden names only where it begins with a dot.
        pattern = re.sub(r"\{.*", "*", part)
        if part == ".git" or (part[0] == "." and fnmatchcase(".git", pattern)):
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
