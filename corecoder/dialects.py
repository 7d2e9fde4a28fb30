"""How one request is shaped for one endpoint: quirks, each a name, a wording that teaches it, and a function.

A body leaves this program as the standard has it, changed by the quirks of its endpoint: those its preset names and
those it taught by refusing a request. `shaped` applies them to a copy; `remedy` finds the one that answers a
refusal, and only one that would change the request, so that a refusal can never be "fixed" by sending the same again.

The price: a quirk is looked for by wording, so a new wording costs a refusal until it is added here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from .messages import CONTINUED, Message, calls_of, text_of

Body = dict[str, Any]

NO_IMAGE = "[an image was here; this model does not take images]"
BRIDGE = "(understood)"
# Google, "Thought signatures": the value to give for calls that another model made.
FOREIGN_SIGNATURE = "skip_thought_signature_validator"
DEFAULT_LIMIT = 8192  # max_tokens for endpoints that insist on one

_STANDARD = ("role", "content", "tool_calls", "tool_call_id", "name")
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


def _changed(message: Message, **fields: Any) -> Message:
    return {**message, **fields}


def _plain(message: Message) -> Message:
    extra = [key for key in message if key not in _STANDARD]
    return {key: value for key, value in message.items() if key not in extra} if extra else message


def _plain_calls(message: Message) -> Message:
    def bare(call: dict[str, Any]) -> dict[str, Any]:
        function = {key: call["function"].get(key) for key in ("name", "arguments")}
        return {"id": call.get("id"), "type": "function", "function": function}

    return _changed(message, tool_calls=[bare(call) for call in calls_of(message)]) if calls_of(message) else message


def _with_reasoning(message: Message) -> Message:
    needs = message.get("role") == "assistant" and not message.get("reasoning_content")
    return _changed(message, reasoning_content=message.get("reasoning") or "") if needs else message


def _signed(message: Message) -> Message:
    def sign(call: dict[str, Any]) -> dict[str, Any]:
        extra = call.get("extra_content") or {}
        if (extra.get("google") or {}).get("thought_signature"):
            return call
        return {**call, "extra_content": {**extra, "google": {"thought_signature": FOREIGN_SIGNATURE}}}

    return _changed(message, tool_calls=[sign(call) for call in calls_of(message)]) if calls_of(message) else message


def _empty_content(message: Message) -> Message:
    return _changed(message, content="") if calls_of(message) and message.get("content") is None else message


def _absent_content(message: Message) -> Message:
    bare = calls_of(message) and not text_of(message)
    return {key: value for key, value in message.items() if key != "content"} if bare else message


def _text_content(message: Message) -> Message:
    if not isinstance(message.get("content"), list):
        return message
    parts = [part.get("text") if part.get("type") == "text" else NO_IMAGE for part in message["content"]]
    return _changed(message, content="\n".join(part for part in parts if part))


def _no_images(message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, list) or all(part.get("type") == "text" for part in content):
        return message
    shown = {"type": "text", "text": NO_IMAGE}
    return _changed(message, content=[part if part.get("type") == "text" else shown for part in content])


def _nine(identity: str) -> str:
    return identity if re.fullmatch(r"[a-zA-Z0-9]{9}", identity) else _digest(identity)[:9]


def _short(identity: str) -> str:
    return identity if re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", identity) else f"call_{_digest(identity)[:24]}"


def _digest(identity: str) -> str:
    return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()


def _renamed(message: Message, rename: Callable[[str], str]) -> Message:
    if calls_of(message):
        calls = [{**call, "id": rename(str(call.get("id")))} for call in calls_of(message)]
        return message if calls == calls_of(message) else _changed(message, tool_calls=calls)
    if message.get("role") == "tool":
        return _changed(message, tool_call_id=rename(str(message.get("tool_call_id"))))
    return message


QUIRKS = (
    Quirk(
        "reasoning required",  # DeepSeek, Kimi
        "the reasoning of earlier replies",
        r"reasoning_content.{0,80}(?:must be passed back|is missing)|missing .?reasoning_content",
        _with_reasoning,
        ("plain messages",),
    ),
    Quirk(
        "plain messages",  # OpenAI, Groq, Mistral
        "no reasoning of earlier replies",
        (
            r"reasoning(?:_content|_details)?\b.{0,80}(?:unsupported|not supported|extra|not permitted|unknown)"
            r"|(?:unknown|unrecognized|extra|unexpected|unsupported).{0,60}reasoning"
        ),
        _plain,
        ("reasoning required",),
    ),
    Quirk(
        "signature required",  # Gemini 3
        "a signature on every call",
        r"missing a .?thought_signature",
        _signed,
        ("plain calls",),
    ),
    Quirk(
        "plain calls",  # OpenAI, Groq, Mistral
        "no extra fields on earlier calls",
        r"extra_content|(?:unknown|unrecognized|extra).{0,60}tool_calls|tool_calls.{0,60}extra",
        _plain_calls,
        ("signature required",),
    ),
    Quirk(
        "empty content",  # llama-cpp-python
        "an empty text beside tool calls",
        r"content.{0,120}(?:required|valid string|none|null|undefined)|nonetype|input should be a valid",
        _empty_content,
        ("absent content",),
    ),
    Quirk(
        "absent content",  # Anthropic, Bedrock
        "no text at all beside tool calls",
        r"text content blocks must|must be non-empty|non-whitespace text",
        _absent_content,
        ("empty content",),
    ),
    Quirk(
        "no images",
        "text without images",
        (
            r"image_url|images? (?:is|are) not supported|not support(?:ed)? .{0,20}(?:image|vision|multimodal)"
            r"|no endpoints found that support image|image input"
        ),
        _no_images,
    ),
    Quirk("text content", "a text as content", _PARTS, _text_content),
    Quirk(
        "nine ids",  # Mistral
        "call ids of nine letters and digits",
        r"length of 9|tool call id .{0,40}must be a-z",
        lambda message: _renamed(message, _nine),
        ("short ids",),
    ),
    Quirk(
        "short ids",  # OpenAI, Anthropic
        "shorter call ids",
        r"(?:tool_calls?|tool_use|tool_result).{0,60}id.{0,80}(?:pattern|too long|maximum length|match)",
        lambda message: _renamed(message, _short),
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
        messages = [_call_as_text(message) for message in messages]
    if "single calls" in quirks:
        messages = list(_one_by_one(messages))
    if "no system" in quirks or "system first" in quirks:
        messages = _system_moved(messages, keep="no system" not in quirks)
    if "bridge results" in quirks:
        messages = list(_bridged(messages))
    if "one voice" in quirks or "no system" in quirks:
        messages = _joined(messages)
    if "named results" in quirks:
        messages = _named(messages)
    return {**_shaped_fields(fields, quirks), "messages": messages}


def _shaped_fields(fields: Body, quirks: Collection[str]) -> Body:
    limit = next((fields[name] for name in _LIMITS if name in fields), None)
    if limit is None and "needs max_tokens" in quirks:
        limit = DEFAULT_LIMIT
    kept = {key: value for key, value in fields.items() if f"drop {key}" not in quirks and key not in _LIMITS}
    name = next((name for name in _LIMITS if f"drop {name}" not in quirks), None)
    return kept if limit is None or name is None else {**kept, name: limit}


def _call_as_text(message: Message) -> Message:
    if calls_of(message):
        lines = [f"{call['function']['name']}({call['function']['arguments']})" for call in calls_of(message)]
        return {"role": "assistant", "content": "\n".join([text_of(message), *lines]).strip()}
    if message.get("role") == "tool":
        return {"role": "user", "content": f"Result: {text_of(message)}"}
    return message


def _one_by_one(messages: list[Message]) -> Iterable[Message]:
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


def _system_moved(messages: list[Message], *, keep: bool) -> list[Message]:
    """Later system messages, or all of them, become user messages."""
    return [
        {**message, "role": "user"} if message.get("role") == "system" and not (keep and at == 0) else message
        for at, message in enumerate(messages)
    ]


def _bridged(messages: Iterable[Message]) -> Iterable[Message]:
    last = None
    for message in messages:
        if last == "tool" and message.get("role") == "user":
            yield {"role": "assistant", "content": BRIDGE}
        last = message.get("role")
        yield message


def _joined(messages: list[Message]) -> list[Message]:
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


def _named(messages: list[Message]) -> list[Message]:
    names: dict[str, str] = {}
    named = []
    for message in messages:
        names |= {call.get("id") or "": call["function"]["name"] for call in calls_of(message)}
        name = names.get(message.get("tool_call_id") or "") if message.get("role") == "tool" else None
        named.append({**message, "name": name} if name else message)
    return named


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


def adopted(active: Collection[str], name: str) -> frozenset[str]:
    """The quirks once `name` is learnt: those it rules out are gone."""
    gone = next((quirk.instead_of for quirk in QUIRKS if quirk.name == name), ())
    return frozenset(active).difference(gone) | {name}


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
