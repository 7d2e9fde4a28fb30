"""What glob and grep share: asking the search process, and saying what it left out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import ToolError
from ..tool import ToolContext
from .child import Child, running
from .files import shown
from .search.worker import command

TIME_LIMIT = 30.0
"""Seconds after which a search is ended and what it found is given."""

_SPARE = 5.0
_NAMED = 5


class Answers:
    """The answers of one search: iterate over them; `end` holds its last word, {} while it has none."""

    def __init__(self, child: Child) -> None:
        self.end: dict[str, Any] = {}
        self.bad = ""
        self.child = child

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for line in self.child.lines():
            try:
                answer = json.loads(line)
            except ValueError:  # cut off when its time was up
                return
            self.end = answer.get("end", {})
            self.bad = answer.get("bad", "")
            yield answer


@contextmanager
def asking(ctx: ToolContext, limit: float, **request: Any) -> Iterator[Answers]:
    """Starts our own search with `request` (see `search.worker`); it is ended when the block is left."""
    if not sys.executable:
        raise ToolError("Python's own program was not found, which this search needs. Use bash instead.")
    line = json.dumps({**request, "seconds": limit + _SPARE}).encode() + b"\n"
    try:
        with running(command(sys.executable), token=ctx.token, limit=limit, stdin=line, without=ctx.secrets) as child:
            yield Answers(child)
    except OSError as error:
        raise ToolError(f"The search could not be started: {error.strerror or error}.") from error


def left_out(ctx: ToolContext, root: str, end: dict[str, Any], *, found: bool) -> list[str]:
    """Sentences on what a search did not look at: ignored entries, hidden ones where nothing was found, errors."""
    said = []
    if end.get("ignored"):
        said.append(f"Ignored by rules like .gitignore, not searched: {_named(ctx, root, end['ignored'])}.")
    hidden = [name for name in end.get("hidden", ()) if "/" not in name.rstrip("/")]
    if hidden and not found:
        said.append(f"Hidden and not searched: {_named(ctx, root, hidden)}.")
    if said:
        said.append("Name a path to search it.")
    return [*said, *unreadable(ctx, end.get("errors", ()))]


def _named(ctx: ToolContext, root: str, names: Sequence[str]) -> str:
    slashed = (shown(ctx.workspace, os.path.join(root, name)) + "/" * name.endswith("/") for name in names[:_NAMED])
    listed = ", ".join(slashed)
    return f"{listed} and more" if len(names) > _NAMED else listed


def unreadable(ctx: ToolContext, errors: Iterable[Sequence[str]]) -> list[str]:
    """A sentence on places that could not be read."""
    listed = [f"{shown(ctx.workspace, path)} ({reason})" for path, reason in errors]
    more = " and more" if len(listed) > _NAMED else ""
    return [f"Could not be read: {', '.join(listed[:_NAMED])}{more}."] if listed else []
