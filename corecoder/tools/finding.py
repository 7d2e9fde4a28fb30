"""What glob and grep share: asking the search process, searching what is ignored, and saying what was left out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from ..errors import ToolError
from ..tool import ToolContext
from ..values import dataclass
from .child import Child, running
from .files import shown
from .search.worker import command

TIME_LIMIT = 30.0
"""Seconds after which a search is ended and what it found is given."""

_SPARE = 5.0
_NAMED = 5


@dataclass
class Answer:
    """What a search found (see `search.worker`), and the totals and notes of its end; `bad` for a wrong pattern."""

    found: list[Any] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    bad: str = ""
    timed_out: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return int(self.end.get("total", len(self.found)))


@contextmanager
def asking(ctx: ToolContext, limit: float, **request: Any) -> Iterator[Child]:
    """Starts our own search with `request` (see `search.worker`); it is ended when the block is left."""
    if not sys.executable:
        raise ToolError("Python's own program was not found, which this search needs. Use bash instead.")
    line = json.dumps({**request, "seconds": limit + _SPARE}).encode() + b"\n"
    try:
        with running(command(sys.executable), token=ctx.token, limit=limit, stdin=line, without=ctx.secrets) as child:
            yield child
    except OSError as error:
        raise ToolError(f"The search could not be started: {error.strerror or error}.") from error


def heard(child: Child) -> Answer:
    """Everything that our own search says; what it said so far when its time is up."""
    answer = Answer(timed_out=True)
    for line in child.lines():
        try:
            said = json.loads(line)
        except ValueError:  # cut off when its time was up
            break
        if "found" in said:
            answer.found.append(said["found"])
        else:
            answer.timed_out = False
            answer.bad, answer.end = said.get("bad", ""), said.get("end", {})
    return answer


def anyway(ctx: ToolContext, top: Path, search: Callable[[bool], Answer]) -> Answer:
    """`search(True)`, which heeds the ignore rules; where they hide all of `top`, the path that was named counts."""
    answer = search(True)
    if answer.total or not answer.end.get("ignored") or answer.end["kept"]:
        return answer
    answer = search(False)
    answer.notes.append(f"Everything in {shown(ctx.workspace, top)} is ignored by rules; it was searched all the same.")
    return answer


def stopped(answer: Answer, seconds: float, advice: str) -> str:
    """The line before all others where the time was over first, "" where everything was searched."""
    return f"[Not everything was searched: stopped after {seconds:g} s. {advice}]\n" if answer.timed_out else ""


def left_out(ctx: ToolContext, root: str, answer: Answer) -> list[str]:
    """Sentences on what a search did not look at: ignored entries, hidden ones where nothing was found, errors."""
    end, said = answer.end, []
    if end.get("ignored"):
        said.append(f"Ignored by rules like .gitignore, not searched: {_named(ctx, root, end['ignored'])}.")
    hidden = [name for name in end.get("hidden", ()) if "/" not in name.rstrip("/")]
    if hidden and not answer.found:
        said.append(f"Hidden and not searched: {_named(ctx, root, hidden)}.")
    if said:
        said.append("Name a path to search it.")
    if errors := end.get("errors"):
        listed = [f"{shown(ctx.workspace, path)} ({reason})" for path, reason in errors[:_NAMED]]
        said.append(f"Could not be read: {', '.join(listed)}{' and more' * (len(errors) > _NAMED)}.")
    return said


def _named(ctx: ToolContext, root: str, names: Sequence[str]) -> str:
    slashed = [shown(ctx.workspace, os.path.join(root, name)) + "/" * name.endswith("/") for name in names[:_NAMED]]
    return ", ".join(slashed) + " and more" * (len(names) > _NAMED)
