r"""One regular expression for two engines: what Rust's and Python's syntax share must find the same lines.

A pattern is read once, piece by piece, and written down for each engine. For Python every piece that could match a
line end or a byte that is not UTF-8 is narrowed, which is how ripgrep sees a line; so a whole file can be searched
at once and no match leaves its line. For Rust (ripgrep) escapes that only other engines need are taken away, such as
`\/`, `\"` or a literal `{`. Sources: the syntax chapters of Rust's `regex` crate and of Python's `re`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
_NEWLINE = "a line end"
_ESCAPE = r"\\(?P<property>[pP](?:\{[^}]*\}|[A-Za-z]))|\\(?P<escape>.)|(?P<char>.)"
_PIECE = re.compile(
    r"\\[xuU]\{(?P<hex>0*(?:10|[0-9A-Fa-f])?[0-9A-Fa-f]{1,4})\}|(?P<repeat>\{\d+(?:,\d*)?\})"
    r"|(?P<name>\(\?<(?=[^\W\d_]))|(?P<off>\(\?[a-zA-Z]*-[a-zA-Z]+\))|" + _ESCAPE,
    re.DOTALL,
)
_MEMBER = re.compile(r"(?P<posix>\[:\^?\w+:\])|" + _ESCAPE, re.DOTALL)
_NESTED = re.compile(r"(?<=[\[^&~-])\[\^?(?:\\.|[^\\\[\]])+\](?:\]|&&|--|~~)")

# How a piece is written for Python and for Rust, and what is special about it: _NEWLINE, or what only Rust knows.
_Spelled = tuple[str, str, str]


@dataclass(frozen=True)
class Pattern:
    """`text` in its two spellings; `newline` is set if it can only match across lines, `only_rust` names a construct
    that Python does not have."""

    text: str
    python: str
    rust: str
    newline: bool
    only_rust: str


def parse(text: str) -> Pattern:
    """`text` for both engines. Never fails: what is wrong stays wrong, for the engine to explain."""
    pieces: list[_Spelled] = []
    at = 0
    repeated = False
    while token := _PIECE.match(text, at):
        at = token.end()
        repeats = token.lastgroup == "repeat" or token[0] in ("*", "+", "?")
        if token[0] == "[":
            at = _class(text, at, pieces)
        elif repeated and repeats and token[0] not in ("+", "?"):
            pieces.append((token[0], token[0], "a repeat of a repeat"))
        else:
            pieces.append(_piece(token))
        repeated = repeats
    notes = [note for _, _, note in pieces if note]
    return Pattern(
        text,
        python="".join(python for python, _, _ in pieces),
        rust="".join(rust for _, rust, _ in pieces),
        newline=_NEWLINE in notes,
        only_rust=next((note for note in notes if note != _NEWLINE), ""),
    )


def _piece(token: re.Match[str]) -> _Spelled:
    """A piece outside of classes."""
    kind, text = token.lastgroup, token[0]
    if kind == "hex":
        return re.escape(chr(int(token["hex"], 16))), rf"\x{{{token['hex']}}}", ""
    if kind == "name":
        return "(?P<", "(?P<", ""
    if kind == "property":
        return text, text, text
    if kind == "off":
        return text, text, "a flag that is turned off"
    if kind == "escape":
        return _escape(text[1])
    if text == ".":
        return f"[^{_NEVER}]", ".", ""
    if text in "{}":
        return f"\\{text}", f"\\{text}", ""
    return text, text, _NEWLINE if text in "\r\n" else ""


def _escape(char: str) -> _Spelled:
    if char == " ":
        return r"\x20", r"\x20", ""
    if char.isascii() and not char.isalnum() and char != "\n":
        literal = re.escape(char)
        return literal, literal if char in _RUST_ESCAPES else char, ""
    whole = f"\\{char}"
    return _OUTSIDE.get(char, whole), _FOR_RUST.get(char, whole), _NEWLINE if char in "rn\n" else ""


def _class(text: str, start: int, pieces: list[_Spelled]) -> int:
    """Adds the class whose bracket stands before `start`, and gives its end; an unclosed one is passed on as it is."""
    negated = text.startswith("^", start)
    first = now = start + negated
    members: list[_Spelled] = []
    while (token := _MEMBER.match(text, now)) and (token[0] != "]" or now == first):
        members.append(_member(token, text))
        now = now + 1 if members[-1][0] == "[" else token.end()
    if not token:
        pieces.append((text[start - 1 :], text[start - 1 :], ""))
        return len(text)
    python = "".join(python for python, _, _ in members)
    rust = "".join(rust for _, rust, _ in members)
    note = next((note for _, _, note in members if note), "")
    pieces.append((f"[^{_NEVER}{python}]", f"[^{rust}]", note) if negated else (f"[{python}]", f"[{rust}]", note))
    return token.end()


def _member(token: re.Match[str], text: str) -> _Spelled:
    kind, whole = token.lastgroup, token[0]
    if kind == "posix" and whole[2:-2] in _POSIX:
        return _POSIX[whole[2:-2]], whole, ""
    if kind == "posix" or _NESTED.match(text, token.start()):
        return "[", "[", "a class inside a class"
    if kind == "property":
        return whole, whole, whole
    if kind == "char" and whole in "[]":  # Python: a literal bracket; Rust: a class inside the class. Not if escaped
        return f"\\{whole}", f"\\{whole}", ""
    if kind == "char":
        operator = text[token.start() : token.start() + 2] in ("&&", "--", "~~")
        return whole, whole, "set operations in classes" if operator else ""
    char = whole[1]
    if char == "s":
        return _SPACE, whole, ""
    literal = char.isascii() and not char.isalnum() and char not in _RUST_ESCAPES
    return (char, char, "") if literal else (whole, whole, "")
