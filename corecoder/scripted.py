"""A model that plays a script: the demo's, and anybody's who tests what they build on CoreCoder.

    llm = ScriptedLLM([[call("bash", command="ls")], "There are two files."])
    Agent(llm).chat("what is here?")

Each request takes the next reply of the script: a text, a call or a list of texts and calls, a `Reply`, an exception to
raise, or a function of (messages, tools) that gives one of these. It has the surface of `LLM` and nothing of a network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .errors import ProviderError
from .events import Usage
from .jobs import CancelToken
from .messages import Message, Reply, ToolCall
from .models import ModelInfo
from .tokens import estimate_tokens, schema_tokens
from .values import dataclass

DELTA = 24  # characters of text passed on at once


@dataclass(frozen=True)
class ScriptedCall:
    """One tool call of a script; `raw` is its argument text."""

    name: str
    raw: str


def call(name: str, /, **arguments: Any) -> ScriptedCall:
    """A call in a script: `call("read_file", file_path="a.py")`."""
    return ScriptedCall(name, json.dumps(arguments, ensure_ascii=False))


class ScriptedLLM:
    """Answers from `replies`, in order; asked for more, it raises a ProviderError.

    `delay` seconds pass before each piece of text, as a person would see it from a real model. `requests` holds the
    messages of every request so far, `total` the tokens they would have taken, by the usual estimate.
    """

    def __init__(
        self,
        replies: Iterable[Any],
        *,
        model: str = "scripted",
        delay: float = 0.0,
        info: ModelInfo | None = None,
    ) -> None:
        self.model = model
        self.base_url: str | None = None
        self.info = info or ModelInfo(window=128_000)
        self.total = Usage()
        self.requests: list[list[Message]] = []
        self._replies = list(replies)
        self._delay = delay

    def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None = None,
        on_token: Callable[[str], None] | None = None,
        on_reasoning: Callable[[str], None] | None = None,
        *,
        on_retry: Callable[[str, float, int], None] | None = None,
        token: CancelToken | None = None,
        max_tokens: int | None = None,
        tool_choice: str | None = None,
    ) -> Reply:
        """The next reply of the script, its text passed on in small pieces."""
        del on_retry, max_tokens, tool_choice
        token = token or CancelToken()
        token.check()
        self.requests.append(list(messages))
        if not self._replies:
            raise ProviderError("the script has no reply left")
        reply = self._resolved(self._replies.pop(0), messages, tools)
        for text, say in ((reply.reasoning, on_reasoning), (reply.content, on_token)):
            for at in range(0, len(text), DELTA):
                if self._delay:
                    token.sleep(self._delay)
                token.check()
                if say:
                    say(text[at : at + DELTA])
        if reply.usage is None:
            prompt = estimate_tokens(messages) + schema_tokens(tools or ())
            usage = Usage(prompt, estimate_tokens([reply.message]))
            reply = Reply(reply.message, reply.reasoning, reply.finish_reason, usage, reply.cut, reply.tool_calls)
        self.total += reply.usage or Usage()
        return reply

    def warm_up(self) -> None:
        """Nothing to load."""

    def look_up(self, token: CancelToken | None = None, *, forget_window: bool = False) -> ModelInfo:
        """What is known of the model."""
        del token, forget_window
        return self.info

    def close(self) -> None:
        """Nothing to close."""

    def _resolved(self, step: Any, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None) -> Reply:
        while callable(step) and not isinstance(step, type):
            step = step(messages, tools)
        if isinstance(step, BaseException) or (isinstance(step, type) and issubclass(step, BaseException)):
            raise step
        return step if isinstance(step, Reply) else self._composed(step if isinstance(step, (list, tuple)) else [step])

    def _composed(self, parts: Sequence[Any]) -> Reply:
        text = "\n".join(part for part in parts if isinstance(part, str))
        calls = tuple(
            ToolCall(f"call_{len(self.requests)}_{number}", made.name, made.raw)
            for number, made in enumerate(part for part in parts if isinstance(part, ScriptedCall))
        )
        message: Message = {"role": "assistant", "content": text or None}
        if calls:
            message["tool_calls"] = [
                {"id": made.id, "type": "function", "function": {"name": made.name, "arguments": made.raw}}
                for made in calls
            ]
        return Reply(message, finish_reason="tool_calls" if calls else "stop", tool_calls=calls)
