"""The summary of old conversation: what to ask a model for, when to refuse its answer, and what to do without one.

The request is the conversation exactly as the model last saw it, tools included, plus one instruction. So the
provider's prompt cache pays for nine tenths of it, which a fresh prompt with the same text would not get. Where that
is refused or does not fit, the conversation is written out and fed in pieces, each updating the notes so far. The
price of the first way is that a model may answer with a tool call instead; it is then asked once more with calls
forbidden by the API.

Whatever fails, `extract` takes what can be had without a model, in time linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from .errors import Cancelled, ContextOverflow, ProviderError, RequestRefused, RequestTooLarge
from .jobs import CancelToken
from .memory import OURS, is_acknowledgement
from .messages import Message, Reply, calls_of, repair, text_of
from .text import clip_middle, one_line
from .tiers import fit_text, water_level
from .tokens import Count
from .values import dataclass

_INSTRUCTION = (
    OURS + "the conversation is about to be compacted: all but the newest messages will go out of view.]\n"
    "Do not go on with the task now and do not call any tool. Write the notes you will go on from, in plain text under "
    "these headings:\n"
    "## Goal\nwhat the user wants in the end, and how far it is done\n"
    "## Decisions\nwhat was decided, each with its reason\n"
    "## Dead ends\nwhat was tried and did not work, and why, so that it is not tried again\n"
    "## Facts\nwhat was found out and will be needed: names, numbers, places, exactly as they are written\n"
    "## Next step\nwhat you were about to do\n"
    "Kept without you, word for word: the user's messages, paths of files read and changed, commands with exit codes, "
    "failing tests, the todo list. Do not repeat those.{previous}{focus}\n"
    "At most {words} words. Answer with the notes only."
)
_PREVIOUS = " Notes from before stand in <summary>: take over all in them that still holds, do not thin them out."
_FOCUS = "\nThe user asks to keep in particular: {focus}"
_SYSTEM = "You keep the notes of a coding session whose text is given to you in pieces."
_PIECE = "{notes}The conversation, piece {number} of {of}:\n<conversation>\n{text}\n</conversation>\n\n{instruction}"
MAX_PIECES = 8
_SHOWN_RESULT = 3_000  # characters of one message that are written out
_LEAST_WORDS = 5  # less than this is no summary

_DECIDED = re.compile(r"\b(?:decid|because|instead|must|should|will|plan|found|fixed|cannot|root cause|next)", re.I)
_SECTION = re.compile(r"^(?=## )", re.M)
_EXTRACTED = "(No model summary could be had; these lines were picked by code.)"


class Model(Protocol):
    """What is needed of a model: one blocking request."""

    def chat(
        self,
        messages: list[Message],
        tools: list[dict[str, Any]] | None = None,
        *,
        token: CancelToken | None = None,
        tool_choice: str | None = None,
    ) -> Reply: ...


@dataclass(frozen=True)
class Summary:
    """What came of asking: the text, "" with the reason in `failed`, and what the requests cost in dollars."""

    text: str = ""
    failed: str = ""
    cost: float | None = None


@dataclass(frozen=True)
class Request:
    """All that a summary is made from.

    `prefix` is the view up to what the model last saw, `previous` the summary that it carries, `new` what came after
    that; `system` and `tools` go with every request, `words` is the length to ask for. `piece` is how many characters
    of text fit into one request of the second way, `whole` whether the prefix fits as it is.
    """

    prefix: Sequence[Message]
    new: Sequence[Message]
    system: Message | None = None
    tools: list[dict[str, Any]] | None = None
    previous: str = ""
    focus: str = ""
    words: int = 600
    piece: int = 100_000
    whole: bool = True

    @property
    def instruction(self) -> str:
        return _INSTRUCTION.format(
            previous=_PREVIOUS if self.previous else "",
            focus=_FOCUS.format(focus=self.focus) if self.focus else "",
            words=self.words,
        )


@dataclass
class _Asking:
    """The requests of one summary: they share a token and add up their cost."""

    llm: Model
    token: CancelToken
    cost: float | None = None

    def ask(self, messages: list[Message], tools: list[dict[str, Any]] | None) -> str:
        """The answer's text. Raises ProviderError or _Refused."""
        reply = self._chat(messages, tools, None)
        if calls_of(reply.message):
            reply = self._chat(messages, tools, "none")
        if reply.cut:
            raise _Refused("the summary was cut off at the output limit")
        text = reply.content.replace(_EXTRACTED, "").strip()  # copied from before, it would part what is now written
        if calls_of(reply.message) or (len(text.split()) < _LEAST_WORDS and len(text) < 8 * _LEAST_WORDS):
            raise _Refused("the model's summary was empty")
        return text

    def _chat(self, messages: list[Message], tools: list[dict[str, Any]] | None, tool_choice: str | None) -> Reply:
        self.token.check()
        extra = {"tool_choice": tool_choice} if tool_choice else {}
        reply = self.llm.chat(messages, tools or None, token=self.token, **extra)
        if reply.usage and reply.usage.cost is not None:
            self.cost = (self.cost or 0.0) + reply.usage.cost
        self.token.check()  # what comes after the deadline is not used
        return reply


