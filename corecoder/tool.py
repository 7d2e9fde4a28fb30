"""What a tool is: a name, a description, a JSON schema and `execute`. Concrete tools live in `tools/`.

A tool keeps nothing between calls. What it needs to know about the session stands on the `Workspace`, which the agent
owns and hands to the tool in a `ToolContext`, so two agents in one process never meet.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from .jobs import CancelToken
from .processes import Process, Processes
from .sandbox import Sandbox
from .values import dataclass


@dataclass(frozen=True)
class ToolResult:
    """What a call gives back.

    `content` is what the model reads, `display` what a person is shown instead ("" for the same text), `images` are
    data URLs that the model gets as pictures, `ok` false marks an error, `data` holds plain facts for tests, hooks
    and the ledger (exit code, path, lines).
    """

    content: str
    display: str = ""
    images: tuple[str, ...] = ()
    ok: bool = True
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What the model knows of a file: the digest of the bytes it saw, and how many lines from the top on."""

    digest: bytes
    lines: int


@dataclass
class Workspace:
    """Where the agent works and what it has done there: the mutable state that tools share.

    `root` is the project directory and never changes; `cwd` follows the shell; `env` holds variables that commands
    exported, None for one that they removed; `processes` is what they left running; `seen` maps a real path to
    what the model knows of that file.
    """

    root: Path
    cwd: Path
    env: dict[str, str | None] = field(default_factory=dict)
    seen: dict[Path, Seen] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)

    @classmethod
    def at(cls, directory: str | os.PathLike[str]) -> Workspace:
        """A workspace whose project is `directory`."""
        root = Path(directory).resolve()
        return cls(root=root, cwd=root)

    def end_processes(self, timeout: float = 2.0) -> list[Process]:
        """Ends what commands left running; returns what could not be ended within about `timeout` seconds."""
        return self.processes.end(timeout)

    def resolve(self, path: str) -> Path:
        """`path` as an absolute path: `~` expanded, relative to the shell's directory, links not resolved."""
        expanded = Path(os.path.expanduser(path))
        return Path(os.path.normpath(expanded if expanded.is_absolute() else self.cwd / expanded))

    def contains(self, path: Path) -> bool:
        """Whether the real location of `path` (or of where it would be created) is inside the project."""
        return lies_in(path, self.root)

    def show(self, path: Path) -> str:
        """`path` for a person or a model: relative to the project where that is possible."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def lies_in(path: str | Path, directory: Path) -> bool:
    """Whether the real location of `path`, which need not exist, is `directory` or inside it."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _no_recall(record: int | str) -> str:
    raise KeyError(record)


def _no_pictures(_record: int | str) -> Sequence[str]:
    return ()


def _drop(_text: str) -> None:
    return None


@dataclass(frozen=True)
class ToolContext:
    """What a running call may use.

    `token` stops it (register a waker for whatever blocks), `output` takes live output, `sees_images` says whether
    the model takes pictures, `recall(id)` gives the full text of an earlier message, or of a spilled text by its
    name (KeyError if there is none), `pictures(id)` the URLs of its pictures, `spill(text) -> path` keeps a long text
    beside the session log, `secrets` are the names of environment variables that no child process may get, `sandbox`
    is what confines commands, None where nothing does, `judged` the real path of the file that the call was judged to
    be about, None where nobody looked.
    """

    workspace: Workspace
    token: CancelToken = field(default_factory=CancelToken)
    output: Callable[[str], None] = _drop
    sees_images: bool = False
    recall: Callable[[int | str], str] = _no_recall
    pictures: Callable[[int | str], Sequence[str]] = _no_pictures
    spill: Callable[[str], Path | None] = _drop
    secrets: frozenset[str] = frozenset()
    sandbox: Sandbox | None = None
    judged: Path | None = None


class Tool:
    """Base of all tools.

    `read_only` promises that a call changes nothing anywhere; `parallel` that it may run beside its neighbours.
    `execute` takes the arguments by name, and `ctx` only if it has a parameter of that name. It returns a text or a
    ToolResult; anything it raises becomes an error result.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    parameters: ClassVar[dict[str, Any]]
    read_only: ClassVar[bool] = False
    parallel: ClassVar[bool] = False

    def execute(self, *_: Any, **arguments: Any) -> str | ToolResult:
        raise NotImplementedError

    def preview(self, _workspace: Workspace, _arguments: dict[str, Any]) -> str:
        """What a call would change, as a unified diff for the person who is asked; "" where there is none to show.

        Raises ToolError if the call would fail as things are now.
        """
        return ""

    def schema(self) -> dict[str, Any]:
        """The tool as the chat-completions API wants it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def run(self, arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        """Calls `execute`, giving it `ctx` if it asks, and wraps a plain text."""
        extra = {"ctx": ctx} if "ctx" in inspect.signature(self.execute).parameters else {}
        result = self.execute(**arguments, **extra)
        return result if isinstance(result, ToolResult) else ToolResult(str(result))


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def checked_arguments(schema: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` as `schema` wants them, or ValueError with words for the model.

    Checks required and unknown names, types and enums of the top level and of nested objects and arrays; other
    keywords are left to the tool. Forgives what models get wrong without ambiguity: a number or a boolean written
    as a string, and null for an optional argument.
    """
    value = _checked(schema, arguments, "")
    assert isinstance(value, dict)
    return value


def _checked(schema: dict[str, Any], value: Any, where: str) -> Any:
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else list(wanted or [])
    value = _forgiven(value, kinds)
    if kinds and not any(_is_a(value, kind) for kind in kinds):
        raise ValueError(f"{where or 'the arguments'} must be {' or '.join(kinds)}, not {_brief(value)}")
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"{where} must be one of {', '.join(map(str, schema['enum']))}, not {_brief(value)}")
    if isinstance(value, dict) and "properties" in schema:
        return _checked_object(schema, value, where)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_checked(schema["items"], item, f"{where}[{at}]") for at, item in enumerate(value)]
    return value


def _checked_object(schema: dict[str, Any], value: dict[str, Any], where: str) -> dict[str, Any]:
    known: dict[str, Any] = schema["properties"]
    required = schema.get("required", [])
    given = {name: item for name, item in value.items() if item is not None or name in required}
    prefix = f"{where}." if where else ""
    missing = [prefix + name for name in required if name not in given]
    unknown = [prefix + name for name in given if name not in known and schema.get("additionalProperties") is False]
    if missing or unknown:
        faults = [f"missing {', '.join(missing)}"] if missing else []
        faults += [f"unknown {', '.join(unknown)}"] if unknown else []
        raise ValueError(f"{'; '.join(faults)} (accepted: {', '.join(known)})")
    return {name: _checked(known.get(name, {}), item, prefix + name) for name, item in given.items()}


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES.get(kind, (object,)))


def _forgiven(value: Any, kinds: list[str]) -> Any:
    if isinstance(value, float) and value.is_integer() and "integer" in kinds:
        return int(value)
    if not isinstance(value, str) or "string" in kinds:
        return value
    text = value.strip()
    if "integer" in kinds and re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    if "number" in kinds and re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text):
        return float(text)
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return value


def _brief(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"
