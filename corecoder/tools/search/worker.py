"""The child that searches: one request as a JSON line on stdin, answers as JSON lines on stdout.

Requests are objects with `do`, `root` (absolute, real), `seconds`, and
    grep:    `pattern`, `include` (globs), `base`, `only` (root is a file), `without` (patterns of paths that are not
             searched), `ignore`, `most` (shown), `count` (counted)
    glob:    `pattern` (relative, forward slashes), `hidden`, `folders` (nothing else is wanted), `ignore`, `most`
    list:    `ignore`, `most`: files and directories, level by level
    survey:  `ignore`: which entries a search would leave out, level by level, until a few are known
Answers, as they are found: `{"found": ...}`, which is [path, number, text] for grep, a path for glob (newest first), a
path below the root for list (with a slash for a directory); `{"bad": words}` for a wrong pattern; and last
`{"end": {...}}` with totals and notes.

The process ends itself after `seconds`, from a timer in C that no regular expression can hold up.
"""

from __future__ import annotations

import contextlib
import faulthandler
import heapq
import json
import os
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Any

from .ignore import glob_regex
from .pattern import parse
from .walk import NOTED, Notes, Walk, nearest

# Run as `python -I -S -c START <directory of this package's parent>`: nothing of the user's is imported, and the
# standard library comes first on the path.
START = f"import sys; sys.path.append(sys.argv[1]); from {__package__.rpartition('.')[2]}.worker import main; main()"

WIDTH = 400
"""A line longer than this, in characters, is shown as a part of it around the match."""

WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""What a UTF-16 file begins with."""

_BEFORE = 120
_META = re.compile(r"[\\.^$*+?{}\[\]()|]")
_PIECE = 1 << 22
_BUFFER = 1 << 16
_SURVEY = 2.0  # seconds
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def command(python: str) -> list[str]:
    """The argument vector that starts this worker with the interpreter `python`."""
    here = os.path.dirname(os.path.abspath(__file__))
    return [python, "-I", "-S", "-c", START, os.path.dirname(here)]


def excerpt(before: str, after: str) -> str:
    """A line for showing, cut down around the match that starts between `before` and `after`.

    The two need be no longer than WIDTH + 1 characters each, the nearest to the match.
    """
    if len(before) + len(after) <= WIDTH:
        return before + after
    head = before if len(before) <= _BEFORE else "…" + before[-_BEFORE:]
    room = WIDTH - _BEFORE
    return head + (after if len(after) <= room else after[:room] + "…")


def text_of(data: bytes) -> str:
    """The text that ripgrep sees in a file: byte order marks obeyed, otherwise UTF-8, bad bytes as lone surrogates."""
    if data.startswith(WIDE_MARKS):
        return data.decode("utf-16", "replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")


def matching_lines(regex: re.Pattern[str], text: str, number: int) -> Iterator[tuple[int, int, int, int]]:
    """(line number, start of line, start of match, end of line) of every line that matches, counting from `number`."""
    at = last = 0
    size = len(text)
    while at < size:
        found = regex.search(text, at)
        if found is None:
            return
        where = found.start()
        if where == size and text[-1] == "\n":
            return
        start = text.rfind("\n", 0, where) + 1
        end = text.find("\n", where)
        end = size if end < 0 else end
        if found.end() > end:  # a class such as [\W] ran over the line's end: ask again for this line alone
            found = regex.search(text, start, end)
        if found is not None:
            number += text.count("\n", last, start)
            yield number, start, found.start(), end
            last = start
        at = end + 1


class Binary(Exception):
    """The file is not a text."""


def grep(request: dict[str, Any]) -> dict[str, Any]:
    """Searches files until enough lines are counted; the walk goes on for what it has to note."""
    walk = Walk(request["root"], request["ignore"])
    include = Include(request["include"], request["root"], request["base"])
    without = [re.compile(pattern, re.IGNORECASE).search for pattern in request["without"]]
    search = Grep(request)
    for path in [walk.root] if request["only"] else (entry.path for entry in walk.files()):
        if search.room and include(path) and not any(search_for(path) for search_for in without):
            try:
                search.file(path)
            except OSError as error:
                walk.notes.failed(path, error)
    return {"total": request["count"] - search.room, "files": search.files, **summary(walk.notes)}


class Grep:
    """Searches files for one pattern and writes what it finds. `room` is how many lines it would still count."""

    def __init__(self, request: dict[str, Any]) -> None:
        pattern = parse(request["pattern"])
        if pattern.only_rust:
            raise ValueError(f"{pattern.only_rust} is known to ripgrep only, which is not installed here")
        warnings.simplefilter("ignore")
        self.regex = re.compile(pattern.python, re.MULTILINE)
        plain = not _META.search(request["pattern"])
        self.needle = request["pattern"].encode("utf-8", "surrogateescape") if plain else b""
        self.whole = request["only"]
        self.room, self.shown, self.files = request["count"], request["most"], 0

    def file(self, path: str) -> None:
        """Searches one file, piece by piece. One with a NUL byte has no lines, unless it was named."""
        lines: list[list[Any]] = []
        count, number = 0, 1
        try:
            for data in pieces(path, self.whole):
                for line, before, after in islice(self.matches(data, number), self.room - count):
                    count += 1
                    if len(lines) < self.shown:
                        lines.append([path, line, readable(excerpt(before, after))])
                number += data.count(b"\n")
        except Binary:
            return
        self.room -= count
        self.shown -= len(lines)
        self.files += count > 0
        for found in lines:
            answer(found=found)
        if lines:
            sys.stdout.flush()  # what was found counts even if the next file ends this process

    def matches(self, data: bytes, number: int) -> Iterator[tuple[int, str, str]]:
        """(line number, what stands before the match, what from there on) of the lines in `data`."""
        if self.needle and self.needle not in data and data[:1] < b"\xef":
            return
        text = text_of(data)
        text = text.replace("\r\n", "\n") if "\r\n" in text else text
        text = text[:-1] + "\n" if text.endswith("\r") else text  # which ends the last line, be it empty
        for line, start, where, end in matching_lines(self.regex, text, number):
            yield line, text[max(start, where - WIDTH - 1) : where], text[where : min(end, where + WIDTH + 1)]


def readable(text: str) -> str:
    """Undecodable bytes as replacement characters, one for each run that a decoder would call one error."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def pieces(path: str, whole: bool) -> Iterator[bytes]:
    """The bytes of a file in pieces that end with a line. Raises Binary at a NUL byte, unless all is wanted."""
    with open(os.open(path, _OPEN), "rb", buffering=0) as file:
        rest, data = b"", file.read(_BUFFER)
        if data.startswith(WIDE_MARKS):
            yield data + file.read()
            return
        while data:
            if not whole and b"\0" in data:
                raise Binary
            data = rest + data
            cut = data.rfind(b"\n") + 1
            if len(data) - cut > 16 * _PIECE:
                cut = len(data)
            if cut:
                yield data[:cut]
            rest = data[cut:]
            data = file.read(_PIECE)
        if rest:
            yield rest


