"""Lines of styled text that fit a terminal: how wide a text is there, where a line may break, columns.

A line is a list of (text, style) pieces; only `Screen` knows what a style is. So one layout serves colour and its
absence, and no escape sequence is ever part of what is measured. CJK breaks between any two characters, but not before
closing punctuation; everything else between words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

Piece = tuple[str, str]
Line = list[Piece]

_WIDE = (
    "\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6"
    "\U00020000-\U0003fffd"
)
_OPENING, _CLOSING = "（「『【《〈〔", "、。，．！？；：）」』】》〉〕ー"
# Not compiled here: its classes take 6 ms, and `re` keeps what it has compiled once.
_UNIT = (
    rf"(?P<gap> +)|(?P<end>\n)|(?P<wide>[{_OPENING}]*(?![{_OPENING}{_CLOSING}])[{_WIDE}][{_CLOSING}]*)"
    rf"|(?P<word>(?:[^ \n{_WIDE}]|[{_OPENING}{_CLOSING}])+)"
)


def cells(text: str) -> int:
    """The columns that `text`, one printable line, takes in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # its tables of widths; most text is ASCII

    return cell_len(text)


def width(line: Iterable[Piece]) -> int:
    """The columns of a whole line."""
    return sum(cells(text) for text, _ in line)


def head(text: str, room: int) -> str:
    """As much of the start of `text` as fits into `room` columns."""
    if text.isascii():
        return text[:room]
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cells(text[:middle]) <= room else (low, middle - 1)
    return text[:low]


def clip(line: str, room: int) -> str:
    """`line` with its indentation, cut to `room` columns, tabs as four spaces."""
    line = line[: room * 2].expandtabs(4)
    return line if cells(line) <= room else head(line, room - 1) + "…"


def wrap(pieces: Sequence[Piece], room: int, *, fold: bool = False) -> list[Line]:
    """`pieces` as lines of at most `room` columns, broken at their newlines and between words.

    A word longer than that is cut if it must `fold`; else it stays whole, so that an address can still be copied.
    """
    room = max(room, 1)
    if sum(len(text) for text, _ in pieces) <= room and all(text.isascii() and "\n" not in text for text, _ in pieces):
        return [list(pieces)]
    lines: list[Line] = [[]]
    used, gap = 0, ("", "")
    for word, size in _words(pieces):
        first = word[0][0][0]
        if first == " ":
            gap = word[0]
            continue
        if first == "\n" or (used and used + len(gap[0]) + size > room):
            lines.append([])
            used, gap = 0, ("", "")
        if first == "\n":
            continue
        add(lines[-1], gap)
        used += len(gap[0])
        gap = ("", "")
        if fold and size > room:
            for at, part in enumerate(cut(word, room)):
                lines += [[]] if at or used else []
                lines[-1] += part
                used = width(part)
            continue
        for piece in word:
            add(lines[-1], piece)
        used += size
    return lines


def _words(pieces: Sequence[Piece]) -> Iterator[tuple[Line, int]]:
    """What must stay together and its columns, gaps and newlines by themselves; a word may be of several pieces."""
    word: Line = []
    size = 0
    before = ""
    for text, style in pieces:
        for unit in re.finditer(_UNIT, text):
            kind = unit.lastgroup or ""
            breaks = "wide" in (kind, before) and unit[0][0] not in _CLOSING
            if word and (breaks or kind in ("gap", "end")):
                yield word, size
                word, size = [], 0
            if kind in ("gap", "end"):
                yield [(unit[0], style)], 0
            else:
                word.append((unit[0], style))
                size += 2 * len(unit[0]) if kind == "wide" else cells(unit[0])
            before = kind
    if word:
        yield word, size


def cut(pieces: Sequence[Piece], room: int) -> Iterator[Line]:
    """A line in parts of at most `room` columns, cut wherever that is; at least one part."""
    part: Line = []
    left = room
    for text, style in pieces:
        while text:
            taken = head(text, left) or ("" if left < room else text[0])
            add(part, (taken, style))
            text = text[len(taken) :]
            left -= cells(taken)
            if text:
                yield part
                part, left = [], room
    yield part


def add(line: Line, piece: Piece) -> None:
    """Appends a piece that is not empty, joined to the one before where the style is the same."""
    if not piece[0]:
        return
    if line and line[-1][1] == piece[1]:
        line[-1] = (line[-1][0] + piece[0], piece[1])
    else:
        line.append(piece)
