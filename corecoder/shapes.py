"""The changes that endpoints want in a list of messages: each takes messages and gives them back, copied where changed.

What each is for, and what an endpoint says to get it, stands beside its name in `dialects.py`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from .messages import CONTINUED, Message, calls_of, text_of

NO_IMAGE = "[an image was here; this model does not take images]"
BRIDGE = "(understood)"
NO_REASONING = " "  # Kimi takes an empty text for a missing one
REFUSED_IMAGE = "[an image was here; the provider refused it]"
# Google, "Thought signatures": the value to give for calls that another model made.
FOREIGN_SIGNATURE = "skip_thought_signature_validator"

_STANDARD = ("role", "content", "tool_calls", "tool_call_id", "name")


def _changed(message: Message, **fields: Any) -> Message:
    return {**message, **fields}


def plain(message: Message) -> Message:
    extra = [key for key in message if key not in _STANDARD]
    return {key: value for key, value in message.items() if key not in extra} if extra else message


def plain_calls(message: Message) -> Message:
    def bare(call: dict[str, Any]) -> dict[str, Any]:
        function = {key: call["function"].get(key) for key in ("name", "arguments")}
        return {"id": call.get("id"), "type": "function", "function": function}

    return _changed(message, tool_calls=[bare(call) for call in calls_of(message)]) if calls_of(message) else message


def with_reasoning(message: Message) -> Message:
    needs = message.get("role") == "assistant" and not message.get("reasoning_content")
    return _changed(message, reasoning_content=message.get("reasoning") or NO_REASONING) if needs else message


def signed(message: Message) -> Message:
    def sign(call: dict[str, Any]) -> dict[str, Any]:
        extra = call.get("extra_content") or {}
        if (extra.get("google") or {}).get("thought_signature"):
            return call
        return {**call, "extra_content": {**extra, "google": {"thought_signature": FOREIGN_SIGNATURE}}}

    return _changed(message, tool_calls=[sign(call) for call in calls_of(message)]) if calls_of(message) else message


def empty_content(message: Message) -> Message:
    return _changed(message, content="") if calls_of(message) and message.get("content") is None else message


def absent_content(message: Message) -> Message:
    bare = calls_of(message) and not text_of(message)
    return {key: value for key, value in message.items() if key != "content"} if bare else message


def text_content(message: Message) -> Message:
    if not isinstance(message.get("content"), list):
        return message
    parts = [part.get("text") if part.get("type") == "text" else NO_IMAGE for part in message["content"]]
    return _changed(message, content="\n".join(part for part in parts if part))


def no_images(message: Message) -> Message:
    return images_replaced(message, NO_IMAGE, images_of(message))


def images_of(message: Message) -> set[str]:
    """The URLs of the images in a message."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return {_url(part) for part in parts if part.get("type") != "text"}


def images_replaced(message: Message, by: str, urls: Collection[str]) -> Message:
    """Has the text `by` in place of the images with these URLs."""
    if not images_of(message).intersection(urls):
        return message
    shown = {"type": "text", "text": by}
    parts = [shown if part.get("type") != "text" and _url(part) in urls else part for part in message["content"]]
    return _changed(message, content=parts)


def _url(part: dict[str, Any]) -> str:
    return str((part.get("image_url") or {}).get("url"))


def nine_ids(message: Message) -> Message:
    return _renamed(message, lambda name: name if re.fullmatch(r"[a-zA-Z0-9]{9}", name) else _digest(name)[:9])


def short_ids(message: Message) -> Message:
    fits = r"[a-zA-Z0-9_-]{1,40}"
    return _renamed(message, lambda name: name if re.fullmatch(fits, name) else f"call_{_digest(name)[:24]}")


def _digest(identity: str) -> str:
    return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()


def _renamed(message: Message, rename: Callable[[str], str]) -> Message:
    if calls_of(message):
        calls = [{**call, "id": rename(str(call.get("id")))} for call in calls_of(message)]
        return message if calls == calls_of(message) else _changed(message, tool_calls=calls)
    if message.get("role") == "tool":
        return _changed(message, tool_call_id=rename(str(message.get("tool_call_id"))))
    return message


# -- what concerns the order and the set of messages


def call_as_text(message: Message) -> Message:
    if calls_of(message):
        lines = [f"{call['function']['name']}({call['function']['arguments']})" for call in calls_of(message)]
        return {"role": "assistant", "content": "\n".join([text_of(message), *lines]).strip()}
    if message.get("role") == "tool":
        return {"role": "user", "content": f"Result: {text_of(message)}"}
    return message


def one_by_one(messages: list[Message]) -> Iterable[Message]:
    """Calls of one message become as many messages, each with its result behind it."""
    results = {message.get("tool_call_id"): message for message in messages if message.get("role") == "tool"}
    split: set[Any] = set()
    for message in messages:
        if len(calls_of(message)) < 2:
            if message.get("role") != "tool" or message.get("tool_call_id") not in split:
                yield message
            continue
        split = {call.get("id") for call in calls_of(message)}
        for number, call in enumerate(calls_of(message)):
            yield {**message, "tool_calls": [call], "content": message.get("content") if number == 0 else None}
            if call.get("id") in results:
                yield results[call.get("id")]


def system_moved(messages: list[Message], *, keep: bool) -> list[Message]:
    """Later system messages, or all of them, become user messages."""
    return [
        {**message, "role": "user"} if message.get("role") == "system" and not (keep and at == 0) else message
        for at, message in enumerate(messages)
    ]


def bridged(messages: Iterable[Message]) -> Iterable[Message]:
    last = None
    for message in messages:
        if last == "tool" and message.get("role") == "user":
            yield {"role": "assistant", "content": BRIDGE}
        last = message.get("role")
        yield message


def joined(messages: list[Message]) -> list[Message]:
    """Neighbours of one role, other than results and calls, become one message; an assistant never comes first."""
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else None
        plain = last is not None and not calls_of(message) and not calls_of(last) and message.get("role") != "tool"
        if last is not None and plain and last.get("role") == message.get("role"):
            joined[-1] = {**last, "content": _added(last.get("content"), message.get("content"))}
        elif message.get("role") == "assistant" and (last is None or last.get("role") == "system"):
            joined += [{"role": "user", "content": CONTINUED}, message]
        else:
            joined.append(message)
    return joined


def _added(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def named(messages: list[Message]) -> list[Message]:
    names: dict[str, str] = {}
    named = []
    for message in messages:
        names |= {call.get("id") or "": call["function"]["name"] for call in calls_of(message)}
        name = names.get(message.get("tool_call_id") or "") if message.get("role") == "tool" else None
        named.append({**message, "name": name} if name else message)
    return named
