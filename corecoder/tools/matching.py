"""Where an edit belongs: the exact text first, then the few differences that models make without meaning them.

In order: the text as it is; line ends; trailing blanks; indentation, with the replacement indented like its place; and
the same again without the line numbers or the blank lines at the edges that were copied along. Every step counts only
if exactly one place fits, or if all places are wanted. A place that merely resembles the text is never edited: it is
shown, with the difference.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice

from ..errors import ToolError
from ..values import dataclass
from .diff import Span, matches
from .indent import Indents

_NUMBERED = re.compile(r" *(\d+)(?:\t|→|: ?|\| ?)(.*)", re.DOTALL)
_LISTED = 8
_COUNTED = 100  # places, after which "more than that" is all anyone needs to know
_APART = 10_000  # more places than this are replaced in one go
MOST_COMPARED = 2_000_000
"""In a text with more characters only what fits exactly is found: everything else takes too long."""
_BLANKS = " \t\r\f\v"


@dataclass(frozen=True)
class Match:
    """What to replace, in order, how many places that is, and `how` they were found: "" for exactly."""

    spans: tuple[Span, ...]
    count: int
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

    def respelled_everywhere(self, old: str, new: str) -> Span | None:
        """Replaces every `old` by `new`, as one span around all of them; None where line ends differ from place to
        place or cannot be told from what is replaced."""
        if self._returns and ("\r" in old or len(self._returns) < self.text.count("\n")):
            return None
        end = "\r\n" if self._returns else self._lone
        old, new = old.replace("\n", end), new.replace("\n", end)
        first, last = self.text.find(old), self.text.rfind(old) + len(old)
        return Span(first, last, self.text[first:last].replace(old, new))

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
    gone = there = 0
    for at, now, size in [*matches(old, new), (len(old), len(new), 0)]:
        known.update(zip(range(there, now), ends[gone:at], strict=False))
        known.update(zip(range(now, now + size), ends[at : at + size], strict=False))
        gone, there = at + size, now + size
    out: list[str] = []
    end = ends[0]
    for at, line in enumerate(new[:-1]):
        end = known.get(at, end)
        out.append(line + end)
    return "".join(out) + new[-1]


def find(source: Source, old: str, new: str, replace_all: bool) -> Match | None:
    """The place or places of `old`, None if nothing fits. Raises ToolError if more than one place does, unless that is
    what `replace_all` asks for."""
    old_plain, new_plain = source.normal(old), source.normal(new)
    match = _every(source, old_plain, new_plain) if replace_all else _single(source, old, old_plain, new_plain)
    if match or len(source.plain) > MOST_COMPARED:
        return match
    for old_lines, new_lines, how in _variants(old_plain, new_plain):
        match = _loose(source, old_lines, new_lines, how, replace_all)
        if match is not None:
            return match
    return None


def _single(source: Source, old: str, old_plain: str, new_plain: str) -> Match | None:
    places = list(islice(_occurrences(source.plain, old_plain, 1), _COUNTED + 1))
    if len(places) > 1:
        same = [at for at in places if source.text[source.real(at) : source.real(at + len(old_plain))] == old]
        places = same if len(same) == 1 else places
    if len(places) > 1:
        raise ToolError(_ambiguous(len(places), [source.line_of(at) for at in places[:_LISTED]]))
    return Match((source.span(places[0], places[0] + len(old_plain), new_plain),), 1) if places else None


def _every(source: Source, old: str, new: str) -> Match | None:
    count = source.plain.count(old)
    if not count:
        return None
    whole = source.respelled_everywhere(old, new) if count > _APART else None
    if whole is not None:
        return Match((whole,), count)
    places = _occurrences(source.plain, old, len(old))
    return Match(tuple(source.span(at, at + len(old), new) for at in places), count)


def _occurrences(text: str, wanted: str, step: int) -> Iterator[int]:
    """Where `wanted` starts; the search goes on `step` characters behind each start."""
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + step)


def _ambiguous(count: int, lines: Sequence[int], how: str = "") -> str:
    """`lines` are the first of the `count` places, which were counted up to _COUNTED and one more."""
    many = f"more than {_COUNTED}" if count > _COUNTED else str(count)
    more = f" and {'' if count > _COUNTED else f'{count - _LISTED} '}more" if count > _LISTED else ""
    return (
        f"old_string fits {many} places{how}, at lines {', '.join(map(str, lines[:_LISTED]))}{more}. Nothing was "
        "changed. Add lines around it until it is unique, or set replace_all to change every one."
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


def _loose(source: Source, old: str, new: str, how: str, replace_all: bool) -> Match | None:
    """The one place, or all of them, where whole lines agree but for trailing blanks, or else but for indentation."""
    whole = old.endswith("\n")
    wanted = (old[:-1] if whole else old).split("\n")
    if not any(line.strip() for line in wanted):
        return None
    lines = source.plain.split("\n")
    for strip, words in ((str.rstrip, "trailing blanks disregarded"), (str.strip, "indentation adjusted")):
        stripped = [strip(line, _BLANKS) for line in lines]
        places = _line_places(
            stripped, [strip(line, _BLANKS) for line in wanted], None if replace_all else _COUNTED + 1
        )
        if len(places) > 1 and not replace_all:
            raise ToolError(_ambiguous(len(places), [at + 1 for at in places], " once blanks are disregarded"))
        if places:
            if not how and all(lines[at : at + len(wanted)] == wanted for at in places):
                words = "newline at the end of the file disregarded"
            return _loose_match(source, lines, places, wanted, whole, new, how or words)
    return None


def _loose_match(
    source: Source, lines: list[str], places: Sequence[int], wanted: list[str], whole: bool, new: str, how: str
) -> Match | None:
    """The replacement of the lines at `places`, None if the indentation of one of them would be a guess."""
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    spans = []
    for at in places:
        found = lines[at : at + len(wanted)]
        indented = Indents(wanted, found, lines).apply(new)
        if indented is None:
            return None
        spans.append(_line_span(source, starts[at], starts[at + len(wanted)] - 1, whole, indented))
    return Match(tuple(spans), len(spans), how)


def _line_places(lines: list[str], wanted: list[str], most: int | None) -> list[int]:
    """The first lines of `most` places, which may overlap, or of all that do not."""
    text, block = "\n".join(["", *lines, ""]), "\n".join(["", *wanted, ""])
    found: list[int] = []
    line = last = 0
    for at in islice(_occurrences(text, block, 1 if most else len(block) - 1), most):
        line += text.count("\n", last, at)
        found.append(line)
        last = at
    return found


def _line_span(source: Source, start: int, end: int, whole: bool, new: str) -> Span:
    if whole and end < len(source.plain):
        end += 1
    elif whole and new.endswith("\n"):
        new = new[:-1]  # the file's last line has no line end, and gets none
    return source.span(start, end, new)
