"""A unified diff as a person reads it: line numbers, colour, and what within a changed line is different."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest

from .layout import Line, cut
from .text import revealed
from .values import dataclass

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)$")
_COLOURS = {"-": "red", "+": "green"}
_LONGEST = 1000  # characters of a line in which a difference is looked for
_ALIKE = 0.4  # of a pair of lines must be the same for the rest to stand out


@dataclass(frozen=True)
class Row:
    """A line of a diff: `sign` is "-", "+" or " ", "@" where a hunk begins, "f" for the name of a file, "" for a
    remark. `number` counts in the old file for "-", else in the new one."""

    sign: str
    text: str
    number: int = 0


def diff_rows(diff: str) -> list[Row]:
    """The rows of the unified diff in `diff`, which may be of several files; [] if there is none.

    What comes before the diff is left out, everything after its first line is in some row.
    """
    out: list[Row] = []
    old = new = old_left = new_left = 0
    for line in diff.split("\n"):
        sign = line[:1] or " "
        if (old_left > 0 and sign in "- ") or (new_left > 0 and sign in "+ "):
            out.append(Row(sign, line[1:], old if sign == "-" else new))
            old, old_left = (old, old_left) if sign == "+" else (old + 1, old_left - 1)
            new, new_left = (new, new_left) if sign == "-" else (new + 1, new_left - 1)
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_left, new_left = int(hunk[2] or 1), int(hunk[4] or 1)
            out.append(Row("@", hunk[5]))
        elif line.startswith(("--- ", "+++ ")):
            out.append(Row("f", line))
        elif out and line:
            out.append(Row("", line))
    return out if any(row.sign == "@" for row in out) else []


def diff_counts(diff: str) -> tuple[int, int]:
    """Lines added and removed by the unified diff in `diff`."""
    signs = [row.sign for row in diff_rows(diff)]
    return signs.count("+"), signs.count("-")


def diff_view(rows: Sequence[Row], room: int, *, whole: bool = False) -> list[Line]:
    """`rows` as lines of at most `room` columns: a longer one cut, the name of a file only if there are several.

    With `whole` nothing is left out, which is for whoever has to agree to it.
    """
    digits = len(str(max((row.number for row in rows), default=0)))
    named = whole or sum(row.sign == "f" for row in rows) > 2
    out: list[Line] = []
    begun = False  # a hunk came before, from which the next one is set apart
    for row, pieces in zip(rows, _painted(rows), strict=True):
        if row.sign == "f":
            out += cut([(row.text, "bold")], room) if named else []
            begun = False
        elif row.sign == "@":
            out += [[(f"{'⋮':>{digits}}{row.text}", "dim")]] if begun or row.text else []
            begun = True
        elif row.sign:
            line = [(row.sign, _COLOURS.get(row.sign, "")), *pieces]
            parts = list(cut(line, max(10, room - digits - (1 if whole else 2))))
            if not whole and len(parts) > 1:
                parts = [[*parts[0], ("…", "dim")]]
            margins = [(f"{row.number:>{digits}} ", "dim"), *[(" " * (digits + 1), "")] * (len(parts) - 1)]
            out += [[margin, *part] for margin, part in zip(margins, parts, strict=True)]
        else:
            out += cut([(revealed(row.text).expandtabs(4), "dim")], room)
    return out


def _painted(rows: Sequence[Row]) -> Iterator[Line]:
    """The pieces of each row; where lines were replaced by others, what differs in them stands out."""
    runs = [(sign, list(group)) for sign, group in groupby(rows, lambda row: row.sign)]
    signs = ["", *(sign for sign, _ in runs), ""]
    for at, (sign, run) in enumerate(runs):
        partner: Sequence[Row] = ()
        if sign == "-" and signs[at + 2] == "+":
            partner = runs[at + 1][1]
        elif sign == "+" and signs[at] == "-":
            partner = runs[at - 1][1]
        for row, opposite in zip_longest(run, partner[: len(run)]):
            yield _marked(row.text, opposite.text if opposite else None, _COLOURS.get(sign, ""))


def _marked(text: str, other: str | None, style: str) -> Line:
    """A changed line; what it does not share with `other` at its ends is reversed, unless that is most of it."""
    text = revealed(text.removesuffix("\r")).expandtabs(4)
    if other is None or max(len(text), len(other)) > _LONGEST:
        return [(text, style)]
    other = revealed(other.removesuffix("\r")).expandtabs(4)
    first = _shared(text, other)
    least = min(len(text), len(other)) - first
    last = min(_shared(text[::-1], other[::-1]), least)
    end = len(text) - last
    if len(text[:first].strip()) + last < _ALIKE * max(len(text.strip()), len(other.strip())):
        return [(text, style)]
    return [(text[:first], style), (text[first:end], f"{style} reverse"), (text[end:], style)]


def _shared(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    least = min(len(one), len(other))
    return next((at for at in range(least) if one[at] != other[at]), least)
