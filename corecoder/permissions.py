"""Consent: may this call run, must somebody be asked, or is it refused and in which words?

Pure decisions, no terminal. Four modes: `ask` lets reads through and asks for the rest, `auto` lets edits inside the
project and read-only commands through, `plan` is read-only until a plan is accepted, `yolo` allows everything. A read
of what probably holds a secret is asked for in every mode but `yolo`. The mode may change at any time, from any thread,
and counts from the next call that is judged on. Judging a command as read-only is comfort for the user and caution by
default: whatever is not certainly harmless is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .errors import ToolError
from .events import NOBODY
from .gitdir import is_of_git
from .plan import ACCEPTED, CHOICES, GO_ON, IS_THE_ANSWER, NOT_ACCEPTED, PROPOSE_PLAN, chosen_mode
from .secretfiles import secret_files, told
from .text import listed, one_line
from .tool import Tool, Workspace, lies_in
from .values import dataclass

if TYPE_CHECKING:
    from .judgement import Part, Place
    from .prefixes import Prefix

MODES = ("ask", "auto", "plan", "yolo")
ONCE = ("no", "yes")
ALWAYS = (*ONCE, "always")
EDIT = "edit"  # a choice for commands: another one runs instead


@dataclass(frozen=True)
class Allow:
    """The call may run, in the sandbox if there is one and `confined` is true: what nobody looked at runs confined,
    what a person said yes to runs as it is. `place` is the real path of the file that was judged: another one, should
    the name lead there by then, is not what was allowed."""

    confined: bool = field(default=True, compare=False)
    place: Path | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Refuse:
    """The call may not run; `words` are its tool result."""

    words: str


@dataclass(frozen=True)
class Ask:
    """Somebody has to decide; `detail` holds the whole command, diff or plan, `why` says what keeps it from running
    unasked, as far as `text` does not. What "always" would stand for is in `text`, and it is not among the `choices`
    where it cannot be given."""

    text: str
    detail: str
    choices: tuple[str, ...] = ONCE
    why: str = ""
    kind: str = "consent"
    place: Path | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Answered:
    """There is nothing to run: `words` are the tool result. `final` ends the turn and is its answer, unless ""."""

    words: str
    final: str = ""


Verdict = Allow | Refuse | Ask | Answered

_VERBS = MappingProxyType({"edit_file": "Edit", "write_file": "Write", "read_file": "Read", "grep": "Search"})
_LEADING_NO = re.compile(r"\A(?:no?\b[\s,:]*)+", re.IGNORECASE)
# The first sentence is what a person is shown.
_PLAN = (
    "Not run: {why}, and plan mode is read-only. Look around with the read-only tools, then say with propose_plan what "
    "you would change; the user decides whether to leave plan mode."
)
_AUTO_COMMAND = (
    "Not run: {why}, and nobody is there to allow it. Commands that certainly change nothing do run (such as ls, cat, "
    "grep, git log). Do what you can with the file tools, then say which command the user should run. The user can "
    "allow commands with --yes."
)
_AUTO_OUTSIDE = (
    "Not run: {path} is outside the project, or part of what git runs or CoreCoder goes by, and nobody is there to "
    "allow it. Work inside {root}. The user can allow more with --yes."
)
_AUTO_UNCONFINED = (
    "Not run: it asks to leave the sandbox, and nobody is there to allow it. Do without, or say which command the user "
    "should run. The user can allow it with --sandbox off or --yes."
)
_AUTO_SECRET = (
    "Not run: {path} may hold secrets, and nobody is there to allow reading it. Go on without it (a template such as "
    ".env.example may be read; git leaves out what follows -- . as ':!NAME'), or say what you need from it. The user "
    "can allow it with --yes."
)

_AUTO_LOSS = (
    "Not run: {why}, and nobody is there to allow it. Leave git's own directory as it is. The user can allow it with "
    "--yes."
)
_NOBODY = (
    "Not run: somebody would have to say yes to it, and nobody is there. Go on without it, or say what you need. The "
    "user can allow it with --yes."
)


@dataclass(frozen=True)
class _Facts:
    """What matters about a call: `harmless` where it only reads, or `why` not; the `secret` that it would read; whether
    it is an edit `inside` the project (None: no edit); the `prefixes` that "always" would allow (None: it cannot); the
    variables `changed` by earlier commands that can make it run something else; the real `place` of a file; whether
    git's own files would be `lost`."""

    harmless: bool = False
    why: str = ""
    secret: str = ""
    inside: bool | None = None
    prefixes: tuple[Prefix, ...] | None = None
    changed: tuple[str, ...] = ()
    place: Path | None = None
    lost: bool = False


