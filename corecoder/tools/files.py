"""Files as bytes that must survive: what may be opened, and how text is decoded and encoded again.

A file is decoded only if encoding it again gives the same bytes, so an edit can change nothing but what it replaces.
UTF-8, UTF-16 and UTF-32 with a byte order mark are known for certain, as is what a Python file declares; of the older
encodings GBK and Latin-1 are guessed, which is said, and is harmless to every byte that is not replaced. How files are
written is in `saving.py`.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from ..errors import ToolError
from ..folder import held
from ..text import MARKS, printable
from ..tool import Workspace
from ..values import dataclass

MOST_BYTES = 20_000_000
"""Larger files are neither read nor edited here."""

_CODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*([-_.a-zA-Z0-9]+)")
_DECLARING = 1000  # characters in which the first two lines are looked for

_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_MAGIC = (
    (b"\x7fELF", "an ELF program"),
    (b"%PDF", "a PDF"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"SQLite format 3", "an SQLite database"),
)


@dataclass(frozen=True)
class Content:
    """A file's text without its byte order mark, and what is needed to write it back; line ends are as in the file."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    guessed: bool = False

    def encode(self, text: str) -> bytes:
        """`text` in this file's encoding, mark included. Raises ToolError with the character that does not fit."""
        if "\0" in text:
            place = text.count("\n", 0, text.index("\0")) + 1
            raise ToolError(
                f"The new text has a NUL character (line {place}), which would make the file binary. Nothing was "
                "written. Write it as an escape, such as \\0."
            )
        try:
            return self.mark + text.encode(self.encoding)
        except UnicodeEncodeError as error:
            char = text[error.start]
            place = text.count("\n", 0, error.start) + 1
            raise ToolError(
                f"The file is {self.encoding}, which has no {char!r} (U+{ord(char):04X}, line {place} of the new "
                "text). Nothing was written. Use other characters, or convert the file first (bash: iconv)."
            ) from None

    @property
    def note(self) -> str:
        """A word on the encoding where it is not plain UTF-8."""
        if self.encoding == "utf-8":
            return ""
        return f"{self.encoding}, guessed" if self.guessed else self.encoding


Stamp = tuple[int, int, int, int]
"""mtime_ns, size, ctime_ns, inode: what tells one state of a file from the next without reading it."""


@dataclass(frozen=True)
class Opened:
    """The bytes of a regular file and its stamp when it was opened; `real` is free of links."""

    real: Path
    data: bytes
    stamp: Stamp

    @property
    def digest(self) -> bytes:
        return digest(self.data)


def shown(workspace: Workspace, path: Path | str) -> str:
    """`path` as the model should write it: relative to the shell's directory where it lies below, and printable."""
    path = Path(path)
    text = str(path.relative_to(workspace.cwd)) if path.is_relative_to(workspace.cwd) else str(path)
    if text.isprintable():
        return text
    text = os.fsencode(text).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def locate(workspace: Workspace, path: str) -> Path:
    """The absolute path that the model means. Raises ToolError if it cannot be one."""
    if not path.strip():
        raise ToolError("The path is empty.")
    if "\0" in path:
        raise ToolError("The path has a NUL character in it.")
    return workspace.resolve(path)


def look(workspace: Workspace, path: Path) -> os.stat_result | None:
    """The stat of the regular file at `path`, None if nothing is there. Raises ToolError for whatever else it is."""
    with explained(workspace, path):
        try:
            info = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            above = next(parent for parent in path.parents if parent.exists())
            if above.is_dir():
                return None
            raise ToolError(f"{shown(workspace, above)} is a file, not a directory.") from None
    for test, kind in _KINDS:
        if test(info.st_mode):
            raise ToolError(f"{shown(workspace, path)} is {kind}, not a file.{_inside(path, kind)}")
    return info


def load(workspace: Workspace, path: Path, judged: Path | None = None) -> Opened:
    """Reads a whole regular file, `judged` being its real path if it must be that one. Raises ToolError in words for
    everything that cannot be read that way."""
    info = look(workspace, path)
    if info is None:
        raise ToolError(_missing(workspace, path))
    if info.st_size > MOST_BYTES:
        raise ToolError(
            f"{shown(workspace, path)} has {info.st_size:,} bytes, too many for this tool (at most {MOST_BYTES:,}). "
            "Find the place with grep, and see lines of it with bash: sed -n '1000,1100p'."
        )
    with explained(workspace, path):
        real = Path(os.path.realpath(path))
        require_judged(workspace, path, real, judged)
        # Without blocking, should a pipe have taken the file's place since it was looked at.
        with held(real.parent) as folder, open(folder.open(real.name, os.O_RDONLY | _NONBLOCK), "rb") as file:
            now = os.fstat(file.fileno())
            return Opened(real, file.read(MOST_BYTES), stamp(now))


def require_judged(workspace: Workspace, path: Path, real: Path, judged: Path | None) -> None:
    """Raises ToolError if `path` leads elsewhere than it did when the call was judged."""
    if judged not in (None, real):
        raise ToolError(f"{shown(workspace, path)} leads elsewhere than a moment ago. Nothing was done; look again.")


def stamp(info: os.stat_result) -> Stamp:
    return info.st_mtime_ns, info.st_size, info.st_ctime_ns, info.st_ino


def digest(data: bytes) -> bytes:
    """What tells one content of a file from another."""
    return hashlib.blake2b(data, digest_size=16).digest()