class _Refused(Exception):
    """An answer that is no summary; the text says why."""


def ask_for_summary(llm: Model, request: Request, token: CancelToken, timeout: float) -> Summary:
    """A summary by the model, or why there is none. Raises Cancelled only if `token` was cancelled."""
    with token.deadline(timeout) as deadline:
        asking = _Asking(llm, deadline)
        text = failed = ""
        try:
            text = _continued(asking, request) or _in_pieces(asking, request)
        except Cancelled:
            token.check()
            failed = f"the summary took longer than {timeout:g} s"
        except (_Refused, ProviderError) as error:
            failed = one_line(str(error), 200)
        except Exception as error:  # noqa: BLE001 - a model of another make may raise anything; the session goes on
            failed = one_line(f"{type(error).__name__}: {error}", 200)
        return Summary(text, failed, asking.cost)


def _continued(asking: _Asking, request: Request) -> str:
    """The summary as a continuation of the conversation; "" where that cannot be sent."""
    if not request.whole:
        return ""
    system = [request.system] if request.system else []
    instruction: Message = {"role": "user", "content": request.instruction}
    try:
        return asking.ask([*system, *repair(request.prefix), instruction], request.tools)
    except (ContextOverflow, RequestRefused, RequestTooLarge):
        return ""


def _in_pieces(asking: _Asking, request: Request) -> str:
    """The summary from the conversation as text, piece by piece, each answer being the notes for the next."""
    for size in (request.piece, request.piece // 3):
        try:
            return _update(asking, request, pieces_of(request.new, size))
        except (ContextOverflow, RequestTooLarge):
            continue  # never the same again: the next try is smaller
    raise _Refused("even a third of the conversation was too long for the model to summarise")


def _update(asking: _Asking, request: Request, pieces: Sequence[str]) -> str:
    notes = request.previous
    for number, text in enumerate(pieces, 1):
        shown = f"<summary>\n{notes}\n</summary>\n\n" if notes else ""
        instruction = replace(request, previous=notes).instruction
        prompt = _PIECE.format(notes=shown, number=number, of=len(pieces), text=text, instruction=instruction)
        notes = asking.ask([{"role": "system", "content": _SYSTEM}, {"role": "user", "content": prompt}], None)
    return notes


def pieces_of(messages: Sequence[Message], size: int) -> list[str]:
    """The conversation as text in at most MAX_PIECES pieces of at most `size` characters; where it is longer, every
    message is shown shorter, and if that is not enough the oldest pieces are left out."""
    shown = _SHOWN_RESULT
    while True:
        lines = [_written_out(message, shown) for message in messages]
        if sum(map(len, lines)) <= MAX_PIECES * size * 3 // 4 or shown < 200:
            break
        shown //= 2
    pieces: list[str] = []
    for line in lines:
        line = clip_middle(line, max(200, size - 80))
        if pieces and len(pieces[-1]) + len(line) < size:
            pieces[-1] += "\n" + line
        else:
            pieces.append(line)
    return pieces[-MAX_PIECES:] or ["(nothing)"]


def _written_out(message: Message, limit: int) -> str:
    parts = [clip_middle(text_of(message), limit)]
    for call in calls_of(message):
        function = call.get("function") or {}
        parts.append(f"-> {function.get('name')}({clip_middle(str(function.get('arguments')), limit // 2)})")
    return f"[{message.get('role')}] " + "\n".join(part for part in parts if part)


def trimmed(summary: str, limit: int, count: Count) -> str:
    """`summary` in at most `limit` tokens: its longest sections are cut, in their middle, to one level."""
    if count(summary) <= limit:
        return summary
    sections = _SECTION.split(summary)
    level = water_level([count(section) + 1 for section in sections], limit)
    return "".join(fit_text(section, level - 1, count, note="…") for section in sections)


def without_extract(summary: str) -> str:
    """The part of `summary` that a model wrote."""
    return summary.split(_EXTRACTED)[0].strip()


def extract(messages: Iterable[Message], limit: int, count: Count) -> str:
    """The model's own telling sentences, newest first, in at most `limit` tokens. No model, one pass, no surprises."""
    lines: dict[str, None] = {}
    left = limit - count(_EXTRACTED)
    for message in reversed(list(messages)):
        if message.get("role") != "assistant" or is_acknowledgement(message):
            continue
        text = text_of(message)
        told = [line.strip() for line in (text[:4000] + "\n" + text[4000:][-2000:]).split("\n") if len(line) < 600]
        for line in [line for line in told if _DECIDED.search(line)][:3] or told[:1]:
            if line and line not in lines:
                left -= count(line) + 4
                if left < 0:
                    return _listed(lines)
                lines[line] = None
    return _listed(lines)


def _listed(lines: Iterable[str]) -> str:
    picked = [f"- {line}" for line in lines]
    return "\n".join([_EXTRACTED, *picked]) if picked else ""