class Include:
    """The `include` globs: on the name where a glob has no slash, else on the path below the root or `base`."""

    def __init__(self, globs: list[str], root: str, base: str) -> None:
        self.roots = [root.rstrip("/") + "/", base.rstrip("/") + "/"]
        self.globs = [(re.compile(glob_regex(glob.removeprefix("!"))), glob.startswith("!")) for glob in globs]
        self.default = all(unwanted for _, unwanted in self.globs)

    def __call__(self, path: str) -> bool:
        if not self.globs:
            return True
        names = {path.rpartition("/")[2], *(path[len(root) :] for root in self.roots if path.startswith(root))}
        verdicts = [unwanted for regex, unwanted in self.globs if any(map(regex.fullmatch, names))]
        return True not in verdicts and (self.default or bool(verdicts))


def glob(request: dict[str, Any]) -> dict[str, Any]:
    """Files below the root whose relative path matches; where none does, directories; else files at any depth."""
    parts = request["pattern"].split("/")
    regex = glob_regex(request["pattern"])
    totals, found, notes = _globbed(request, regex, None if "**" in parts else len(parts))
    kind = "files" if totals["files"] and not request["folders"] else "folders"
    if not totals and len(parts) == 1 and not request["folders"]:
        totals, found, notes = _globbed(request, f"(?:[^/]+/)*{regex}", None)
        kind = "below" if totals["files"] else "files"
        found["below"], totals["below"] = found["files"], totals["files"]
    for _, path in heapq.nsmallest(request["most"], found[kind]):
        answer(found=path)
    return {"total": totals[kind], "kind": kind, **summary(notes)}


def _globbed(
    request: dict[str, Any], glob: str, depth: int | None
) -> tuple[Counter[str], dict[str, list[tuple[float, str]]], Notes]:
    """How many files and folders match, (age, path) of the newest of each, and the notes of the walk."""
    regex = re.compile(glob, re.DOTALL)
    most = request["most"]
    walk = Walk(request["root"], request["ignore"], request["hidden"], links=True, depth=depth, folders=True)
    found: dict[str, list[tuple[float, str]]] = {"files": [], "folders": []}
    totals: Counter[str] = Counter()
    skip = len(walk.root.rstrip("/")) + 1
    for entry in walk.files():
        if regex.fullmatch(entry.path, skip):
            kind = "folders" if entry.is_dir(follow_symlinks=False) else "files"
            totals[kind] += 1
            found[kind].append((-_age(entry), entry.path))
            if len(found[kind]) > 4 * most:
                found[kind] = heapq.nsmallest(most, found[kind])
    return totals, found, walk.notes


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def listing(request: dict[str, Any]) -> dict[str, Any]:
    """What there is below the root; `more` if that is more than was wanted."""
    walk = Walk(request["root"], request["ignore"], links=True, folders=True)
    skip, total = len(walk.root.rstrip("/")) + 1, 0
    for entry in walk.files(breadth_first=True):
        if total == request["most"]:
            return {"total": total, "more": True, **summary(walk.notes)}
        total += 1
        answer(found=entry.path[skip:] + "/" * entry.is_dir(follow_symlinks=False))
    return {"total": total, "more": False, **summary(walk.notes)}


def survey(request: dict[str, Any]) -> dict[str, Any]:
    """What a search below the root leaves out, without searching; ends once there is enough to say, or early."""
    walk = Walk(request["root"], request["ignore"], folders=True)
    notes, until = walk.notes, time.monotonic() + _SURVEY
    for _ in walk.files(breadth_first=True):
        late = time.monotonic() > until
        notes.kept = notes.kept or late  # nobody knows, and it is likely
        if late or (notes.kept and len(notes.ignored) > NOTED):
            break
    return summary(notes)


def summary(notes: Notes) -> dict[str, Any]:
    """The notes as plain values, each list in order and short."""
    return {**asdict(notes), "ignored": nearest(notes.ignored), "hidden": nearest(notes.hidden)}


def answer(**value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def main() -> None:
    """Reads the request, answers, and ends without a traceback whatever happens."""
    request = json.loads(sys.stdin.readline())
    faulthandler.dump_traceback_later(request["seconds"], exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
    work = {"grep": grep, "glob": glob, "list": listing, "survey": survey}[request["do"]]
    try:
        answer(end=work(request))
    except (ValueError, re.error, RecursionError, OverflowError) as error:
        answer(bad=str(error))
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(0)  # nothing is left to tidy up, and the reader waits for the end of the pipe
