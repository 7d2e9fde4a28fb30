"""The place that a failed edit most likely meant, shown as a difference, so that the next try can be right.

Linear in the file: words that the wanted text and a line share choose a few candidates, and only those are compared
letter by letter.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby

from ..text import plural
from .diff import matches

_GAP = re.compile(r"(\s*)\S")
_BLANKS = {" ": "space", "\t": "tab", "\n": "newline"}
_WORD = re.compile(r"\w+")
_CANDIDATES = 12
_LINE = 200
_LIKE = 0.55  # of 1: below it two texts only have words in common
_SHOWN = 20
_BEFORE = 2


def nearest(lines: Sequence[str], wanted: Sequence[str]) -> tuple[int, float] | None:
    """Where (index of a line) the block of lines most like `wanted` starts, and how alike it is; None if nothing is."""
    size = len(wanted)
    words = {word for line in wanted for word in _WORD.findall(line[:_LINE])}
    if not words or not lines:
        return None
    weights = [len(words.intersection(_WORD.findall(line[:_LINE]))) for line in lines]
    total = sum(weights[:size])
    scores = [(total, 0)]
    for at in range(1, max(1, len(lines) - size + 1)):
        total += weights[at + size - 1] - weights[at - 1]
        scores.append((total, at))
    scores.sort(key=lambda score: (-score[0], score[1]))
    best = max(((_likeness(lines[at : at + size], wanted), at) for _, at in scores[:_CANDIDATES]), default=(0.0, 0))
    return (best[1], best[0]) if best[0] >= _LIKE else None


def _likeness(found: Sequence[str], wanted: Sequence[str]) -> float:
    sample = list(zip(found, wanted, strict=False))[:60]
    by_line = sum(_alike(one, other) for one, other in sample) / max(len(sample), 1)
    if by_line > _LIKE:
        return by_line
    kept = matches([line.strip() for line in found], [line.strip() for line in wanted])
    return max(by_line, 2 * sum(size for _, _, size in kept) / (len(found) + len(wanted)))


def _alike(one: str, other: str) -> float:
    one, other = one.strip()[:_LINE], other.strip()[:_LINE]
    return 1.0 if one == other else difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def difference(found: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Lines of the file (-) against lines of old_string (+), then words on differences that cannot be seen."""
    pairs = zip(found, wanted, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(found), len(wanted)))
    start = max(0, same - _BEFORE)
    compared = difflib.ndiff(found[start : start + _SHOWN], wanted[start : start + _SHOWN], charjunk=None)
    out = [_clipped(line) for line in compared if not line.startswith("?")]
    rest = max(len(found), len(wanted)) - start - _SHOWN
    if start:
        out.insert(0, f"… {plural(start, 'equal line')}")
    if rest > 0:
        out.append(f"… {plural(rest, 'more line')}")
    hint = _invisible("\n".join(found), "\n".join(wanted))
    return [*out, hint] if hint else out


def _clipped(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[:_LINE]}… [{len(line) - 2:,} characters]"


def _invisible(found: str, wanted: str) -> str:
    """What differs although it looks the same: blanks, or signs that look alike."""
    if blanks := _blanks(found, wanted):
        return f"(they differ only in blanks: the file has {blanks[0]} where old_string has {blanks[1]})"
    special = sorted({char for char in found if ord(char) > 127} - set(wanted))[:4]
    if special and _folded(wanted) in _folded(found):
        named = ", ".join(f"{char} U+{ord(char):04X} {unicodedata.name(char, '').lower()}".rstrip() for char in special)
        return f"(they differ only in signs that look alike: the file has {named})"
    return ""


def _blanks(found: str, wanted: str) -> tuple[str, str] | None:
    """The first blanks in which `wanted` and (a part of) `found` differ, in words; None if more than blanks do."""
    at = "".join(found.split()).find("".join(wanted.split()))
    if at < 0:
        return None
    gaps = zip(_GAP.findall(found)[at:], _GAP.findall(wanted), strict=False)
    return next(((_named(a), _named(b)) for nth, (a, b) in enumerate(gaps) if a != b and (nth or not at)), None)


def _named(blanks: str) -> str:
    """`2 spaces`, `1 newline and 1 tab`, `1 no-break space (U+00A0)`."""
    runs = ((char, len(list(run))) for char, run in groupby(blanks))
    return " and ".join(plural(count, _BLANKS.get(char) or _sign(char)) for char, count in runs) or "none"


def _sign(char: str) -> str:
    return f"{unicodedata.name(char, 'blank').lower()} (U+{ord(char):04X})"


_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a", "'"),
        **dict.fromkeys("\u201c\u201d\u201e", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    }
)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text.translate(_ALIKE)).split())
