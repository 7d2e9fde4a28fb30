"""Writing a whole file. What is there already is replaced only if the model has seen it as it is now."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from ..errors import ToolError
from ..text import plural
from ..tool import Seen, Tool, ToolContext, ToolResult, Workspace
from .diff import Span, unified
from .files import Content, Opened, decode, digest, load, locate, look, recoded, shown, split
from .saving import written


class WriteFileTool(Tool):
    name: ClassVar[str] = "write_file"
    description: ClassVar[str] = (
        "Create a file with its parent directories, or replace the whole content of one that you have read. "
        "To change parts of a file use edit_file."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["file_path", "content"],
    }

    def execute(self, file_path: str, content: str, *, ctx: ToolContext) -> ToolResult:
        workspace = ctx.workspace
        path = _file(workspace, file_path)
        name = shown(workspace, path)
        old, before, text = _planned(workspace, path, content, ctx.judged)
        data = before.encode(text)
        if old and data == old.data:
            return ToolResult(f"{name} has this content already; nothing was written.")
        diff = unified(name, before.text, _all_of(before, text), created=old is None)
        what = f"Replaced {name}" if old else f"Created {name}"
        kept = f", {before.note}" if before.note else ""
        lines = f"{plural(len(split(text)), 'line')}{kept}"
        said = [f"{what} ({lines}; +{diff.added} -{diff.removed})." if old else f"{what} ({lines})."]
        result = written(ctx, path, data, old, "write", said, diff)
        workspace.seen[Path(result.data["path"])] = Seen(digest(data), len(split(text)))
        return result

    def preview(self, workspace: Workspace, arguments: dict[str, Any]) -> str:
        path = _file(workspace, arguments["file_path"])
        old, before, text = _planned(workspace, path, arguments["content"])
        name = shown(workspace, path)
        return unified(name, before.text, _all_of(before, text), created=old is None, whole=True).text


def _file(workspace: Workspace, file_path: str) -> Path:
    path = locate(workspace, file_path)
    if file_path.endswith(("/", os.sep)) and not path.exists():
        raise ToolError(f"{file_path} names a directory. Nothing was written. Give the name of a file in it.")
    return path


def _planned(
    workspace: Workspace, path: Path, content: str, judged: Path | None = None
) -> tuple[Opened | None, Content, str]:
    """The file that is there, its text, and the text that is to be. Raises ToolError if it must not be replaced."""
    name = shown(workspace, path)
    old = load(workspace, path, judged) if look(workspace, path) else None
    before = decode(old.data, name) if old else Content("")
    if old and old.data:
        _require_known(workspace, old, len(split(before.text)), name)
    text = _with_line_ends_of(before.text, content)
    return old, recoded(before, name, text), text


def _all_of(before: Content, text: str) -> list[Span]:
    return [Span(0, len(before.text), text)]


def _require_known(workspace: Workspace, old: Opened, lines: int, name: str) -> None:
    """Raises ToolError if the model has not seen all `lines` of the file that is to be replaced, as they are now."""
    seen = workspace.seen.get(old.real)
    if seen is None:
        raise ToolError(
            f"{name} exists and you have not read it in this session. Nothing was written. "
            "Read it first, or change parts of it with edit_file."
        )
    if seen.digest != old.digest:
        raise ToolError(f"{name} has changed on disk since you last read it. Nothing was written. Read it again first.")
    if seen.lines < lines:
        raise ToolError(
            f"You have not read all of {name}: it has {plural(lines, 'line')}. Nothing was written. "
            f"Read on with offset {seen.lines + 1}, or change parts of it with edit_file."
        )


def _with_line_ends_of(old: str, new: str) -> str:
    """`new` with the line ends of `old`, where all of them are CR LF and `new` has none of its own."""
    every = old.count("\n")
    if every and old.count("\r\n") == every and "\r" not in new:
        return new.replace("\n", "\r\n")
    return new
