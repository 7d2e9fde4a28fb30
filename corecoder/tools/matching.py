"""Where an edit belongs: the exact text first, then the few differences that models make without meaning them.

In order: the text as it is; line ends; trailing blanks; indentation, with the replacement indented like its place; and
the same again without the line numbers or the blank lines at the edges that were copied along. Every step counts only
if exactly one place fits. A place that merely resembles the text is never edited: it is shown, with the difference.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ToolError
from .diff import Span
from .indent import Indents

_NUMBERED = re.compile(r" *(\d+)(?:\t|→|: ?|\| ?)(.*)", re.DOTALL)
_LISTED = 8
_BLANKS = " \t\r\f\v"


@dataclass(frozen=True)
class Match:
    """What to replace, in order, and `how` it was found: "" for exactly."""

    spans: tuple[Span, ...]
    how: str = ""


class Source:
    """A file's text, and the same with every line end as a newline, with the way back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._returns: list[int] = []
        if "\n" not in text:
            self.plain = text.replace("\r", "\n")  # the old Macintosh line end
            self._lone = "\r" if "\r" in text else "\n"
            return
        self.plain = text.replace("\r\n", "\n")
        self._lone = "\n"
        at = text.find("\r\n")
        while at >= 0:
            self._returns.append(at - len(self._returns))
            at = text.find("\r\n", at + 2)

    def normal(self, text: str) -> str:
        """`text` with line ends as in `plain`."""
        text = text.replace("\r\n", "\n")
        return text.replace("\r", "\n") if self._lone == "\r" else text

    def real(self, at: int) -> int:
        """The position in `text` of a position in `plain`."""
        return at + bisect_left(self._returns, at)

    def line_of(self, at: int) -> int:
        """The number, from 1, of the line that holds position `at` of `plain`."""
        return self.plain.count("\n", 0, at) + 1

    def span(self, start: int, end: int, new: str) -> Span:
        """Replaces a stretch of `plain` by `new`, which gets the line ends of what it replaces."""
        real_start, real_end = self.real(start), self.real(end)
        return Span(real_start, real_end, self._respelled(self.text[real_start:real_end], new, real_start))

    def _respelled(self, old: str, new: str, at: int) -> str:
        if "\n" not in new:
            return new
        if self._lone == "\r":
            return new.replace("\n", "\r")
        if not self._returns:
            return new
        old_ends = ["\r\n" if line.endswith("\r") else "\n" for line in old.split("\n")[:-1]]
        kinds = set(old_ends) or {self._end_at(at)}
        if len(kinds) == 1:
            return new.replace("\n", kinds.pop())
        return _mixed(old.replace("\r\n", "\n").split("\n"), old_ends, new.split("\n"))

    def _end_at(self, at: int) -> str:
        """The line end of the line at `at`, of the line before if it is the last."""
        end = self.text.find("\n", at)
        end = end if end >= 0 else self.text.rfind("\n", 0, at)
        return "\r\n" if end > 0 and self.text[end - 1] == "\r" else "\n"


def _mixed(old: list[str], ends: list[str], new: list[str]) -> str:
    """Lines that stay keep their ends, a line in another's place takes that one's, a new one that of the line above."""
    known: dict[int, str] = {}
    for _, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        known.update(zip(range(j1, j2), ends[i1:i2], strict=False))
    out: list[str] = []
    end = ends[0]
    for at, line in enumerate(new[:-1]):
        end = known.get(at, end)
        out.append(line + end)
    return "".join(out) + new[-1]


def find(source: Source, old: str, new: str, replace_all: bool) -> Match | None:
    """The place or places of `old`, None if nothing fits. Raises ToolError if more than one place does."""
    old_plain, new_plain = source.normal(old), source.normal(new)
    places = _occurrences(source.plain, old_plain, overlapping=not replace_all)
    if len(places) > 1 and not replace_all:
        same = [at for at in places if source.text[source.real(at) : source.real(at + len(old_plain))] == old]
        places = same if len(same) == 1 else places
    if len(places) == 1 or (places and replace_all):
        return Match(tuple(source.span(at, at + len(old_plain), new_plain) for at in places))
    if places:
        raise ToolError(_ambiguous([source.line_of(at) for at in places]))
    for old_lines, new_lines, how in _variants(old_plain, new_plain):
        match = _loose(source, old_lines, new_lines, how)
        if match is not None:
            return match
    return None