class Permissions:
    """The mode of one session and what was allowed for its length ("always").

    `confined` says that there is a sandbox for commands which nobody looked at, `all_confined` that it holds the others
    as well, and those of `yolo`; `boundary` says to a person what that means, or why there is none. `attended`, which
    the agent sets, says that somebody can be asked.
    """

    def __init__(
        self,
        mode: str,
        workspace: Workspace,
        *,
        confined: bool = False,
        all_confined: bool = False,
        boundary: str = "",
    ) -> None:
        self.mode = mode
        self.confined, self._all_confined, self._boundary = confined, all_confined, boundary
        self.attended = False
        self._workspace = workspace
        self._secrets = secret_files(workspace)
        self._prefixes: set[Prefix] = set()
        self._edits = False

    @property
    def mode(self) -> str:
        """One of MODES. Raises ValueError where another one is set."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}; the modes are {', '.join(MODES)}")
        self._mode, self._accepted = mode, ""

    def end_round(self) -> str:
        """All calls of a reply are judged: goes over to the mode in which a plan among them was accepted. Gives that
        mode, "" if there is none. So a change beside the plan is judged as if there were no plan yet."""
        if accepted := self._accepted:
            self.mode = accepted
        return accepted

    def announcement(self) -> str:
        """What will run without a question, and what a sandbox has to do with it."""
        mode = self.mode
        commands = "commands, confined," if self.confined else "commands that certainly change nothing"
        rest = "is asked for" if self.attended else "is refused (--yes allows all)"
        as_it_is = ", and then runs unconfined" if self.confined and not self._all_confined else ""
        words = {
            "ask": f"Reads and harmless commands run at once; all else is asked for{as_it_is}.",
            "auto": f"Edits inside the project and {commands} will run; everything else {rest}.",
            "plan": f"Plan mode: nothing will be changed{' before you accept a plan' * self.attended}.",
            "yolo": "Everything runs without a question (--yes).",
        }[mode]
        bounded = (mode != "yolo" or self._all_confined) if self.confined else mode == "auto"
        return f"{words} {self._boundary if bounded else ''}".strip()

    def judge(self, tool: Tool, arguments: dict[str, Any]) -> Verdict:
        """What happens with a call whose arguments fit the schema of `tool`."""
        mode = self.mode  # it may change meanwhile
        if tool.name == PROPOSE_PLAN and mode == "plan" and arguments["plan"].strip():
            return Ask(GO_ON, arguments["plan"], CHOICES, kind="plan")
        leaves = self.confined and tool.name == "bash" and bool(arguments.get("unconfined")) and not _stops(arguments)
        if leaves and not self.attended and (mode == "auto" or (mode == "yolo" and self._all_confined)):
            return Refuse(_AUTO_UNCONFINED)
        if mode == "yolo" and not (leaves and self._all_confined):
            return self._allowed_as_it_is(arguments)
        facts = self._facts(tool, arguments)
        if leaves:
            facts = replace(facts, harmless=False, why=_joined(facts.why, "it asks to leave the sandbox"))
        if facts.secret and mode == "auto" and not self.attended:
            return Refuse(_AUTO_SECRET.format(path=one_line(facts.secret, 200)))
        if facts.harmless:
            return self._question(tool, arguments, facts, mode) if facts.secret else Allow(place=facts.place)
        if mode == "plan":
            return Refuse(_PLAN.format(why=facts.why))
        if self._allowed(facts) and not facts.lost:
            return replace(self._allowed_as_it_is(arguments), place=facts.place)
        if mode == "auto" and not facts.secret:
            if facts.inside or (self.confined and tool.name == "bash" and not leaves and not facts.lost):
                return Allow(place=facts.place)
            if not self.attended:
                return self._refusal(arguments, facts)
        return self._question(tool, arguments, facts, mode)

    def settle(self, tool: Tool, arguments: dict[str, Any], answer: str) -> Verdict:
        """The verdict once somebody answered: yes, always, no, or words for the model, which are a no as well; for a
        plan the mode in which to go on, from the end of the round on."""
        word = answer.strip().lower()
        said = _LEADING_NO.sub("", answer.strip()).rstrip(".")
        if tool.name == PROPOSE_PLAN:
            return self._settle_plan(str(arguments.get("plan")), answer, said)
        if word in ("y", "yes"):
            return self._allowed_as_it_is(arguments)
        if word in ("a", "always"):
            facts = self._facts(tool, arguments)
            if not facts.secret:
                self._prefixes.update(facts.prefixes or ())
                self._edits = self._edits or bool(facts.inside)
            return self._allowed_as_it_is(arguments)
        if answer == NOBODY:
            return Refuse(_NOBODY)
        if said and word not in ("e", "edit"):  # and gave no command to run instead
            return Refuse(f"Not run: the user said no, and: {said}.")
        return Refuse("Not run: the user said no. Do not try it again in another form.")

    def _settle_plan(self, plan: str, answer: str, said: str) -> Verdict:
        if answer == NOBODY:
            return Answered(IS_THE_ANSWER, final=plan)
        if mode := chosen_mode(answer):
            self._accepted = mode
            return Answered(ACCEPTED)
        return Refuse(NOT_ACCEPTED.format(words=f", and: {said}" if said else ""))

    def _allowed_as_it_is(self, arguments: dict[str, Any]) -> Allow:
        return Allow(confined=self._all_confined and not arguments.get("unconfined"))

    def harmless(self, tool: Tool, arguments: dict[str, Any]) -> bool:
        """Whether the call certainly changes nothing."""
        return tool.read_only or self._facts(tool, arguments).harmless

    def _facts(self, tool: Tool, arguments: dict[str, Any]) -> _Facts:
        command = arguments.get("command")
        if tool.name == "bash" and _stops(arguments):
            return _Facts(harmless=True)
        if tool.name == "bash" and isinstance(command, str):
            return self._facts_of_command(command, background=bool(arguments.get("background")))
        if not all(_is_possible(arguments.get(name, "")) for name in ("file_path", "path", "pattern", "include")):
            return _Facts(harmless=True)  # the tool says what is wrong with it
        path = arguments.get("file_path")
        # Looked up once: what is judged is what is read or written.
        place = _real(self._workspace.resolve(path)) if isinstance(path, str) else None
        secret = self._secret(tool, arguments, place)
        if tool.read_only:
            return _Facts(harmless=True, secret=secret, place=place)
        why = f"{tool.name} may change something"
        inside = self._is_inside(place) if place else None
        return _Facts(why=why, secret=secret, inside=inside, place=place)

    def _facts_of_command(self, command: str, *, background: bool) -> _Facts:
        # With its tables 15 ms, only once a command is judged.
        from .gitloss import WHY, loses_git
        from .judgement import Place, judge
        from .readonly import steering
        from .shellparse import Unclear

        workspace = self._workspace
        lost = loses_git(command, workspace.cwd, workspace.root)
        merged = {**os.environ, **workspace.env}
        env = {name: value for name, value in merged.items() if value is not None}
        place = Place(workspace.cwd, workspace.root, env, self._secrets, os.environ)
        changed = tuple(steering(place.changed))
        try:
            parts = judge(command, place)
        except Unclear as unclear:
            return _Facts(why=WHY if lost else str(unclear), changed=changed, lost=lost)
        secret = next((part.secret for part in parts if part.secret), "")
        lost = lost and any(part.doubt for part in parts)
        if background:
            why = WHY if lost else "it would go on in the background"
            return _Facts(why=why, secret=secret, changed=changed, lost=lost)
        doubted = [part for part in parts if part.doubt and not part.secret]
        why = doubted[0].doubt if doubted else ""
        if lost:
            return _Facts(why=WHY, secret=secret, changed=changed, lost=True)
        prefixes = None if changed else _prefixes(doubted, place)
        return _Facts(harmless=not doubted, why=why, secret=secret, prefixes=prefixes, changed=changed)

    def _secret(self, tool: Tool, arguments: dict[str, Any], real: Path | None) -> str:
        """What a call that shows the content or the names of files would show of secret ones, "" if nothing."""
        if not (tool.read_only or tool.name == "edit_file"):  # which shows what stands around a change
            return ""
        place = next((value for name in ("file_path", "path") if isinstance(value := arguments.get(name), str)), "")
        names = [
            arguments[name]
            for name, of in (("pattern", "glob"), ("include", "grep"))
            if tool.name == of and name in arguments
        ]
        for name in names or [""]:
            path = self._workspace.resolve(os.path.join(place, os.path.expanduser(name)) or ".")
            if self._secrets.named(str(path)) or (real and self._secrets.named(str(real))):
                return told(str(path), self._workspace.root)
        return ""  # and what a search merely comes to, it leaves out by itself

    def _is_inside(self, place: Path) -> bool:
        """Whether an edit of the file at the real path `place` stays in the project, and away from what git runs and
        from our own files: which settings count and which projects are trusted is the user's to say."""
        root, home = self._workspace.root, self._secrets.own
        return lies_in(place, root) and not is_of_git(place, root) and not (home and lies_in(place, Path(home)))

    def _allowed(self, facts: _Facts) -> bool:
        """Whether an earlier "always" covers the call."""
        if facts.secret:
            return False
        if facts.inside:
            return self._edits
        return bool(facts.prefixes) and self._prefixes.issuperset(facts.prefixes or ())

    def _refusal(self, arguments: dict[str, Any], facts: _Facts) -> Refuse:
        if facts.lost:
            return Refuse(_AUTO_LOSS.format(why=facts.why))
        if facts.inside is None:
            return Refuse(_AUTO_COMMAND.format(why=facts.why))
        return Refuse(_AUTO_OUTSIDE.format(path=arguments.get("file_path"), root=self._workspace.root))

    def _question(self, tool: Tool, arguments: dict[str, Any], facts: _Facts, mode: str) -> Ask:
        detail = _detail(tool, arguments)
        choices: tuple[str, ...] = ONCE
        if tool.name == "bash":
            workspace = self._workspace
            where = "" if workspace.cwd == workspace.root else f" in {one_line(workspace.show(workspace.cwd), 200)}"
            leaves = " outside the sandbox" if self._all_confined and arguments.get("unconfined") else ""
            changed = f" with {listed(facts.changed, 5)} changed by earlier commands" if facts.changed else ""
            text = f"Run this command{where}{leaves}{changed}?"
            from .prefixes import spoken  # as above

            always = f"{spoken(facts.prefixes)} in this project" if facts.prefixes else ""
        else:
            verb = _VERBS.get(tool.name, tool.name)
            text = f"{verb} {one_line(str(arguments.get('file_path', arguments.get('path', ''))))}?"
            always = "every edit inside the project" if facts.inside else ""
            try:
                detail = tool.preview(self._workspace, arguments) or detail
            except ToolError as error:  # it may still succeed, once the calls before it have run
                detail = f"{error}\n{detail}"
        if facts.secret:
            text += f" It would show the model {facts.secret}, which may hold secrets."
        elif facts.inside is False:
            text += " It is outside the project, or part of what git runs or CoreCoder goes by."
        elif always and not facts.lost:
            text, choices = f"{text} (always: {always}, until the session ends)", ALWAYS
        if tool.name == "bash" and mode != "plan":  # where even a person's own command must change nothing
            choices = (*choices, EDIT)
        return Ask(text, detail, choices, self._why(arguments, facts), place=facts.place)

    def _why(self, arguments: dict[str, Any], facts: _Facts) -> str:
        """What keeps a call from running unasked, for a person, apart from the secret that the question names."""
        if facts.inside is None:
            bounds = self._boundary.partition(". ")[0].rstrip(".") if self.confined else ""
            leaves = bounds and arguments.get("unconfined")
            return facts.why + (f" ({bounds})" if leaves else "")
        where = "" if facts.inside else " outside the project, or part of what git runs or CoreCoder goes by"
        return f"it would change a file{where}"


def _joined(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def _real(path: Path) -> Path:
    """The real location of `path`; while something changes it `path` itself, which no link is followed for then."""
    try:
        return Path(os.path.realpath(path))
    except OSError:
        return path


def _stops(arguments: dict[str, Any]) -> bool:
    """Whether a call of bash only ends what this session started."""
    return arguments.get("stop") is not None


def _is_possible(path: object) -> bool:
    """Whether the system can know a file by this name: no NUL and no lone surrogate."""
    try:
        return b"\0" not in os.fsencode(str(path))
    except UnicodeEncodeError:
        return False


def _prefixes(doubted: Sequence[Part], place: Place) -> tuple[Prefix, ...] | None:
    """What "always" would allow so that all of `doubted` may run, None if one of them gets no prefix."""
    from .prefixes import prefix  # as above

    found: list[Prefix] = []
    for part in doubted:
        one = prefix(part.words, part.directories, place.project)
        if one is None:
            return None
        found.append(one)
    return tuple(dict.fromkeys(found))


def _detail(tool: Tool, arguments: dict[str, Any]) -> str:
    """The whole command, or all arguments."""
    if tool.name == "bash":
        return str(arguments.get("command"))
    return "\n".join(f"{name}: {value}" for name, value in arguments.items())
