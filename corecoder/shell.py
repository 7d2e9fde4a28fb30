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
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from .capture import Capture
from .child import Child, Ending, LiveOutput, Wrap
from .errors import ToolError
from .file_child import FileChild
from .jobs import CancelToken
from .processes import MARK, Process, family, started_since

# Nothing may wait for a key: no pager, no prompt, no editor. Python would hold its output back until it ends.
CALM = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": "true",
    "TERM": "dumb",
    "PYTHONUNBUFFERED": "1",
}
_DYING = 0.05  # seconds for children that have closed their output and are about to end
_CARRY_LIMIT = 100_000  # bytes of one variable: Linux starts no program with one of more than 131,072
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
    and "cancelled", those that could not be ended. `children` need somebody to wait for them: for "running" first
    the command itself, then what keeps its log.
    """

    ending: Ending
    code: int | None
    seconds: float
    state: State | None = None
    left: tuple[Process, ...] = ()
    children: tuple[subprocess.Popen[bytes], ...] = ()


def run(
    command: str,
    capture: Capture,
    *,
    cwd: Path,
    env: Mapping[str, str],
    mark: str,
    timeout: float,
    token: CancelToken | None = None,
    output: Callable[[str], None] | None = None,
    wrap: Wrap = list,
    hand_over: bool = False,
) -> Outcome:
    """Runs `command` in `cwd` with exactly `env`; what it prints goes to `capture` and, now and then, to `output`.

    After `timeout` seconds, or as soon as `token` is set, everything it started gets TERM, two seconds, and KILL.
    With `hand_over` it goes on running instead when `timeout` is over, its output flowing into the capture's file.
    `mark` (from `Processes.next_mark`) is how its processes are found. `wrap` may put another program before bash.
    Raises ToolError if the command cannot be started, Cancelled if the token was set before.
    """
    token = token or CancelToken()
    token.check()
    live = LiveOutput(output or _ignore)
    bash, script = find_bash(), _script(command)
    marked = {**env, MARK: env.get(MARK, "") + mark}
    started = time.monotonic()
    kind = Child if hasattr(select, "poll") else FileChild
    try:
        child = kind(bash, script, cwd=cwd, env=marked, capture=capture, live=live, wrap=wrap, reports=not hand_over)
    except OSError as error:
        raise ToolError(f"The command could not be started: {error.strerror or error}. Nothing was run.") from error
    call = _Call(child, mark, started)
    try:
        with token.waker(child.wake):
            ending = child.follow(started + timeout, token)
        if ending == "exited":
            return call.exited(bash, env)
        if ending == "timed out" and hand_over:
            return call.running(bash, env)
        return call.stopped(ending)
    except BaseException:  # something went wrong on our side; what was started must not stay
        call.stopped("cancelled")
        raise
    finally:
        child.close()


def _ignore(_text: str) -> None:
    return None


@dataclass(frozen=True)
class _Call:
    """A command that is being brought to its end, one way or another."""

    child: Child | FileChild
    mark: str
    started: float

    def exited(self, bash: str, env: Mapping[str, str]) -> Outcome:
        seconds = self._finish()
        left = self._left(seconds)
        state = _state(bytes(self.child.report), env)
        children = self.child.keep_log(bash, self._log_environment(env)) if self.child.held else []
        return Outcome("exited", self.child.process.returncode, seconds, state, tuple(left), tuple(children))

    def running(self, bash: str, env: Mapping[str, str]) -> Outcome:
        seconds = self._finish()
        children = [self.child.process, *self.child.keep_log(bash, self._log_environment(env))]
        return Outcome("running", None, seconds, children=tuple(children))

    def stopped(self, ending: Ending) -> Outcome:
        left = self.child.stop(self._family)
        unended = () if self.child.process.returncode is not None else (self.child.process,)
        return Outcome(ending, None, self._finish(), left=tuple(left), children=unended)

    def _finish(self) -> float:
        seconds = time.monotonic() - self.started
        self.child.live.add(self.child.capture.finish())
        self.child.live.pass_on(last=True)
        return seconds

    def _family(self) -> list[Process]:
        return family(self.mark, sessions={self.child.pid})

    def _left(self, seconds: float) -> list[Process]:
        """What outlives the shell. Looking at all processes is dear, so a short command gets the short look."""
        since = started_since(self.child.pid, seconds)
        if since is None and not self.child.held:
            return []
        left = family(self.mark, sessions={self.child.pid}, since=since or 0)
        patience = time.monotonic() + _DYING
        while left and not self.child.held and time.monotonic() < patience:
            time.sleep(0.005)
            left = family(self.mark, sessions={self.child.pid}, since=since or 0)
        return left

    def _log_environment(self, env: Mapping[str, str]) -> dict[str, str]:
        session = self.mark.rpartition(".")[0]
        return {"PATH": env.get("PATH", os.defpath), MARK: f"{session}.0:"}


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

    Neither a variable named in `secrets` nor one that holds the value of such a variable is in it.
    """
    held = [base[name] for name in secrets if len(base.get(name, "")) >= 8]
    merged = {**base, **CALM, **changes}
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
    """What the prelude's EXIT trap wrote, None if it did not get to it."""
    parts = report.split(b"\0", 2)
    if len(parts) < 3 or not parts[2]:
        return None
    stages = tuple(int(code) for code in parts[0].split())
    if os.name == "nt":  # Git Bash shows variables in a form of its own that Windows programs cannot use
        drive = re.sub(r"^/([a-zA-Z])(?=/|$)", r"\1:", os.fsdecode(parts[1]))
        return State(Path(drive), stages, {})
    now = _exports(parts[2])
    changed: dict[str, str | None] = {name: value for name, value in now.items() if env.get(name) != value}
    changed.update((name, None) for name in env if name not in now and re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII))
    dropped = tuple(name for name, value in changed.items() if value and len(os.fsencode(value)) > _CARRY_LIMIT)
    carried = {name: value for name, value in changed.items() if name not in _NOT_CARRIED and name not in dropped}
    return State(Path(os.fsdecode(parts[1])), stages, carried, dropped)


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
