"""Unified diffs of what a tool changed, made from the places it knows, so that their cost follows the change.

`difflib` compares whole files, quadratically in the worst case; here only the changed blocks are compared, and a block
too big for that counts as replaced.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CONTEXT = 3
MOST_LINES = 400
"""A longer diff is cut, which is said in its last line."""

_COMPARABLE = 400 * 400
_LINE = 500


@dataclass(frozen=True)
class Block:
    """Lines `start` to `end` (from 0, end excluded) of the old text become `lines`; lines keep their ends."""

    start: int
    end: int
    lines: Sequence[str]


@dataclass(frozen=True)
class Diff:
    """`text` is a unified diff, `places` the changed ranges of the new text (first line from 1, number of lines)."""

    text: str
    added: int
    removed: int
    places: tuple[tuple[int, int], ...]


def split(text: str) -> list[str]:
    """Lines with their ends, cut at newlines only (at carriage returns in a text that has no newline)."""
    end = "\r" if "\n" not in text else "\n"
    lines = [line + end for line in text.split(end)]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def whole(old: str, new: str) -> tuple[list[str], list[Block]]:
    """The lines of `old` and the block that turns it into `new`."""
    lines = split(old)
    return lines, [Block(0, len(lines), split(new))]


def unified(name: str, old: Sequence[str], blocks: Iterable[Block], *, created: bool = False) -> Diff:
    """The diff that `blocks` (in order, not overlapping) make of `old`."""
    changes = [change for block in blocks for change in _narrowed(old, block)]
    added = sum(len(change.lines) for change in changes)
    removed = sum(change.end - change.start for change in changes)
    places = []
    shift = 0
    for change in changes:
        places.append((change.start + shift + 1, len(change.lines)))
        shift += len(change.lines) - (change.end - change.start)
    out = [f"--- {'/dev/null' if created else f'a/{name}'}", f"+++ b/{name}"]
    for hunk in _hunks(changes):
        if len(out) > MOST_LINES:
            break
        out += _written(old, hunk, places[changes.index(hunk[0])][0])
    if len(out) > MOST_LINES:
        out = [*out[:MOST_LINES], f"… more of the diff left out: {added:,} lines added, {removed:,} removed in all"]
    return Diff("\n".join(out) if changes else "", added, removed, tuple(places))


def _narrowed(old: Sequence[str], block: Block) -> list[Block]:
    """The parts of `block` that really change something."""
    start, end, new = block.start, block.end, list(block.lines)
    first = 0
    while start < end and first < len(new) and old[start] == new[first]:
        start, first = start + 1, first + 1
    last = len(new)
    while start < end and first < last and old[end - 1] == new[last - 1]:
        end, last = end - 1, last - 1
    new = new[first:last]
    if start == end and not new:
        return []
    if (end - start) * len(new) > _COMPARABLE:
        return [Block(start, end, new)]
    matcher = difflib.SequenceMatcher(None, old[start:end], new, autojunk=False)
    return [
        Block(start + i1, start + i2, new[j1:j2]) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"
    ]


def _hunks(changes: Sequence[Block]) -> list[list[Block]]:
    hunks: list[list[Block]] = []
    for change in changes:
        if hunks and change.start - hunks[-1][-1].end <= 2 * CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return hunks


def _written(old: Sequence[str], hunk: Sequence[Block], new_line: int) -> list[str]:
    """A hunk's lines; `new_line` is where its first change stands in the new text, from 1."""
    at = max(0, hunk[0].start - CONTEXT)
    stop = min(len(old), hunk[-1].end + CONTEXT)
    first = new_line - (hunk[0].start - at)
    body: list[str] = []
    new_count = stop - at
    start = at
    for change in hunk:
        body += (_shown(" ", line) for line in old[start : change.start])
        body += (_shown("-", line) for line in old[change.start : change.end])
        body += (_shown("+", line) for line in change.lines)
        new_count += len(change.lines) - (change.end - change.start)
        start = change.end
        if len(body) > MOST_LINES:
            break
    body += (_shown(" ", line) for line in old[start:stop])
    old_range = _range(at + 1, stop - at)
    return [f"@@ -{old_range} +{_range(first, new_count)} @@", *body]


def _range(first: int, count: int) -> str:
    """A range as the format wants it: an empty one names the line before."""
    if count == 0:
        return f"{first - 1},0"
    return str(first) if count == 1 else f"{first},{count}"


def _shown(sign: str, line: str) -> str:
    text = line.rstrip("\r\n")
    if len(text) > _LINE:
        text = f"{text[:_LINE]}… [{len(text):,} characters]"
    return sign + text if line.endswith(("\n", "\r")) else f"{sign}{text}\n\\ No newline at end of file"