def _occurrences(text: str, wanted: str, overlapping: bool) -> list[int]:
    found = []
    at = text.find(wanted)
    while at >= 0:
        found.append(at)
        at = text.find(wanted, at + (1 if overlapping else len(wanted)))
    return found


def _ambiguous(lines: Sequence[int], how: str = "") -> str:
    more = f" and {len(lines) - _LISTED} more" if len(lines) > _LISTED else ""
    listed = ", ".join(map(str, lines[:_LISTED])) + more
    return (
        f"old_string fits {len(lines)} places{how}, at lines {listed}. Nothing was changed. "
        "Add lines around it until it is unique, or set replace_all to change every one."
    )


def _variants(old: str, new: str) -> list[tuple[str, str, str]]:
    """(old, new, words) to try line by line, the most faithful first."""
    variants = [(old, new, "")]
    bare = _without_numbers(old)
    if bare is not None:
        bare_new = _without_numbers(new)
        variants.append((bare, new if bare_new is None else bare_new, "line numbers left off"))
    for old_text, new_text, how in tuple(variants):
        trimmed = _trimmed(old_text, new_text)
        if trimmed is not None:
            variants.append((*trimmed, how or "blank lines at its edges left off"))
    return variants


def _without_numbers(text: str) -> str | None:
    """`text` without the line numbers of read_file, None unless all its lines have them, counting up."""
    body = text.removesuffix("\n").split("\n")
    matches = [match for line in body if (match := _NUMBERED.fullmatch(line))]
    if len(matches) < len(body):
        return None
    numbers = [int(match[1]) for match in matches]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return "\n".join(match[2] for match in matches) + "\n" * text.endswith("\n")


def _trimmed(old: str, new: str) -> tuple[str, str] | None:
    """Both without the blank lines at the edges of `old`; None if it has none, or is blank altogether."""
    old_lines, new_lines = old.split("\n"), new.split("\n")
    full = [at for at, line in enumerate(old_lines) if line.strip()]
    if not full:
        return None
    head, tail = full[0], len(old_lines) - 1 - full[-1]
    if not head and tail < 2:
        return None
    for _ in range(head):
        if len(new_lines) > 1 and not new_lines[0].strip():
            del new_lines[0]
    for _ in range(tail):
        if len(new_lines) > 1 and not new_lines[-1].strip():
            del new_lines[-1]
    return "\n".join(old_lines[head : len(old_lines) - tail]), "\n".join(new_lines)


def _loose(source: Source, old: str, new: str, how: str) -> Match | None:
    """The one place where whole lines agree but for trailing blanks, or else but for indentation."""
    whole = old.endswith("\n")
    wanted = (old[:-1] if whole else old).split("\n")
    if not any(line.strip() for line in wanted):
        return None
    lines = source.plain.split("\n")
    for strip, words in ((str.rstrip, "trailing blanks disregarded"), (str.strip, "indentation adjusted")):
        places = _line_places([strip(line, _BLANKS) for line in lines], [strip(line, _BLANKS) for line in wanted])
        if len(places) > 1:
            raise ToolError(_ambiguous([at + 1 for at in places], " once blanks are disregarded"))
        if places:
            found = lines[places[0] : places[0] + len(wanted)]
            indented = Indents(wanted, found, lines).apply(new)
            if indented is None:
                return None
            words = words if found != wanted else "newline at the end of the file disregarded"
            return Match((_line_span(source, lines, places[0], len(wanted), whole, indented),), how or words)
    return None


def _line_places(lines: list[str], wanted: list[str]) -> list[int]:
    found: list[int] = []
    at = -1
    size = len(wanted)
    while True:
        try:
            at = lines.index(wanted[0], at + 1, len(lines) - size + 1)
        except ValueError:
            return found
        if lines[at : at + size] == wanted:
            found.append(at)


def _line_span(source: Source, lines: list[str], first: int, count: int, whole: bool, new: str) -> Span:
    start = sum(len(line) + 1 for line in lines[:first])
    end = start + sum(len(line) + 1 for line in lines[first : first + count]) - 1
    if whole and end < len(source.plain):
        end += 1
    elif whole and new.endswith("\n"):
        new = new[:-1]  # the file's last line has no line end, and gets none
    return source.span(start, end, new)
