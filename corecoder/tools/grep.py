"""Searching file contents, with ripgrep where it is installed and with our own search where not: one answer from both.

ripgrep finds places, our own search finds lines (`ripgrep.py`, `search/`); what is counted, cut, left out and said is
decided here for both. A pattern that ripgrep's engine refuses but Python's knows is searched by our own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..errors import ToolError
from ..text import plural
from ..tool import Tool, ToolContext, ToolResult
from . import ripgrep
from .files import locate, look, shown
from .finding import TIME_LIMIT, Answers, asking, left_out
from .search.ignore import glob_regex, in_repository
from .search.pattern import Pattern, parse
from .search.walk import Offered
from .search.worker import Include

MOST_LINES = 200
MOST_CHARACTERS = 30_000
COUNTED = 5_000
"""Matching lines after which counting ends: "more than that" is all anyone needs to know."""

_SURVEY_WAIT = 2.0  # seconds for the look at what was ignored, once ripgrep is done


@dataclass
class Search:
    """One question and what was found: `lines` are (path, number, text), shown as they are."""

    pattern: str
    root: str
    top: Path
    include: list[str]
    only: bool
    limit: float
    lines: list[tuple[str, int, str]] = field(default_factory=list)
    total: int = 0
    files: int = 0
    timed_out: bool = False
    notes: list[str] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        return self.total >= COUNTED


class GrepTool(Tool):
    name: ClassVar[str] = "grep"
    description: ClassVar[str] = (
        "Search file contents line by line with a regular expression, as ripgrep does. Gives path:line: text. "
        "Hidden, binary and git-ignored files are left out unless path names them."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string"},
            "path": {"type": "string", "description": "file or directory, default the working directory"},
            "include": {"type": "string", "description": "only files like this, e.g. *.py or src/**/*.{ts,tsx}"},
        },
        "required": ["pattern"],
    }
    read_only: ClassVar[bool] = True
    parallel: ClassVar[bool] = True
    time_limit: ClassVar[float] = TIME_LIMIT

    def execute(self, pattern: str, path: str = ".", include: str = "", *, ctx: ToolContext) -> ToolResult:
        spelled = parse(pattern)
        _require_possible(pattern, spelled)
        top = locate(ctx.workspace, path or ".")
        only = not top.is_dir()
        if only and look(ctx.workspace, top) is None:
            raise ToolError(f"{shown(ctx.workspace, top)} does not exist.")
        globs = _globs(include)
        search = Search(pattern, os.path.realpath(top), top, [] if only else globs, only, self.time_limit)
        rg = ripgrep.program(ctx)
        if rg is None or not _with_ripgrep(ctx, search, rg, spelled):
            _with_our_own(ctx, search, ignore=True)
            search.notes += ["ripgrep does not know this syntax; searched with Python's."] if rg else []
        if not search.total and search.end.get("ignored") and not search.end.get("kept"):
            _search_all_the_same(ctx, search, rg, spelled)
        return _result(ctx, search)


def _require_possible(pattern: str, spelled: Pattern) -> None:
    if not pattern:
        raise ToolError("pattern is empty.")
    if "\0" in pattern:
        raise ToolError("pattern has a NUL character in it.")
    if spelled.newline:
        raise ToolError("pattern asks for a line end, but lines are searched one by one. Search for one of the lines.")


def _globs(include: str) -> list[str]:
    """The patterns in `include`: parts between commas or blanks, outside of braces."""
    globs: list[str] = []
    depth = 0
    current = ""
    for char in include + ",":
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char in ", " and depth <= 0:
            globs += [current] if current else []
            current = ""
        else:
            current += char
    globs = [glob.replace("**/", "", 1) if glob.startswith("**/") and glob.count("/") == 1 else glob for glob in globs]
    for glob in globs:
        try:
            glob_regex(glob)
        except ValueError as error:
            raise ToolError(f"include {include!r} is wrong: {error}.") from None
    return [glob.removeprefix("./") for glob in globs]


def _with_ripgrep(ctx: ToolContext, search: Search, rg: str, spelled: Pattern, *, ignore: bool = True) -> bool:
    """Fills `search`; false if ripgrep does not take the pattern."""
    options = ["--text"] if search.only else []
    if not ignore:
        options += ["--no-ignore"]
    elif not in_repository(search.root):
        options += ["--no-require-git", "--no-ignore-exclude"]
    names = [glob for glob in search.include if "/" not in glob and not glob.startswith("!")]
    if names and len(names) == len(search.include):
        options += [part for glob in names for part in ("--type-add", f"wanted:{glob}")] + ["--type", "wanted"]
    found = ripgrep.Found()
    with ExitStack() as stack:
        survey: Answers | None = None
        if not search.only and ignore:
            survey = stack.enter_context(asking(ctx, search.limit, do="survey", root=search.root))
        places = ripgrep.places(ctx, rg, spelled.rust, search.root, options=options, limit=search.limit, found=found)
        with closing(places):
            _take(ctx, search, places, ignore)
        if found.refused:
            return False
        if survey is not None:
            search.end = _surveyed(survey)
    search.timed_out = found.timed_out
    search.end["errors"] = found.errors
    return True


def _take(ctx: ToolContext, search: Search, places: Iterable[tuple[str, int, int, int]], ignore: bool) -> None:
    wanted = Include(search.include, search.root, str(ctx.workspace.cwd))
    # ripgrep offers hidden files of a wanted type, and its versions differ on repositories inside of other trees.
    kept = Offered(search.root, ignore)
    last, offered, here = "", False, 0
    for path, number, column, offset in places:
        if path != last:
            if search.full:
                break
            last, here = path, 0
            offered = wanted(path) and (search.only or kept(path))
            search.files += offered
        if not offered:
            continue
        if number == ripgrep.BINARY:
            search.total -= here
            search.files -= 1
            search.lines = [line for line in search.lines if line[0] != path]
            continue
        if search.full:  # counted enough, but the file may yet turn out to be binary
            continue
        here += 1
        search.total += 1
        if len(search.lines) < MOST_LINES:
            search.lines.append((path, number, _line(path, number, column, offset)))


def _line(path: str, number: int, column: int, offset: int) -> str:
    try:
        return ripgrep.line_at(path, number, column, offset)
    except OSError as error:
        return f"[could not be read again: {error.strerror}]"


def _surveyed(survey: Answers) -> dict[str, Any]:
    survey.child.within(_SURVEY_WAIT)
    left = [answer["left"] for answer in survey if "left" in answer]
    return dict(survey.end) or {"ignored": left, "kept": True}


def _with_our_own(ctx: ToolContext, search: Search, *, ignore: bool) -> None:
    request = {
        "do": "grep",
        "root": search.root,
        "base": str(ctx.workspace.cwd),
        "pattern": search.pattern,
        "include": search.include,
        "only": search.only,
        "ignore": ignore,
        "most": MOST_LINES,
        "count": COUNTED,
    }
    with asking(ctx, search.limit, **request) as answers:
        for answer in answers:
            if "line" in answer:
                path, number, text = answer["line"]
                search.lines.append((path, number, text))
        if answers.bad:
            raise ToolError(_bad_pattern(search.pattern, answers.bad))
    search.end = answers.end
    search.timed_out = not answers.end
    search.total = answers.end.get("total", len(search.lines))
    search.files = answers.end.get("files", len({path for path, _, _ in search.lines}))


def _bad_pattern(pattern: str, why: str) -> str:
    if why.endswith("not installed here"):
        return f"The pattern {pattern!r} cannot be used: {why}."
    return f"The pattern {pattern!r} cannot be used: {why}. A \\ before a sign searches for the sign itself."


def _search_all_the_same(ctx: ToolContext, search: Search, rg: str | None, spelled: Pattern) -> None:
    """Everything below a path that was named is ignored: then the path counts, not the rules."""
    if rg is None or not _with_ripgrep(ctx, search, rg, spelled, ignore=False):
        _with_our_own(ctx, search, ignore=False)
    search.end = {"errors": search.end.get("errors", ())}
    name = shown(ctx.workspace, search.top)
    search.notes.append(f"Everything in {name} is ignored by rules; it was searched all the same.")


def _result(ctx: ToolContext, search: Search) -> ToolResult:
    prefix = len(search.root.rstrip("/"))
    lines: list[str] = []
    room = MOST_CHARACTERS
    for path, number, text in search.lines:
        line = f"{shown(ctx.workspace, str(search.top).rstrip('/') + path[prefix:])}:{number}: {text}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    if search.only and lines and _is_binary(search.root):
        lines = []
        notes = [
            f"{shown(ctx.workspace, search.top)} is binary; {plural(search.total, 'matching line')} (see grep -a)."
        ]
    else:
        notes = [_count(search, len(lines)), *search.notes]
    if search.timed_out:
        notes.append(f"Stopped after {search.limit:g} s; narrow it by path or include, or make the pattern simpler.")
    notes += left_out(ctx, search.root, search.end, found=bool(lines))
    text = "\n".join([*lines, f"[{' '.join(notes)}]"] if lines else [" ".join(notes)])
    return ToolResult(text, data={"matches": search.total, "files": search.files})


def _is_binary(path: str) -> bool:
    """A NUL in the first buffer is what ripgrep goes by; UTF-16 has them and is text."""
    try:
        with open(path, "rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return False
    return b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))


def _count(search: Search, lines: int) -> str:
    if not search.total:
        only = f" in files like {', '.join(search.include)}" if search.include else ""
        return f"No line matches{only}."
    many = f"more than {COUNTED:,} matching lines" if search.full else plural(search.total, "matching line")
    if lines < search.total:
        return f"The first {lines} of {many}."
    return f"{many} in {plural(search.files, 'file')}."
