"""The one message that stands for everything a compaction took out of view, and how it is told from what was said.

It is a user message in three tagged parts, each optional: the summary (a model's or code's), the facts (the ledger),
and the current request word for word. The summary comes first so that it can be read back: it is cleaned of its own
closing tag, hence the first closing tag ends it whatever the user or a tool wrote further down.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from .messages import Message, text_of

# Every user message that this program writes itself, rather than the user, starts like this.
OURS = "[CoreCoder: "
_HEAD = (
    f"{OURS}the conversation up to here was compacted. Nothing is lost: recall(17) brings back the whole message "
    "that is given as #17.]"
)
_ACKNOWLEDGED = "I have the notes and go on from there."
_TAG = re.compile(r"</?summary>")


def is_ours(message: Message) -> bool:
    """Whether a user message was written by this program: a notice, pictures from tools, a compaction."""
    return message.get("role") == "user" and text_of(message).startswith(OURS)


def is_memory(message: Message) -> bool:
    """Whether `message` stands for compacted conversation."""
    return message.get("role") == "user" and text_of(message).startswith(_HEAD)


def memory(summary: str, facts: str, request: str, images: Iterable[dict[str, Any]] = ()) -> Message:
    """The message that takes the place of old conversation. `images` are the request's picture parts."""
    parts = [_HEAD]
    if summary:
        parts.append(f"<summary>\n{_TAG.sub('', summary).strip()}\n</summary>")
    if facts:
        parts.append(f"<facts>\n{facts}\n</facts>")
    if request:
        parts.append(f"<current_request>\n{request}\n</current_request>")
    text = "\n".join(parts)
    pictures = list(images)
    return {"role": "user", "content": [{"type": "text", "text": text}, *pictures] if pictures else text}


def summary_of(view: Iterable[Message]) -> str:
    """The summary that the first memory in `view` carries, whole; "" if there is none."""
    message = next((message for message in view if is_memory(message)), None)
    text = text_of(message) if message else ""
    opening = f"{_HEAD}\n<summary>\n"
    if not text.startswith(opening):
        return ""
    return text[len(opening) :].partition("\n</summary>")[0]  # the user may have written what only looks like one


def is_acknowledgement(message: Message) -> bool:
    """Whether `message` is the assistant's word after a memory."""
    return message.get("role") == "assistant" and message.get("content") == _ACKNOWLEDGED


def acknowledgement() -> Message:
    """The assistant's word between a memory and a user message, since some templates want the roles to alternate."""
    return {"role": "assistant", "content": _ACKNOWLEDGED}
