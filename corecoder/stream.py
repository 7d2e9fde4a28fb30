"""From payloads to one `Reply`: pure, no sockets, no clock.

Text and reasoning come in any of several fields, as plain text or typed parts; think tags count only before the first
visible text, so that a tag in code or prose stays text. Usage may come anywhere. A reply is whole once a finish reason
or [DONE] was seen; it is cut if the reason says so, or if a call broke off inside its arguments whatever the reason
says. The rules for tool calls are in `toolcalls.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from .events import Usage
from .messages import Message, Reply, ToolCall
from .toolcalls import CallCollector, Pieces, mended


class ThinkFilter:
    """Parts reasoning in inline tags from visible text, however the tags are split."""

    _OPENING = re.compile(r"<(think|thinking|thought)>")
    _TAGS = tuple(f"<{slash}{name}>" for slash in ("", "/") for name in ("think", "thinking", "thought"))

    def __init__(self, on_text: Callable[[str], None], on_reasoning: Callable[[str], None]) -> None:
        self._text, self._reasoning = on_text, on_reasoning
        self._held = ""
        self._closing = ""  # the tag that ends the reasoning we are in
        self._started = False  # visible text has begun
        self._trim = False  # blank space before it belongs to the tags

    def feed(self, text: str) -> None:
        """Passes on what is certain, holds what may be the start of a tag."""
        if self._started:
            self._text(text)
            return
        self._held += text
        while self._closing or not self._started:
            if not (self._inside() if self._closing else self._before()):
                return

    def close(self) -> None:
        """Passes on what was held."""
        if self._closing:
            self._reasoning(self._held)
        elif not self._held.isspace():
            self._show(self._held)
        self._held = ""

    def _before(self) -> bool:
        """Looks for a tag where no text has been; whether there is more to look at."""
        begin = self._held.lstrip()
        if not begin or (begin not in self._TAGS and any(tag.startswith(begin) for tag in self._TAGS)):
            return False
        opening = self._OPENING.match(begin)
        orphan = next((tag for tag in self._TAGS if tag.startswith("</") and begin.startswith(tag)), None)
        if opening:
            self._closing, self._held = f"</{opening[1]}>", begin[opening.end() :]
        elif orphan:
            self._held, self._trim = begin[len(orphan) :], True
        else:
            self._show(self._held)
            self._held = ""
        return not self._started

    def _inside(self) -> bool:
        thought, found, rest = self._held.partition(self._closing)
        if not found:
            certain = len(self._held) - _overlap(self._held, self._closing)
            thought, rest = self._held[:certain], self._held[certain:]
        if thought:
            self._reasoning(thought)
        self._held = rest
        if found:
            self._closing, self._trim = "", True
        return bool(found)

    def _show(self, text: str) -> None:
        self._started = True
        if text := text.lstrip() if self._trim else text:
            self._text(text)


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of `text` may be the start of `tag`."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)


class ReplyBuilder:
    """Puts chunks together. `names` are the tools the model may call; deltas are passed on as they become certain."""

    def __init__(
        self,
        names: Collection[str] = (),
        on_text: Callable[[str], None] | None = None,
        on_reasoning: Callable[[str], None] | None = None,
    ) -> None:
        self._on_text, self._on_reasoning = on_text, on_reasoning
        self._filter = ThinkFilter(self._show, self._think)
        self._texts, self._thoughts = Pieces(), Pieces()
        self._high = ""  # half of a surrogate pair whose other half is to come
        self._fields: dict[str, Pieces] = {}  # reasoning by the field it came in
        self._details: list[dict[str, Any]] = []
        self._calls = CallCollector(names)
        self.names = names
        self._usage: dict[str, Any] = {}
        self._choice: Any = None  # the index of the choice that is read; no second one was asked for
        self._carried = False  # a message that follows deltas repeats them
        self.finish_reason: str | None = None
        self.done = False
        self.untouched = True  # neither a chunk nor [DONE] has come

    @property
    def whole(self) -> bool:
        """Whether everything that was to come has come."""
        return not self.failure and (self.done or self.finish_reason is not None)

    @property
    def failure(self) -> str:
        """The finish reason if it says that the provider gave up, else ""."""
        return self.finish_reason or "" if _is(self.finish_reason, FAILURE_REASONS) else ""

    def add(self, chunk: dict[str, Any]) -> bool:
        """Takes one chunk; whether it carried anything of the reply."""
        self.untouched = False
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self._add_usage(usage)
        choices = chunk.get("choices")
        choices = [item for item in choices if isinstance(item, dict)] if isinstance(choices, list) else []
        if self._choice is None and choices:
            self._choice = choices[0].get("index", 0)
        choice = next((item for item in choices if item.get("index", 0) == self._choice), None)
        if choice is None:
            return False
        if isinstance(choice.get("usage"), dict):
            self._add_usage(choice["usage"])
        delta = choice.get("delta") or (None if self._carried else _numbered(choice.get("message")))
        carried = self._add_delta(delta) if isinstance(delta, dict) else False
        self._carried |= carried
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if not (_is(self.finish_reason, ENDED_EARLY) and not _is(reason, ENDED_EARLY)):
                self.finish_reason = reason  # a router's own last word does not undo what was said before
            return True
        return carried

    def reply(self) -> Reply:
        """The reply as far as it came."""
        self._filter.close()
        if self._high:
            self._pass_text("")
        message: Message = {"role": "assistant", "content": str(self._texts) or None}
        message |= {field: mended(str(parts)) for field, parts in self._fields.items()}
        if self._details:
            message["reasoning_details"] = self._details
        calls = self._calls.finished()
        filtered = _is(self.finish_reason, FILTER_REASONS)
        if calls:
            message["tool_calls"] = calls
        return Reply(
            message,
            reasoning=mended(str(self._thoughts)),
            finish_reason="content_filter" if filtered else self.finish_reason,
            usage=usage_of(self._usage),
            unknown_ending=self._unknown_ending(),
            cut=self._calls.open or _is(self.finish_reason, CUT_REASONS) or (filtered and bool(calls)),
            tool_calls=tuple(
                ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls
            ),
        )

    def _unknown_ending(self) -> str:
        return "" if _is(self.finish_reason, USUAL_REASONS | ENDED_EARLY) else self.finish_reason or ""

    @property
    def raw_usage(self) -> dict[str, Any]:
        """The usage object as the provider sent it."""
        return self._usage

    def _add_usage(self, usage: dict[str, Any]) -> None:
        self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _add_delta(self, delta: dict[str, Any]) -> bool:
        carried = False
        content = delta.get("content")
        if content:
            carried = True
            if isinstance(content, str):
                self._pass_text(content)
            else:
                self._add_parts(content)
        if refusal := delta.get("refusal"):
            carried = True
            self._pass_text(_words(refusal))
        carried |= self._add_reasoning(delta)
        calls = delta.get("tool_calls")
        if not calls and delta.get("function_call"):
            calls = {"function": delta["function_call"]}
        if calls:
            for call in [calls] if isinstance(calls, dict) else calls if isinstance(calls, list) else []:
                if isinstance(call, dict):
                    carried |= self._calls.add(call)
        return carried

    # -- text and reasoning

    def _add_parts(self, content: Any) -> None:
        for part in content if isinstance(content, list) else [content]:
            kind = part.get("type") if isinstance(part, dict) else "text"
            if kind in ("thinking", "reasoning"):
                self._think(_words(part.get("thinking") or part.get("reasoning") or part.get("text")))
            else:
                self._pass_text(_words(part))

    def _add_reasoning(self, delta: dict[str, Any]) -> bool:
        details = delta.get("reasoning_details")
        if isinstance(details, list):
            self._add_details([item for item in details if isinstance(item, dict)])
        for field in REASONING_FIELDS:
            if text := _words(delta.get(field)):
                self._fields.setdefault(field, Pieces()).append(text)
                self._think(text)
                return True
        if isinstance(details, list):
            self._think(_words(details))
        return bool(details)

    def _add_details(self, items: list[dict[str, Any]]) -> None:
        for item in items:
            last = self._details[-1] if self._details else {}
            same = last and all(last.get(key) == item.get(key) for key in ("type", "index"))
            same = same and item.get("id") in (None, last.get("id"))
            if not same:
                self._details.append(dict(item))
                continue
            for key, value in item.items():
                grows = key in ("text", "summary", "data") and isinstance(value, str) and isinstance(last.get(key), str)
                if value is not None:
                    last[key] = last[key] + value if grows else value

    def _pass_text(self, text: str) -> None:
        text = self._high + text
        self._high = text[-1] if text and "\ud800" <= text[-1] <= "\udbff" and len(text) > len(self._high) else ""
        text = mended(text[:-1] if self._high else text)
        if text:
            self._filter.feed(text)

    def _show(self, text: str) -> None:
        self._texts.append(text)
        if self._on_text:
            self._on_text(text)

    def _think(self, text: str) -> None:
        if not text:
            return
        self._thoughts.append(text)
        if self._on_reasoning:
            self._on_reasoning(mended(text))


# Finish reasons, whole or as a word of one ("function_call_filter: MALFORMED_FUNCTION_CALL").
# The provider gave up: its fault in general, DeepSeek, GLM, vLLM, Gemini.
FAILURE_REASONS = frozenset(
    "error insufficient_system_resource network_error abort cancelled malformed_function_call "
    "unexpected_tool_call".split()
)
# A filter ended the reply: OpenAI, GLM, Anthropic, Gemini.
FILTER_REASONS = frozenset(
    "content_filter sensitive refusal safety recitation prohibited_content blocklist spii image_safety".split()
)
# What else providers call the output limit (Anthropic, Mistral, Gemini, GLM).
CUT_REASONS = frozenset("length max_tokens max_output_tokens model_length model_context_window_exceeded".split())
# It said all it had to say, or wants its calls run.
USUAL_REASONS = frozenset(
    "stop tool_calls function_call tool_use end_turn stop_sequence eos eos_token complete done".split()
)
ENDED_EARLY = FAILURE_REASONS | FILTER_REASONS | CUT_REASONS
# DeepSeek, Kimi, Qwen, GLM and llama.cpp; OpenRouter, vLLM and Groq; Copilot; Ollama.
REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")


def _is(reason: str | None, kinds: frozenset[str]) -> bool:
    return not kinds.isdisjoint(re.findall(r"[a-z_]+", (reason or "").lower()))


def _numbered(message: Any) -> Any:
    """A whole message, whose calls are told apart by their places in the list."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return message
    numbered = [{"index": at, **call} if isinstance(call, dict) else call for at, call in enumerate(calls)]
    return {**message, "tool_calls": numbered}


def usage_of(usage: dict[str, Any]) -> Usage | None:
    """The figures of a usage object in any of its dialects, None if it has none."""
    prompt = _count(usage, "prompt_tokens", "input_tokens")
    completion = _count(usage, "completion_tokens", "output_tokens")
    if not prompt and not completion:
        return None
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens") or _count(
        usage, "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"
    )
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens") or _count(usage, "reasoning_tokens")
    return Usage(prompt, completion, min(cached, prompt), reasoning)


def _count(usage: Any, *names: str) -> int:
    for name in names:
        value = usage.get(name) if isinstance(usage, dict) else None
        if isinstance(value, (int, float)) and 0 < value < 1e12:
            return int(value)
    return 0


def _words(value: Any) -> str:
    """The text in a part, a list of parts or a plain text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_words(item) for item in value[:1000])
    if isinstance(value, dict):
        return next((value[key] for key in ("text", "content", "summary") if isinstance(value.get(key), str)), "")
    return ""
