"""Running one command: a fresh bash that cannot hang us, cannot reach the terminal and leaves nothing behind unseen.

Every command gets a session and a process group of its own, an empty stdin and one pipe for both outputs. It is over
when the shell has exited, not when the pipe ends, because a background child may hold the pipe for ever. What carries
over to the next command is reported by the shell itself on its way out (`prelude.bash`): its directory and what it
exports. The command is read from a descriptor, not from the argument list: no limit on its length, and a command like
`pkill -f server.py` does not match the shell that runs it.

The price is about twice what `subprocess.run` takes for a command that does nothing. Functions, aliases and
options of the shell do not carry over.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from .capture import Capture
from .child import Child, Ending, Start
from .errors import ToolError
from .jobs import CancelToken
from .processes import MARK, Process, Processes, leftovers
from .values import dataclass

# Nothing may wait for a key: no pager, no prompt, no editor. Python would hold its output back until it ends.
CALM = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "TERM": "dumb",
    "PYTHONUNBUFFERED": "1",
}
_CARRY_LIMIT = 100_000  # bytes of one variable: Linux starts no program with one of more than 131,072
_CARRY_TOTAL = 500_000  # bytes of all: a quarter of what Linux starts a program with, half of what macOS does
_NOT_CARRIED = frozenset(("_", "SHLVL", "PWD", "BASH_ENV", "BASHOPTS", "SHELLOPTS", "POSIXLY_CORRECT", MARK))


@dataclass(frozen=True)
class State:
    """What a shell reported on its way out. `stages` are the exit codes of its last pipeline; `exports` what changed
    in its environment, None for a variable that is gone; `dropped` names what is too long to be carried."""

    cwd: Path
    stages: tuple[int, ...]
    exports: dict[str, str | None]
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a command ended.

    `code` is the exit code, negative for the number of the signal that killed the shell, None unless `ending` is
    "exited". `state` is None where the shell did not report. `left` are processes that still run; after "timed out"
    and "cancelled", those that could not be ended; `held` is whether what they print goes on to the capture's file.
    `process` is the command itself where that is "running".
    """

    ending: Ending
    code: int | None
    seconds: float
    state: State | None = None
    left: tuple[Process, ...] = ()
    held: bool = False
    process: subprocess.Popen[bytes] | None = None


def run(
    command: str,
    capture: Capture,
    processes: Processes,
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    token: CancelToken | None = None,
    start: Start = subprocess.Popen,
    background: bool = False,
) -> Outcome:
    """Runs `command` in `cwd` with exactly `env`; what it prints goes to `capture`.

    After `timeout` seconds, or as soon as `token` is set, everything it started gets TERM, two seconds, and KILL.
    In the `background` it goes on running instead when `timeout` is over, its output flowing into the capture's file.
    What outlives the call is handed to `processes`. `start` starts bash; a sandbox has one of its own.
    Raises ToolError if the command cannot be started, Cancelled if the token was set before.
    """
    token = token or CancelToken()
    token.check()
    bash, script, mark = find_bash(), _script(command), processes.next_mark()
    marked = {**env, MARK: env.get(MARK, "") + mark}
    started = time.monotonic()
    try:
        child = Child(bash, script, cwd=cwd, env=marked, capture=capture, start=start)
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror or error}. Nothing was run.") from error
    process, state = child.process, None
    left: list[Process] = []
    try:
        ending = child.follow(started + timeout, token)
        if background and ending == "timed out":
            ending = "running"
        elif ending != "exited":
            left = child.stop(mark)
        seconds = time.monotonic() - started
        capture.finish()
        if ending == "exited":
            left = leftovers(mark, process.pid, seconds, child.held)
            state = _state(child.report, env)
        held = child.held and ending in ("exited", "running")
        if held or ending == "running":
            keeper = child.keep_log({"PATH": env.get("PATH", os.defpath), MARK: f"{processes.identity}.0:"})
            processes.adopt(keeper)
    except BaseException:  # something went wrong on our side; what was started must not stay
        child.stop(mark)
        raise
    finally:
        child.close()
        processes.adopt(process)
    processes.remember(left)
    code = process.returncode if ending == "exited" else None
    return Outcome(ending, code, seconds, state, tuple(left), held, process if ending == "running" else None)


def _script(command: str) -> bytes:
    if "\0" in command:
        raise ToolError("The command contains a NUL character, which no shell can run. Nothing was run; remove it.")
    try:
        return command.encode() + b"\n"
    except UnicodeEncodeError:
        raise ToolError("The command is not valid text (half of a surrogate pair). Nothing was run.") from None


