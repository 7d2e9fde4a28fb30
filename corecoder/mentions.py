"""What `@path` in a prompt stands for: the file, the directory or the picture is put below the words that name it.

Files are read by the read_file tool itself, so bounds, line numbers and words are those the model knows, and what was
shown can be edited without another read. A name that leads nowhere stays text: an address, a decorator. What the
person names is theirs to show, outside the project too, but a file that may hold secrets is left out: it is seldom
meant to be sent. The price: the files are read anew for each prompt, and stay in the conversation as they were.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from .errors import ToolError
from .jobs import CancelToken
from .secretfiles import secret_files
from .text import AT, ATTACHED, one_line, plural
from .tool import ToolContext, ToolResult, Workspace
from .tools.files import explained, shown
from .tools.finding import Answer, anyway, asking, heard, left_out
from .tools.read_file import LINES, ReadFileTool
from .values import dataclass

ENOUGH = 60_000
"""Characters after which no further file is shown; one alone is bounded by read_file."""

PICTURES = 10
ENTRIES = 200
_SECONDS = 5.0  # for one directory

_MENTION = re.compile(rf'{AT}(?:"(?P<quoted>[^"\n]+)(?:"(?P<after>:[\d-]+)?|$)|(?P<bare>[^\s"]\S*))', re.MULTILINE)
_LINES = re.compile(r"(?P<name>.+):(?P<first>\d{1,9})(?:-(?P<last>\d{0,9}))?", re.DOTALL)
_ENDS = ".,;:!?)]}>'\"`*"
_ASCII = re.compile(r"[!-~]+")


@dataclass(frozen=True)
class Expanded:
    """A prompt with what it names: `text` for the model, `images` as data URLs, `notes` for the person, one each."""

    text: str
    images: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Mention:
    """An existing path that a prompt names, and the lines of it that are wanted: from the `first`, `count` of them."""

    path: Path
    first: int = 1
    count: int = LINES


def expand(prompt: str, workspace: Workspace, *, sees_images: bool, token: CancelToken | None = None) -> Expanded:
    """`prompt` with the files it names below it. Reads files and may take seconds: not for a thread that draws.

    Paths are looked up in the project directory, then in the shell's. Raises Cancelled if `token` is cancelled.
    """
    ctx = ToolContext(workspace, token or CancelToken(), sees_images=sees_images)
    secrets = secret_files(workspace)
    parts: list[str] = []
    images: list[str] = []
    notes: list[str] = []
    for mention in dict.fromkeys(_mentions(prompt, workspace)):
        ctx.token.check()
        name = shown(workspace, mention.path) + "/" * os.path.isdir(mention.path)
        if secrets.named(str(mention.path)):
            result, note = (
                ToolResult(f"{name} is not shown: it may hold secrets."),
                f"not shown: {name} may hold secrets",
            )
        elif sum(map(len, parts)) >= ENOUGH or len(images) >= PICTURES:
            result = ToolResult(f"{name} is not shown, for there is much above already. Read it with read_file.")
            note = f"not shown: {name}, for there is much above already; the model can read it"
        else:
            result, note = _shown(mention, name, ctx)
        images += result.images
        notes.append(note)
        parts.append(f'<attached path="{name}">\n{result.content}\n</attached>')
    if not parts:
        return Expanded(prompt)
    return Expanded(f"{prompt}{ATTACHED}" + "\n".join(parts), tuple(images), tuple(notes))


def _mentions(prompt: str, workspace: Workspace) -> Iterator[_Mention]:
    for match in _MENTION.finditer(prompt):
        if match["quoted"]:
            candidates = [match["quoted"] + (match["after"] or ""), match["quoted"]]
        else:
            # A sentence may end behind the name, and Chinese may go on without a blank.
            start = _ASCII.match(match["bare"])
            candidates = [match["bare"], match["bare"].rstrip(_ENDS), start[0].rstrip(_ENDS) if start else ""]
        found = next(filter(None, (_mention(each, workspace) for each in dict.fromkeys(candidates))), None)
        if found:
            yield found


def _mention(text: str, workspace: Workspace) -> _Mention | None:
    """What `text` names: an existing path, or one with lines behind it."""
    if path := _existing(text, workspace):
        return _Mention(path)
    lines = _LINES.fullmatch(text)
    path = _existing(lines["name"], workspace) if lines else None
    if lines is None or path is None or os.path.isdir(path):
        return None
    first = max(1, int(lines["first"]))
    last = lines["last"]
    if last == "":  # `10-`: to the end
        return _Mention(path, first)
    return _Mention(path, first, max(1, int(last or first) - first + 1))


def _existing(name: str, workspace: Workspace) -> Path | None:
    if name in ("", ".", "..", "/"):  # a sentence ends behind a lone @; JavaScript means its sources with @/
        return None
    places = (workspace.root / os.path.expanduser(name), workspace.resolve(name))
    return next((Path(os.path.normpath(place)) for place in places if os.path.lexists(place)), None)


def _shown(mention: _Mention, name: str, ctx: ToolContext) -> tuple[ToolResult, str]:
    """What the model is shown of one path, and what the person is told about it."""
    try:
        if os.path.isdir(mention.path):
            return _listing(mention.path, name, ctx)
        result = ReadFileTool().execute(str(mention.path), mention.first, mention.count, ctx=ctx)
    except ToolError as error:
        return ToolResult(str(error)), f"not shown: {one_line(str(error), 300)}"
    if result.images:
        return result, f"{name} (picture)"
    (first, last), total = result.data["lines"], result.data["total"]
    whole = last - first + 1 >= total
    return result, f"{name} ({plural(total, 'line') if whole else f'lines {first} to {last} of {total:,}'})"


def _listing(top: Path, name: str, ctx: ToolContext) -> tuple[ToolResult, str]:
    """What there is in a directory, the nearest first where it is too much, without what rules ignore."""
    root = os.path.realpath(top)
    with explained(ctx.workspace, top):
        os.scandir(root).close()

    def search(ignore: bool) -> Answer:
        with asking(ctx, _SECONDS, do="list", root=root, ignore=ignore, most=ENTRIES) as child:
            return heard(child)

    answer = anyway(ctx, top, search)
    lines = [shown(ctx.workspace, top / each) + "/" * each.endswith("/") for each in sorted(answer.found)]
    notes = [*answer.notes, *left_out(ctx, root, answer)]
    more = bool(answer.end.get("more")) or answer.timed_out
    count = f"{'the first ' * more}{len(lines)} {'entry' if len(lines) == 1 else 'entries'}"
    if more:
        notes.insert(0, f"These are {count}; glob finds the others.")
    text = "\n".join([*(lines or ["(nothing)"]), *([f"[{' '.join(notes)}]"] if notes else [])])
    return ToolResult(text), f"{name} ({count})"
