"""Commands on what was said and done so far: make room, look at the changes, take turns back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..events import Compacted
from ..messages import text_of
from ..text import one_line, plural, typed
from .registry import Console, command, indented

if TYPE_CHECKING:
    from ..rewind import Part, Rewind, Turn
    from ..sessiondiff import FileDiff

_VERBS = {"restore": "restored", "create": "created", "remove": "removed", "leave": "left"}
_OPTIONS = ("--now", "--force", "--keep", "--files", "--words")
_PARTS: dict[str, Part] = {"--files": "files", "--words": "words"}
_SIGNS = {"+": "green", "-": "red", "@": "cyan"}
_FILE_LINES = 40  # of one file's diff, where several changed
_ALL_LINES = 200


@command("compact", "[focus | --undo]")
def compact(console: Console, argument: str) -> None:
    """Makes room in the context window.

    Old output is snipped, old conversation summarised. What you write after the command tells the summary
    what to keep. `--undo` brings back what the last compaction replaced; nothing is lost from the session log.
    """
    agent, screen = console.agent, console.screen
    if argument == "--undo":
        done = agent.undo_compaction()
        return screen.line("The last compaction is undone." if done else "There is no compaction to undo.")
    if argument.startswith("--"):
        return screen.line("The only option is --undo.", "yellow")
    for event in console.follow(agent.compact(argument)):
        if isinstance(event, Compacted):
            count = plural(event.messages, "message")
            screen.line(f"Compressed: {event.before} -> {event.after} tokens ({count})")
        else:
            console.renderer.show(event)
    return None


def _changed(console: Console) -> Iterable[tuple[str, str]]:
    from ..sessiondiff import changed_paths  # with the database of checkpoints, which few sessions ask

    return [(name, "a file that changed") for name in changed_paths(console.agent.session, console.agent.checkpoints)]


@command("diff", "[file]", anytime=True, choices=_changed)
def diff(console: Console, argument: str) -> None:
    """Shows what changed in the project since the session began.

    What was kept before the first change of each file is compared with the file as it is now, so a change of your own
    in such a file counts too. A long diff is cut on the screen; `/diff FILE` shows that of one file whole.
    """
    from ..sessiondiff import session_diff  # as above

    screen = console.screen
    found = session_diff(console.agent.session, console.agent.checkpoints)
    for note in found.notes:
        screen.prose(note, "yellow")
    files = [each for each in found.files if not argument or each.name == argument]
    if not files:
        named = f"{argument} has not changed" if argument else "Nothing has changed"
        return screen.line(f"{named} in this session.")
    left, hidden = _ALL_LINES, 0
    for each in files:
        lines = each.text.splitlines()
        shown = len(lines) if argument else max(0, min(left, _FILE_LINES if len(files) > 1 else _ALL_LINES))
        shown = len(lines) if len(lines) - shown <= 2 and shown else shown
        left -= shown
        _show(console, each, lines, shown)
        hidden += len(lines) > shown
    added, removed = sum(each.added for each in files), sum(each.removed for each in files)
    screen.line(f"{plural(len(files), 'file')}, +{added:,} -{removed:,}", "bold")
    if hidden:
        screen.line("/diff FILE shows the diff of one file whole.", "dim")
    return None


def _show(console: Console, each: FileDiff, lines: list[str], shown: int) -> None:
    screen = console.screen
    screen.line(f"{each.name}: {each.summary}", "bold")
    for line in lines[:shown]:
        screen.line(line, _SIGNS.get(line[:1], "dim"))
    if len(lines) > shown:
        screen.line(f"… {plural(len(lines) - shown, 'line')} of this diff hidden", "dim")


@command("undo", "[options]")
def undo(console: Console, argument: str) -> None:
    """Takes the last turn back, files and talk.

    Alone it shows what would happen to which file; `--now` does it, `--files` the files alone and `--words` the talk
    alone. A file that you changed as well is left as it is, unless you say `--force`. While such a file or one that
    failed is left, the turn stays, so that you can ask again; `--keep` takes the turn back and leaves those files as
    they are.
    """
    _rewind(console, None, argument)


def _turns(console: Console) -> Iterable[tuple[str, str]]:
    session = console.agent.session
    words = [one_line(typed(text_of(session.message(record))), 60) for _, record in session.turns]
    return reversed([(str(number), each) for number, each in enumerate(words, 1)])


def _about(turn: Turn) -> str:
    return f"{turn.words} ({_files(turn)})"


def _files(turn: Turn) -> str:
    if not turn.files:
        return "nothing changed"
    return f"changed {plural(len(turn.files), 'file')}: {one_line(', '.join(turn.files), 60)}"


@command("rewind", "[turn] [options]", choices=_turns)
def rewind(console: Console, argument: str) -> None:
    """Goes back to before a turn: files, words or both.

    Alone it lists the turns with what each changed and asks for one. With the number of one it works like /undo, with
    the same options, for that turn and all after it.
    """
    number, _, option = argument.partition(" ")
    if number.isascii() and number.isdecimal():
        return _rewind(console, int(number), option)
    if argument:
        return console.screen.line("Give the number of a turn; /rewind lists them.", "yellow")
    turns = console.agent.turns()
    if not turns:
        return console.screen.line("There is no turn to go back to yet.")
    at = console.pick("Go back to before which turn?", [_about(turn) for turn in turns])
    if at is None:
        return None
    turn = turns[at].number
    _preview(console, console.agent.preview(turn))
    rows = ["nothing", "files and words", "files alone", "words alone"]
    chosen = console.pick("What is to be taken back?", rows)
    return _rewind(console, turn, ("--now", "--files", "--words")[chosen - 1]) if chosen else None


def _rewind(console: Console, turn: int | None, argument: str) -> None:
    agent, screen = console.agent, console.screen
    name = "/undo" if turn is None else f"/rewind {turn}"
    options = argument.split()
    part = [_PARTS[each] for each in options if each in _PARTS]
    if not set(options) <= set(_OPTIONS) or len(part) > 1:
        return screen.line(f"The options are {', '.join(_OPTIONS[:-1])} and {_OPTIONS[-1]}.", "yellow")
    if not options:
        result = agent.preview(turn)
        _preview(console, result)
        more = f", but the turn stays while files are left; {_LEFT}" if any(x.forcible for x in result.files) else ""
        return screen.prose(f"{name} --now does it{more}.", "dim")
    force, keep = "--force" in options, "--keep" in options
    result = agent.rewind(turn, force=force, keep=keep, part=part[0] if part else "both")
    _changes(console, result, done=True)
    if part == ["words"]:
        return screen.prose(f"Taken back: {_what(result)}; the files stay")
    if result.taken_back:
        return screen.prose(f"Taken back: {_what(result)}, {_count(result)}")
    if part == ["files"]:
        return screen.prose(f"Put back to before turn {result.turn.number}: {_count(result)}; the conversation stays")
    left = plural(sum(change.failed or change.forcible for change in result.files), "file")
    screen.prose(f"Not taken back, as {left} had to be left: {_what(result)}", "yellow")
    return screen.prose(f"{name} --now tries again; {_LEFT}.", "dim")


_LEFT = "--force also changes such files, --keep leaves them and takes the turn back"


def _preview(console: Console, result: Rewind) -> None:
    _changes(console, result, done=False)
    console.screen.prose(f"This takes back {_what(result)}: {_count(result)}")


def _changes(console: Console, result: Rewind, *, done: bool) -> None:
    for change in result.files:
        verb = _VERBS[change.action] if done else change.action
        line, reason = f"  {verb:<8}  {change.path}", f" ({change.reason})" if change.reason else ""
        if console.screen.terminal and len(line + reason) >= console.screen.width:
            reason = f"\n{'':11}{reason}"
        console.screen.line(line + reason)
    for note in result.notes:
        indented(console.screen, note, "yellow")


def _what(result: Rewind) -> str:
    first, words = result.turn.number, one_line(result.turn.words, 32 if result.turns == 1 else 20)
    if result.turns == 1:
        return f'turn {first} ("{words}")'
    return f'turns {first} to {first + result.turns - 1} (from "{words}" on)'


def _count(result: Rewind) -> str:
    left = sum(change.action == "leave" for change in result.files)
    changed = plural(len(result.files) - left, "file") if len(result.files) > left else "no files"
    return f"{changed}, {left} left" if left else changed
