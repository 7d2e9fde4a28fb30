"""A quick look whether a file that was just written still parses, for the formats the standard library knows.

It runs in a child process: a parser holds the interpreter for as long as it works, and a hostile file can crash it.
That costs about 15 ms for each edit of such a file.
"""

from __future__ import annotations

import json
import sys
from pathlib import PurePath

from ..jobs import CancelToken
from .child import running

_LIMIT = 3.0  # seconds
_MOST_BYTES = 2_000_000
_CHECK = """
import sys, json
kind, size = sys.argv[1], int(sys.argv[2])
data = sys.stdin.buffer.read()
def fault(data):
    try:
        if kind == "Python":
            compile(data, "file", "exec", 0x400, True)
        elif kind == "JSON":
            json.loads(data)
        else:
            import tomllib
            tomllib.loads(data.decode("utf-8-sig"))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        return str(error) or type(error).__name__
    except ImportError:
        return ""
    return ""
now = fault(data[:size])
print(json.dumps([now, fault(data[size:]) if now and len(data) > size else ""]))
"""
_KINDS = {".py": "Python", ".pyi": "Python", ".json": "JSON", ".toml": "TOML"}


def syntax_note(path: PurePath, new: bytes, old: bytes, token: CancelToken) -> str:
    """A sentence if `new` does not parse as what the name of `path` promises, "" otherwise or where nobody can tell.

    JSON that did not parse before either is passed over: it is likely JSON with comments.
    """
    kind = _KINDS.get(path.suffix.lower(), "")
    if not kind or not sys.executable or not new.strip() or len(new) + len(old) > _MOST_BYTES:
        return ""
    command = [sys.executable, "-I", "-S", "-W", "ignore", "-c", _CHECK, kind, str(len(new))]
    try:
        with running(command, token=token, limit=_LIMIT, stdin=new + old) as child:
            said = b"".join(child.lines())
        now, before = json.loads(said)
    except (OSError, ValueError):
        return ""
    if not now or (before and kind == "JSON"):
        return ""
    version = f" {sys.version_info.major}.{sys.version_info.minor}" if kind == "Python" else ""
    return f"Warning: the file {'still does' if before else 'does'} not parse as {kind}{version}: {now}."
