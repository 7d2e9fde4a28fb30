"""recall: any earlier message of the session, as it was, whatever the context window has lost since."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from ..errors import ToolError
from ..text import clip_middle, plural
from ..tool import Tool, ToolContext, ToolResult

LIMIT = 24_000  # characters in one result
FOLD = 4_000  # a longer line counts as several, so that any place in it can be named
_MATCH_SHOWN = 500

_RANGE = re.compile(r"\s*(\d+)\s*(-?)\s*(\d*)\s*")


class Recall(Tool):
    name = "recall"
    description = (
        "Bring back an earlier message in full: a tool result that was snipped or cut, a prompt, pictures, a reply. "
        'The id is the number in [#17 ...], or the name in recall("...").'
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "id": {"type": ["integer", "string"], "description": "17 for #17, or the name that a cut text gives"},
            "lines": {"type": "string", "description": 'Only these lines, as in "10-40"'},
            "pattern": {
                "type": "string",
                "description": "Only lines with this text, numbered; case is ignored, a|b means either, .* anything",
            },
        },
        "required": ["id"],
    }
    read_only = True
    parallel = True

    def execute(self, id: int | str, ctx: ToolContext, lines: str = "", pattern: str = "") -> str | ToolResult:
        """The text, byte for byte where it fits in one result and nothing narrows it; then with the pictures, if the
        model takes them. Raises ToolError."""
        try:
            text = ctx.recall(_key(id))
        except KeyError:
            raise ToolError(
                f"there is no message {id}; ids are the numbers in [#17 ...] and in the notes on compacted conversation"
            ) from None
        if not lines and not pattern and len(text) <= LIMIT:
            pictures = tuple(ctx.pictures(_key(id)))
            about = f"({plural(len(pictures), 'picture')})" if pictures else "(the message is empty)"
            return ToolResult(text or about, images=pictures if ctx.sees_images else ())
        folded = _folded(text)
        first, last = _range(lines, len(folded))
        if pattern:
            return _matching(folded, first, last, pattern)
        return _page(folded, first, last, str(id))


def _key(id: int | str) -> int | str:
    name = str(id).strip().lstrip("#")
    return int(name) if name.isdecimal() else name


def _folded(text: str) -> list[str]:
    """The lines of `text`, each with its line end; a very long one in pieces."""
    pieces: list[str] = []
    for line in text.split("\n"):
        starts = range(0, max(1, len(line)), FOLD)
        pieces += [line[start : start + FOLD] for start in starts]
        pieces[-1] += "\n"
    pieces[-1] = pieces[-1][:-1]
    return pieces


def _range(lines: str, count: int) -> tuple[int, int]:
    """First and last line of "10-40", "10-" or "10", counting from 1; all of them for ""."""
    if not lines:
        return 1, count
    found = _RANGE.fullmatch(lines)
    if not found:
        raise ToolError(f'lines must look like "10-40", not {lines[:40]!r}')
    first = max(1, int(found[1]))
    last = int(found[3]) if found[3] else count if found[2] else first
    if found[3] and last < int(found[1]):
        raise ToolError(f'lines {lines} end before they begin; the first line comes first, as in "{last}-{first}"')
    if first > count:
        raise ToolError(f"the message has {count:,} lines; lines {lines} are past its end")
    return first, min(max(first, last), count)


def _page(folded: list[str], first: int, last: int, id: str) -> str:
    """Lines `first` to `last`, or as many of them as fit, and how to go on."""
    shown: list[str] = []
    size = 0
    for line in folded[first - 1 : last]:
        size += len(line)
        if size > LIMIT and shown:
            break
        shown.append(line)
    end = first + len(shown) - 1
    text = "".join(shown)
    if first == 1 and end == len(folded):
        return text
    name = id if id.isdecimal() else f'"{id}"'
    go_on = f'; recall({name}, lines="{end + 1}-{min(end + len(shown), len(folded))}") goes on' if end < last else ""
    gap = "" if text.endswith("\n") else "\n"
    return f"{text}{gap}[lines {first:,}-{end:,} of {len(folded):,}{go_on}]"


def _matching(folded: list[str], first: int, last: int, pattern: str) -> str:
    """The lines from `first` to `last` that match, with their numbers."""
    position = _finder(pattern)
    shown: list[str] = []
    size = matches = 0
    for number in range(first, last + 1):
        line = folded[number - 1].rstrip("\n")
        at = position(line.lower())
        if at < 0:
            continue
        matches += 1
        if len(line) > _MATCH_SHOWN:
            line = clip_middle(line[max(0, at - _MATCH_SHOWN // 2) :][:_MATCH_SHOWN], _MATCH_SHOWN)
        size += len(line) + 8
        if size <= LIMIT:
            shown.append(f"{number:>6}\t{line}")
    if not matches:
        return f"No line of {len(folded):,} matches {pattern!r} (plain text, a|b for either, .* for anything between)."
    cut = (
        f"\n[{matches - len(shown):,} more lines match; narrow the pattern or give lines]"
        if matches > len(shown)
        else ""
    )
    return "\n".join(shown) + cut


def _finder(pattern: str) -> Callable[[str], int]:
    """A function from a line in lower case to the place of its first match, -1 for none. An alternative without any
    text matches nothing, one of gaps alone every line.

    Only alternatives and gaps, found one after the other: a regular expression from a model can take for ever, and
    nothing in this process could stop it.
    """
    alternatives = [
        [re.sub(r"\\(.)", r"\1", part).lower() for part in alternative.strip("^$").split(".*") if part]
        for alternative in re.split(r"(?<!\\)\|", pattern)
        if alternative.strip("^$")
    ]

    def find(line: str) -> int:
        for parts in alternatives:
            start, at = -1, 0
            for part in parts:
                at = line.find(part, at)
                if at < 0:
                    break
                start = at if start < 0 else start
                at += len(part)
            else:
                return max(start, 0)
        return -1

    return find
