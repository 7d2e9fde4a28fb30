"""Small pure functions on text that several layers need: what a terminal may be given, and how to shorten."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence

# Byte order marks and what they stand for; those of UTF-32 come first because they begin like those of UTF-16.
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

# ECMA-48 control functions (CSI, OSC/DCS/SOS/PM/APC strings, two-byte escapes) in 7-bit and C1 form, then every
# control character that is left except newline and tab. An unterminated string control ends at the line.
_CONTROL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
# Where `@path` may begin: not within an e-mail address, a package name or a URL. In Chinese no blank stands before it.
AT = r"(?<![A-Za-z0-9_.+\-/@:])@"
ATTACHED = "\n\n[CoreCoder: what is named with @ above, as read_file shows it]\n"
"""Stands between the words that a person typed and the files that they named."""

_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")
_SUSPECT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """`text` without control characters, escape sequences, bidirectional overrides or lone surrogates.

    Newlines and tabs stay, CR LF becomes a newline, and a lone CR too, so that nothing can overwrite a line.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if _SUSPECT.search(text):  # a tenth of the time where there is nothing to find
        text = _CONTROL.sub("", text)
    text = _BIDI.sub("", text)
    return text.encode("utf-8", "replace").decode("utf-8")


def revealed(text: str) -> str:
    """`text` with every control character but newline and tab, and all that turns the order of words around, as an
    escape (`\\x1b`): nothing of it is left out, which is for whoever has to agree to it."""
    text = _SUSPECT.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return printable(_BIDI.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def one_line(text: str, limit: int = 100) -> str:
    """`text` as one printable line of at most `limit` characters, an ellipsis marking what was cut."""
    line = " ".join(printable(text[: limit * 4]).split())
    return line if len(line) <= limit and len(text) <= limit * 4 else line[: limit - 1] + "…"


def clip_middle(text: str, limit: int, note: str = "… {dropped:,} characters left out …") -> str:
    """`text` if it has at most `limit` characters, else its head (two thirds) and tail around a note on its own line.

    `note` is a format string that is given `dropped`, the number of characters left out.
    """
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    dropped = len(text) - head - tail
    return f"{text[:head]}\n{note.format(dropped=dropped)}\n{text[len(text) - tail :]}"


def typed(prompt: str) -> str:
    """The words of `prompt` without the files that were put below them."""
    return prompt.partition(ATTACHED)[0]


def listed(names: Sequence[str], most: int) -> str:
    """The first `most` of `names`, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int, noun: str) -> str:
    """`1 line`, `3 lines`, `1,204 lines`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
