"""The child that searches: one request as a JSON line on stdin, answers as JSON lines on stdout.

Requests are objects with `do`, `root` (absolute, real), `ignore`, `seconds`, and
    grep:    `pattern`, `include` (globs), `only` (root is a file), `most` (lines shown), `count` (lines counted)
    glob:    `pattern` (relative, forward slashes), `hidden`, `folders` (nothing else is wanted), `most`
    survey:  nothing more: which entries a search would leave out, level by level, until a few are known
Answers, as they are found: `{"line": [path, number, text]}` for grep, `{"file": path}` for glob (newest first),
`{"left": path}` for survey; `{"bad": words}` for a wrong pattern; and last `{"end": {...}}` with totals and notes.

The process ends itself after `seconds`, from a timer in C that no regular expression can hold up.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from .ignore import glob_regex
from .pattern import parse
from .walk import NOTED, Notes, Walk, nearest

# Run as `python -I -S -c START <directory of this package's parent>`: nothing of the user's is imported, and the
# standard library comes first on the path.
START = f"import sys; sys.path.append(sys.argv[1]); from {__package__.rpartition('.')[2]}.worker import main; main()"

WIDTH = 400
"""A line longer than this, in characters, is shown as a part of it around the match."""

_BEFORE = 120
_META = re.compile(r"[\\.^$*+?{}\[\]()|]")
_PIECE = 1 << 22
_BUFFER = 1 << 16
_OPEN = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def command(python: str) -> list[str]:
    """The argument vector that starts this worker with the interpreter `python`."""
    here = os.path.dirname(os.path.abspath(__file__))
    return [python, "-I", "-S", "-c", START, os.path.dirname(here)]


def excerpt(before: str, after: str, cut: bool = False) -> str:
    """A line for showing, cut down around the match that starts between `before` and `after`.

    The two need be no longer than WIDTH + 1 characters each, the nearest to the match; `cut` says that more of the
    line is known to exist.
    """
    if not cut and len(before) + len(after) <= WIDTH:
        return before + after
    head = before if len(before) <= _BEFORE else "…" + before[-_BEFORE:]
    room = WIDTH - _BEFORE
    return head + (after if len(after) <= room else after[:room] + "…")


def text_of(data: bytes) -> str:
    """The text that ripgrep sees in a file: byte order marks obeyed, otherwise UTF-8, bad bytes as lone surrogates."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    return data.decode("utf-8", "surrogateescape")


def matching_lines(regex: re.Pattern[str], text: str) -> Iterator[tuple[int, int, int, int]]:
    """(newlines passed since the last one, start of line, start of match, end of line) of every line that matches."""
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
            yield text.count("\n", last, start), start, found.start(), end
            last = start
        at = end + 1


class Binary(Exception):
    """The file is not a text."""


class Grep:
    """Searches files for one pattern and writes what it finds."""

    def __init__(self, request: dict[str, Any]) -> None:
        pattern = parse(request["pattern"])
        if pattern.only_rust:
            raise ValueError(f"{pattern.only_rust} is known to ripgrep only, which is not installed here")
        warnings.simplefilter("ignore")
        self.regex = re.compile(pattern.python, re.MULTILINE)
        plain = not _META.search(request["pattern"])
        self.needle = request["pattern"].encode("utf-8", "surrogateescape") if plain else b""
        self.request = request
        self.include = Include(request["include"], request["root"], request.get("base", request["root"]))
        self.shown = self.total = self.matched_files = 0

    def run(self) -> dict[str, Any]:
        root = self.request["root"]
        notes = Notes(kept=True)
        if self.request.get("only"):
            self.search(root, notes)
        else:
            walk = Walk(root, ignore=self.request["ignore"], notes=notes)
            notes.kept = False
            for entry in walk.files():
                if not self.full and self.include(entry.path):
                    self.search(entry.path, notes)
        return {"total": self.total, "files": self.matched_files, "full": self.full, **summary(notes)}

    @property
    def full(self) -> bool:
        return self.total >= int(self.request["count"])

    def search(self, path: str, notes: Notes) -> None:
        """Searches one file, piece by piece. One with a NUL byte has no lines, unless it was named."""
        total, number = self.total, 1
        lines: list[list[Any]] = []
        try:
            for data in pieces(path, whole=bool(self.request.get("only"))):
                if not self.full and (not self.needle or self.needle in data or data[:1] >= b"\xef"):
                    self.take(path, text_of(data), number, lines)
                number += data.count(b"\n")
        except Binary:
            self.total = total
            return
        except OSError as error:
            notes.failed(path, error)
        for line in lines:
            answer(line=line)
        if lines:
            sys.stdout.flush()  # what was found counts even if the next file ends this process
        self.shown += len(lines)
        self.matched_files += self.total > total

    def take(self, path: str, text: str, number: int, lines: list[list[Any]]) -> None:
        text = text.replace("\r\n", "\n") if "\r\n" in text else text
        text = text[:-1] if text.endswith("\r") else text
        for passed, start, where, end in matching_lines(self.regex, text):
            number += passed
            self.total += 1
            if self.shown + len(lines) < self.request["most"]:
                before = text[max(start, where - WIDTH - 1) : where]
                after = text[where : min(end, where + WIDTH + 1)]
                lines.append([path, number, readable(excerpt(before, after))])
            if self.full:
                return


