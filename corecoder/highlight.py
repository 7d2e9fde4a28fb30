"""Code in colour, line by line, also while more of it is coming.

A lexer must see code from a place where it begins anew, so what was shown already is lexed again with what is new. To
keep that linear, the pieces of a long block double, until there are enough lines to drop those before an empty line
that stands in no string or comment. The price: what a cut-off piece leaves open (a comment without its end yet) may
get other colours than the whole would have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .layout import Line, add

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped] # its stubs are a package of their own

PIECE, SIZE = 40, 16_000  # lines that come out together at least, or the characters of fewer
CONTEXT = 400  # lines after which earlier ones are dropped
_MOST_CONTEXT = 10 * CONTEXT
_LONGEST = 2000  # characters of a line; longer ones are data, and some lexers are slow on them
_LANGUAGE = re.compile(r"[\w+#.-]+")
# The standard colours of the terminal, so that they fit its theme. The nearest name in a token's ancestry counts.
_STYLES = {
    "Token.Comment": "dim",
    "Token.Comment.Preproc": "yellow",
    "Token.Keyword": "magenta",
    "Token.Operator.Word": "magenta",
    "Token.Literal.String": "green",
    "Token.Literal.Number": "yellow",
    "Token.Name.Function": "cyan",
    "Token.Name.Class": "cyan",
    "Token.Name.Builtin": "cyan",
    "Token.Name.Tag": "magenta",
    "Token.Name.Decorator": "yellow",
    "Token.Name.Attribute": "cyan",
    "Token.Generic.Deleted": "red",
    "Token.Generic.Inserted": "green",
    "Token.Generic.Heading": "bold",
    "Token.Generic.Subheading": "cyan",
}


def lexer_for(info: str) -> Lexer | None:
    """The lexer of a language by what stands behind the opening of a code block; None if there is none."""
    word = _LANGUAGE.match(info.strip())
    if word is None:
        return None
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped] # only with the first block of code
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        return get_lexer_by_name(word[0].lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def highlighted(lexer: Lexer | None, lines: Sequence[str]) -> tuple[list[Line], list[bool]]:
    """`lines` as styled lines, and for each whether it ends inside a string or a comment."""
    plain: list[Line] = [[(line, "")] for line in lines]
    if lexer is None or max(map(len, lines), default=0) > _LONGEST:
        return plain, [False] * len(lines)
    code = "\n".join(lines) + "\n"
    out: list[Line] = [[]]
    inside: list[bool] = []
    for kind, value in lexer.get_tokens(code):
        style = _style(kind)
        first, *more = value.split("\n")
        add(out[-1], (first, style))
        for part in more:
            inside.append(str(kind).startswith(("Token.Literal.String", "Token.Comment", "Token.Error")))
            out.append([(part, style)] if part else [])
    same = (
        [  # a lexer that loses or changes a character does not get to colour it
            "".join(text for text, _ in line) for line in out[:-1]
        ]
        == list(lines)
    )
    return (out[:-1], inside) if same and not out[-1] else (plain, [False] * len(lines))


def _style(kind: Any) -> str:
    while kind is not None:
        if (style := _STYLES.get(str(kind))) is not None:
            return style
        kind = kind.parent
    return ""


class Code:
    """One block of code that arrives line by line."""

    def __init__(self, info: str) -> None:
        self._lexer = lexer_for(info)
        self._lines: list[str] = []  # since the place from which it is lexed
        self._done = 0
        self._size = 0  # characters that have not come out yet

    @property
    def waiting(self) -> Sequence[str]:
        """The lines that have not come out yet."""
        return self._lines[self._done :]

    def add(self, line: str) -> list[Line]:
        """Takes one line in; gives those that are to be shown now."""
        self._lines.append(line)
        self._size += len(line)
        fresh = len(self._lines) - self._done
        if self._size < SIZE and fresh < (max(PIECE, self._done) if self._lexer else PIECE):
            return []
        middle = self._done + fresh // 2
        return self._out(next((at for at in range(len(self._lines), middle, -1) if not self._lines[at - 1]), 0))

    def finish(self) -> list[Line]:
        """The lines that are left."""
        return self._out(0)

    def _out(self, upto: int) -> list[Line]:
        """The lines before `upto`, which is behind an empty line, 0 for all."""
        styled, inside = highlighted(self._lexer, self._lines)
        end = upto or len(self._lines)
        lines = styled[self._done : end]
        self._done, self._size = end, sum(map(len, self._lines[end:]))
        anew = upto and not inside[end - 1] and not "".join(self._lines[end : end + 1]).startswith(" ")
        if (end >= CONTEXT and anew) or end >= _MOST_CONTEXT or self._lexer is None:
            del self._lines[:end]
            self._done = 0
        return lines
