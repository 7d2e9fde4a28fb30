"""Indentation of a replacement, carried over from what the model wrote to what the file has."""

from __future__ import annotations

from collections.abc import Sequence

from .diff import matches


class Indents:
    """Learns from pairs of lines, as wanted and as found, how the file indents what the model indented."""

    def __init__(self, wanted: Sequence[str], found: Sequence[str], everything: Sequence[str]) -> None:
        self._wanted = wanted
        self._found = found
        self._everything = everything
        self._pairs: dict[str, set[str]] = {}
        for one, other in zip(wanted, found, strict=True):
            if one.strip():
                self._pairs.setdefault(indent_of(one), set()).add(indent_of(other))

    def apply(self, new: str) -> str | None:
        """`new` indented like the file, None where that would be a guess.

        A line that the model took over unchanged becomes the file's line, blanks at its end included.
        """
        lines = new.split("\n")
        out: list[str | None] = [self._line(line) for line in lines]
        for at, there, size in matches(self._wanted, lines):
            out[there : there + size] = self._found[at : at + size]
        whole = [line for line in out if line is not None]
        return "\n".join(whole) if len(whole) == len(out) else None

    def _line(self, line: str) -> str | None:
        if not line.strip():
            return line
        old = indent_of(line)
        known = self._pairs.get(old)
        if known is not None:
            new = next(iter(known)) if len(known) == 1 else None
        elif all({one} == others for one, others in self._pairs.items()):
            new = old
        else:
            new = self._derived(old)
        return None if new is None else new + line[len(old) :]

    def _derived(self, old: str) -> str | None:
        """An indentation that no pair has, by what all pairs follow: a prefix more, a prefix less, or one scale."""
        pairs = [(one, other) for one, others in self._pairs.items() for other in others]
        one, other = pairs[0]
        if other.endswith(one):
            prefix = other[: len(other) - len(one)]
            if prefix and all(right == prefix + left for left, right in pairs) and self._deepens(old, other, prefix):
                return prefix + old
        if one.endswith(other):
            prefix = one[: len(one) - len(other)]
            if prefix and all(left == prefix + right for left, right in pairs):
                return old[len(prefix) :] if old.startswith(prefix) else None
        return self._scaled(old, pairs)

    def _deepens(self, old: str, other: str, prefix: str) -> bool:
        """Whether one more prefix explains the pairs better than a wider step does, for a line indented by `old`."""
        if old and other and old[-1] != other[-1]:
            return False
        known = len(self._pairs) > 1 or "" in self._pairs or "\t" in other
        return known or len(prefix) % _step(self._everything) == 0

    def _scaled(self, old: str, pairs: list[tuple[str, str]]) -> str | None:
        """By a straight line through the widths of the pairs, where each side uses one kind of blank only."""
        char = "".join(right for _, right in pairs)[:1] or _commonest(self._everything)
        if any(right.strip(char) for _, right in pairs) or len(set("".join(left for left, _ in pairs) + old)) > 1:
            return None
        points = sorted({(len(left), len(right)) for left, right in pairs})
        (x0, y0), (x1, y1) = points[0], points[-1]
        if x0 == x1:
            return self._by_unit(old, char, x0, y0)
        if any((y - y0) * (x1 - x0) != (x - x0) * (y1 - y0) for x, y in points):
            return None
        width, rest = divmod((len(old) - x0) * (y1 - y0), x1 - x0)
        return char * (y0 + width) if not rest and y0 + width >= 0 else None

    def _by_unit(self, old: str, char: str, x0: int, y0: int) -> str | None:
        """From one pair only: a step in the model's text is a step in the file."""
        theirs = min((len(old), *(len(indent_of(line)) for line in self._wanted)), key=lambda width: width or 99)
        ours = 1 if char == "\t" else _step(self._everything)
        theirs = 1 if "\t" in old else theirs
        steps, rest = divmod(len(old) - x0, theirs or 1)
        return char * (y0 + steps * ours) if not rest and y0 + steps * ours >= 0 else None


def indent_of(line: str) -> str:
    """The blanks before the first other character."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def _commonest(lines: Sequence[str]) -> str:
    tabs = sum(line.startswith("\t") for line in lines)
    spaces = sum(line.startswith("  ") for line in lines)
    return "\t" if tabs > spaces else " "


def _step(lines: Sequence[str]) -> int:
    """The narrowest indentation by spaces in the file, 4 if there is none."""
    widths = {len(indent_of(line)) for line in lines if line.startswith("  ") and line.strip()}
    return min(widths, default=4)