def readable(text: str) -> str:
    """Undecodable bytes as replacement characters, one for each run that a decoder would call one error."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def pieces(path: str, whole: bool) -> Iterator[bytes]:
    """The bytes of a file in pieces that end with a line. Raises Binary at a NUL byte, unless all is wanted."""
    fd = os.open(path, _OPEN)
    try:
        rest = b""
        first = True
        while data := os.read(fd, _BUFFER if first else _PIECE):
            short = first and len(data) < _BUFFER
            if first and data.startswith((b"\xff\xfe", b"\xfe\xff")):
                yield data + b"".join(iter(lambda: os.read(fd, _PIECE), b""))
                return
            first = False
            if not whole and b"\0" in data:
                raise Binary
            data = rest + data
            cut = len(data) if short else data.rfind(b"\n") + 1
            rest = data[cut:]
            if len(rest) > 16 * _PIECE:
                cut, rest = len(data), b""
            if cut:
                yield data[:cut]
        if rest:
            yield rest
    finally:
        os.close(fd)


class Include:
    """The `include` globs: on the name where a glob has no slash, else on the path below the root or `base`."""

    def __init__(self, globs: list[str], root: str, base: str) -> None:
        self.roots = [root.rstrip("/") + "/", base.rstrip("/") + "/"]
        self.wanted = [re.compile(glob_regex(glob)) for glob in globs if not glob.startswith("!")]
        self.unwanted = [re.compile(glob_regex(glob[1:])) for glob in globs if glob.startswith("!")]

    def __call__(self, path: str) -> bool:
        if not self.wanted and not self.unwanted:
            return True
        names = {path.rpartition("/")[2], *(path[len(root) :] for root in self.roots if path.startswith(root))}
        if any(regex.fullmatch(name) for regex in self.unwanted for name in names):
            return False
        return not self.wanted or any(regex.fullmatch(name) for regex in self.wanted for name in names)


def glob(request: dict[str, Any]) -> dict[str, Any]:
    """Files below the root whose relative path matches; where none does, directories; else files at any depth."""
    parts = request["pattern"].split("/")
    totals, found, notes = _globbed(request, glob_regex(request["pattern"]), None if "**" in parts else len(parts))
    kind = "files" if totals["files"] and not request["folders"] else "folders"
    if not any(totals.values()) and len(parts) == 1 and not request["folders"]:
        kind = "files"
        totals, found, notes = _globbed(request, "(?:[^/]+/)*" + glob_regex(parts[0]), None)
        totals["below"] = totals["files"]
    for _, path in found[kind]:
        answer(file=path)
    return {"total": totals[kind], "kind": "below" if totals.get("below") else kind, **summary(notes)}


def _globbed(
    request: dict[str, Any], glob: str, depth: int | None
) -> tuple[dict[str, int], dict[str, list[tuple[float, str]]], Notes]:
    regex = re.compile(glob, re.DOTALL)
    root, most = request["root"], request["most"]
    walk = Walk(root, request["ignore"], request["hidden"], links=True, depth=depth, folders=True)
    found: dict[str, list[tuple[float, str]]] = {"files": [], "folders": []}
    totals = {"files": 0, "folders": 0}
    skip = len(root.rstrip("/")) + 1
    for entry in walk.files():
        if not regex.fullmatch(entry.path, skip):
            continue
        kind = "folders" if entry.is_dir(follow_symlinks=False) else "files"
        totals[kind] += 1
        newest = found[kind]
        newest.append((-_age(entry), entry.path))
        if len(newest) > 4 * most:
            newest.sort()
            del newest[most:]
    return totals, {kind: sorted(entries)[:most] for kind, entries in found.items()}, walk.notes


def _age(entry: os.DirEntry[str]) -> float:
    try:
        return entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def survey(request: dict[str, Any]) -> dict[str, Any]:
    """What a search below the root leaves out, without searching; ends early once there is enough to say."""
    walk = Walk(request["root"])
    told = 0
    for _ in walk.files(breadth_first=True):
        if len(walk.notes.ignored) > NOTED:
            break
        for path in walk.notes.ignored[told:]:
            answer(left=path)
            sys.stdout.flush()
        told = len(walk.notes.ignored)
    return summary(walk.notes)


def summary(notes: Notes) -> dict[str, Any]:
    """The notes as plain values, each list in order and short."""
    return {**asdict(notes), "ignored": nearest(notes.ignored), "hidden": nearest(notes.hidden)}


def answer(**value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")


def main() -> None:
    """Reads the request, answers, and ends without a traceback whatever happens."""
    request = json.loads(sys.stdin.readline())
    if request.get("seconds"):
        faulthandler.dump_traceback_later(request["seconds"], exit=True, file=open(os.devnull, "w"))  # noqa: SIM115
    work = {"grep": lambda: Grep(request).run(), "glob": lambda: glob(request), "survey": lambda: survey(request)}
    try:
        answer(end=work[request["do"]]())
    except (ValueError, re.error, RecursionError, OverflowError) as error:
        answer(bad=str(error))
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
    os._exit(0)  # nothing is left to tidy up, and the reader waits for the end of the pipe