def decode(data: bytes, name: str) -> Content:
    """The text in `data`. Raises ToolError for what is binary or would not survive being written back."""
    for mark, encoding in MARKS:
        if data.startswith(mark):
            with contextlib.suppress(UnicodeDecodeError):
                return _checked(data, Content(data[len(mark) :].decode(encoding), encoding, mark), name)
            if encoding != "utf-8":
                raise ToolError(f"{name} starts like {encoding} text but is not. Use bash to inspect it.")
    if b"\0" in data:
        kind = next((kind for magic, kind in _MAGIC if data.startswith(magic)), "a binary file")
        raise ToolError(f"{name} is {kind} ({len(data):,} bytes), not text. Use bash to inspect it.")
    declared = _as_declared(data, name)
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode("utf-8")  # that it is, by all likelihood, unless nothing shows it
        return declared if declared and data.isascii() else Content(text)
    if declared:
        return declared
    encoding = _guess(data)
    return _checked(data, Content(data.decode(encoding), encoding, guessed=True), name)


def recoded(content: Content, name: str, text: str) -> Content:
    """`content` as it is to be written once its text is `text`: a Python file in the encoding it declares."""
    before, now = _declared(name, content.text), _declared(name, text)
    return content if content.mark or before == now else Content(content.text, now or "utf-8")


def _as_declared(data: bytes, name: str) -> Content | None:
    encoding = _declared(name, data[:_DECLARING].decode("latin-1"))
    with contextlib.suppress(UnicodeError):
        if encoding and data.decode(encoding).encode(encoding) == data:
            return Content(data.decode(encoding), encoding)
    return None


def _declared(name: str, text: str) -> str:
    """The encoding that a Python source declares (PEP 263: in a comment on line 1 or 2), "" for none that is known."""
    if not name.endswith((".py", ".pyi", ".pyw")):
        return ""
    for line in re.split(r"\r\n?|\n", text[:_DECLARING], maxsplit=2)[:2]:
        if match := _CODING.match(line):
            with contextlib.suppress(LookupError, UnicodeError):
                # Like Python's own parser, only those in which the declaration itself can be read.
                return codecs.lookup(match[1]).name if "#".encode(match[1]) == b"#" else ""
        if line.strip(" \t\f") and not line.lstrip(" \t\f").startswith("#"):
            break
    return ""


def line_end(text: str) -> str:
    """What ends a line: a newline, or a carriage return in a text that has no newline."""
    return "\r" if "\n" not in text else "\n"


def split(text: str, end: str = "") -> list[str]:
    """Lines with their ends, which are `end` where that is known."""
    end = end or line_end(text)
    lines = [line + end for line in text.split(end)]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def text_lines(text: str) -> list[str]:
    """Lines without their ends."""
    return [line.removesuffix("\n").removesuffix("\r") for line in split(text)]


def lines_from(text: str, first: int, count: int) -> list[str]:
    """At most `count` lines from the one with the number `first` on, without their ends and without the whole list."""
    end = line_end(text)
    start = 0
    for _ in range(first - 1):
        start = text.index(end, start) + 1
    stop = start
    for _ in range(count):
        stop = text.find(end, stop) + 1 or len(text)
    return [line.removesuffix("\n").removesuffix("\r") for line in split(text[start:stop], end)]


def _checked(data: bytes, content: Content, name: str) -> Content:
    if content.mark + content.text.encode(content.encoding) != data:
        raise ToolError(f"{name} is {content.encoding} text with bytes that would not survive. Use bash to inspect it.")
    return content


def _guess(data: bytes) -> str:
    """GBK where most of what is not ASCII are common Chinese characters (GB 2312, level 1 and signs), else Latin."""
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode("gb18030")
        pairs = [char.encode("gb18030") for char in text if ord(char) > 127]
        common = sum(len(pair) == 2 and 0xA1 <= pair[0] <= 0xD7 and pair[1] >= 0xA1 for pair in pairs)
        if common >= 0.8 * len(pairs):
            return "gb18030"
    if not any(0x80 <= byte < 0xA0 for byte in data):
        return "latin-1"
    with contextlib.suppress(UnicodeDecodeError):
        data.decode("cp1252")
        return "cp1252"
    return "latin-1"


@contextlib.contextmanager
def explained(workspace: Workspace, path: Path) -> Iterator[None]:
    """Turns an OSError of the block into a ToolError about `path`."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"{shown(workspace, path)}: {error.strerror or error}.") from error


def _inside(path: Path, kind: str) -> str:
    if kind != "a directory":
        return ""
    try:
        with os.scandir(path) as scan:
            names = sorted(entry.name + "/" * entry.is_dir() for entry in scan)
    except OSError:
        return ""
    more = f" and {len(names) - 50} more" if len(names) > 50 else ""
    return f" In it: {', '.join(map(printable, names[:50]))}{more}" if names else " It is empty."


def _missing(workspace: Workspace, path: Path) -> str:
    """That there is no such file, with the nearest thing that exists."""
    name = shown(workspace, path)
    if os.path.islink(path):
        return f"{name} is a symbolic link to {os.readlink(path)}, which does not exist."
    missing = path
    while not missing.parent.exists():
        missing = missing.parent
    try:
        close = difflib.get_close_matches(missing.name, os.listdir(missing.parent), 3, 0.6)
    except OSError:
        close = []
    above = f", nor does the directory {shown(workspace, missing)}" if missing != path else ""
    hint = f" Similar: {', '.join(shown(workspace, missing.parent / each) for each in close)}." if close else ""
    return f"{name} does not exist{above}.{hint}"
