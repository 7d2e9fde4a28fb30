"""Searching with ripgrep: it is only asked where lines match, and the lines are read here.

ripgrep would print a matching line of any length whole. With `--max-columns 1` it prints no line at all, only path,
line number, column and byte offset, so that what is read and shown is bounded, and cut exactly as our own search
cuts it. The price is one read for each line that is shown.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from ..tool import ToolContext
from .child import running
from .search.worker import WIDTH, excerpt

_OPTIONS = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--null", "--max-columns=1", "--sort=path"),
    *("--line-number", "--column", "--byte-offset", "--crlf", "--no-mmap", "--no-follow"),
    "--no-ignore-global",
)
_NOTICE = re.compile(rb"(.*): (?:WARNING: stopped searching binary file|binary file matches)", re.DOTALL)
_RECORD = re.compile(rb"(\d+):(\d+):(\d+):")
_PROBLEM = re.compile(r"(?:rg: )?(.*): (.*?) \(os error \d+\)")
BINARY = 0
_BYTES = 4 * (WIDTH + 1)  # at most 4 bytes a character in UTF-8


@dataclass
class Found:
    """How a search by ripgrep went: what it could not read, and whether (and in what words) it refused the pattern."""

    bad: str = ""
    refused: bool = False
    timed_out: bool = False
    errors: list[tuple[str, str]] = field(default_factory=list)


def program(ctx: ToolContext) -> str | None:
    """ripgrep's path, None where it is not installed. One that lies in the project is not ours to run."""
    path = shutil.which("rg")
    return path if path and not ctx.workspace.contains(Path(path)) else None


def places(
    ctx: ToolContext, rg: str, pattern: str, root: str, *, options: list[str], limit: float, found: Found
) -> Generator[tuple[str, int, int, int], None, None]:
    """(path, line number, column in bytes from 1, byte offset of the line) of every matching line, in order of path.

    BINARY in the place of a line number takes back what came for that file: ripgrep gives the matches before a NUL
    byte as far as its buffer happened to reach, which is no rule to keep.
    """
    argv = [rg, *_OPTIONS, *options, "-e", pattern, "--", root]
    with running(argv, token=ctx.token, limit=limit, without=ctx.secrets) as child:
        pending = b""
        for line in child.lines():
            path, nul, rest = (pending + line).partition(b"\0")
            record = _RECORD.match(rest)
            if not nul:
                notice = _NOTICE.match(path)
                if notice:
                    yield os.fsdecode(notice[1]), BINARY, 0, 0
                pending = b"" if notice else path + b"\n"
                continue
            pending = b""
            if record:
                yield os.fsdecode(path), int(record[1]), int(record[2]), int(record[3])
    found.timed_out = child.timed_out
    if child.status == 2:
        _explain(child.errors, found)


def _explain(said: str, found: Found) -> None:
    for line in said.splitlines():
        problem = _PROBLEM.fullmatch(line)
        if problem:
            found.errors.append((problem[1], problem[2]))
    if not found.errors:
        found.refused = True
        found.bad = said.strip()


def line_at(path: str, number: int, column: int, offset: int) -> str:
    """The line, cut down around its match. Raises OSError if the file is gone."""
    with open(path, "rb") as file:
        mark = file.read(3)
        if mark[:2] in (b"\xff\xfe", b"\xfe\xff") or mark == b"\xef\xbb\xbf":
            return _marked_line(path, "utf-8-sig" if mark == b"\xef\xbb\xbf" else "utf-16", number, column)
        match = offset + column - 1
        start = max(offset, match - _BYTES)
        file.seek(start)
        before = file.read(match - start)
        after = file.read(_BYTES)
    after = after.partition(b"\n")[0]
    head = before.decode("utf-8", "replace")[-WIDTH - 1 :]
    return excerpt(head, _decoded(after)[: WIDTH + 1])


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace").removesuffix("\r")


def _marked_line(path: str, encoding: str, number: int, column: int) -> str:
    """As `line_at` for a file that ripgrep decodes before it counts: column is one of UTF-8 bytes."""
    with open(path, encoding=encoding, errors="replace", newline="\n") as file:
        line = next(islice(file, number - 1, None), "").rstrip("\n").removesuffix("\r")
    before = line.encode("utf-8", "replace")[: column - 1].decode("utf-8", "replace")
    return excerpt(before[-WIDTH - 1 :], line[len(before) :][: WIDTH + 1])