def find_bash() -> str:
    """The bash to use; raises ToolError where there is none."""
    if os.name == "nt":
        return _git_bash()
    found = shutil.which("bash") or next((path for path in ("/bin/bash", "/usr/bin/bash") if os.path.exists(path)), "")
    if not found:
        raise ToolError("bash was not found; no command can be run before it is installed.")
    return found


def _git_bash() -> str:
    """Git's own bash; the one in System32 belongs to another system (WSL)."""
    git = shutil.which("git")
    roots = [Path(git).resolve().parents[1]] if git else []
    roots += [Path(os.environ[name]) / "Git" for name in ("ProgramFiles", "ProgramFiles(x86)") if name in os.environ]
    for path in (root / "bin" / "bash.exe" for root in roots):
        if path.exists():
            return str(path)
    raise ToolError("Git Bash was not found; no command can be run before Git for Windows is installed.")


def environment(
    base: Mapping[str, str], changes: Mapping[str, str | None], secrets: Collection[str] = ()
) -> dict[str, str]:
    """The environment for a command: `base`, calmed, with what earlier commands changed.

    Neither a variable named in `secrets` nor one that holds the value of such a variable is in it; nor PS1, which bash
    takes away where nobody types, as if the command had.
    """
    held = [base[name] for name in secrets if len(base.get(name, "")) >= 8]
    merged = {**base, **CALM, **changes, "PS1": None}
    return {
        name: value
        for name, value in merged.items()
        if value is not None and name not in secrets and not any(secret in value for secret in held)
    }


# What `export -p` prints. bash(1), QUOTING: within double quotes the backslash stands before $ ` " \ and newline;
# $'...' is used where a value has control characters.
_EXPORT = re.compile(
    rb"""^(?:declare -[a-zA-Z]*x[a-zA-Z]*|export) ([A-Za-z_]\w*)(?:=(?:"((?:[^"\\]|\\.)*)"|\$'((?:[^'\\]|\\.)*)'))?$""",
    re.MULTILINE | re.DOTALL,
)
_DOUBLE = re.compile(rb'\\([$`"\\\n])')
_ANSI = re.compile(rb"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)", re.DOTALL)
_ANSI_LETTERS = dict(zip(b"abeEfnrtv", b"\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def _state(report: bytes, env: Mapping[str, str]) -> State | None:
    """What the prelude's EXIT trap wrote, None if it did not get to it or if something else was written there."""
    parts = report.split(b"\0", 3)
    if len(parts) < 4 or not re.fullmatch(rb" |(?:\d{1,3} )+", parts[0]):
        return None
    stages = tuple(int(code) for code in parts[0].split())
    if os.name == "nt":  # Git Bash shows variables in a form of its own that Windows programs cannot use
        drive = re.sub(r"^/([a-zA-Z])(?=/|$)", r"\1:", os.fsdecode(parts[1]))
        return State(Path(drive), stages, {})
    now = _exports(parts[2])
    changed: dict[str, str | None] = {name: value for name, value in now.items() if env.get(name) != value}
    changed.update((name, None) for name in env if name not in now and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII))
    dropped = _too_long(now) & changed.keys()
    carried = {name: value for name, value in changed.items() if name not in _NOT_CARRIED and name not in dropped}
    return State(Path(os.fsdecode(parts[1])), stages, carried, tuple(sorted(dropped)))


def _too_long(variables: dict[str, str]) -> set[str]:
    """The longest ones, as far as they are more than a program can be started with."""
    names, total = set(), 0
    for name, value in sorted(variables.items(), key=lambda item: len(item[1])):
        size = len(os.fsencode(value))
        total += size
        if size > _CARRY_LIMIT or total > _CARRY_TOTAL:
            names.add(name)
    return names


def _exports(listing: bytes) -> dict[str, str]:
    values = {}
    for name, double, ansi in (match.groups() for match in _EXPORT.finditer(listing)):
        if double is not None:
            values[name.decode()] = os.fsdecode(_DOUBLE.sub(rb"\1", double))
        elif ansi is not None:  # neither: exported, but without a value
            values[name.decode()] = os.fsdecode(_ANSI.sub(_ansi, ansi))
    return values


def _ansi(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if code[:1].isdigit():
        return bytes([int(code, 8) & 255])
    if code[:1] == b"x" and len(code) > 1:
        return bytes([int(code[1:], 16)])
    return bytes([_ANSI_LETTERS.get(code[0], code[0])])
