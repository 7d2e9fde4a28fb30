r"""One regular expression for two engines: what Rust's and Python's syntax share must find the same lines.

A pattern is read once, piece by piece, and written down for each engine. For Python every piece that could match a
line end or a byte that is not UTF-8 is narrowed, which is how ripgrep sees a line; so a whole file can be searched
at once and no match leaves its line. For Rust (ripgrep) escapes that only other engines need are taken away, such as
`\/`, `\"` or a literal `{`. Sources: the syntax chapters of Rust's `regex` crate and of Python's `re`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Unicode White_Space without line ends, which is what Rust's \s is inside a line; and what no part of a pattern may
# match: line ends, and the surrogates that stand for undecodable bytes.
_SPACE = r"\t\x0b\x0c \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_NEVER = r"\r\n\udc80-\udcff"
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\x0b\x0c ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_OUTSIDE = {
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}{_NEVER}]",
    "W": rf"[^\w{_NEVER}]",
    "D": rf"[^\d{_NEVER}]",
    "A": "^",
    "Z": "$",
    "z": "$",
}
_FOR_RUST = {"A": "^", "Z": "$", "z": "$"}
_RUST_ESCAPES = r"\.+*?()|[]{}^$-#&~"
_REPEAT = re.compile(r"\{\d+(?:,\d*)?\}")
_PROPERTY = re.compile(r"[pP](?:\{[^}]*\}|[A-Za-z])")
_BRACED = re.compile(r"[xuU]\{([0-9A-Fa-f]+)\}")
_NESTED = re.compile(r"\[\^?(?:\\.|[^\\\[\]])+\](?:\]|&&|--|~~)")
_POSIX_CLASS = re.compile(r"\[:(\^?)(\w+):\]")


@dataclass
class Pattern:
    """`python` and `rust` are the two spellings; `newline` is set if it can only match across lines, `only_rust`
    names a construct that Python does not have."""

    python: str = ""
    rust: str = ""
    newline: bool = False
    only_rust: str = ""
    _out: list[tuple[str, str]] = field(default_factory=list)


def parse(text: str) -> Pattern:
    """`text` for both engines. Never fails: what is wrong stays wrong, for the engine to explain."""
    pattern = Pattern()
    at = 0
    while at < len(text):
        at = _piece(text, at, pattern)
    pattern.python = "".join(python for python, _ in pattern._out)
    pattern.rust = "".join(rust for _, rust in pattern._out)
    return pattern


def _piece(text: str, at: int, pattern: Pattern) -> int:
    char = text[at]
    out = pattern._out
    if char == "\\" and at + 1 < len(text):
        return _escape(text, at, pattern)
    if char == "[":
        return _class(text, at, pattern)
    if char == ".":
        out.append((f"[^{_NEVER}]", "."))
    elif char == "{" and not _REPEAT.match(text, at):
        out.append((r"\{", r"\{"))
    elif char == "}" and not _closes_repeat(text, at):
        out.append((r"\}", r"\}"))
    elif text.startswith("(?<", at) and text[at + 3 : at + 4].isalpha():
        out.append(("(?P<", "(?P<"))
        return at + 3
    else:
        pattern.newline = pattern.newline or char in "\r\n"
        out.append((char, char))
    return at + 1


def _closes_repeat(text: str, at: int) -> bool:
    start = text.rfind("{", 0, at)
    return start >= 0 and _REPEAT.fullmatch(text, start, at + 1) is not None


def _escape(text: str, at: int, pattern: Pattern) -> int:
    """An escape outside of a class."""
    char = text[at + 1]
    braced = _BRACED.match(text, at + 1)
    known = _PROPERTY.match(text, at + 1)
    if braced and int(braced[1], 16) <= 0x10FFFF:
        pattern._out.append((re.escape(chr(int(braced[1], 16))), rf"\x{{{braced[1]}}}"))
        return braced.end()
    if known:
        pattern.only_rust = pattern.only_rust or f"\\{known[0]}"
        pattern._out.append((f"\\{known[0]}", f"\\{known[0]}"))
        return known.end()
    if char == " ":
        pattern._out.append((r"\x20", r"\x20"))
    elif char.isascii() and not char.isalnum() and char != "\n":
        literal = re.escape(char)
        pattern._out.append((literal, literal if char in _RUST_ESCAPES else char))
    else:
        pattern.newline = pattern.newline or char in "rn\n"
        pattern._out.append((_OUTSIDE.get(char, f"\\{char}"), _FOR_RUST.get(char, f"\\{char}")))
    return at + 2


def _class(text: str, at: int, pattern: Pattern) -> int:
    """A bracketed class; an unclosed one is passed on as it is."""
    start = at + 1
    negated = text.startswith("^", start)
    start += negated
    python, rust = [], []
    now = start
    while now < len(text) and (text[now] != "]" or now == start):
        piece, width = _member(text, now, pattern)
        python.append(piece[0])
        rust.append(piece[1])
        now += width
    if now >= len(text):
        pattern._out.append((text[at:], text[at:]))
        return len(text)
    extra = _NEVER if negated else ""
    mark = "^" if negated else ""
    pattern._out.append((f"[{mark}{extra}{''.join(python)}]", f"[{mark}{''.join(rust)}]"))
    return now + 1


def _member(text: str, at: int, pattern: Pattern) -> tuple[tuple[str, str], int]:
    char = text[at]
    posix = _POSIX_CLASS.match(text, at)
    if posix and not posix[1] and posix[2] in _POSIX:
        return (_POSIX[posix[2]], posix[0]), len(posix[0])
    if char == "[":
        # Python: a literal bracket; Rust: a class inside the class. Both agree on an escaped one.
        if posix or (_NESTED.match(text, at) and text[at - 1] in "[^&-~"):
            pattern.only_rust = pattern.only_rust or "a class inside a class"
            return (char, char), 1
        return (r"\[", r"\["), 1
    if char == "]":
        return (r"\]", r"\]"), 1
    if char != "\\" or at + 1 >= len(text):
        if text[at : at + 2] in ("&&", "--", "~~"):
            pattern.only_rust = pattern.only_rust or "set operations in classes"
        return (char, char), 1
    return _class_escape(text, at, pattern)


def _class_escape(text: str, at: int, pattern: Pattern) -> tuple[tuple[str, str], int]:
    known = _PROPERTY.match(text, at + 1)
    if known:
        pattern.only_rust = pattern.only_rust or f"\\{known[0]}"
        return (f"\\{known[0]}", f"\\{known[0]}"), 1 + len(known[0])
    char = text[at + 1]
    if char == "s":
        return (_SPACE, r"\s"), 2
    if char.isascii() and not char.isalnum():
        literal = f"\\{char}" if char in _RUST_ESCAPES else char
        return (literal, literal), 2
    return (f"\\{char}", f"\\{char}"), 2
