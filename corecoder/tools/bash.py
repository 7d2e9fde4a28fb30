"""The shell as a tool: runs a command, tells the model what it printed and how it ended, nothing more.

The exit code is stated and never interpreted: what counts as failure is the model's to judge.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ..capture import Capture
from ..errors import ToolError
from ..gitdir import git_directories, pieces_of
from ..gitwatch import Guarded
from ..messages import NO_OUTPUT
from ..processes import Job, Processes
from ..shell import Outcome, State, environment, run
from ..text import one_line, plural
from ..tool import Tool, ToolContext, ToolResult, Workspace

TIMEOUT = 120  # seconds
LONGEST = 3600
_FIRST_LOOK = 0.5  # seconds in which a background job shows whether it starts at all
_SIGPIPE = 141  # what a stage gives that was cut short by the next one: `yes | head`

_ASKED = re.compile(
    r"\[sudo\] password|sudo: a (?:terminal|password) is required|password:\s*$|passphrase|"
    r"terminal prompts disabled|could not read (?:Username|Password)|Permission denied \(publickey|"
    r"Host key verification failed|not a tty|/dev/tty",
    re.IGNORECASE,
)
_ASKED_HINT = "there is no terminal and no input here, so a command that asks for a password or an answer cannot get it"


class BashTool(Tool):
    name: ClassVar[str] = "bash"
    description: ClassVar[str] = (
        "Run a command with bash and get its output (stdout and stderr together) and exit code. The working directory "
        "and exported variables carry over to the next call. No terminal and no input: commands must not ask anything. "
        "Long output is cut in the middle; all of it goes to a file that is named. For servers and other long-running "
        "work set background; stop ends such a job, and whatever is still running ends with the session."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "the command, of one line or many"},
            "timeout": {"type": "number", "description": f"seconds, default {TIMEOUT}, at most {LONGEST}"},
            "background": {
                "type": "boolean",
                "description": "leave it running and return; output goes to a log",
            },
            "stop": {"type": "integer", "description": "number of a background job to end; no command is run then"},
            "unconfined": {"type": "boolean", "description": "run outside the sandbox; the user is asked"},
        },
        "required": [],
    }

    def execute(
        self,
        command: str = "",
        timeout: float = TIMEOUT,
        background: bool = False,
        stop: int | None = None,
        unconfined: bool = False,
        *,
        ctx: ToolContext,
    ) -> ToolResult:
        del unconfined  # who allowed it has left the sandbox out of `ctx`
        if stop is not None:
            return _stop(ctx.workspace.processes, stop)
        if not command.strip():
            raise ToolError("The command is empty.")
        if not timeout > 0:
            raise ToolError(f"timeout must be a number of seconds above 0, at most {LONGEST}.")
        workspace, timeout = ctx.workspace, min(timeout, LONGEST)
        _require_directory(workspace)
        ended = workspace.processes.ended_jobs()  # before the command runs, which might look for them
        capture = Capture(ctx.spill, ctx.output)
        running = workspace.processes.running
        guard = ctx.sandbox.git.guard(lambda: bool(running())) if ctx.sandbox else nullcontext(Guarded())
        cwd, kept = workspace.cwd, _pieces_of_git(workspace)
        with guard as guarded:
            outcome = run(
                command,
                capture,
                workspace.processes,
                cwd=cwd,
                env=environment(os.environ, {**workspace.env, "PWD": str(cwd)}, ctx.secrets),
                timeout=_FIRST_LOOK if background else timeout,
                token=ctx.token,
                start=ctx.sandbox.start if ctx.sandbox else subprocess.Popen,
                background=background,
            )
            guarded.leaves = bool(outcome.process or outcome.left)
        if outcome.process:
            job = workspace.processes.add_job(outcome.process, one_line(command, 60), capture.path)
            notes = [_started(job, capture)]
        else:
            notes = _outcome(outcome, timeout)
        if outcome.ending == "exited" and not background:
            notes += _moved(workspace, outcome.state)
        if outcome.left:
            notes.append(_left(outcome, capture))
        notes += [_ended(job) for job in [*ended, *workspace.processes.ended_jobs()]]
        if put_back := guarded.put_back:
            notes.append(f"put back as it was, for it makes git run programs: {one_line(', '.join(put_back), 300)}")
        if ctx.sandbox and (denial := ctx.sandbox.denial(outcome.code, capture.text()[-4_000:], cwd)):
            notes.append(denial)
        result = _result(workspace, capture, outcome, notes)
        lost = sorted(kept - _pieces_of_git(workspace))
        return _lost(result, [workspace.show(path) for path in lost]) if lost else result


def _stop(processes: Processes, number: int) -> ToolResult:
    job = next((job for job in processes.jobs if job.number == number), None)
    if job is None:
        known = ", ".join(str(job.number) for job in processes.jobs) or "none"
        raise ToolError(f"There is no background job {number}; those of this session: {known}.")
    left = processes.end_job(job)
    job.reported = True
    state = f"could not be ended, pid {job.process.pid}" if left else f"has ended: {_code(job.process.returncode)}"
    return ToolResult(f"[background job {number} {state}; its output: {job.log}; command: {job.command}]", ok=not left)


def _require_directory(workspace: Workspace) -> None:
    lost = workspace.cwd
    if os.path.isdir(lost):
        return
    if not os.path.isdir(workspace.root):
        raise ToolError(f"The project directory {workspace.root} no longer exists, so no command can be run in it.")
    workspace.cwd = workspace.root
    raise ToolError(f"The directory {lost} no longer exists. Nothing was run; the shell is now in {workspace.root}.")


def _outcome(outcome: Outcome, timeout: float) -> list[str]:
    took = f"{outcome.seconds:.1f} s"
    if outcome.ending == "exited":
        return [f"{_code(outcome.code)}{_stages(outcome)}, {took}"]
    ended = "the command and what it started were ended; directory and variables are as before it"
    if outcome.ending == "cancelled":
        return [f"cancelled after {took}: {ended}"]
    more = f"a longer timeout (at most {LONGEST}) or background gives it time"
    return [f"timed out after {timeout:g} s: {ended}; {more}"]


def _left(outcome: Outcome, capture: Capture) -> str:
    shown = [f"{each.pid} {one_line(each.command(), 60)}".rstrip() for each in outcome.left[:10]]
    listed = ", ".join(shown) + (f" and {len(outcome.left) - 10} more" if len(outcome.left) > 10 else "")
    if outcome.ending != "exited":
        return f"could not be ended: {listed}"
    log = f"; output from here on: {capture.path}" if outcome.held and capture.path else ""
    return f"left running until the session ends: {listed}{log}"


def _code(code: int | None) -> str:
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-code}"


def _stages(outcome: Outcome) -> str:
    """The exit codes within the last pipeline, where the last of them hides another."""
    stages = outcome.state.stages if outcome.state else ()
    if len(stages) < 2 or stages[-1] != outcome.code or not set(stages[:-1]) - {0, _SIGPIPE}:
        return ""
    return f" (in the pipeline: {', '.join(map(str, stages))})"


def _started(job: Job, capture: Capture) -> str:
    pid = job.process.pid
    log = (
        f"its output goes to {job.log} (read_file shows it)"
        if job.log
        else f"its output is not kept {capture.problem}".rstrip()
    )
    return f"job {job.number} runs in the background, pid {pid}; {log}; stop ends it; its end will be told"


def _ended(job: Job) -> str:
    return f"background job {job.number} has ended: {_code(job.process.returncode)}; command: {job.command}"


def _moved(workspace: Workspace, state: State | None) -> list[str]:
    """Carries directory and variables over; what is said about it."""
    if state is None:
        return ["directory and variables are as before: the shell did not report them (exec, kill or a trap on EXIT)"]
    workspace.env.update(state.exports)
    notes = [f"too long to carry over: {one_line(', '.join(state.dropped), 200)}"] if state.dropped else []
    if state.cwd == workspace.cwd:
        return notes
    if not state.cwd.is_absolute() or not os.path.isdir(state.cwd):
        workspace.cwd = workspace.root
        return [*notes, f"the directory {state.cwd} no longer exists; now in {workspace.root}"]
    workspace.cwd = state.cwd
    return [*notes, f"now in {state.cwd}"]


def _pieces_of_git(workspace: Workspace) -> set[Path]:
    return {piece for git in git_directories(workspace.root) for piece in pieces_of(git)}


def _lost(result: ToolResult, lost: list[str]) -> ToolResult:
    """Said whoever allowed it, and to the person as well: nothing of ours brings it back."""
    said = (
        f"git's own files are gone or empty since this command: {one_line(', '.join(lost), 200)}; commits that are "
        "nowhere else may be lost, and undo does not bring them back: tell the user before anything else"
    )
    display = f"{result.display}\n[{said}]" if result.display else ""
    return replace(result, content=f"{result.content}\n[{said}]", display=display, ok=False)


def _result(workspace: Workspace, capture: Capture, outcome: Outcome, notes: list[str]) -> ToolResult:
    text = capture.text()
    if capture.byte_count and capture.binary:
        notes.append(
            f"{plural(capture.byte_count, 'byte')} of output, not text in UTF-8: redirect it to a file to keep it"
        )
    if outcome.code != 0 and _ASKED.search(text[-2_000:]):
        notes.append(_ASKED_HINT)
    code = outcome.code if outcome.code is None or outcome.code >= 0 else 128 - outcome.code
    data: dict[str, Any] = {
        "exit_code": code,
        "timed_out": outcome.ending == "timed out",
        "cancelled": outcome.ending == "cancelled",
        "cwd": str(workspace.cwd),
        "log": str(capture.path) if capture.path else None,
    }
    body = text.rstrip("\n") or NO_OUTPUT
    content = "\n".join([body, *(f"[{note}]" for note in notes)])
    if outcome.ending in ("exited", "running"):
        return ToolResult(content, data=data)
    return ToolResult(content, f"{text.rstrip()}\n[{notes[0].partition(':')[0]}]", ok=False, data=data)
