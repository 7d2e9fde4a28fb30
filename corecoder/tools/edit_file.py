"""Replacing a piece of a file. The piece is found by its text alone, so an edit lands where it was meant or nowhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ..errors import ToolError
from ..text import plural
from ..tool import Seen, Tool, ToolContext, ToolResult, Workspace
from .diff import Diff, spliced, unified
from .files import Content, Opened, decode, digest, lines_from, load, locate, recoded, shown
from .matching import MOST_COMPARED, Match, Source, find
from .nearest import difference, nearest
from .saving import written

_AROUND = 1
_MOST_SHOWN = 12
_LINE = 200
_TELLING = 10  # characters from which a text is hardly there by chance


class EditFileTool(Tool):
    name: ClassVar[str] = "edit_file"
    description: ClassVar[str] = (
        "Replace old_string by new_string in a file. old_string is the file's own text without line numbers and must "
        "occur exactly once: take in enough lines around it, or set replace_all to change every occurrence."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "file_path": {"type": "string"},
            "old_string": {"type": "string"},
            "new_string": {"type": "string"},
            "replace_all": {"type": "boolean"},
        },
        "required": ["file_path", "old_string", "new_string"],
    }

    def execute(
        self, file_path: str, old_string: str, new_string: str, replace_all: bool = False, *, ctx: ToolContext
    ) -> ToolResult:
        workspace = ctx.workspace
        path = locate(workspace, file_path)
        opened, content, match, text = _planned(workspace, path, old_string, new_string, replace_all, ctx.judged)
        name = shown(workspace, path)
        content = recoded(content, name, text)
        data = content.encode(text)
        seen = workspace.seen.get(opened.real)
        stale = seen is not None and seen.digest != opened.digest
        diff = unified(name, content.text, match.spans)
        said = [_summary(name, match, diff, content.note)]
        said += ["The file had changed on disk since you last saw it; only this place was touched."] if stale else []
        result = written(ctx, path, data, opened, "edit", said, diff)
        known = seen.lines if seen and not stale else 0
        workspace.seen[opened.real] = Seen(digest(data), _known(known, diff))
        return replace(result, content="\n".join([result.content, *_excerpt(text, diff, match)]))

    def preview(self, workspace: Workspace, arguments: dict[str, Any]) -> str:
        path = locate(workspace, arguments["file_path"])
        texts = arguments["old_string"], arguments["new_string"]
        _, content, match, _ = _planned(workspace, path, *texts, arguments.get("replace_all", False))
        return unified(shown(workspace, path), content.text, match.spans, whole=True).text


def _planned(
    workspace: Workspace, path: Path, old_string: str, new_string: str, replace_all: bool, judged: Path | None = None
) -> tuple[Opened, Content, Match, str]:
    """The file as it is, its text, what of it is to be replaced, and the text that makes. Raises ToolError if nothing
    can be."""
    if not old_string:
        raise ToolError("old_string is empty. Give the text to replace; write_file creates files.")
    opened = load(workspace, path, judged)
    name = shown(workspace, path)
    content = decode(opened.data, name)
    source = Source(content.text)
    old, new = old_string.removeprefix("\ufeff"), new_string.removeprefix("\ufeff")
    match = find(source, old, new, replace_all)
    if match is None:
        raise ToolError(_not_found(name, source, source.normal(old), source.normal(new)))
    text = spliced(content.text, match.spans)
    if text == content.text:
        raise ToolError(f"The edit would change nothing in {name}. {_why_nothing(old, new)}")
    return opened, content, match, text


def _known(lines: int, diff: Diff) -> int:
    """How many lines from the top the model knows after a change, of which it knew `lines` before."""
    first, (last, count) = diff.places[0][0], diff.places[-1]
    grown = diff.added - diff.removed
    return lines + grown if last + count - 1 - grown <= lines else min(lines, first - 1)


def _summary(name: str, match: Match, diff: Diff, encoding: str) -> str:
    count = match.count
    where = f"line {diff.places[0][0]}" if count == 1 else plural(count, "place")
    how = f"; {match.how}" if match.how else ""
    kept = f"; kept as {encoding}" if encoding else ""
    return f"Edited {name} at {where} (+{diff.added} -{diff.removed}{how}{kept})."


def _excerpt(text: str, diff: Diff, match: Match) -> list[str]:
    """The first changed place as it is now, numbered; all of the change where it was not exactly what was asked for."""
    first, count = diff.places[0]
    last = first + count - 1
    if match.how:
        last = max(start + size - 1 for start, size in diff.places)
    most = 4 * _MOST_SHOWN if match.how else _MOST_SHOWN
    start = max(1, first - _AROUND)
    lines = lines_from(text, start, min(last + _AROUND - start, most) + 1)
    out = [
        f"{number}\t{line if len(line) <= _LINE else line[:_LINE] + '…'}"
        for number, line in enumerate(lines[:most], start)
    ]
    return [*out, "…"] if len(lines) > most else out


def _why_nothing(old: str, new: str) -> str:
    if old == new:
        return "old_string and new_string are the same."
    return "old_string and new_string differ only in line ends, which edit_file keeps; bash (sed -i) can change them."


def _not_found(name: str, source: Source, old: str, new: str) -> str:
    """Why the edit failed, with the nearest place."""
    said = f"old_string does not occur in {name}. Nothing was changed."
    if len(new.strip()) > _TELLING and new in source.plain:
        said += f" But new_string is there already, at line {source.line_of(source.plain.index(new))}."
    if len(source.plain) > MOST_COMPARED:
        return (
            f"{said} The file is too large to look for text that is nearly the same "
            f"(over {MOST_COMPARED:,} characters): find the place with grep and give its exact text."
        )
    lines = source.plain.split("\n")
    wanted = old.strip("\n").split("\n")
    place = nearest(lines, wanted)
    if place is None:
        return f"{said} Nothing in the file is like it: read the file again before the next try."
    first = place[0]
    found = lines[first : first + len(wanted)]
    if found == wanted:
        return said
    listed = "\n".join(difference(found, wanted))
    last = first + len(found)
    place_words = f"at line {last}" if len(found) == 1 else f"at lines {first + 1} to {last}"
    return f"{said} The nearest text is {place_words}; file (-) and old_string (+) differ:\n{listed}"
