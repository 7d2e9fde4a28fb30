"""Unified diffs of what a tool changed, made from the places it knows, so that their cost follows the change.

`difflib` compares whole files, quadratically in the worst case; here only the changed places are compared, and one too
big for that line by line.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

from ..values import dataclass
from .files import line_end, split

CONTEXT = 3
MOST_LINES = 400
"""A longer diff is cut, which is said in its last line."""

_COMPARABLE = 2000 * 2000
_ALIKE = 1_000_000  # pairs of equal lines, which is what difflib's work follows
_LINE = 500

Change = tuple[int, int, int, int]
"""Lines i1 to i2 of the old text become lines j1 to j2 of the new one; from 0, ends excluded, as in difflib."""


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` of the file's text become `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Diff:
    """`text` is a unified diff, `places` the changed ranges of the new text (first line from 1, number of lines)."""

    text: str
    added: int
    removed: int
    places: tuple[tuple[int, int], ...]


def spliced(text: str, spans: Sequence[Span]) -> str:
    """`text` with `spans` (in order, not overlapping) replaced."""
    out: list[str] = []
    at = 0
    for span in spans:
        out += (text[at : span.start], span.text)
        at = span.end
    return "".join([*out, text[at:]])


def unified(name: str, text: str, spans: Sequence[Span], *, created: bool = False, whole: bool = False) -> Diff:
    """The diff that `spans` (in order, not overlapping, at least one) make of `text`.

    Nothing is cut if it must be `whole`.
    """
    new_text = spliced(text, spans)
    ends = line_end(text), line_end(new_text)
    start, stop = _window(text, spans, ends[0]) if ends[0] == ends[1] else (0, len(text))
    first = text.count(ends[0], 0, start)
    old, new = split(text[start:stop], ends[0]), split(new_text[start : len(new_text) - len(text) + stop], ends[1])
    within = [Span(span.start - start, span.end - start, span.text) for span in spans]
    changes = [
        change
        for region in _regions(_starts(old, ends[0]), _starts(new, ends[1]), within)
        for change in _narrowed(old, new, region)
    ]
    added = sum(j2 - j1 for _, _, j1, j2 in changes)
    removed = sum(i2 - i1 for i1, i2, _, _ in changes)
    out = [f"--- {'/dev/null' if created else f'a/{name}'}", f"+++ b/{name}"] if changes else []
    written = (line for hunk in _hunks(changes) for line in _written(old, new, hunk, None if whole else _LINE, first))
    out += written if whole else islice(written, MOST_LINES)
    if len(out) > MOST_LINES and not whole:
        out[MOST_LINES:] = [f"… more of the diff left out: {added:,} lines added, {removed:,} removed in all"]
    return Diff("\n".join(out), added, removed, tuple((first + j1 + 1, j2 - j1) for _, _, j1, j2 in changes))


def _window(text: str, spans: Sequence[Span], end: str) -> tuple[int, int]:
    """From where to where `text` is looked at: the whole lines that are changed, and those shown around them."""
    start, stop = spans[0].start, spans[-1].end
    for _ in range(CONTEXT + 1):
        start = text.rfind(end, 0, max(start, 0))
        stop = text.find(end, stop) + 1 or len(text)
    return start + 1, stop


def _starts(lines: Sequence[str], end: str) -> list[int]:
    """Where each line starts, and where one more would, which is out of reach while the last one is unfinished."""
    starts = [0, *accumulate(map(len, lines))]
    starts[-1] += bool(lines) and not lines[-1].endswith(end)
    return starts


def _regions(old_starts: Sequence[int], new_starts: Sequence[int], spans: Sequence[Span]) -> list[Change]:
    """The whole lines that `spans` touch; those of spans on one line as one."""

    def lines(starts: Sequence[int], start: int, end: int) -> tuple[int, int]:
        return bisect_right(starts, start) - 1, min(bisect_right(starts, end), len(starts) - 1)

    regions: list[Change] = []
    shift = 0
    for span in spans:
        i1, i2 = lines(old_starts, span.start, span.end)
        j1, j2 = lines(new_starts, span.start + shift, span.start + shift + len(span.text))
        shift += len(span.text) - (span.end - span.start)
        if regions and i1 < regions[-1][1]:
            i1, _, j1, _ = regions.pop()
        regions.append((i1, i2, j1, j2))
    return regions


def _narrowed(old: Sequence[str], new: Sequence[str], region: Change) -> list[Change]:
    """The parts of `region` that really change something."""
    i1, i2, j1, j2 = region
    same = matches(old[i1:i2], new[j1:j2])
    gaps = zip([(0, 0, 0), *same], [*same, (i2 - i1, j2 - j1, 0)], strict=True)
    changes = [(i1 + a + size, i1 + b, j1 + c + size, j1 + d) for (a, c, size), (b, d, _) in gaps]
    return [change for change in changes if change[0] < change[1] or change[2] < change[3]]


def matches(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int]]:
    """Stretches of lines that stay, as (index in `old`, index in `new`, length), in order.

    The ends that both share come off first. What is left is compared by difflib, if that is certain to end soon, or
    else line by line where no line is new or gone, and counts as replaced where one is.
    """
    least = min(len(old), len(new))
    head = next((at for at in range(least) if old[at] != new[at]), least)
    tail = next((at for at in range(least - head) if old[-1 - at] != new[-1 - at]), least - head)
    one, other = old[head : len(old) - tail], new[head : len(new) - tail]
    if len(one) * len(other) <= _COMPARABLE and _pairs(one, other) <= _ALIKE:
        matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
        middle = [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]
    elif len(one) == len(other):
        middle = [(at, at, 1) for at in range(len(one)) if one[at] == other[at]]
    else:
        middle = []
    blocks = [(0, 0, head), *((head + a, head + b, size) for a, b, size in middle)]
    blocks.append((len(old) - tail, len(new) - tail, tail))
    return [block for block in blocks if block[2]]


def _pairs(one: Sequence[str], other: Sequence[str]) -> int:
    counts = Counter(one)
    return sum(counts[line] for line in other)


def _hunks(changes: Sequence[Change]) -> list[list[Change]]:
    hunks: list[list[Change]] = []
    for change in changes:
        if hunks and change[0] - hunks[-1][-1][1] <= 2 * CONTEXT:
            hunks[-1].append(change)
        else:
            hunks.append([change])
    return hunks


def _written(
    old: Sequence[str], new: Sequence[str], hunk: Sequence[Change], width: int | None, first: int
) -> Iterator[str]:
    """The lines of a hunk; `first` lines of the file come before those that are given."""
    before = min(CONTEXT, hunk[0][0])
    after = min(CONTEXT, len(old) - hunk[-1][1])
    at, stop = hunk[0][0] - before, hunk[-1][1] + after
    there = first + hunk[0][2] - before, first + hunk[-1][3] + after
    yield f"@@ -{_range(first + at, first + stop)} +{_range(*there)} @@"
    for i1, i2, j1, j2 in hunk:
        yield from (_shown(" ", line, width) for line in old[at:i1])
        yield from (_shown("-", line, width) for line in old[i1:i2])
        yield from (_shown("+", line, width) for line in new[j1:j2])
        at = i2
    yield from (_shown(" ", line, width) for line in old[at:stop])


def _range(start: int, end: int) -> str:
    """A range as the format wants it: lines from 1, and an empty one names the line before."""
    if start == end:
        return f"{start},0"
    return str(end) if end - start == 1 else f"{start + 1},{end - start}"


def _shown(sign: str, line: str, width: int | None) -> str:
    text = line.rstrip("\r\n")
    if width and len(text) > width:
        text = f"{text[:width]}… [{len(text):,} characters]"
    return sign + text if line.endswith(("\n", "\r")) else f"{sign}{text}\n\\ No newline at end of file"
