"""Consent: may this call run, must somebody be asked, or is it refused and in which words?

Pure decisions, no terminal. Four modes: `ask` lets reads through and asks for the rest, `auto` lets edits inside the
project and read-only commands through and refuses the rest, `plan` is read-only, `yolo` allows everything. Judging a
command as read-only is comfort for the user and caution by default: whatever is not certainly harmless is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from .readonly import is_read_only_command
from .text import one_line
from .tool import Tool, Workspace

MODES = ("ask", "auto", "plan", "yolo")


@dataclass(frozen=True)
class Allow:
    """The call may run."""


@dataclass(frozen=True)
class Refuse:
    """The call may not run; `words` are its tool result."""

    words: str


@dataclass(frozen=True)
class Ask:
    """Somebody has to decide; `detail` holds the whole command or the whole new text."""

    text: str
    detail: str
    choices: tuple[str, ...] = ("no", "yes", "always")


Verdict = Allow | Refuse | Ask

_LEADING_NO = re.compile(r"\A(?:no?\b[\s,:]*)+", re.IGNORECASE)
_PLAN = (
    "Not run: plan mode is read-only. Look around with the read-only tools, then describe what you would change; "
    "the user decides whether to leave plan mode."
)
_AUTO_COMMAND = (
    "Not run: this session runs only commands that certainly change nothing (such as ls, cat, grep), and "
    "nobody is there to allow more. Do what you can with the file tools, then say which command the user should run. "
    "The user can allow commands with --yes."
)
_AUTO_OUTSIDE = (
    "Not run: {path} is outside the project or part of .git, and nobody is there to allow it. Work inside {root}. "
    "The user can allow more with --yes."
)


class Permissions:
    """The mode of one session and what was allowed for its length ("always")."""

    def __init__(self, mode: str, workspace: Workspace) -> None:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}; the modes are {', '.join(MODES)}")
        self.mode = mode
        self._workspace = workspace
        self._always: set[str] = set()

    def announcement(self) -> str:
        """One sentence on what will run without a question."""
        return {
            "ask": "Reads and harmless commands run at once; edits and other commands are asked for.",
            "auto": "Edits inside the project and commands that certainly change nothing will run; "
            "everything else is refused (--yes allows all).",
            "plan": "Plan mode: nothing will be changed.",
            "yolo": "Everything runs without a question (--yes).",
        }[self.mode]

    def judge(self, tool: Tool, arguments: dict[str, Any]) -> Verdict:
        """What happens with a call whose arguments fit the schema of `tool`."""
        if self.mode == "yolo" or self.harmless(tool, arguments):
            return Allow()
        if self.mode == "plan":
            return Refuse(_PLAN)
        if self.mode == "auto":
            return self._judge_unattended(tool, arguments)
        if _key(tool, arguments) in self._always and self._edits_inside(tool, arguments) is not False:
            return Allow()
        return _question(tool, arguments)

    def settle(self, tool: Tool, arguments: dict[str, Any], answer: str) -> Verdict:
        """The verdict once somebody answered: yes, always, no, or words for the model, which are a no as well."""
        if answer.strip().lower() in ("y", "yes"):
            return Allow()
        if answer.strip().lower() in ("a", "always"):
            self._always.add(_key(tool, arguments))
            return Allow()
        said = _LEADING_NO.sub("", answer.strip())
        if said:
            return Refuse(f"Not run: the user said no, and: {said.rstrip('.')}.")
        return Refuse("Not run: the user said no. Do not try it again in another form.")

    def harmless(self, tool: Tool, arguments: dict[str, Any]) -> bool:
        """Whether the call certainly changes nothing."""
        if tool.read_only:
            return True
        command = arguments.get("command")
        if tool.name != "bash" or not isinstance(command, str) or arguments.get("background"):
            return False
        workspace = self._workspace
        path = workspace.env.get("PATH") or ""
        return is_read_only_command(command, workspace.cwd, project=workspace.root, path=path)

    def _edits_inside(self, tool: Tool, arguments: dict[str, Any]) -> bool | None:
        """Whether this is an edit inside the project (not in .git, where an edit can run code); None: no edit."""
        path = arguments.get("file_path")
        if tool.name == "bash" or not isinstance(path, str):
            return None
        target = self._workspace.resolve(path)
        names = [name.casefold() for name in target.resolve().parts]  # macOS and Windows take .GIT for .git
        return self._workspace.contains(target) and ".git" not in names

    def _judge_unattended(self, tool: Tool, arguments: dict[str, Any]) -> Verdict:
        inside = self._edits_inside(tool, arguments)
        if inside:
            return Allow()
        if inside is None:
            return Refuse(_AUTO_COMMAND)
        return Refuse(_AUTO_OUTSIDE.format(path=arguments.get("file_path"), root=self._workspace.root))


def _key(tool: Tool, arguments: dict[str, Any]) -> str:
    """What "always" stands for: this very command, or this tool inside the project."""
    return f"{tool.name} {arguments['command']}" if "command" in arguments else tool.name


def _question(tool: Tool, arguments: dict[str, Any]) -> Ask:
    command = arguments.get("command")
    if isinstance(command, str):
        return Ask("Run this command?", command)
    detail = "\n".join(f"{name}: {value}" for name, value in arguments.items())
    return Ask(f"{tool.name} {one_line(str(arguments.get('file_path', '')))}?", detail)
