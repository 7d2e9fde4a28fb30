"""How one request is shaped for one endpoint: quirks, each a name, a wording that teaches it, and a function.

A body leaves this program as the standard has it, changed by the quirks of its endpoint: those its preset names and
those it taught by refusing a request. `shaped` applies them to a copy; `remedy` finds the one that answers a
refusal, and only one that would change the request, so that a refusal can never be "fixed" by sending the same again.

The price: a quirk is looked for by wording, so a new wording costs a refusal until it is added here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from . import shapes
from .messages import Message
from .values import dataclass

Body = dict[str, Any]

DEFAULT_LIMIT = 8192  # max_tokens for endpoints that insist on one

_LIMITS = ("max_tokens", "max_completion_tokens")
_OPTIONAL = ("stream_options", "temperature", "parallel_tool_calls", "tool_choice", *_LIMITS)
_PARTS = r"content.{0,60}(?:must be|expected|should be)[^.]{0,20} string|invalid type: sequence, expected a string"


@dataclass(frozen=True)
class Quirk:
    """`says` is the wording that teaches it, `about` completes "the endpoint wants …", `instead_of` are the quirks
    that it rules out."""

    name: str
    about: str
    says: str
    apply: Callable[[Message], Message] | None = None
    instead_of: tuple[str, ...] = ()


QUIRKS = (
    Quirk(
        "reasoning required",  # DeepSeek, Kimi
        "the reasoning of earlier replies",
        r"reasoning_content.{0,80}(?:must be passed back|is missing)|missing .?reasoning_content",
        shapes.with_reasoning,
        ("plain messages",),
    ),
    Quirk(
        "plain messages",  # OpenAI, Groq, Mistral
        "no reasoning of earlier replies",
        (
            r"reasoning(?:_content|_details)?\b.{0,80}(?:unsupported|not supported|extra|not permitted|unknown)"
            r"|(?:unknown|unrecognized|extra|unexpected|unsupported).{0,60}reasoning"
        ),
        shapes.plain,
        ("reasoning required",),
    ),
    Quirk(
        "signature required",  # Gemini 3
        "a signature on every call",
        r"missing a .?thought_signature",
        shapes.signed,
        ("plain calls",),
    ),
    Quirk(
        "plain calls",  # OpenAI, Groq, Mistral
        "no extra fields on earlier calls",
        r"extra_content|(?:unknown|unrecognized|extra).{0,60}tool_calls|tool_calls.{0,60}extra",
        shapes.plain_calls,
        ("signature required",),
    ),
    Quirk(
        "empty content",  # llama-cpp-python
        "an empty text beside tool calls",
        r"content.{0,120}(?:required|valid string|none|null|undefined)|nonetype|input should be a valid",
        shapes.empty_content,
        ("absent content",),
    ),
    Quirk(
        "absent content",  # Anthropic, Bedrock
        "no text at all beside tool calls",
        r"text content blocks must|must be non-empty|non-whitespace text",
        shapes.absent_content,
        ("empty content",),
    ),
    Quirk(
        "no images",
        "text without images",
        (
            r"image_url.{0,30}(?:only supported|not supported|unsupported)|(?:unknown|expected|invalid).{0,20}image_url"
            r"|(?:images?|vision|multimodal).{0,20}(?:is|are) not (?:supported|enabled)"
            r"|not support(?:ed)? .{0,20}(?:image|vision|multimodal)|no endpoints found that support image|image input"
        ),
        shapes.no_images,
    ),
    Quirk("text content", "a text as content", _PARTS, shapes.text_content),
    Quirk(
        "nine ids",  # Mistral
        "call ids of nine letters and digits",
        r"length of 9|tool call id .{0,40}must be a-z",
        shapes.nine_ids,
        ("short ids",),
    ),
    Quirk(
        "short ids",  # OpenAI, Anthropic
        "shorter call ids",
        r"(?:tool_calls?|tool_use|tool_result).{0,60}id.{0,80}(?:pattern|too long|maximum length|match)",
        shapes.short_ids,
    ),
)

# What is learnt about the order and the set of messages rather than about one of them.
ORDERS: dict[str, tuple[str, str]] = {
    "bridge results": (  # Mistral's templates
        "an assistant message between a result and the next prompt",
        r"unexpected role 'user' after role 'tool'",
    ),
    "one voice": (  # Gemma's and older templates
        "user and assistant in turn",
        r"roles must alternate|must alternate|alternate user/assistant|consecutive|2 or more assistant",
    ),
    "system first": (
        "only one system message, the first",
        r"system message must be|system messages? .{0,40}(?:beginning|first)|incorrect role information",
    ),
    "no system": ("no system message", r"system role (?:is )?not supported|role.{0,10}system.{0,30}not"),
    "single calls": ("one call in a message", r"only supports single tool-calls"),  # templates on NIM
    "named results": (
        "a name on every result",
        r"function_response\.name|tool.{0,20}name.{0,30}(?:required|empty)",
    ),
    "calls as text": (
        "no earlier calls in a request without tools",
        r"must define tools|without .{0,3}tools.{0,3}=? ?param|tools.{0,3} (?:is|are) (?:required|missing)",
    ),
    "needs max_tokens": (
        "max_tokens in every request",
        r"max_tokens.{0,40}(?:field required|is required|missing)|missing.{0,20}max_tokens",
    ),
}


def shaped(body: Body, quirks: Collection[str]) -> Body:
    """`body` as this endpoint wants it; a copy where anything changes."""
    if not quirks:
        return body
    messages = list(body["messages"])
    for quirk in QUIRKS:
        if quirk.name in quirks and quirk.apply:
            messages = [quirk.apply(message) for message in messages]
    fields = {key: value for key, value in body.items() if key != "messages"}
    if "calls as text" in quirks and "tools" not in body:
        messages = [shapes.call_as_text(message) for message in messages]
    if "single calls" in quirks:
        messages = list(shapes.one_by_one(messages))
    if "no system" in quirks or "system first" in quirks:
        messages = shapes.system_moved(messages, keep="no system" not in quirks)
    if "bridge results" in quirks:
        messages = list(shapes.bridged(messages))
    if "one voice" in quirks or "no system" in quirks:
        messages = shapes.joined(messages)
    if "named results" in quirks:
        messages = shapes.named(messages)
    return {**_shaped_fields(fields, quirks), "messages": messages}


def _shaped_fields(fields: Body, quirks: Collection[str]) -> Body:
    limit = next((fields[name] for name in _LIMITS if name in fields), None)
    if limit is None and "needs max_tokens" in quirks:
        limit = DEFAULT_LIMIT
    kept = {key: value for key, value in fields.items() if f"drop {key}" not in quirks and key not in _LIMITS}
    name = next((name for name in _LIMITS if f"drop {name}" not in quirks), None)
    return kept if limit is None or name is None else {**kept, name: limit}


def remedy(words: str, param: str, body: Body, active: Collection[str], tried: Collection[str]) -> str | None:
    """The quirk that answers a refusal of `body`, None if there is none that would change what is sent.

    `words` are the refusal's, in lower case; `param` the field it names; `tried` what already failed to help.
    """
    if param in _OPTIONAL and param in shaped(body, active) and f"drop {param}" not in tried:
        needed = re.search(ORDERS["needs max_tokens"][1], words)
        return None if needed else f"drop {param}"
    candidates = [(quirk.name, quirk.says) for quirk in QUIRKS]
    candidates += [(name, says) for name, (_, says) in ORDERS.items()]
    now = shaped(body, active)
    for name, says in candidates:
        if name in active or name in tried or not re.search(says, words):
            continue
        if shaped(body, adopted(active, name)) != now:
            return name
    return None


def bare(body: Body, active: Collection[str]) -> frozenset[str]:
    """What to try where a refusal is not understood: the quirks that leave out all that other providers' replies
    brought into the conversation; none if that would change nothing."""
    quirks = adopted(active, "plain messages", "plain calls")
    return quirks - frozenset(active) if shaped(body, quirks) != shaped(body, active) else frozenset()


def adopted(active: Collection[str], *names: str) -> frozenset[str]:
    """The quirks once `names` are learnt, one after the other: those that each rules out are gone."""
    quirks = frozenset(active)
    for name in names:
        gone = next((quirk.instead_of for quirk in QUIRKS if quirk.name == name), ())
        quirks = quirks.difference(gone) | {name}
    return quirks


def described(name: str) -> str:
    """What learning this quirk means, for a person."""
    if name.startswith("drop "):
        return f"the endpoint refuses {name[5:]}; sending without it"
    about = next((quirk.about for quirk in QUIRKS if quirk.name == name), "") or ORDERS[name][0]
    return f"the endpoint wants {about}; sending it that way"


def known(name: object) -> bool:
    """Whether `name`, read from a file, is a quirk of this version."""
    if not isinstance(name, str):
        return False
    return name in ORDERS or name in {f"drop {field}" for field in _OPTIONAL} or name in {q.name for q in QUIRKS}
