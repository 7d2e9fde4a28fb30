"""The place that a failed edit most likely meant, shown as a difference, so that the next try can be right.

Linear in the file: words that the wanted text and a line share choose a few candidates, and only those are compared
letter by letter.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_CANDIDATES = 12
_LINE = 200
_LIKE = 0.55  # of 1: below it two texts only have words in common
_SHOWN = 40


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
    same = difflib.SequenceMatcher(None, [line.strip() for line in found], [line.strip() for line in wanted])
    return max(by_line, same.ratio())


def _alike(one: str, other: str) -> float:
    one, other = one.strip()[:_LINE], other.strip()[:_LINE]
    return 1.0 if one == other else difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def difference(found: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Lines of the file (-) against lines of old_string (+), then words on differences that cannot be seen."""
    out = [
        _clipped(line) for line in difflib.ndiff(list(found), list(wanted), charjunk=None) if not line.startswith("?")
    ]
    if len(out) > _SHOWN:
        out = [*out[:_SHOWN], f"… {len(out) - _SHOWN} more lines"]
    hint = _invisible("\n".join(found), "\n".join(wanted))
    return [*out, hint] if hint else out


def _clipped(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[:_LINE]}… [{len(line) - 2:,} characters]"


def _invisible(found: str, wanted: str) -> str:
    """What differs although it looks the same: blanks, or signs that look alike."""
    if "".join(found.split()) == "".join(wanted.split()):
        return f"(they differ only in blanks: the file has {_blanks(found)}, old_string {_blanks(wanted)})"
    special = sorted({char for char in found if ord(char) > 127} - set(wanted))[:4]
    if special and _folded(found) == _folded(wanted):
        named = ", ".join(f"{char} U+{ord(char):04X} {unicodedata.name(char, '').lower()}".rstrip() for char in special)
        return f"(they differ only in signs that look alike: the file has {named})"
    return ""


def _blanks(text: str) -> str:
    tabs = any(line.startswith("\t") for line in text.split("\n"))
    spaces = any(line.startswith(" ") for line in text.split("\n"))
    indents = {(True, True): "tabs and spaces", (True, False): "tabs", (False, True): "spaces"}.get((tabs, spaces))
    return f"{indents or 'no'} indentation"


_ALIKE = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a", "'"),
        **dict.fromkeys("\u201c\u201d\u201e", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
    }
)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text.translate(_ALIKE)).split())
