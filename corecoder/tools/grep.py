"""Searching file contents, with ripgrep where it is installed and with our own search where not: one answer from both.

ripgrep finds places, our own search finds lines (`ripgrep.py`, `search/`); what is counted, cut, left out and said is
decided here for both. A pattern that ripgrep's engine refuses but Python's knows is searched by our own.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ..errors import ToolError
from ..secretfiles import SecretFiles, TooMany, secret_files
from ..text import listed, one_line, plural
from ..tool import Tool, ToolContext, ToolResult
from ..values import dataclass
from . import ripgrep
from .files import locate, look, shown
from .finding import TIME_LIMIT, Answer, anyway, asking, heard, left_out, stopped
from .search.ignore import glob_regex, in_repository
from .search.pattern import Pattern, parse
from .search.walk import Offered
from .search.worker import WIDE_MARKS, Include

MOST_LINES = 200
MOST_CHARACTERS = 30_000
COUNTED = 5_000
"""Matching lines after which counting ends: "more than that" is all anyone needs to know."""


@dataclass(frozen=True)
class Question:
    """What is searched: the files below `root`, which is the real path of `top`, or `root` itself (`only`)."""

    pattern: Pattern
    top: Path
    root: str
    include: list[str]
    only: bool


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
        globs = _globs(include)
        top = locate(ctx.workspace, path or ".")
        only = not top.is_dir()
        if only and look(ctx.workspace, top) is None:
            raise ToolError(f"{shown(ctx.workspace, top)} does not exist.")
        question = Question(spelled, top, os.path.realpath(top), [] if only else globs, only)
        secrets = None if only or _is_asked_for(ctx, top, globs) else secret_files(ctx.workspace)
        rg = ripgrep.program(ctx)

        def search(ignore: bool) -> Answer:
            answer = _with_ripgrep(ctx, question, rg, ignore, self.time_limit, secrets) if rg else None
            return answer or _with_our_own(ctx, question, rg, ignore, self.time_limit, secrets)

        answer = anyway(ctx, top, search)
        answer.notes += _held_back(ctx, question, secrets)
        result = _result(ctx, question, answer)
        early = stopped(answer, self.time_limit, "Narrow it by path or include, or make the pattern simpler.")
        return replace(result, content=early + result.content)


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
    globs += [current[:-1]] if current else []  # a brace is open: what is wrong is said below
    globs = [glob.replace("**/", "", 1) if glob.startswith("**/") and glob.count("/") == 1 else glob for glob in globs]
    for glob in globs:
        try:
            glob_regex(glob)
        except ValueError as error:
            raise ToolError(f"include '{one_line(include)}' is wrong: {error}.") from None
    return [glob.removeprefix("./") for glob in globs]


def _is_asked_for(ctx: ToolContext, top: Path, globs: list[str]) -> bool:
    """Whether the call names secret files, so that somebody has allowed it."""
    secrets = secret_files(ctx.workspace)
    return any(secrets.named(os.path.join(top, glob)) for glob in [*globs, ""])


def _held_back(ctx: ToolContext, question: Question, secrets: SecretFiles | None) -> list[str]:
    """What is said of secret files below the root. All of them are named, whether they match or not, else the note
    would tell what is in them."""
    if secrets is None:
        return []
    offered, included = Offered(question.root, True), Include(question.include, question.root, str(ctx.workspace.cwd))
    try:
        found = secrets.below(question.root, hidden=False)
        names = [shown(ctx.workspace, path) for path in found if offered(path) and included(path)]
    except TooMany:
        return ["Files that may hold secrets are left out."]
    if not names:
        return []
    were = "file that may hold secrets was" if len(names) == 1 else "files that may hold secrets were"
    return [f"{len(names)} {were} left out: {listed(names, 5)}. Name one as path to search it."]


def _with_ripgrep(
    ctx: ToolContext, question: Question, rg: str, ignore: bool, limit: float, secrets: SecretFiles | None
) -> Answer | None:
    """None if ripgrep does not take the pattern, or breaks down."""
    root, only, include = question.root, question.only, question.include
    options = []
    if not ignore:
        options += ["--no-ignore"]
    elif not in_repository(root):
        options += ["--no-require-git", "--no-ignore-exclude"]
    # What looks at names only, so that ripgrep opens no other file; to it `**` does not match a newline.
    names = [glob for glob in include if "/" not in glob and "**" not in glob and not glob.startswith("!")]
    if names and len(names) == len(include):
        options += [part for glob in names for part in ("--type-add", f"wanted:{glob}")] + ["--type", "wanted"]
    # ripgrep offers hidden files of a wanted type, and its versions differ on repositories inside of other trees.
    included, offered = Include(include, root, str(ctx.workspace.cwd)), Offered(root, ignore)
    argv = [rg, *options, "-e", question.pattern.rust, "--", root]
    with nullcontext() if only else asking(ctx, limit, do="survey", root=root, ignore=ignore) as survey:
        answer = ripgrep.search(
            ctx,
            argv,
            limit,
            wanted=lambda path: included(path) and (only or offered(path)) and not (secrets and secrets.is_found(path)),
            whole=only,
            most=MOST_LINES,
            count=COUNTED + 1,
        )
        if answer and survey:
            answer.end = {**heard(survey).end, **answer.end}
    return answer


def _with_our_own(
    ctx: ToolContext, question: Question, rg: str | None, ignore: bool, limit: float, secrets: SecretFiles | None
) -> Answer:
    with asking(
        ctx,
        limit,
        do="grep",
        root=question.root,
        base=str(ctx.workspace.cwd),
        pattern=question.pattern.text,
        include=question.include,
        without=secrets.patterns if secrets else [],
        only=question.only,
        ignore=ignore,
        most=MOST_LINES,
        count=COUNTED + 1,
    ) as child:
        answer = heard(child)
    if answer.bad:
        raise ToolError(_bad_pattern(question.pattern.text, answer.bad))
    answer.notes += ["ripgrep could not do this search; Python's engine did."] if rg else []
    return answer


def _bad_pattern(pattern: str, why: str) -> str:
    hint = "" if why.endswith("not installed here") else " A \\ before a sign searches for the sign itself."
    return f"The pattern '{one_line(pattern)}' cannot be used: {why}.{hint}"


def _result(ctx: ToolContext, question: Question, answer: Answer) -> ToolResult:
    total = answer.total
    files = answer.end.get("files", len({path for path, _, _ in answer.found}))
    lines: list[str] = []
    room = MOST_CHARACTERS
    for path, number, text in answer.found:
        place = str(question.top).rstrip("/") + path[len(question.root.rstrip("/")) :]
        line = f"{shown(ctx.workspace, place)}:{number}: {text}"
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    if question.only and lines and _is_binary(question.root):
        lines = []
        count = f"{shown(ctx.workspace, question.top)} is binary; {plural(total, 'matching line')} (see grep -a)."
    elif not total:
        count = (
            f"No line matches in files like {', '.join(question.include)}." if question.include else "No line matches."
        )
    else:
        many = plural(total, "matching line")
        if total > COUNTED:
            many = f"more than {COUNTED:,} matching lines; the rest was not counted"
        count = f"The first {len(lines)} of {many}." if len(lines) < total else f"{many} in {plural(files, 'file')}."
    words = " ".join([count, *answer.notes, *left_out(ctx, question.root, answer)])
    text = "\n".join([*lines, f"[{words}]"]) if lines else words
    return ToolResult(text, data={"matches": total, "files": files})


def _is_binary(path: str) -> bool:
    """A NUL in the first buffer is what ripgrep goes by; UTF-16 has them and is text."""
    try:
        with open(path, "rb") as file:
            head = file.read(1 << 16)
    except OSError:
        return False
    return b"\0" in head and not head.startswith(WIDE_MARKS)
