"""A reply out of the bytes of a body, or one of our errors: where a stream is judged.

Whatever bytes come, `read` fills a builder or raises a ProviderError, and `judged` gives a reply that says something or
raises one. A reply that is whole survives whatever happens to its connection afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .errorbody import gather, is_error
from .errors import ContextOverflow, EmptyReply, ProviderError, StreamBroken
from .messages import Reply, text_of
from .refusals import classify
from .sse import DONE, KEEP_ALIVE, EventReader
from .stream import ReplyBuilder
from .wire import Silence

# How models write calls among themselves: Qwen and Hermes, Llama, Mistral, Kimi, GPT-OSS.
_CALL_AS_TEXT = re.compile(
    r"\s*(?:<tool_call>|<function=|<\|python_tag\|>|\[TOOL_CALLS\]|<\|tool_calls_section_begin|<\|channel\|>)"
)
FILTERED = "[the provider's content filter ended this reply]"


def read(pieces: Iterable[bytes], builder: ReplyBuilder, silence: Silence) -> None:
    """Reads a body into `builder`, telling `silence` how far the reply is."""
    reader = EventReader()
    try:
        for piece in pieces:
            for payload in reader.feed(piece):
                _take(payload, builder, silence)
        for payload in reader.close():
            _take(payload, builder, silence)
    except StreamBroken:
        if not builder.whole:
            raise


def _take(payload: dict[str, Any] | str, builder: ReplyBuilder, silence: Silence) -> None:
    if builder.done or payload == KEEP_ALIVE:
        return
    if payload == DONE:
        builder.done, builder.untouched = True, False
        silence.ended()
    elif isinstance(payload, str):
        raise (
            classify(None, payload)
            if gather(payload).html
            else StreamBroken(f"the reply cannot be read: {payload[:120]!r}")
        )
    elif is_error(payload):
        if not builder.whole:
            raise classify(None, payload)
    elif builder.add(payload):
        silence.progressed()
        if builder.finish_reason is not None:
            silence.finished()


def judged(builder: ReplyBuilder) -> Reply:
    """The reply if it is one. Raises StreamBroken if it is not whole, EmptyReply if it says nothing, ContextOverflow
    if it says nothing because the prompt left no room."""
    if builder.untouched:  # llama-cpp-python ends the body like this when the prompt is longer than its window
        hint = "If it does so with long prompts only, set CORECODER_MAX_CONTEXT to the server's context window."
        raise StreamBroken("the server answered with an empty body", hint=hint)
    if builder.failure:
        raise StreamBroken(f"the provider broke the reply off ({builder.failure})")
    if not builder.whole:
        raise StreamBroken("the connection closed in the middle of the reply")
    reply = builder.reply()
    if not reply.tool_calls and builder.names and _CALL_AS_TEXT.match(reply.content):
        raise EmptyReply(
            "the model wrote a tool call as text, which its server should have read",
            hint="Start the server with tool calls on (llama.cpp: --jinja; vLLM: --enable-auto-tool-choice and "
            "--tool-call-parser), or take another model.",
        )
    if reply.tool_calls or text_of(reply.message).strip():
        return reply
    if reply.finish_reason == "content_filter":
        return replace(reply, message={**reply.message, "content": FILTERED})
    raise _empty(reply)


def _empty(reply: Reply) -> ProviderError:
    """What a reply without text and calls means."""
    reason = (reply.finish_reason or "").lower()
    usage = reply.usage
    if reason == "model_context_window_exceeded" or (
        reason == "length" and usage and not usage.completion and not reply.reasoning
    ):
        return ContextOverflow("the prompt fills the whole context window", window=usage.prompt if usage else None)
    if reply.cut:
        return EmptyReply(
            "the model's output limit was reached before it answered",
            hint="Raise or remove CORECODER_MAX_TOKENS, or ask for less at once.",
        )
    if reply.reasoning:
        return EmptyReply("the model sent only reasoning and no answer")
    return EmptyReply("the model sent an empty reply")
