"""The one message that stands for everything a compaction took out of view, and how it is read back.

It is a user message in four tagged parts, each optional: the summary (a model's or code's), the plan that the user
accepted, the facts (the ledger), and the current request word for word. The others never hold their closing tag at the
start of a line, and the request is the last: so what was put in is what is read back, whatever anybody wrote.

That a message is a memory is known from the log's record, not from its words. Only a plain list has no records: there
the first message is one if it has this form and the checksum in its head is that of the rest. So nothing is taken for
one that was not made here word for word, and what was is read back whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

from .messages import Message, pictures_of, text_of
from .values import dataclass

# Every user message that this program writes itself, rather than the user, starts like this.
OURS = "[CoreCoder: "
_HEAD = (
    f"{OURS}the conversation up to here was compacted ({{checksum:08x}}). Nothing is lost: recall(17) brings back the "
    "whole message that is given as #17.]"
)
_PARTS = re.compile(
    r"(?:\n<summary>\n(.*?)\n</summary>)?(?:\n<accepted_plan>\n(.*?)\n</accepted_plan>)?"
    r"(?:\n<facts>\n(.*?)\n</facts>)?"
    r"(?:\n<current_request>\n(.*)\n</current_request>)?",
    re.DOTALL,
)
_ACKNOWLEDGED = "I have the notes and go on from there."


@dataclass(frozen=True)
class Memory:
    """The parts of such a message; `request` is a user message, None if there is none."""

    summary: str = ""
    facts: str = ""
    request: Message | None = None
    plan: str = ""


def memory(summary: str, facts: str, request: str, images: Sequence[dict[str, Any]] = (), plan: str = "") -> Message:
    """The message that takes the place of old conversation. `images` are the request's picture parts."""
    parts = ""
    for tag, text in (("summary", summary.strip()), ("accepted_plan", plan), ("facts", facts)):
        if text:
            end = f"\n</{tag}>"
            parts += f"\n<{tag}>" + f"\n{text}".replace(end, f"\n {end[1:]}") + end
    if request:
        parts += f"\n<current_request>\n{request}\n</current_request>"
    text = _head_of(parts) + parts
    return {"role": "user", "content": [{"type": "text", "text": text}, *images] if images else text}


def read_memory(message: Message) -> Memory | None:
    """What `memory` made `message` of, or None where the form is another."""
    head, end, rest = text_of(message).partition("]")
    if message.get("role") != "user" or head + end != _head_of(rest):
        return None
    form = _PARTS.fullmatch(rest)
    if not form:
        return None
    summary, plan, facts, words = (part or "" for part in form.groups())
    images = pictures_of(message)
    content = [{"type": "text", "text": words}, *images] if images else words
    return Memory(summary, facts, {"role": "user", "content": content} if content else None, plan)


def _head_of(parts: str) -> str:
    return _HEAD.format(checksum=zlib.crc32(parts.encode("utf-8", "surrogatepass")))


def is_acknowledgement(message: Message) -> bool:
    """Whether `message` is the assistant's word after a memory."""
    return message.get("role") == "assistant" and message.get("content") == _ACKNOWLEDGED


def acknowledgement() -> Message:
    """The assistant's word between a memory and a user message, since some templates want the roles to alternate."""
    return {"role": "assistant", "content": _ACKNOWLEDGED}
