"""Finding files by name, always by our own walk: it knows ages, and gives one answer on every machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

from ..errors import ToolError
from ..text import one_line
from ..tool import Tool, ToolContext, ToolResult
from .files import locate, shown
from .finding import TIME_LIMIT, Answer, anyway, asking, heard, left_out, stopped
from .search.ignore import glob_regex

MOST = 100
_WILD = re.compile(r"[*?\[{\\]")


class GlobTool(Tool):
    name: ClassVar[str] = "glob"
    description: ClassVar[str] = (
        "Find files by a pattern such as src/**/*.py, newest first. "
        "Hidden and git-ignored files are left out unless pattern or path names them."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "* ? [abc] {a,b}, and ** for any directories"},
            "path": {"type": "string", "description": "where to look, default the working directory"},
        },
        "required": ["pattern"],
    }
    read_only: ClassVar[bool] = True
    parallel: ClassVar[bool] = True

    def execute(self, pattern: str, path: str = ".", *, ctx: ToolContext) -> ToolResult:
        if not pattern.strip("/ "):
            raise ToolError("pattern is empty. **/* finds every file.")
        base, rest = _split(pattern)
        top = locate(ctx.workspace, os.path.join(path or ".", base))
        if not rest and os.path.lexists(top):
            return ToolResult(shown(ctx.workspace, top) + "/" * top.is_dir(), data={"files": 1})
        if not rest:  # the name may be right and the directory wrong
            top, rest = locate(ctx.workspace, path or "."), base.rpartition("/")[2]
        if not top.is_dir():
            what = "is not a directory" if top.exists() else "does not exist"
            raise ToolError(f"{shown(ctx.workspace, top)} {what}, so there is nothing to look through.")
        try:
            glob_regex(rest)
        except ValueError as error:
            raise ToolError(f"The pattern '{one_line(pattern)}' is wrong: {error}.") from None
        return _search(ctx, top, pattern, rest)


def _split(pattern: str) -> tuple[str, str]:
    """The leading directories that have no wildcards, which count as named, and the rest of the pattern."""
    pattern = os.path.expanduser(pattern).replace(os.sep, "/") if os.sep != "/" else os.path.expanduser(pattern)
    parts = pattern.split("/")
    count = next((at for at, part in enumerate(parts) if _WILD.search(part)), len(parts))
    base = "/".join(parts[:count])
    rest = [part for part in parts[count:] if part not in ("", ".")]
    return (base or "/" if pattern.startswith("/") else base), "/".join(rest)


def _search(ctx: ToolContext, top: Path, pattern: str, rest: str) -> ToolResult:
    root = os.path.realpath(top)
    request = {
        "do": "glob",
        "root": root,
        "pattern": rest,
        "hidden": any(part.startswith(".") for part in rest.split("/")),
        "folders": pattern.endswith("/"),
        "most": MOST,
    }

    def search(ignore: bool) -> Answer:
        with asking(ctx, TIME_LIMIT, **request, ignore=ignore) as child:
            return heard(child)

    answer = anyway(ctx, top, search)
    if answer.bad:
        raise ToolError(f"The pattern '{one_line(pattern)}' is wrong: {answer.bad}.")
    notes = []
    if answer.end.get("kind") == "below":
        notes.append(f"None directly in {shown(ctx.workspace, top)}; these are below it (**/{rest}).")
    if answer.total > len(answer.found):
        notes.append(f"The newest {len(answer.found)} of {answer.total:,}.")
    notes += [*answer.notes, *left_out(ctx, root, answer)]
    slash = "/" if answer.end.get("kind") == "folders" else ""
    places = [str(top).rstrip("/") + path[len(root.rstrip("/")) :] for path in answer.found]
    lines = [shown(ctx.workspace, place) + slash for place in places] or [f"No file matches {pattern}."]
    early = stopped(answer, TIME_LIMIT, "Look in a smaller directory.")
    text = early + "\n".join([*lines, *([f"[{' '.join(notes)}]"] if notes else [])])
    return ToolResult(text, data={"files": answer.total})
