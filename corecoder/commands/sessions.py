"""Commands on sessions: which there are, going on with one, going on in a copy, a new one, and one as Markdown."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

from ..journal import words, write_private
from ..layout import cells, wrap
from ..messages import text_of
from ..session import Session
from ..sessiondir import SessionInfo
from ..terminal import Screen
from ..text import plural, printable, typed
from ..transcript import markdown
from ..words import money
from .registry import Console, command, fitted

_MOST = 30  # sessions listed
_PROMPT_LINES, _ANSWER_LINES = 3, 6  # of a recap


@command("sessions", anytime=True)
def sessions(console: Console, _argument: str) -> None:
    """Lists the sessions of this project.

    With their first words, time, size and cost. `/resume ID` goes on with one, `corecoder -r ID` as well.
    """
    list_sessions(console.screen, console.config.home, console.agent.workspace.root, current=console.agent.session.id)


def list_sessions(screen: Screen, home: Path, project: Path, *, current: str = "") -> None:
    """Two lines for each session of the project, the newest first."""
    found = Session.listing(home, project)
    if not found:
        screen.line("  There are no sessions of this project yet.")
    for info in found[:_MOST]:
        screen.line(f"  {fitted(info.title or '(no words)', max(20, screen.width - 4))}")
        here = ", this one" if info.id == current else ""
        screen.line(f"    {info.id}  {facts(info)}{here}", "dim")
    if len(found) > _MOST:
        screen.line(f"  … and {plural(len(found) - _MOST, 'older one')}", "dim")


def facts(info: SessionInfo, *, messages: bool = True) -> str:
    """`today 14:25, 12 messages, 48 KB, $0.03`."""
    count = f", {plural(info.messages, 'message')}" if messages else ""
    cost = f", {money(info.cost)}" if info.cost else ""
    return f"{when(info.modified)}{count}, {size(info.size)}{cost}"


def when(moment: float) -> str:
    """The local time: of today the hour, of other days the date too."""
    then = time.localtime(moment)
    today = time.strftime("%Y-%m-%d", then) == time.strftime("%Y-%m-%d")
    return time.strftime("today %H:%M" if today else "%Y-%m-%d %H:%M", then)


def size(count: int) -> str:
    """Bytes in a short form."""
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{max(1, round(count / 1e3))} KB"


def _others(console: Console) -> list[SessionInfo]:
    found = Session.listing(console.config.home, console.agent.workspace.root)
    return [info for info in found if info.id != console.agent.session.id]


def _ids(console: Console) -> Iterable[tuple[str, str]]:
    return [(info.id, f"{when(info.modified)}: {info.title}") for info in _others(console)]


@command("resume", "[id]", choices=_ids)
def resume(console: Console, argument: str) -> None:
    """Goes on with another session of this project.

    The argument is its id or the start of it; alone it lists them and asks. The session that you leave is kept.
    """
    screen = console.screen
    if argument:
        chosen = Session.find(console.config.home, console.agent.workspace.root, argument).stem
    else:
        found = _others(console)[:_MOST]
        if not found:
            return screen.line("There is no other session of this project.")
        room = max(20, screen.width - 44)
        rows = []
        for info in found:
            title = fitted(info.title or "(no words)", room)
            rows.append(f"{title}{' ' * (room - cells(title))}  {facts(info, messages=False)}")
        at = console.pick("Go on with which session?", rows)
        if at is None:
            return None
        chosen = found[at].id
    if chosen == console.agent.session.id:
        return screen.line("That is this session.")
    return console.reopen(chosen)


@command("fork")
def fork(console: Console, _argument: str) -> None:
    """Goes on in a copy of this session.

    The session stays as it is and is listed as before; both can be gone on with. Files are not copied.
    """
    before = console.agent.session.id
    console.reopen(console.agent.session.fork())
    console.screen.prose(
        f"This is a copy now, {console.agent.session.id}. /resume {before} goes back to the session it was made of."
    )


@command("clear", also=("reset", "new"))
def clear(console: Console, _argument: str) -> None:
    """Starts a new session; the old one is kept."""
    before = console.agent.session
    kept = bool(before.turns) and before.on_disk
    console.reopen(None)
    way = f" The old one is kept: /resume {before.id} goes on with it." if kept else ""
    console.screen.prose(f"A new session.{way}")


def recap(session: Session, screen: Screen) -> None:
    """Shows again, for whoever goes on with `session`, its last prompt and the end of the last answer; nothing of a new
    one."""
    room = max(20, screen.width - 4)
    turns = session.turns
    if turns:
        prompt = _wrapped(typed(text_of(session.message(turns[-1][1]))), room)
        more = ["…"] if len(prompt) > _PROMPT_LINES else []
        for mark, line in zip("›   ", [*prompt[:_PROMPT_LINES], *more], strict=False):
            screen.line(f"{mark} {line}", "dim")
    spoken = (text_of(each) for each in reversed(session.view) if each.get("role") == "assistant")
    answer = _wrapped(next((text for text in spoken if text.strip()), ""), room)
    if len(answer) > _ANSWER_LINES:
        answer = ["…", *answer[-_ANSWER_LINES:]]
    for line in answer:
        screen.line(f"  {line}", "dim")


def _wrapped(text: str, room: int) -> list[str]:
    """The lines of `text`, broken at `room` columns, blank ones left out."""
    lines = wrap([(printable(text[-20_000:]), "")], room, fold=True)
    return [line for pieces in lines if (line := "".join(piece for piece, _ in pieces)).strip()]


@command("export", "[file]")
def export(console: Console, argument: str) -> None:
    """Writes the whole conversation to a Markdown file.

    From the log, so with what was compacted since: prompts, answers, tool calls with their results. Without a name
    it is put into the project. A file that exists is never overwritten.
    """
    agent, screen = console.agent, console.screen
    session = agent.session
    if not session.turns:
        return screen.line("There is nothing to export yet.")
    path = agent.workspace.root / os.path.expanduser(argument or ".")
    if path.is_dir():
        path = path / f"corecoder-{session.id}.md"
    data = "".join(markdown(session, agent.context.recall)).encode()
    try:
        write_private(path, data)
    except FileExistsError:
        return screen.prose(f"{path} exists and was left as it is; give another name: /export FILE", "yellow")
    except OSError as error:
        return screen.prose(f"{path} cannot be written: {words(error)}", "red")
    return screen.prose(f"Written to {path}, {size(len(data))}, readable by you alone.")
