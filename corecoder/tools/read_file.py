"""Reading a file as numbered lines, so much at a time that a window survives it."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from typing import Any, ClassVar

from ..capture import Cleaner
from ..errors import ToolError
from ..text import plural
from ..tool import Seen, Tool, ToolContext, ToolResult, Workspace
from .files import Opened, decode, load, locate, shown, text_lines

LINES = 2000
LINE_WIDTH = 2000
MOST_CHARACTERS = 60_000
MOST_IMAGE_BYTES = 3_750_000
"""In base64 that is 5 MB, the least that the known providers take."""

_IMAGES = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF87a", "gif"), (b"GIF89a", "gif"))


class ReadFileTool(Tool):
    name: ClassVar[str] = "read_file"
    description: ClassVar[str] = (
        "Read a file as lines of number, tab, text. Long files come in parts: go on with offset. "
        "Images are shown as pictures if you can see them."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "offset": {"type": "integer", "description": "first line, from 1"},
            "limit": {"type": "integer", "description": f"number of lines, default {LINES}"},
        },
        "required": ["file_path"],
    }
    read_only: ClassVar[bool] = True
    parallel: ClassVar[bool] = True

    def execute(self, file_path: str, offset: int = 1, limit: int = LINES, *, ctx: ToolContext) -> ToolResult:
        if offset < 0 or limit < 1:
            raise ToolError("offset counts lines from 1, and limit must be at least 1.")
        workspace = ctx.workspace
        path = locate(workspace, file_path)
        opened = load(workspace, path, ctx.judged)
        if str(opened.real) in (os.path.realpath(job.log) for job in workspace.processes.jobs if job.log):
            opened = replace(opened, data=_cleaned(opened.data))
        name = shown(workspace, path)
        image = _image_type(opened.data)
        if image:
            result = _picture(opened, image, name, ctx.sees_images)
        else:
            result = _lines(opened, name, max(offset, 1), limit)
            _note(workspace, opened, *result.data["lines"])
        return result


def _cleaned(log: bytes) -> bytes:
    """What a background job printed, as a command's output is shown."""
    cleaner = Cleaner()
    return (cleaner.feed(log) + cleaner.finish()).encode()


def _note(workspace: Workspace, opened: Opened, first: int, last: int) -> None:
    """Parts that follow one another add up to what the model knows of the file."""
    seen = workspace.seen.get(opened.real)
    known = seen.lines if seen and seen.digest == opened.digest else 0
    workspace.seen[opened.real] = Seen(opened.digest, max(known, last) if first <= known + 1 else known)


def _image_type(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), "")


def _picture(opened: Opened, kind: str, name: str, sees_images: bool) -> ToolResult:
    size = f"{name} is a {kind.upper()} image of {len(opened.data):,} bytes"
    if not sees_images:
        raise ToolError(f"{size}, and this model takes no pictures. Use bash to inspect or convert it.")
    if len(opened.data) > MOST_IMAGE_BYTES:
        raise ToolError(f"{size}, too many to show (at most {MOST_IMAGE_BYTES:,}). Make it smaller with bash first.")
    url = f"data:image/{kind};base64,{base64.b64encode(opened.data).decode('ascii')}"
    return ToolResult(f"{size}, shown as a picture.", images=(url,), data=_facts(opened))


def _facts(opened: Opened, **more: Any) -> dict[str, Any]:
    return {"path": str(opened.real), "action": "read", **more}


def _lines(opened: Opened, name: str, offset: int, limit: int) -> ToolResult:
    content = decode(opened.data, name)
    if not content.text:
        return ToolResult(f"{name} is empty.", data=_facts(opened, lines=[0, 0], total=0))
    lines = text_lines(content.text)
    if offset > len(lines):
        raise ToolError(f"{name} has {plural(len(lines), 'line')}; offset {offset} is beyond its end.")
    shown_lines: list[str] = []
    room = MOST_CHARACTERS
    clipped = 0
    for number, line in enumerate(lines[offset - 1 : offset - 1 + limit], offset):
        if len(line) > LINE_WIDTH:
            clipped += 1
            line = f"{line[:LINE_WIDTH]}… [the line has {len(line):,} characters, {LINE_WIDTH:,} shown]"
        room -= len(line) + 8
        if room < 0 and shown_lines:
            break
        shown_lines.append(f"{number}\t{line}")
    last = offset + len(shown_lines) - 1
    notes = [f"encoding: {content.note}"] if content.note else []
    if clipped:
        notes.append(f"{plural(clipped, 'line')} clipped; grep shows the surroundings of a match")
    if offset > 1 or last < len(lines):
        more = f"; go on with offset {last + 1}" if last < len(lines) else ""
        notes.append(f"lines {offset} to {last} of {len(lines):,}{more}")
    text = "\n".join([*shown_lines, *([f"[{'. '.join(notes)}]"] if notes else [])])
    return ToolResult(text, data=_facts(opened, lines=[offset, last], total=len(lines)))
