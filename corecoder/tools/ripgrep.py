"""Searching with ripgrep: it is only asked where lines match, and the lines are read here.

ripgrep would print a matching line of any length whole. With `--max-columns 1` it prints no line at all, only path,
line number, column and byte offset, so that what is read and shown is bounded, and cut exactly as our own search
cuts it. The price is one read for each line that is shown.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from ..jobs import CancelToken
from ..tool import ToolContext
from .child import running
from .finding import Answer
from .search.worker import WIDE_MARKS, WIDTH, Binary, excerpt, pieces, text_of

_OPTIONS = (
    *("--no-config", "--color=never", "--no-heading", "--with-filename", "--null", "--max-columns=1", "--sort=path"),
    *("--line-number", "--column", "--byte-offset", "--crlf", "--no-mmap", "--no-follow"),
    "--no-ignore-global",
)
_NOTICE = re.compile(rb"(.*): (?:WARNING: stopped searching binary file|binary file matches)", re.DOTALL)
_RECORD = re.compile(rb"(\d+):(\d+):(\d+):")
_PROBLEM = re.compile(r"^(?:rg: )?(.*?)(?:: IO error for operation on \1)?: ([^:\n]*) \(os error \d+\)$", re.MULTILINE)
_BINARY = 0
Place = tuple[str, int, int, int]
"""Path, line number, column in bytes from 1, byte offset of the line."""
_BYTES = 4 * (WIDTH + 1)  # at most 4 bytes a character in UTF-8


def program(ctx: ToolContext) -> str | None:
    """ripgrep's path, None where it is not installed. One that lies in the project is not ours to run."""
    path = shutil.which("rg")
    return path if path and not ctx.workspace.contains(Path(path)) else None


def search(
    ctx: ToolContext,
    argv: Sequence[str],
    limit: float,
    *,
    wanted: Callable[[str], bool],
    whole: bool,
    most: int,
    count: int,
) -> Answer | None:
    """Runs ripgrep with `argv` (program, options, pattern, root); None if it refuses the pattern or breaks down.

    The lines of files that are `wanted`, the first `most` of them with their text, until `count` are counted; `whole`
    takes those of binary files as well. No file is searched further than `count` lines, so a NUL byte behind them is
    looked for here.
    """
    program, *rest = argv
    bounds = [f"--max-count={count}", *(["--text"] if whole else [])]
    answer = Answer()
    total = files = 0
    ended_itself = False
    with running([program, *_OPTIONS, *bounds, *rest], token=ctx.token, limit=limit, without=ctx.secrets) as child:
        for path, places in groupby(_places(child.lines()), itemgetter(0)):
            if total >= count:
                break
            if not wanted(path):
                continue
            first: list[Place] = []
            here = 0
            for place in places:
                here += 1
                if len(first) < most - len(answer.found):
                    first.append(place)
            if place[1] == _BINARY or (here >= count and not whole and _is_binary(path, ctx.token)):
                continue
            total, files = total + here, files + 1
            answer.found += _lines(path, first)
        else:
            ended_itself = True
    answer.timed_out = child.timed_out
    errors = _PROBLEM.findall(child.errors) if child.status == 2 else []
    answer.end = {"total": min(total, count), "files": files, "errors": errors}
    # "If an error occurred, then the exit status is 2. If no match, 1, and 0 otherwise" (rg(1), EXIT STATUS): any
    # other is a crash, or our own kill.
    crashed = ended_itself and not child.timed_out and child.status not in (0, 1, 2)
    return None if crashed or (child.status == 2 and not errors) else answer


def _places(lines: Iterable[bytes]) -> Iterator[Place]:
    """The place of every matching line, in order of path.

    _BINARY in the place of a line number comes last for a file whose lines do not count: ripgrep gives the matches
    before a NUL byte as far as its buffer happened to reach, which is no rule to keep.
    """
    pending = b""
    for line in lines:
        path, nul, rest = (pending + line).partition(b"\0")
        pending = b""
        if record := _RECORD.match(rest):
            yield os.fsdecode(path), int(record[1]), int(record[2]), int(record[3])
        elif notice := _NOTICE.match(path):
            yield os.fsdecode(notice[1]), _BINARY, 0, 0
        elif not nul:  # a line end in the path
            pending = path + b"\n"


def _is_binary(path: str, token: CancelToken) -> bool:
    try:
        for _ in pieces(path, whole=False):
            token.check()
    except Binary:
        return True
    except OSError:  # said when its lines are read
        return False
    return False


def _lines(path: str, places: Sequence[Place]) -> list[tuple[str, int, str]]:
    """Path, number and text of the lines at `places` of one file, each cut down around its match."""
    try:
        with open(path, "rb") as file:
            start, text = _as_searched(file)
            return [(path, number, _around(text, start + offset, column)) for _, number, column, offset in places]
    except OSError as error:
        return [(path, number, f"[could not be read again: {error.strerror}]") for _, number, _, _ in places]


def _as_searched(file: BinaryIO) -> tuple[int, BinaryIO]:
    """Where ripgrep's offsets count from, and in which bytes: those of UTF-8, behind the mark, where it decoded."""
    head = file.read(3)
    if head.startswith(WIDE_MARKS):
        return 0, io.BytesIO(text_of(head + file.read()).encode("utf-8", "replace"))
    return len(head) if head == b"\xef\xbb\xbf" else 0, file


def _around(file: BinaryIO, offset: int, column: int) -> str:
    match = offset + column - 1
    file.seek(max(offset, match - _BYTES))
    before = file.read(match - file.tell()).decode("utf-8", "replace")
    after = file.read(_BYTES).partition(b"\n")[0].decode("utf-8", "replace").removesuffix("\r")
    return excerpt(before[-WIDTH - 1 :], after[: WIDTH + 1])
